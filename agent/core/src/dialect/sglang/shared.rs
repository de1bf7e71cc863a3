//! The load snapshot that schedulers publish in shared memory (0.5.13 on).
//!
//! `/dev/shm/sglang_loads_*.shm`: a header `<4sHHI` (`SLNS`, version, ranks, bytes a slot), then a slot a
//! data-parallel rank: a length of 4 bytes (0 while it is written), and a map of msgpack with names, from which what
//! is 0 is left out. Mirrors `sglang/srt/managers/load_snapshot.py` of 0.5.13 to 0.5.23 (version 2).

use crate::dialect::signal::sglang::{LoadSource, SglangLoad};
use crate::wire::msgpack::{Error, Reader};

/// The header's length in bytes.
pub const HEADER: usize = 12;

/// Most ranks that are read.
const RANKS: usize = 1024;

/// Why a state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// It does not begin with `SLNS`.
    #[error("no load snapshot of SGLang: it does not begin with SLNS")]
    NotOne,
    /// A version that nobody knows.
    #[error("a load snapshot of SGLang of version {0}, which is not known: versions 1 and 2 are read")]
    Version(u16),
}

/// The states in the bytes: one for each slot that is written, in the order of the ranks. A slot that was being
/// written, or is cut, gives none.
///
/// # Errors
/// [`SharedError`] when the bytes are something else.
pub fn read(bytes: &[u8]) -> Result<Vec<SglangLoad>, SharedError> {
    let (header, slots) = bytes.split_first_chunk::<HEADER>().ok_or(SharedError::NotOne)?;
    let [b'S', b'L', b'N', b'S', v0, v1, r0, r1, s0, s1, s2, s3] = *header else {
        return Err(SharedError::NotOne);
    };
    let version = u16::from_le_bytes([v0, v1]);
    if !(1..=2).contains(&version) {
        return Err(SharedError::Version(version));
    }
    let ranks = usize::from(u16::from_le_bytes([r0, r1])).min(RANKS);
    let size = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
    let slots = slots.chunks(size.max(1)).take(ranks);
    Ok(slots.filter_map(slot).collect())
}

fn slot(slot: &[u8]) -> Option<SglangLoad> {
    let (len, rest) = slot.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let state = rest.get(..len).filter(|state| !state.is_empty())?;
    // A torn one does not come to its end.
    let mut reader = Reader::new(state);
    let load = load(&mut reader).ok()?;
    reader.is_empty().then_some(load)
}

fn load(reader: &mut Reader<'_>) -> Result<SglangLoad, Error> {
    // What is left out is 0.
    let mut load = SglangLoad {
        dp_rank: Some(0),
        running: Some(0),
        queued: Some(0),
        used_tokens: Some(0),
        token_usage: Some(0.0),
        ..SglangLoad::of(LoadSource::SharedMemory)
    };
    let len = reader.map()?;
    reader.pairs(len, |key, value| {
        match key {
            b"dp_rank" => load.dp_rank = value.scalar()?.u32(),
            b"num_running_reqs" => load.running = value.scalar()?.u64(),
            b"num_waiting_reqs" => load.queued = value.scalar()?.u64(),
            b"num_used_tokens" => load.used_tokens = value.scalar()?.u64(),
            b"max_total_num_tokens" => load.max_tokens = value.scalar()?.u64(),
            b"token_usage" => load.token_usage = value.scalar()?.f64(),
            // These two stay 0 without `--enable-metrics`: then they are left out, and not known.
            b"gen_throughput" => load.gen_throughput = value.scalar()?.f64(),
            b"cache_hit_rate" => load.cache_hit_rate = value.scalar()?.f64(),
            b"speculative" => speculative(value, &mut load)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(load)
}

/// `[accept_length, accept_rate]`, or none.
fn speculative(reader: &mut Reader<'_>, load: &mut SglangLoad) -> Result<(), Error> {
    let len = reader.array_or_skip()?.unwrap_or_default();
    for at in 0..len {
        let number = reader.scalar()?.f64();
        match at {
            0 => load.accept_length = number,
            1 => load.accept_rate = number,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one slot of 64 bytes.
    fn file(state: &[u8]) -> Vec<u8> {
        let len = u32::try_from(state.len()).unwrap();
        let mut file = b"SLNS\x02\x00\x01\x00\x40\x00\x00\x00".to_vec();
        file.extend(len.to_le_bytes());
        file.extend(state);
        file.resize(HEADER + 64, 0);
        file
    }

    const STATE: &[u8] = b"\x83\xb0num_running_reqs\x03\xabtoken_usage\xcb\x3f\xd0\0\0\0\0\0\0\xa1x\xc0";

    #[test]
    fn a_state_is_read_by_its_names() {
        let loads = read(&file(STATE)).unwrap();
        let load = &loads[0];
        assert_eq!((load.source, load.running, load.queued), (LoadSource::SharedMemory, Some(3), Some(0)));
        assert_eq!((load.token_usage, load.gen_throughput), (Some(0.25), None));
    }

    #[test]
    fn every_rank_has_a_slot() {
        let mut bytes = file(STATE);
        bytes[6] = 2;
        bytes.extend(&file(b"\x82\xa7dp_rank\x01\xb0num_waiting_reqs\x05")[HEADER..]);
        let ranks: Vec<_> =
            read(&bytes).unwrap().into_iter().map(|load| (load.dp_rank, load.queued)).collect();
        assert_eq!(ranks, [(Some(0), Some(0)), (Some(1), Some(5))]);
    }

    #[test]
    fn speculation_has_its_figures() {
        let state = b"\x81\xabspeculative\x92\xcb\x40\x04\0\0\0\0\0\0\xcb\x3f\xe0\0\0\0\0\0\0";
        let load = &read(&file(state)).unwrap()[0];
        assert_eq!((load.accept_length, load.accept_rate), (Some(2.5), Some(0.5)));
    }

    #[test]
    fn a_slot_that_is_being_written_gives_nothing() {
        assert_eq!(read(&file(b"")).unwrap(), []);
        // A length that the slot does not have, a map that does not end where the length says.
        let mut long = file(STATE);
        long[HEADER] = 0xff;
        assert_eq!(read(&long).unwrap(), []);
        let mut torn = file(STATE);
        torn[HEADER] -= 1;
        assert_eq!(read(&torn).unwrap(), []);
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(read(b"SLN"), Err(SharedError::NotOne));
        assert_eq!(read(&[0; 64]), Err(SharedError::NotOne));
        let mut newer = file(STATE);
        newer[4] = 9;
        assert_eq!(read(&newer), Err(SharedError::Version(9)));
    }

    #[test]
    fn any_cut_of_a_file_is_no_reason_to_panic() {
        let whole = file(STATE);
        for cut in 0..whole.len() {
            let _ = read(&whole[..cut]);
        }
    }
}
