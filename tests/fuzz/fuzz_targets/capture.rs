//! Any file: its entries or an error, the same whatever the chunks it is read in.
#![no_main]

use enginetap_core::capture::file::{MAGIC, Reader, VERSION};
use enginetap_core::capture::record::Record;
use libfuzzer_sys::fuzz_target;

fn read(file: &[u8], chunk: usize) -> (usize, bool) {
    let mut reader = Reader::default();
    let mut entries = 0;
    for chunk in file.chunks(chunk) {
        reader.push(chunk);
        loop {
            match reader.next() {
                Ok(Some(entry)) => {
                    if let enginetap_core::capture::file::Entry::Record(bytes) = entry {
                        let _ = Record::parse(bytes);
                    }
                    entries += 1;
                }
                Ok(None) => break,
                Err(_) => return (entries, false),
            }
        }
    }
    (entries, reader.finish().is_ok())
}

fuzz_target!(|entries: &[u8]| {
    let file = [&MAGIC[..], &VERSION.to_le_bytes(), entries].concat();
    assert_eq!(read(&file, 7), read(&file, usize::MAX));
    let _ = read(entries, usize::MAX);
});
