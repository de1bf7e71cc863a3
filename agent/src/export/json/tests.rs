use std::sync::Arc;

use enginetap_core::time::WallTime;
use proptest::prelude::*;

use super::super::message::{logs_request, metrics_request, trace_request};
use super::super::resource::Resources;
use super::super::sample;
use super::*;

fn trace_message() -> ExportTraceServiceRequest {
    let resource = sample::resource();
    trace_request(&[(resource.clone(), Arc::new(sample::trace())), (resource, Arc::new(sample::refused()))])
}

fn metrics_message() -> ExportMetricsServiceRequest {
    metrics_request(&Resources::new(Vec::new()).snapshot(sample::points()))
}

#[test]
fn what_is_written_reads_back_as_the_same_traces() {
    let mut message = trace_message();
    let read: ExportTraceServiceRequest = serde_json::from_str(&traces(&message)).unwrap();
    // An absent status is written as an empty one, as the collector does.
    for span in &mut message.resource_spans[0].scope_spans[0].spans {
        span.status.get_or_insert_default();
    }
    assert_eq!(read, message);
}

#[test]
fn what_is_written_reads_back_as_the_same_metrics() {
    let message = metrics_message();
    let read: ExportMetricsServiceRequest = serde_json::from_str(&metrics(&message)).unwrap();
    assert_eq!(read, message);
}

#[test]
fn what_is_written_reads_back_as_the_same_log_lines() {
    let message = logs_request(&[(sample::resource(), Arc::new(sample::log()))]);
    let read: ExportLogsServiceRequest = serde_json::from_str(&logs(&message)).unwrap();
    assert_eq!(read, message);
}

#[test]
fn traces_of_one_resource_stand_together() {
    let message = trace_message();
    assert_eq!(message.resource_spans.len(), 1);
    assert_eq!(message.resource_spans[0].scope_spans[0].spans.len(), 6);
}

#[test]
fn a_span_is_written_as_the_collectors_file_exporter_writes_it() {
    let resource = sample::resource();
    let line = traces(&trace_request(&[(resource, Arc::new(sample::refused()))]));
    let version = env!("CARGO_PKG_VERSION");
    let wanted = [
        r#"{"resourceSpans":[{"resource":{"attributes":["#,
        r#"{"key":"service.name","value":{"stringValue":"vllm"}},"#,
        r#"{"key":"service.instance.id","value":{"stringValue":"h:4242"}}]},"#,
        &format!(r#""scopeSpans":[{{"scope":{{"name":"enginetap","version":"{version}"}},"spans":[{{"#),
        r#""traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"0000000000000009","flags":257,"#,
        r#""name":"text_completion m","kind":1,"startTimeUnixNano":"1796058000000000000","#,
        r#""endTimeUnixNano":"1796058000003000000","attributes":["#,
        r#"{"key":"gen_ai.operation.name","value":{"stringValue":"text_completion"}},"#,
        r#"{"key":"gen_ai.request.model","value":{"stringValue":"m"}},"#,
        r#"{"key":"http.response.status_code","value":{"intValue":"400"}},"#,
        r#"{"key":"error.type","value":{"stringValue":"BadRequestError"}},"#,
        r#"{"key":"enginetap.partial","value":{"boolValue":true}},"#,
        r#"{"key":"enginetap.loss","value":{"arrayValue":{"values":[{"stringValue":"gap_bytes"}]}}}],"#,
        r#""links":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"0000000000000001"}],"#,
        r#""status":{"message":"the prompt \"secret\" is too long","code":2}}]}]}]}"#,
    ];
    assert_eq!(line, wanted.concat());
}

#[test]
fn a_sum_and_a_gauge_are_written_as_the_collectors_file_exporter_writes_them() {
    let line = metrics(&metrics_message());
    let sum = concat!(
        r#"{"name":"gen_ai_vllm_request_queue_time_seconds","description":"summed time WAITING","#,
        r#""unit":"Seconds","sum":{"dataPoints":[{"attributes":["#,
        r#"{"key":"engine_index","value":{"stringValue":"0"}},"#,
        r#"{"key":"model_name","value":{"stringValue":"tiny/llama"}}],"#,
        r#""startTimeUnixNano":"1796058000000000000","timeUnixNano":"1796058005000000000","asDouble":1.5}],"#,
        r#""aggregationTemporality":2,"isMonotonic":true}}"#,
    );
    assert!(line.contains(sum), "{line}");
    let gauge = concat!(
        r#""unit":"Count","gauge":{"dataPoints":[{"attributes":["#,
        r#"{"key":"engine_index","value":{"stringValue":"0"}},"#,
        r#"{"key":"model_name","value":{"stringValue":"tiny/llama"}}],"#,
        r#""timeUnixNano":"1796058005000000000","asInt":"0"}]}}"#,
    );
    assert!(line.contains(gauge), "{line}");
}

#[test]
fn a_parent_that_is_not_in_the_trace_is_remote() {
    let line = traces(&trace_message());
    assert!(
        line.contains(r#""traceState":"vendor=1","parentSpanId":"00000000000000ff","flags":769,"#),
        "{line}"
    );
    assert!(line.contains(r#""parentSpanId":"0000000000000001","flags":257,"#), "{line}");
}

#[test]
fn doubles_that_json_has_no_number_for_are_strings() {
    let written = |number| {
        let mut out = String::new();
        double(&mut out, number);
        out
    };
    assert_eq!(written(f64::NAN), "\"NaN\"");
    assert_eq!(written(f64::NEG_INFINITY), "\"-Infinity\"");
    assert_eq!(written(0.1), "0.1");
    assert_eq!(written(2.0), "2.0");
}

#[test]
fn an_empty_value_keeps_its_type() {
    let value = AnyValue { value: Some(any_value::Value::StringValue(String::new())) };
    assert_eq!(object(|o| typed_value(o, Some(&value))), r#"{"stringValue":""}"#);
}

proptest! {
    /// Whatever a client wrote, and whatever figure came out, the line is one line and reads back the same.
    #[test]
    fn any_text_and_number_reads_back_the_same(
        text in any::<String>(),
        key in any::<String>().prop_filter("a key", |key| !key.is_empty()),
        number in any::<i64>(),
        double in any::<f64>().prop_filter("finite", |double| double.is_finite()),
        times in any::<(u64, u64)>(),
    ) {
        let mut trace = sample::refused();
        let root = &mut trace.spans[0];
        root.name = text.clone().into();
        root.status = enginetap_core::model::span::Status::Error(text.clone());
        root.start = WallTime(times.0);
        root.end = WallTime(times.1);
        root.set(key, vec![text.clone(), String::new()]);
        root.set("number", number);
        root.set("double", double);
        root.set("empty", Vec::<i64>::new());
        let message = trace_request(&[(sample::resource(), Arc::new(trace))]);
        let line = traces(&message);
        prop_assert!(!line.contains('\n'));
        // The reader wants the list that protobuf's JSON leaves out when empty.
        let line = line.replace(r#""arrayValue":{}"#, r#""arrayValue":{"values":[]}"#);
        prop_assert_eq!(serde_json::from_str::<ExportTraceServiceRequest>(&line).unwrap(), message);
    }
}
