//! Spans, points and log lines as OTLP messages.
//!
//! The messages are built here, not by the OpenTelemetry SDK: ids, times, counts of what was dropped and several
//! resources at once are ours to set, and an SDK would make its own.

mod logs;

use std::collections::HashSet;
use std::sync::Arc;

use enginetap_core::ids::{SpanId, TraceId};
use enginetap_core::model::metric::{Number, Point};
use enginetap_core::model::registry::MetricKind;
use enginetap_core::model::span::{Attribute, Event, Link, Span, Status, Trace, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as ResourceMessage;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as SpanMessage, span, status};

pub use self::logs::logs_request;

use super::resource::{Resource, Snapshot};

/// W3C trace flag: sampled.
const SAMPLED: u32 = 0x1;
/// Whether the parent is remote is known (`SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`).
const HAS_IS_REMOTE: u32 = 0x100;
/// The parent is remote (`SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`).
const IS_REMOTE: u32 = 0x200;

/// Traces as one request, those of one resource together, in the order given.
#[must_use]
pub fn trace_request(traces: &[(Arc<Resource>, Arc<Trace>)]) -> ExportTraceServiceRequest {
    let mut resource_spans: Vec<ResourceSpans> = Vec::new();
    let mut owners: Vec<&Arc<Resource>> = Vec::new();
    for (resource, trace) in traces {
        let at = owners.iter().position(|owner| owner == &resource).unwrap_or(owners.len());
        if at == owners.len() {
            owners.push(resource);
            resource_spans.push(ResourceSpans {
                resource: Some(resource_message(resource)),
                scope_spans: vec![ScopeSpans { scope: Some(scope()), ..ScopeSpans::default() }],
                schema_url: String::new(),
            });
        }
        let scope = resource_spans.get_mut(at).and_then(|spans| spans.scope_spans.first_mut());
        if let Some(scope) = scope {
            scope.spans.extend(span_messages(trace));
        }
    }
    ExportTraceServiceRequest { resource_spans }
}

/// All points of a snapshot as one request. Points of one metric must stand together or be brought together: OTLP
/// wants a metric once in a scope.
#[must_use]
pub fn metrics_request(snapshot: &Snapshot) -> ExportMetricsServiceRequest {
    let resource_metrics = snapshot.parts.iter().map(|(resource, points)| ResourceMetrics {
        resource: Some(resource_message(resource)),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: metric_messages(points),
            schema_url: String::new(),
        }],
        schema_url: String::new(),
    });
    ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }
}

