//! `TokenizedGenerateReqInput`, `TokenizedEmbeddingReqInput`, batches of them, and `AbortReq`.

use super::Context;
use super::cell::Cell;
use super::output::finish;
use crate::dialect::schema::sglang::SAMPLING_PARAMS;
use crate::dialect::signal::sglang::{SglangRequest, SglangSampling, SglangSignal};

/// `TOP_K_ALL` of `srt/sampling/sampling_params.py` (0.4.4 on): no limit.
const TOP_K_ALL: i64 = 1 << 30;

/// Reads a request; `None` where it has no id.
pub(super) fn read<'m, C: Cell<'m>>(
    class: &str,
    message: C,
    embedding: bool,
    cut: bool,
) -> Option<SglangRequest> {
    let mut request = SglangRequest { embedding, cut, ..SglangRequest::default() };
    message.fields(class, &mut |name, value| field(name, value, &mut request));
    (!request.rid.is_empty()).then_some(request)
}

/// Reads the requests of a batch.
pub(super) fn batch<'m, C: Cell<'m>>(
    class: &str,
    message: C,
    embedding: bool,
    cut: bool,
) -> Vec<SglangRequest> {
    let single = if embedding { "TokenizedEmbeddingReqInput" } else { "TokenizedGenerateReqInput" };
    let mut requests = Vec::new();
    message.fields(class, &mut |name, value| {
        if name == b"batch" {
            let items = value.items().into_iter().flatten();
            requests.extend(items.filter_map(|item| read(single, item, embedding, false)));
        }
    });
    // Only the last one can have lost something.
    if let Some(last) = requests.last_mut() {
        last.cut = cut;
    }
    requests
}

fn field<'m, C: Cell<'m>>(name: &[u8], value: C, request: &mut SglangRequest) {
    match name {
        b"rid" => request.rid = value.string().unwrap_or_default(),
        b"input_ids" => request.prompt_tokens = value.len().and_then(|len| u32::try_from(len).ok()),
        b"sampling_params" if !request.embedding && !value.is_none() => {
            request.sampling = Some(sampling(value));
        }
        b"stream" => request.stream = value.bool().unwrap_or_default(),
        b"return_logprob" => request.logprobs = value.bool().unwrap_or_default(),
        // Up to 0.5.0 a path, then an id made of it; from 0.5.20 on its name comes too.
        b"lora_path" | b"lora_name" => request.lora = value.string().or(request.lora.take()),
        b"lora_id" => request.lora = request.lora.take().or_else(|| value.string()),
        b"data_parallel_rank" | b"routed_dp_rank" => request.dp_rank = value.small(),
        b"bootstrap_room" => request.bootstrap_room = value.count(),
        b"priority" => request.priority = value.int(),
        _ => {}
    }
}

fn sampling<'m, C: Cell<'m>>(value: C) -> SglangSampling {
    let mut sampling = SglangSampling::default();
    value.fields(SAMPLING_PARAMS, &mut |name, value| match name {
        b"max_new_tokens" => sampling.max_new_tokens = value.count(),
        b"temperature" => sampling.temperature = value.number(),
        b"top_p" => sampling.top_p = value.number(),
        b"top_k" => sampling.top_k = value.int().filter(|k| (1..TOP_K_ALL).contains(k)),
        b"n" => sampling.n = value.small(),
        // `stop` is what the client gave; `stop_strs` what was made of it.
        b"stop" | b"stop_strs" => sampling.stop |= value.text().is_some() || value.len().unwrap_or(0) > 0,
        _ => {}
    });
    sampling
}

/// Reads an abort; `None` where it names nobody.
pub(super) fn abort<'m, C: Cell<'m>>(class: &str, message: C, context: Context) -> Option<SglangSignal> {
    let (mut rid, mut all, mut reason) = (None, false, None);
    message.fields(class, &mut |name, value| match name {
        b"rid" => rid = value.string().filter(|rid| !rid.is_empty()),
        b"abort_all" => all = value.bool().unwrap_or_default(),
        b"finished_reason" => reason = finish(value, context.options),
        _ => {}
    });
    (all || rid.is_some()).then(|| SglangSignal::Aborted {
        at: context.at,
        rid: rid.filter(|_| !all),
        finish: reason,
    })
}
