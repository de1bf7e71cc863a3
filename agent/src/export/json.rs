//! OTLP messages as JSON, as the OpenTelemetry collector's file exporter writes them: ids in hex, 64-bit numbers
//! as strings, enums as numbers, names in camelCase, and no field that has its default.
//!
//! `opentelemetry-proto` can write JSON too, but writes every default and turns NaN into null; the tests read
//! what is written here back with it.

use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{Span, Status, span};

/// An `ExportTraceServiceRequest` on one line, without the line's end.
#[must_use]
pub fn traces(request: &ExportTraceServiceRequest) -> String {
    object(|root| {
        root.list("resourceSpans", &request.resource_spans, |item, resource_spans| {
            item.nested("resource", |o| resource(o, resource_spans.resource.as_ref()));
            item.list("scopeSpans", &resource_spans.scope_spans, |item, scope_spans| {
                item.nested("scope", |o| scope(o, scope_spans.scope.as_ref()));
                item.list("spans", &scope_spans.spans, span);
                item.text("schemaUrl", &scope_spans.schema_url);
            });
            item.text("schemaUrl", &resource_spans.schema_url);
        });
    })
}

/// An `ExportLogsServiceRequest` on one line, without the line's end.
#[must_use]
pub fn logs(request: &ExportLogsServiceRequest) -> String {
    object(|root| {
        root.list("resourceLogs", &request.resource_logs, |item, resource_logs| {
            item.nested("resource", |o| resource(o, resource_logs.resource.as_ref()));
            item.list("scopeLogs", &resource_logs.scope_logs, |item, scope_logs| {
                item.nested("scope", |o| scope(o, scope_logs.scope.as_ref()));
                item.list("logRecords", &scope_logs.log_records, log_record);
                item.text("schemaUrl", &scope_logs.schema_url);
            });
            item.text("schemaUrl", &resource_logs.schema_url);
        });
    })
}

/// An `ExportMetricsServiceRequest` on one line, without the line's end.
#[must_use]
pub fn metrics(request: &ExportMetricsServiceRequest) -> String {
    object(|root| {
        root.list("resourceMetrics", &request.resource_metrics, |item, resource_metrics| {
            item.nested("resource", |o| resource(o, resource_metrics.resource.as_ref()));
            item.list("scopeMetrics", &resource_metrics.scope_metrics, |item, scope_metrics| {
                item.nested("scope", |o| scope(o, scope_metrics.scope.as_ref()));
                item.list("metrics", &scope_metrics.metrics, metric);
                item.text("schemaUrl", &scope_metrics.schema_url);
            });
            item.text("schemaUrl", &resource_metrics.schema_url);
        });
    })
}

fn resource(o: &mut Object<'_>, resource: Option<&Resource>) {
    if let Some(resource) = resource {
        o.list("attributes", &resource.attributes, key_value);
        o.count("droppedAttributesCount", resource.dropped_attributes_count);
    }
}

fn scope(o: &mut Object<'_>, scope: Option<&InstrumentationScope>) {
    if let Some(scope) = scope {
        o.text("name", &scope.name);
        o.text("version", &scope.version);
        o.list("attributes", &scope.attributes, key_value);
        o.count("droppedAttributesCount", scope.dropped_attributes_count);
    }
}

fn span(o: &mut Object<'_>, span: &Span) {
    o.hex("traceId", &span.trace_id);
    o.hex("spanId", &span.span_id);
    o.text("traceState", &span.trace_state);
    o.hex("parentSpanId", &span.parent_span_id);
    o.count("flags", span.flags);
    o.text("name", &span.name);
    o.enumeration("kind", span.kind);
    o.nanos("startTimeUnixNano", span.start_time_unix_nano);
    o.nanos("endTimeUnixNano", span.end_time_unix_nano);
    o.list("attributes", &span.attributes, key_value);
    o.count("droppedAttributesCount", span.dropped_attributes_count);
    o.list("events", &span.events, event);
    o.count("droppedEventsCount", span.dropped_events_count);
    o.list("links", &span.links, link);
    o.count("droppedLinksCount", span.dropped_links_count);
    o.nested("status", |o| status(o, span.status.as_ref()));
}

fn event(o: &mut Object<'_>, event: &span::Event) {
    o.nanos("timeUnixNano", event.time_unix_nano);
    o.text("name", &event.name);
    o.list("attributes", &event.attributes, key_value);
    o.count("droppedAttributesCount", event.dropped_attributes_count);
}

fn link(o: &mut Object<'_>, link: &span::Link) {
    o.hex("traceId", &link.trace_id);
    o.hex("spanId", &link.span_id);
    o.text("traceState", &link.trace_state);
    o.list("attributes", &link.attributes, key_value);
    o.count("droppedAttributesCount", link.dropped_attributes_count);
    o.count("flags", link.flags);
}

fn status(o: &mut Object<'_>, status: Option<&Status>) {
    if let Some(status) = status {
        o.text("message", &status.message);
        o.enumeration("code", status.code);
    }
}