fn resource_message(resource: &Resource) -> ResourceMessage {
    let attributes = resource.attributes.iter().map(|(key, value)| text(key, value)).collect();
    ResourceMessage { attributes, ..ResourceMessage::default() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "enginetap".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn span_messages(trace: &Trace) -> impl Iterator<Item = SpanMessage> + '_ {
    let here: HashSet<SpanId> = trace.spans.iter().map(|span| span.id).collect();
    trace.spans.iter().map(move |span| {
        let remote = span.parent.is_some_and(|parent| !here.contains(&parent));
        span_message(span, SAMPLED | HAS_IS_REMOTE | if remote { IS_REMOTE } else { 0 })
    })
}

fn span_message(span: &Span, flags: u32) -> SpanMessage {
    let Span {
        trace,
        id,
        parent,
        trace_state,
        name,
        start,
        end,
        attributes,
        events,
        dropped_events,
        links,
        status,
    } = span;
    SpanMessage {
        trace_id: trace_bytes(*trace),
        span_id: span_bytes(*id),
        trace_state: trace_state.clone().unwrap_or_default(),
        parent_span_id: parent.map(span_bytes).unwrap_or_default(),
        flags,
        name: name.to_string(),
        kind: span::SpanKind::Internal.into(),
        start_time_unix_nano: start.0,
        end_time_unix_nano: end.0,
        attributes: attributes.iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: events.iter().map(event).collect(),
        dropped_events_count: *dropped_events,
        links: links.iter().map(link).collect(),
        dropped_links_count: 0,
        status: status_message(status),
    }
}

fn trace_bytes(TraceId(id): TraceId) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn span_bytes(SpanId(id): SpanId) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn event(event: &Event) -> span::Event {
    let Event { name, at, attributes } = event;
    span::Event {
        time_unix_nano: at.0,
        name: name.to_string(),
        attributes: attributes.iter().map(attribute).collect(),
        dropped_attributes_count: 0,
    }
}

fn link(link: &Link) -> span::Link {
    let Link { trace, span } = link;
    span::Link { trace_id: trace_bytes(*trace), span_id: span_bytes(*span), ..span::Link::default() }
}

fn status_message(status: &Status) -> Option<opentelemetry_proto::tonic::trace::v1::Status> {
    match status {
        Status::Unset => None,
        Status::Error(message) => Some(opentelemetry_proto::tonic::trace::v1::Status {
            message: message.clone(),
            code: status::StatusCode::Error.into(),
        }),
    }
}

fn attribute(attribute: &Attribute) -> KeyValue {
    let Attribute { key, value } = attribute;
    KeyValue { key: key.to_string(), value: Some(any(value)), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.to_owned());
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn any(value: &Value) -> AnyValue {
    use any_value::Value as Any;
    let value = match value {
        Value::Str(text) => Any::StringValue(text.clone()),
        Value::Int(number) => Any::IntValue(*number),
        Value::Float(number) => Any::DoubleValue(*number),
        Value::Bool(truth) => Any::BoolValue(*truth),
        Value::Strs(list) => array(list.iter().map(|text| Any::StringValue(text.clone()))),
        Value::Ints(list) => array(list.iter().map(|number| Any::IntValue(*number))),
    };
    AnyValue { value: Some(value) }
}

fn array(values: impl Iterator<Item = any_value::Value>) -> any_value::Value {
    let values = values.map(|value| AnyValue { value: Some(value) }).collect();
    any_value::Value::ArrayValue(ArrayValue { values })
}

fn metric_messages(points: &[Point]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for point in points {
        let at = metrics.iter().position(|metric| metric.name == point.metric.name).unwrap_or_else(|| {
            metrics.push(empty_metric(point));
            metrics.len() - 1
        });
        if let Some(list) = metrics.get_mut(at).and_then(data_points) {
            list.push(data_point(point));
        }
    }
    metrics
}

fn empty_metric(point: &Point) -> Metric {
    let data = match point.metric.kind {
        MetricKind::Counter => metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        MetricKind::UpDown => metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: false,
        }),
        MetricKind::Gauge => metric::Data::Gauge(Gauge::default()),
    };
    Metric {
        name: point.metric.name.to_owned(),
        description: point.metric.doc.to_owned(),
        unit: point.metric.unit.to_owned(),
        metadata: Vec::new(),
        data: Some(data),
    }
}

fn data_points(metric: &mut Metric) -> Option<&mut Vec<NumberDataPoint>> {
    match metric.data.as_mut()? {
        metric::Data::Sum(sum) => Some(&mut sum.data_points),
        metric::Data::Gauge(gauge) => Some(&mut gauge.data_points),
        metric::Data::Histogram(_) | metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_) => None,
    }
}

fn data_point(point: &Point) -> NumberDataPoint {
    let Point { server: _, metric, dimensions, value, start, at } = point;
    let value = match value {
        Number::Int(count) => number_data_point::Value::AsInt(i64::try_from(*count).unwrap_or(i64::MAX)),
        Number::Float(number) => number_data_point::Value::AsDouble(*number),
    };
    NumberDataPoint {
        attributes: dimensions.iter().map(|(key, value)| text(key, value)).collect(),
        start_time_unix_nano: match metric.kind {
            MetricKind::Counter => start.0,
            MetricKind::Gauge | MetricKind::UpDown => 0,
        },
        time_unix_nano: at.0,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}
