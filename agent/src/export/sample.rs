//! A small trace and some points for the tests of the sinks.

use std::sync::Arc;

use enginetap_core::ids::{ServerId, SpanId, TraceId};
use enginetap_core::model::log::{Log, LogContext, Severity};
use enginetap_core::model::metric::{Number, Point};
use enginetap_core::model::registry::{attr, dim, event, log, metric, own, span};
use enginetap_core::model::span::{Attribute, Event, Link, Span, Status, Trace, Value};
use enginetap_core::time::WallTime;

use super::resource::Resource;

/// 2026-11-30T17:00:00Z.
pub(crate) const START: u64 = 1_796_058_000_000_000_000;
pub(crate) const MS: u64 = 1_000_000;

const TRACE: TraceId = TraceId(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);

fn a_span(id: u64, parent: Option<u64>, name: &str, from_ms: u64, to_ms: u64) -> Span {
    Span {
        trace: TRACE,
        id: SpanId(id),
        parent: parent.map(SpanId),
        trace_state: None,
        name: name.to_owned().into(),
        start: WallTime(START + from_ms * MS),
        end: WallTime(START + to_ms * MS),
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        links: Vec::new(),
        status: Status::Unset,
    }
}

fn entry() -> Span {
    let mut entry = a_span(1, Some(0xff), "chat tiny/llama", 0, 812);
    entry.trace_state = Some("vendor=1".to_owned());
    entry.set(attr::SPAN_KIND, "LLM");
    entry.set(attr::OPERATION_NAME, "chat");
    entry.set(attr::REQUEST_MODEL, "tiny/llama");
    entry.set(attr::REQUEST_TEMPERATURE, 0.5);
    entry.set(attr::REQUEST_IS_STREAM, true);
    entry.set(attr::HTTP_STATUS, 200_i64);
    entry.set(attr::RESPONSE_FINISH_REASONS, vec!["stop".to_owned()]);
    entry.set(attr::USAGE_INPUT_TOKENS, 20_i64);
    entry.set(attr::USAGE_OUTPUT_TOKENS, 11_i64);
    entry.set(attr::INPUT_MESSAGES, "[{\"role\":\"user\"}]");
    entry
}

fn engine() -> Span {
    let mut engine = a_span(2, Some(1), span::LLM_REQUEST, 2, 810);
    engine.set(attr::REQUEST_ID, "chatcmpl-1");
    engine.set(attr::USAGE_PROMPT_TOKENS, 20_i64);
    engine.set(attr::USAGE_COMPLETION_TOKENS, 11_i64);
    engine.set(attr::USAGE_CACHE_READ_INPUT_TOKENS, 15_i64);
    engine.set(attr::LATENCY_E2E, 808_000_000_i64);
    engine.set(attr::LATENCY_TIME_IN_QUEUE, 1_250_000_i64);
    engine.set(attr::LATENCY_TIME_TO_FIRST_TOKEN, 52_000_000_i64);
    engine.set(attr::LATENCY_TIME_IN_MODEL_PREFILL, 48_500_000_i64);
    engine.set(attr::LATENCY_TIME_IN_MODEL_DECODE, 757_000_000_i64);
    engine.set(attr::REQUEST_PREEMPTION_COUNT, 2_i64);
    engine.events = vec![Event {
        name: event::DECODE.into(),
        at: WallTime(START + 60 * MS),
        attributes: vec![
            Attribute { key: attr::TOKEN_IDS.into(), value: Value::Ints(vec![5, 7]) },
            Attribute { key: attr::TOKEN_TEXTS.into(), value: Value::Strs(vec!["se".into(), "cret".into()]) },
        ],
    }];
    engine.dropped_events = 3;
    engine
}

/// A finished request: entry, engine and its stages, child of a caller's span.
pub(crate) fn trace() -> Trace {
    let stages = [
        a_span(3, Some(2), span::WAIT, 3, 4),
        a_span(4, Some(2), span::PREFILL, 4, 53),
        a_span(5, Some(2), span::DECODE, 53, 810),
    ];
    let mut spans = vec![entry(), engine()];
    spans.extend(stages);
    Trace { server: ServerId(1), sampled: true, spans, logs: Vec::new() }
}

/// The content of a request, as a log event.
pub(crate) fn log() -> Log {
    let attributes = vec![
        Attribute { key: attr::OPERATION_NAME.into(), value: "chat".into() },
        Attribute { key: attr::USAGE_INPUT_TOKENS.into(), value: 20_i64.into() },
        Attribute { key: attr::INPUT_MESSAGES.into(), value: r#"[{"n":7,"role":"user"}]"#.into() },
    ];
    Log {
        server: ServerId(1),
        event: Some(log::INFERENCE_DETAILS),
        severity: Severity::Info,
        at: WallTime(START + 812 * MS),
        context: Some(LogContext { trace: TRACE, span: SpanId(1) }),
        body: None,
        attributes,
    }
}

/// A request that was refused, seen in part.
pub(crate) fn refused() -> Trace {
    let mut entry = a_span(9, None, "text_completion m", 0, 3);
    entry.set(attr::OPERATION_NAME, "text_completion");
    entry.set(attr::REQUEST_MODEL, "m");
    entry.set(attr::HTTP_STATUS, 400_i64);
    entry.set(attr::ERROR_TYPE, "BadRequestError");
    entry.set(attr::PARTIAL, true);
    entry.set(attr::LOSS, vec!["gap_bytes".to_owned()]);
    entry.links = vec![Link { trace: TRACE, span: SpanId(1) }];
    entry.status = Status::Error("the prompt \"secret\" is too long".to_owned());
    Trace { server: ServerId(1), sampled: true, spans: vec![entry], logs: Vec::new() }
}

pub(crate) fn resource() -> Arc<Resource> {
    let attributes = [("service.name", "vllm"), ("service.instance.id", "h:4242")];
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Arc::new(Resource { server: Some(ServerId(1)), attributes })
}

fn point(metric: &'static enginetap_core::model::registry::MetricDef, value: Number) -> Point {
    Point {
        server: Some(ServerId(1)),
        metric,
        dimensions: vec![(dim::ENGINE_INDEX, "0".to_owned()), (dim::MODEL_NAME, "tiny/llama".to_owned())],
        value,
        start: WallTime(START),
        at: WallTime(START + 5_000 * MS),
    }
}

/// A reading of a server.
pub(crate) fn points() -> Vec<Point> {
    let mut own_loss = point(&own::LOSSES, Number::Int(7));
    own_loss.server = None;
    own_loss.dimensions = vec![(dim::REASON, "queue_full".to_owned()), (dim::SIDE, "agent".to_owned())];
    vec![
        point(&metric::GENERATION_TOKENS, Number::Int(1_100)),
        point(&metric::NUM_REQUESTS_RUNNING, Number::Int(3)),
        point(&metric::NUM_REQUESTS_WAITING, Number::Int(0)),
        point(&metric::KV_CACHE_USAGE_PERC, Number::Float(0.125)),
        point(&metric::REQUEST_QUEUE_TIME_SECONDS, Number::Float(1.5)),
        point(&metric::PREFIX_CACHE_QUERIES, Number::Int(200)),
        point(&metric::PREFIX_CACHE_HITS, Number::Int(50)),
        point(&metric::PROMPT_TOKENS, Number::Int(2_000)),
        own_loss,
    ]
}
