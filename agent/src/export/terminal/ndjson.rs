//! `--json`: one JSON object a line per finished request. Times are nanoseconds, an absent field was not seen.

use enginetap_core::model::span::{Span, Status, Trace};
use enginetap_core::time::Nanos;
use serde::Serialize;

use super::line::timestamp;
use super::row::Row;
use crate::export::resource::Resource;

/// The object. Its field names are an interface: they do not change.
#[derive(Serialize)]
struct Line<'a> {
    start: String,
    trace_id: String,
    span_id: String,
    service: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    finish_reasons: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_ns: Option<u64>,
    total_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tpot_ns: Option<u64>,
    engine_requests: usize,
    preemptions: i64,
    partial: bool,
    estimated: &'a [String],
    losses: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spans: Vec<SpanLine<'a>>,
}

/// A span (`-v`).
#[derive(Serialize)]
struct SpanLine<'a> {
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    start: String,
    duration_ns: u64,
    error: bool,
}

/// The line of a request, without its end; with `spans`, its spans too.
pub(super) fn line(resource: &Resource, trace: &Trace, spans: bool) -> Option<String> {
    let root = trace.spans.first()?;
    let row = Row::of(trace)?;
    let nanos = |time: Option<Nanos>| time.map(|Nanos(n)| n);
    let line = Line {
        start: timestamp(row.start).to_string(),
        trace_id: root.trace.to_string(),
        span_id: root.id.to_string(),
        service: resource.get("service.name"),
        instance: resource.get("service.instance.id"),
        operation: &row.operation,
        model: row.model.as_deref(),
        outcome: &row.outcome.text,
        http_status: row.http_status,
        error: row.error.as_deref(),
        finish_reasons: &row.finish_reasons,
        input_tokens: row.input_tokens,
        output_tokens: row.output_tokens,
        cached_tokens: row.cached_tokens,
        queue_ns: nanos(row.queue),
        prefill_ns: nanos(row.prefill),
        decode_ns: nanos(row.decode),
        ttft_ns: nanos(row.ttft),
        total_ns: row.e2e.0,
        tpot_ns: nanos(row.tpot),
        engine_requests: row.engine_requests,
        preemptions: row.preemptions,
        partial: row.partial,
        estimated: &row.estimated,
        losses: &row.losses,
        spans: if spans { trace.spans.iter().map(span_line).collect() } else { Vec::new() },
    };
    serde_json::to_string(&line).ok()
}

fn span_line(span: &Span) -> SpanLine<'_> {
    SpanLine {
        span_id: span.id.to_string(),
        parent_span_id: span.parent.map(|parent| parent.to_string()),
        name: &span.name,
        start: timestamp(span.start).to_string(),
        duration_ns: span.end.since(span.start).0,
        error: matches!(span.status, Status::Error(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn a_request_is_one_object() {
        let wanted = concat!(
            r#"{"start":"2026-11-30T17:00:00Z","trace_id":"0af7651916cd43dd8448eb211c80319c","#,
            r#""span_id":"0000000000000001","service":"vllm","instance":"h:4242","operation":"chat","#,
            r#""model":"tiny/llama","outcome":"stop","http_status":200,"finish_reasons":["stop"],"#,
            r#""input_tokens":20,"output_tokens":11,"cached_tokens":15,"queue_ns":1250000,"#,
            r#""prefill_ns":48500000,"decode_ns":757000000,"ttft_ns":52000000,"total_ns":812000000,"#,
            r#""tpot_ns":75700000,"engine_requests":1,"preemptions":2,"partial":false,"estimated":[],"#,
            r#""losses":[]}"#,
        );
        assert_eq!(line(&sample::resource(), &sample::trace(), false).unwrap(), wanted);
    }

    #[test]
    fn what_was_not_seen_is_absent_and_nothing_of_the_content_is_there() {
        let text = line(&sample::resource(), &sample::refused(), true).unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object.get("queue_ns"), None);
        assert_eq!((&object["outcome"], &object["partial"]), (&"HTTP 400".into(), &true.into()));
        assert_eq!(object["spans"][0]["error"], true);
        assert!(!text.contains("secret"), "{text}");
    }
}
