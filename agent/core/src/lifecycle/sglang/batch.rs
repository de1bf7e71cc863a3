//! A batch's id: SGLang makes one up at random for its own traces; ours is the same for each request of a batch.

use crate::dialect::signal::sglang::BatchState;
use crate::time::MonoTime;

/// The id of a batch: a hash (FNV-1a) of who is in it and of which forward it was.
pub(super) fn id(members: &[String], batch: &BatchState, mark: MonoTime) -> u32 {
    let mut members: Vec<&str> = members.iter().map(String::as_str).collect();
    members.sort_unstable();
    let forward = batch.forward_count.unwrap_or(mark.0).to_le_bytes();
    let bytes = members.iter().flat_map(|rid| rid.bytes().chain([0])).chain(forward);
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::signal::sglang::ForwardMode;

    #[test]
    fn a_batch_has_one_id_in_whatever_order_its_requests_are_told() {
        let batch = |forward| BatchState { mode: ForwardMode::Decode, size: 2, forward_count: Some(forward) };
        let id = |members: [&str; 2], forward| id(&members.map(str::to_owned), &batch(forward), MonoTime(1));
        assert_eq!(id(["a", "b"], 7), id(["b", "a"], 7));
        assert_ne!(id(["a", "b"], 7), id(["a", "b"], 8));
        assert_ne!(id(["a", "b"], 7), id(["a", "c"], 7));
    }
}
