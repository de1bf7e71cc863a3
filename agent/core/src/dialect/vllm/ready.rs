//! What an engine says when it comes up.

use crate::dialect::signal::EngineReady;
use crate::wire::msgpack::Reader;

/// Reads an `EngineCoreReadyResponse`, or the parts of one that earlier versions send; `None` for other maps
/// (the handshake's HELLO and addresses).
pub(super) fn read(body: &[u8]) -> Option<EngineReady> {
    let mut ready = EngineReady::default();
    let mut reader = Reader::new(body);
    let len = reader.map_or_skip().ok()??;
    let end = reader.pairs(len, |key, value| {
        let value = value.scalar()?;
        match key {
            b"max_model_len" => ready.max_model_len = value.u64(),
            b"num_gpu_blocks" => ready.gpu_blocks = value.u64(),
            b"block_size" => ready.block_size = value.u64(),
            b"vllm_version" => ready.version = value.string(),
            _ => {}
        }
        Ok(())
    });
    // What a cut one gave before its end is good.
    let _ = end;
    (ready.max_model_len.is_some() || ready.gpu_blocks.is_some()).then_some(ready)
}
