//! `EngineCoreRequest`: a request as the API server hands it to the engine.

use super::layout::{Layout, RequestField};
use super::{Context, Refusal, kv, shape};
use crate::dialect::signal::{EngineRequest, Sampling};
use crate::time::EpochTime;
use crate::wire;
use crate::wire::msgpack::{Error, Reader, Token};

/// `SamplingParams.max_tokens` where the map leaves it out.
const MAX_TOKENS: u64 = 16;

/// `RequestOutputKind.DELTA`.
const DELTA: i64 = 1;

/// Reads the body of an ADD.
pub(super) fn read(body: &[u8], layout: &Layout, context: Context<'_>) -> Result<EngineRequest, Refusal> {
    let by_schema = read_as(body, &layout.request, context);
    by_schema.or_else(|| read_as(body, &shape::request(body), context)).ok_or(Refusal::Unknown)
}

/// Reads by a field order; `None` when the message does not fit it.
fn read_as(body: &[u8], fields: &[RequestField], context: Context<'_>) -> Option<EngineRequest> {
    let mut reader = Reader::new(body);
    let len = reader.array().ok()?;
    if usize::try_from(len).ok()? != fields.len() {
        return None;
    }
    let mut request = EngineRequest { cut: context.cut, ..EngineRequest::default() };
    for field in fields {
        match element(*field, &mut reader, &mut request, context) {
            Ok(()) => {}
            Err(Error::End) if context.cut => break,
            Err(_) => return None,
        }
    }
    (!request.id.is_empty()).then_some(request)
}

/// Reads one element. [`Error::Type`] where it cannot be what the field order says.
fn element(
    field: RequestField,
    reader: &mut Reader<'_>,
    request: &mut EngineRequest,
    context: Context<'_>,
) -> Result<(), Error> {
    match field {
        RequestField::Id => request.id = wire::text(reader.str()?).into_owned(),
        RequestField::PromptTokenIds => prompt(reader, request, context)?,
        RequestField::Sampling => sampling(reader, request)?,
        RequestField::Pooling => request.pooling = !reader.scalar()?.is_nil(),
        RequestField::Arrival => {
            request.arrival = Some(EpochTime(reader.scalar()?.float().ok_or(Error::Type)?));
        }
        RequestField::DataParallelRank => request.data_parallel_rank = reader.scalar()?.u32(),
        RequestField::ClientIndex => request.client_index = reader.scalar()?.u32(),
        RequestField::TraceHeaders => trace_headers(reader, request)?,
        RequestField::ExternalId => request.external_id = reader.scalar()?.string(),
        RequestField::Off => request.off = reader.scalar()?.bool().unwrap_or(false),
        RequestField::Other => reader.skip()?,
    }
    Ok(())
}

fn prompt(reader: &mut Reader<'_>, request: &mut EngineRequest, context: Context<'_>) -> Result<(), Error> {
    let Some(len) = reader.array_or_skip()? else { return Ok(()) };
    request.prompt_tokens = Some(len);
    if !context.options.token_ids {
        return reader.skip_values(u64::from(len));
    }
    for _ in 0..len {
        request.prompt_token_ids.push(reader.scalar()?.u32().unwrap_or_default());
    }
    Ok(())
}

fn trace_headers(reader: &mut Reader<'_>, request: &mut EngineRequest) -> Result<(), Error> {
    let Some(len) = reader.map_or_nil()? else { return Ok(()) };
    reader.pairs(len, |key, value| {
        let value = value.scalar()?;
        if key.eq_ignore_ascii_case(b"traceparent") {
            request.traceparent = value.string();
        }
        Ok(())
    })
}

fn sampling(reader: &mut Reader<'_>, request: &mut EngineRequest) -> Result<(), Error> {
    let Some(len) = reader.map_or_nil()? else { return Ok(()) };
    let mut omitted = true;
    let sampling = request.sampling.insert(Sampling::default());
    reader.pairs(len, |key, value| {
        omitted &= key != b"max_tokens";
        parameter(key, value, sampling)
    })?;
    if omitted {
        sampling.max_tokens = Some(MAX_TOKENS);
    }
    Ok(())
}

/// Reads one sampling parameter. The map holds only what differs from the defaults, more or less.
fn parameter(key: &[u8], value: &mut Reader<'_>, sampling: &mut Sampling) -> Result<(), Error> {
    match key {
        b"n" => sampling.n = value.scalar()?.u32().unwrap_or(sampling.n),
        b"temperature" => sampling.temperature = value.scalar()?.f64().unwrap_or(sampling.temperature),
        b"top_p" => sampling.top_p = value.scalar()?.f64().unwrap_or(sampling.top_p),
        b"top_k" => sampling.top_k = value.scalar()?.i64().filter(|k| *k > 0),
        b"max_tokens" => sampling.max_tokens = value.scalar()?.u64(),
        b"stop" => sampling.stop = matches!(value.scalar()?, Token::Array(1..) | Token::Str(_)),
        b"logprobs" => sampling.logprobs = value.scalar()?.i64(),
        b"output_kind" => sampling.delta = value.scalar()?.i64() == Some(DELTA),
        b"extra_args" => {
            let len = value.map_or_skip()?.unwrap_or_default();
            value.pairs(len, |key, value| match key {
                b"kv_transfer_params" => kv::read(value, &mut sampling.kv_transfer),
                _ => value.skip(),
            })?;
        }
        _ => value.skip()?,
    }
    Ok(())
}
