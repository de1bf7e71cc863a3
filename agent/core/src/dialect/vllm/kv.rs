//! `kv_transfer_params`: a map that the client, the request and the engine's answer pass on.

use crate::dialect::signal::KvTransfer;
use crate::wire::msgpack::{Error, Reader};

/// Reads the map that comes next into `found`; anything but a map leaves that as it is.
pub(super) fn read(reader: &mut Reader<'_>, found: &mut Option<KvTransfer>) -> Result<(), Error> {
    let Some(len) = reader.map_or_skip()? else { return Ok(()) };
    let kv = found.insert(KvTransfer::default());
    reader.pairs(len, |key, value| {
        let value = value.scalar()?;
        match key {
            b"do_remote_decode" => kv.do_remote_decode = value.bool().unwrap_or(false),
            b"do_remote_prefill" => kv.do_remote_prefill = value.bool().unwrap_or(false),
            b"remote_engine_id" => kv.remote_engine_id = value.string(),
            b"remote_request_id" => kv.remote_request_id = value.string(),
            _ => {}
        }
        Ok(())
    })
}
