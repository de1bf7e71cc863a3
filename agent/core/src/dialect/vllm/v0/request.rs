//! `RPCProcessRequest`: a request as the API server hands it to the V0 engine.

use super::sampling::{self, Orders};
use crate::dialect::signal::EngineRequest;
use crate::dialect::vllm::Options;
use crate::wire::pickle::{Instance, Pickle, Value};

/// Reads a request; `None` where it has no id.
pub(super) fn read(
    pickle: &Pickle<'_>,
    instance: Instance<'_>,
    orders: &Orders,
    options: Options,
    cut: bool,
) -> Option<EngineRequest> {
    let mut request = EngineRequest { cut, ..EngineRequest::default() };
    for (key, value) in instance.fields {
        match pickle.text(key).as_deref() {
            Some(b"request_id") => request.id = pickle.string(value).unwrap_or_default(),
            // Called `inputs` up to 0.6.3.
            Some(b"prompt" | b"inputs") => prompt(pickle, value, options, &mut request),
            Some(b"params") => parameters(pickle, value, orders, &mut request),
            Some(b"trace_headers") => trace_headers(pickle, value, &mut request),
            Some(_) | None => {}
        }
    }
    (!request.id.is_empty()).then_some(request)
}

/// A prompt is a text, or a dict with its tokens.
fn prompt(pickle: &Pickle<'_>, value: Value, options: Options, request: &mut EngineRequest) {
    for (key, value) in pickle.pairs(value).into_iter().flatten() {
        if pickle.text(key).as_deref() != Some(b"prompt_token_ids") {
            continue;
        }
        let Some(ids) = pickle.integers(value) else { continue };
        request.prompt_tokens = u32::try_from(ids.len()).ok();
        if options.token_ids {
            request.prompt_token_ids = ids.iter().map(|id| u32::try_from(id).unwrap_or_default()).collect();
        }
    }
}

fn parameters(pickle: &Pickle<'_>, value: Value, orders: &Orders, request: &mut EngineRequest) {
    let Some(instance) = pickle.instance(value) else { return };
    if instance.class.name.as_ref() == b"PoolingParams" {
        request.pooling = true;
        return;
    }
    request.sampling = sampling::read(pickle, value, instance, orders);
}

fn trace_headers(pickle: &Pickle<'_>, value: Value, request: &mut EngineRequest) {
    for (key, value) in pickle.pairs(value).into_iter().flatten() {
        if pickle.text(key).is_some_and(|key| key.eq_ignore_ascii_case(b"traceparent")) {
            request.traceparent = pickle.string(value);
        }
    }
}
