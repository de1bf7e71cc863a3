//! Log lines as OTLP messages.

use std::sync::Arc;

use enginetap_core::model::log::{Log, LogContext, Severity};
use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{Attribute, Value};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use serde_json::Value as Json;

use super::{SAMPLED, attribute, resource_message, scope, span_bytes, trace_bytes};
use crate::export::resource::Resource;

/// Attributes that hold JSON. The conventions want them structured on events.
const STRUCTURED: [&str; 2] = [attr::INPUT_MESSAGES, attr::OUTPUT_MESSAGES];

/// Deepest nesting of a structured value; what lies deeper stays text.
const DEPTH: usize = 24;

/// Log lines as one request, those of one resource together, in the order given.
#[must_use]
pub fn logs_request(logs: &[(Arc<Resource>, Arc<Log>)]) -> ExportLogsServiceRequest {
    let mut resource_logs: Vec<ResourceLogs> = Vec::new();
    let mut owners: Vec<&Arc<Resource>> = Vec::new();
    for (resource, log) in logs {
        let at = owners.iter().position(|owner| owner == &resource).unwrap_or(owners.len());
        if at == owners.len() {
            owners.push(resource);
            resource_logs.push(ResourceLogs {
                resource: Some(resource_message(resource)),
                scope_logs: vec![ScopeLogs { scope: Some(scope()), ..ScopeLogs::default() }],
                schema_url: String::new(),
            });
        }
        if let Some(scope) = resource_logs.get_mut(at).and_then(|logs| logs.scope_logs.first_mut()) {
            scope.log_records.push(log_message(log));
        }
    }
    ExportLogsServiceRequest { resource_logs }
}

fn log_message(log: &Log) -> LogRecord {
    let Log { server: _, event, severity, at, context, body, attributes } = log;
    let (trace_id, span_id, flags) = match context {
        Some(LogContext { trace, span }) => (trace_bytes(*trace), span_bytes(*span), SAMPLED),
        None => (Vec::new(), Vec::new(), 0),
    };
    let body =
        body.as_ref().map(|text| AnyValue { value: Some(any_value::Value::StringValue(text.clone())) });
    LogRecord {
        time_unix_nano: at.0,
        observed_time_unix_nano: at.0,
        severity_number: number(*severity).into(),
        severity_text: severity.name().to_owned(),
        body,
        attributes: attributes.iter().map(log_attribute).collect(),
        dropped_attributes_count: 0,
        flags,
        trace_id,
        span_id,
        event_name: event.unwrap_or_default().to_owned(),
    }
}

/// OTLP's number of a severity.
fn number(severity: Severity) -> SeverityNumber {
    match severity {
        Severity::Debug => SeverityNumber::Debug,
        Severity::Info => SeverityNumber::Info,
        Severity::Warning => SeverityNumber::Warn,
        Severity::Error => SeverityNumber::Error,
        Severity::Critical => SeverityNumber::Fatal,
    }
}

fn log_attribute(told: &Attribute) -> KeyValue {
    let structured = match &told.value {
        Value::Str(text) if STRUCTURED.contains(&told.key.as_ref()) => serde_json::from_str(text).ok(),
        Value::Str(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Bool(_)
        | Value::Strs(_)
        | Value::Ints(_) => None,
    };
    match structured {
        Some(json) => {
            KeyValue { key: told.key.to_string(), value: Some(any(&json, 0)), ..KeyValue::default() }
        }
        None => attribute(told),
    }
}

/// A JSON value as OTLP's own kind of value.
fn any(json: &Json, depth: usize) -> AnyValue {
    use any_value::Value as Any;
    let value = match json {
        Json::Null => None,
        Json::Bool(truth) => Some(Any::BoolValue(*truth)),
        Json::Number(number) => Some(match number.as_i64() {
            Some(whole) => Any::IntValue(whole),
            None => Any::DoubleValue(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Json::String(text) => Some(Any::StringValue(text.clone())),
        Json::Array(_) | Json::Object(_) if depth >= DEPTH => Some(Any::StringValue(json.to_string())),
        Json::Array(items) => {
            let values = items.iter().map(|item| any(item, depth + 1)).collect();
            Some(Any::ArrayValue(ArrayValue { values }))
        }
        Json::Object(fields) => {
            let values = fields.iter().map(|(key, value)| KeyValue {
                key: key.clone(),
                value: Some(any(value, depth + 1)),
                ..KeyValue::default()
            });
            Some(Any::KvlistValue(KeyValueList { values: values.collect() }))
        }
    };
    AnyValue { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;

    #[test]
    fn lines_of_one_resource_stand_together_and_carry_their_span() {
        let resource = sample::resource();
        let log = Arc::new(sample::log());
        let request = logs_request(&[(resource.clone(), log.clone()), (resource, log)]);
        assert_eq!(request.resource_logs.len(), 1);
        let records = &request.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].event_name, "gen_ai.client.inference.operation.details");
        assert_eq!(
            (records[0].span_id.as_slice(), records[0].flags),
            ([0, 0, 0, 0, 0, 0, 0, 1].as_slice(), 1)
        );
        assert_eq!((records[0].severity_number, records[0].severity_text.as_str()), (9, "INFO"));
    }

    #[test]
    fn content_is_structured_and_a_number_keeps_its_kind() {
        let request = logs_request(&[(sample::resource(), Arc::new(sample::log()))]);
        let attributes = &request.resource_logs[0].scope_logs[0].log_records[0].attributes;
        let messages = attributes.iter().find(|pair| pair.key == attr::INPUT_MESSAGES).unwrap();
        let Some(any_value::Value::ArrayValue(list)) = messages.value.clone().unwrap().value else {
            panic!("{messages:?}")
        };
        let Some(any_value::Value::KvlistValue(fields)) = list.values[0].value.clone() else {
            panic!("{list:?}")
        };
        assert_eq!(fields.values.iter().map(|f| f.key.as_str()).collect::<Vec<_>>(), ["n", "role"]);
        assert_eq!(fields.values[0].value.clone().unwrap().value, Some(any_value::Value::IntValue(7)));
    }

    #[test]
    fn content_that_is_no_json_stays_text_and_depth_is_bounded() {
        let told = Attribute { key: attr::INPUT_MESSAGES.into(), value: "[cut".into() };
        let value = log_attribute(&told).value.unwrap().value;
        assert_eq!(value, Some(any_value::Value::StringValue("[cut".to_owned())));
        let deep = "[".repeat(100) + &"]".repeat(100);
        let json = serde_json::from_str(&deep).unwrap();
        let (mut value, mut depth) = (any(&json, 0), 0);
        while let Some(any_value::Value::ArrayValue(list)) = value.value {
            value = list.values.into_iter().next().unwrap();
            depth += 1;
        }
        assert_eq!(depth, DEPTH);
    }
}
