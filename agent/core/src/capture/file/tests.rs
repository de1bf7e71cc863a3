use super::*;
use crate::time::{Clock, MonoTime, WallTime};

fn clock(mono: u64) -> Fact {
    Fact::Clock(Clock { mono: MonoTime(mono), wall: WallTime(mono + 1) })
}

fn sample() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.fact(&clock(1), &mut bytes).unwrap();
    writer.record(&[7; 100], &mut bytes).unwrap();
    writer.record(&[], &mut bytes).unwrap();
    let summary = writer.end(3, &mut bytes);
    assert_eq!(summary, Summary { records: 2, facts: 1, lost: 3 });
    bytes
}

/// Everything a reader gives for these bytes in chunks of `size`, as text, and how it ended.
fn read(bytes: &[u8], size: usize) -> (Vec<String>, Result<(), FileError>) {
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    for chunk in bytes.chunks(size) {
        reader.push(chunk);
        loop {
            match reader.next() {
                Ok(Some(entry)) => seen.push(format!("{entry:?}")),
                Ok(None) => break,
                Err(error) => return (seen, Err(error)),
            }
        }
    }
    let end = reader.finish();
    (seen, end)
}

#[test]
fn what_was_written_is_read_whatever_the_chunks() {
    let bytes = sample();
    let (whole, end) = read(&bytes, bytes.len());
    end.unwrap();
    assert_eq!(whole.len(), 4);
    assert!(whole[0].contains("Clock"), "{whole:?}");
    assert!(whole[3].contains("lost: 3"), "{whole:?}");
    for size in [1, 2, 3, 5, 64] {
        let (seen, end) = read(&bytes, size);
        end.unwrap();
        assert_eq!(seen, whole, "chunks of {size}");
    }
}

#[test]
fn a_file_cut_anywhere_gives_its_prefix_and_says_where_it_ends() {
    let bytes = sample();
    let (whole, _) = read(&bytes, bytes.len());
    for cut in HEADER_LEN..bytes.len() {
        let (seen, end) = read(&bytes[..cut], 13);
        assert!(whole.starts_with(&seen), "cut at {cut}");
        assert!(matches!(end, Err(FileError::Truncated { offset }) if offset == len64(cut)), "cut at {cut}");
    }
}

#[test]
fn another_kind_of_file_is_told_apart() {
    assert!(matches!(read(b"\x1f\x8b\x08\x00", 4).1, Err(FileError::NotACapture)));
    assert!(matches!(read(b"ENGT", 4).1, Err(FileError::NotACapture)));
    assert!(matches!(read(b"", 4).1, Err(FileError::NotACapture)));
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = sample();
    bytes[MAGIC.len()] = 9;
    assert!(matches!(read(&bytes, 4).1, Err(FileError::Newer { found: 9 })));
}

#[test]
fn damage_is_named_with_its_place() {
    let mut bytes = sample();
    bytes[HEADER_LEN] = 77;
    assert!(matches!(read(&bytes, 64).1, Err(FileError::Damaged { offset: 12, kind: 77, .. })));
    let mut bytes = sample();
    bytes[HEADER_LEN + ENTRY_HEAD] = b'!';
    assert!(matches!(read(&bytes, 64).1, Err(FileError::BadFact { offset: 12, .. })));
}

#[test]
fn an_entry_over_the_limit_is_not_written() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let before = bytes.len();
    assert!(matches!(writer.record(&vec![0; ENTRY_LIMIT + 1], &mut bytes), Err(FileError::TooLong { .. })));
    assert_eq!(bytes.len(), before);
}

proptest::proptest! {
    #[test]
    fn hostile_bytes_never_panic(tail in proptest::collection::vec(proptest::num::u8::ANY, 0..200), size in 1_usize..40) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&tail);
        let _ = read(&bytes, size);
        let _ = read(&tail, size);
    }
}
