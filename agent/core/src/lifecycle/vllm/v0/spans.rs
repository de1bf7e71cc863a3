//! V0's `llm_request`: durations in seconds, as the engine's own tracing gives them.

use crate::dialect::signal::Sampling;
use crate::ids::SpanId;
use crate::lifecycle::maker::Maker;
use crate::lifecycle::vllm::request::Request;
use crate::lifecycle::vllm::spans::{Parts, ending, model_name};
use crate::model::registry::{attr, span};
use crate::model::span::Span;
use crate::time::Seconds;

/// Makes the span. Mirrors `LLMEngine.create_trace_span` of `vllm/engine/llm_engine.py` (0.9.2).
pub(in crate::lifecycle::vllm) fn llm_request(
    name: &str,
    request: &Request,
    parts: &Parts<'_>,
    parent: Option<SpanId>,
    maker: &mut Maker<'_>,
) -> Span {
    let told = request.v0.as_deref().cloned().unwrap_or_default();
    let start = told.metrics.arrival.map_or_else(|| maker.wall(request.since), |arrival| arrival.wall());
    let seen = request.last_at.max(request.ending.map(|(_, at)| at)).unwrap_or(request.touched);
    let end = told.metrics.finished.map_or_else(|| maker.wall(seen), |finished| finished.wall());
    let mut span = maker.span(span::LLM_REQUEST, parent, start, end);
    span.set(attr::REQUEST_ID, name);
    span.set_some(attr::RESPONSE_MODEL, model_name(parts.server));
    let sampling = request.engine.as_ref().and_then(|engine| engine.sampling.as_ref());
    if let Some(Sampling { temperature, top_p, max_tokens, n, .. }) = sampling {
        span.set(attr::REQUEST_TEMPERATURE, *temperature);
        span.set(attr::REQUEST_TOP_P, *top_p);
        span.set_some(attr::REQUEST_MAX_TOKENS, *max_tokens);
        span.set(attr::REQUEST_N, *n);
    }
    // Of an engine whose messages nobody can see only what the client asked for is known.
    if let (None, Some(exchange)) = (sampling, parts.exchange) {
        let asked = &exchange.request;
        span.set_some(attr::REQUEST_TEMPERATURE, asked.temperature);
        span.set_some(attr::REQUEST_TOP_P, asked.top_p);
        span.set_some(attr::REQUEST_MAX_TOKENS, asked.max_tokens);
        span.set(attr::REQUEST_N, asked.choices.unwrap_or(1));
    }
    // One that never got a token has as many sequences as it asked for.
    let sequences = told.sequences().max(sampling.map_or(1, |sampling| u64::from(sampling.n)));
    span.set(attr::USAGE_NUM_SEQUENCES, sequences);
    span.set_some(attr::USAGE_PROMPT_TOKENS, request.prompt_tokens());
    span.set(attr::USAGE_COMPLETION_TOKENS, request.output_tokens);
    let metrics = &told.metrics;
    for (key, time) in [
        (attr::LATENCY_E2E, metrics.e2e()),
        (attr::LATENCY_TIME_IN_QUEUE, metrics.queue),
        (attr::LATENCY_TIME_TO_FIRST_TOKEN, metrics.time_to_first_token()),
        (attr::LATENCY_TIME_IN_SCHEDULER, metrics.scheduler),
        (attr::LATENCY_TIME_IN_MODEL_FORWARD, metrics.forward),
        (attr::LATENCY_TIME_IN_MODEL_EXECUTE, metrics.execute),
    ] {
        span.set_some(key, time.map(|Seconds(seconds)| seconds));
    }
    if let Some(unsaid) = told.unsaid {
        let there = unsaid.attributes().iter().filter(|key| span.attribute(key).is_some());
        let names: Vec<String> = there.map(|&key| key.to_owned()).collect();
        span.set(attr::ESTIMATED, names);
    }
    ending(&mut span, request);
    span
}