fn log_record(o: &mut Object<'_>, log: &LogRecord) {
    o.nanos("timeUnixNano", log.time_unix_nano);
    o.nanos("observedTimeUnixNano", log.observed_time_unix_nano);
    o.enumeration("severityNumber", log.severity_number);
    o.text("severityText", &log.severity_text);
    if log.body.is_some() {
        o.nested("body", |o| typed_value(o, log.body.as_ref()));
    }
    o.list("attributes", &log.attributes, key_value);
    o.count("droppedAttributesCount", log.dropped_attributes_count);
    o.count("flags", log.flags);
    o.hex("traceId", &log.trace_id);
    o.hex("spanId", &log.span_id);
    o.text("eventName", &log.event_name);
}

fn metric(o: &mut Object<'_>, metric: &Metric) {
    o.text("name", &metric.name);
    o.text("description", &metric.description);
    o.text("unit", &metric.unit);
    match &metric.data {
        Some(metric::Data::Gauge(gauge)) => {
            o.nested("gauge", |o| o.list("dataPoints", &gauge.data_points, number_point));
        }
        Some(metric::Data::Sum(sum)) => o.nested("sum", |o| {
            o.list("dataPoints", &sum.data_points, number_point);
            o.enumeration("aggregationTemporality", sum.aggregation_temporality);
            o.truth("isMonotonic", sum.is_monotonic);
        }),
        // Not among the contract's metrics, and never made.
        Some(
            metric::Data::Histogram(_) | metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_),
        )
        | None => {}
    }
}

fn number_point(o: &mut Object<'_>, point: &NumberDataPoint) {
    o.list("attributes", &point.attributes, key_value);
    o.nanos("startTimeUnixNano", point.start_time_unix_nano);
    o.nanos("timeUnixNano", point.time_unix_nano);
    match point.value {
        Some(number_data_point::Value::AsDouble(number)) => double(o.key("asDouble"), number),
        Some(number_data_point::Value::AsInt(number)) => quoted_number(o.key("asInt"), number),
        None => {}
    }
    o.count("flags", point.flags);
}

fn key_value(o: &mut Object<'_>, pair: &KeyValue) {
    o.text("key", &pair.key);
    o.nested("value", |o| typed_value(o, pair.value.as_ref()));
}

/// The value of an attribute keeps its defaults: they say which type it has.
fn typed_value(o: &mut Object<'_>, value: Option<&AnyValue>) {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => string(o.key("stringValue"), text),
        Some(any_value::Value::BoolValue(truth)) => o.key("boolValue").push_str(truth_text(*truth)),
        Some(any_value::Value::IntValue(number)) => quoted_number(o.key("intValue"), *number),
        Some(any_value::Value::DoubleValue(number)) => double(o.key("doubleValue"), *number),
        Some(any_value::Value::ArrayValue(array)) => o.nested("arrayValue", |o| {
            o.list("values", &array.values, |o, value| typed_value(o, Some(value)));
        }),
        Some(any_value::Value::KvlistValue(list)) => o.nested("kvlistValue", |o| {
            o.list("values", &list.values, key_value);
        }),
        // Nothing is one of these, and none is made.
        Some(any_value::Value::BytesValue(_) | any_value::Value::StringValueStrindex(_)) | None => {}
    }
}

/// A JSON object being written.
struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

fn object(fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut out = String::new();
    write_object(&mut out, fill);
    out
}

fn write_object(out: &mut String, fill: impl FnOnce(&mut Object<'_>)) {
    out.push('{');
    fill(&mut Object { out, empty: true });
    out.push('}');
}

impl Object<'_> {
    /// Writes a key; what is written next is its value.
    fn key(&mut self, key: &str) -> &mut String {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            string(self.key(key), value);
        }
    }

    fn hex(&mut self, key: &str, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let out = self.key(key);
        out.push('"');
        for byte in bytes {
            let _ = write!(out, "{byte:02x}");
        }
        out.push('"');
    }

    fn count(&mut self, key: &str, value: u32) {
        if value != 0 {
            let _ = write!(self.key(key), "{value}");
        }
    }

    fn enumeration(&mut self, key: &str, value: i32) {
        if value != 0 {
            let _ = write!(self.key(key), "{value}");
        }
    }

    fn nanos(&mut self, key: &str, value: u64) {
        if value != 0 {
            quoted_number(self.key(key), value);
        }
    }

    fn truth(&mut self, key: &str, value: bool) {
        if value {
            self.key(key).push_str(truth_text(value));
        }
    }

    fn nested(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        write_object(self.key(key), fill);
    }

    fn list<T>(&mut self, key: &str, items: &[T], write: impl Fn(&mut Object<'_>, &T)) {
        if items.is_empty() {
            return;
        }
        let out = self.key(key);
        out.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            write_object(out, |object| write(object, item));
        }
        out.push(']');
    }
}

fn truth_text(truth: bool) -> &'static str {
    if truth { "true" } else { "false" }
}

fn quoted_number(out: &mut String, number: impl std::fmt::Display) {
    let _ = write!(out, "\"{number}\"");
}

/// A double; what JSON has no number for is a string, as protobuf's JSON mapping says.
fn double(out: &mut String, number: f64) {
    let special = match number {
        _ if number.is_nan() => Some("\"NaN\""),
        f64::INFINITY => Some("\"Infinity\""),
        f64::NEG_INFINITY => Some("\"-Infinity\""),
        _ => None,
    };
    match special {
        Some(text) => out.push_str(text),
        None => out.push_str(&serde_json::Value::from(number).to_string()),
    }
}

/// A string with what JSON wants escaped.
pub(super) fn string(out: &mut String, text: &str) {
    // A string always has a JSON form.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests;
