//! The Responses, Messages and Cohere APIs.

use super::*;

/// Events as vLLM 0.32.0 wrote them: the name, and the data.
pub const EVENTS: [(&str, &str); 13] = [
    (
        "response.created",
        r#"{"response":{"id":"resp_b4e6f3dc55d109d3","created_at":1796060408,"incomplete_details":null,"instructions":null,"metadata":null,"model":"tiny","object":"response","output":[],"parallel_tool_calls":true,"temperature":0.0,"tool_choice":"none","tools":[],"top_p":1.0,"background":false,"max_output_tokens":4,"status":"in_progress","text":null,"usage":null,"user":null},"sequence_number":0,"type":"response.created"}"#,
    ),
    (
        "response.output_item.added",
        r#"{"item":{"id":"msg_a6a2c76ff00115c6","content":[],"role":"assistant","status":"in_progress","type":"message","phase":null},"output_index":0,"sequence_number":2,"type":"response.output_item.added"}"#,
    ),
    (
        "response.output_text.delta",
        r#"{"content_index":0,"delta":"�rrorrror","item_id":"msg_a6a2c76ff00115c6","logprobs":[],"output_index":0,"sequence_number":5,"type":"response.output_text.delta"}"#,
    ),
    (
        "response.output_text.done",
        r#"{"content_index":0,"item_id":"msg_a6a2c76ff00115c6","logprobs":[],"output_index":0,"sequence_number":6,"text":"low�rrorrror","type":"response.output_text.done"}"#,
    ),
    (
        "response.output_item.done",
        r#"{"item":{"id":"msg_a6a2c76ff00115c6","content":[{"annotations":[],"text":"low�rrorrror","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message","phase":null},"output_index":0,"sequence_number":8,"type":"response.output_item.done"}"#,
    ),
    (
        "response.completed",
        r#"{"response":{"id":"resp_b4e6f3dc55d109d3","created_at":1796060408,"incomplete_details":{"reason":"max_output_tokens"},"instructions":null,"model":"tiny","object":"response","output":[{"id":"msg_a6a2c76ff00115c6","content":[{"annotations":[],"text":"low�rrorrror","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message","phase":null}],"status":"incomplete","usage":{"input_tokens":6,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0,"tool_output_tokens":0},"total_tokens":10},"user":null},"sequence_number":9,"type":"response.completed"}"#,
    ),
    (
        "message_start",
        r#"{"type":"message_start","message":{"id":"chatcmpl-an1","type":"message","role":"assistant","content":[],"model":"tiny","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":0}}}"#,
    ),
    (
        "content_block_start",
        r#"{"type":"content_block_start","content_block":{"type":"text","text":""},"index":0}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":" ha"},"index":0}"#,
    ),
    ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    (
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":5,"output_tokens":4,"cache_creation_input_tokens":1,"cache_read_input_tokens":3}}"#,
    ),
    ("message_stop", r#"{"type":"message_stop"}"#),
    (
        "message-end",
        r#"{"type":"message-end","id":"chatcmpl-1","delta":{"finish_reason":"MAX_TOKENS","usage":{"billed_units":{"input_tokens":9,"output_tokens":4},"tokens":{"input_tokens":9,"output_tokens":4},"cached_tokens":2}}}"#,
    ),
];

fn read(endpoint: Endpoint, name: &str) -> ApiDelta {
    let (name, json) = EVENTS.iter().find(|(known, _)| *known == name).unwrap();
    let named = event(endpoint, Some(name.as_bytes()), json.as_bytes(), false, ALL);
    assert_eq!(event(endpoint, None, json.as_bytes(), false, ALL), named, "the data names the event too");
    named
}

#[test]
fn a_streamed_response_is_read_once_though_it_is_sent_thrice() {
    let of = |name| read(Endpoint::Responses, name);
    assert_eq!(of("response.created"), named("resp_b4e6f3dc55d109d3"));
    assert_eq!(of("response.output_item.added"), ApiDelta::default());
    let text = ApiDelta { choices: vec![says("\u{fffd}rrorrror", None)], ..ApiDelta::default() };
    assert_eq!(of("response.output_text.delta"), text);
    assert_eq!(of("response.output_text.done"), ApiDelta::default());
    assert_eq!(of("response.output_item.done"), ApiDelta::default());
    let last = ApiDelta {
        choices: vec![says("", Some("length"))],
        usage: Some(Usage { cached: Some(0), ..usage(6, 4, 10) }),
        done: true,
        ..named("resp_b4e6f3dc55d109d3")
    };
    assert_eq!(of("response.completed"), last);
}

#[test]
fn a_whole_response_is_read() {
    let json = r#"{"id":"resp_mine","created_at":1796060409,"incomplete_details":null,"instructions":"be short","model":"tiny","object":"response","output":[{"id":"rs_1","content":[{"text":"hm","type":"reasoning_text"}],"type":"reasoning"},{"id":"msg_8752d3a9ce0b3f84","content":[{"annotations":[],"text":";rror","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message"},{"id":"fc_1","call_id":"call_1","name":"f","arguments":"{}","type":"function_call"}],"status":"completed","usage":{"input_tokens":13,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"total_tokens":17}}"#;
    let delta = of_body(Endpoint::Responses, json);
    let choice = delta.choices.first().unwrap();
    assert_eq!((choice.text.as_deref(), choice.reasoning), (Some("hm;rror"), 2));
    assert_eq!(choice.finish_reason.as_deref(), Some("stop"));
    let call = choice.tool_calls.first().unwrap();
    assert_eq!(
        (call.id.as_deref(), call.name.as_deref(), call.arguments.as_deref()),
        (Some("call_1"), Some("f"), Some("{}"))
    );
    assert_eq!(delta.id.as_deref(), Some("resp_mine"));
}

#[test]
fn a_response_calls_tools_in_parts() {
    let added = r#"{"item":{"arguments":"","call_id":"call_1","name":"f","type":"function_call","id":"fc_1","status":"in_progress"},"output_index":1,"sequence_number":3,"type":"response.output_item.added"}"#;
    let part = r#"{"delta":"{\"x\"","item_id":"fc_1","output_index":1,"sequence_number":4,"type":"response.function_call_arguments.delta"}"#;
    let calls = |json| of_event(Endpoint::Responses, json).choices.remove(0).tool_calls.remove(0);
    let call = calls(added);
    assert_eq!((call.index, call.id.as_deref(), call.name.as_deref()), (1, Some("call_1"), Some("f")));
    let call = calls(part);
    assert_eq!((call.index, call.id, call.arguments.as_deref()), (1, None, Some("{\"x\"")));
}

#[test]
fn a_failed_response_says_why() {
    let error = r#"{"type":"error","code":"server_error","message":"no","param":null,"sequence_number":3}"#;
    let error = of_event(Endpoint::Responses, error).error.unwrap();
    assert_eq!((error.kind.as_deref(), error.message.as_deref()), (Some("server_error"), Some("no")));
    let failed = r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"no"}}}"#;
    let delta = of_event(Endpoint::Responses, failed);
    assert_eq!(delta.error.and_then(|error| error.kind).as_deref(), Some("server_error"));
    assert!(delta.done);
}

#[test]
fn a_streamed_message_is_read() {
    let of = |name| read(Endpoint::Messages, name);
    let counts = |prompt, completion| Usage { total: None, ..usage(prompt, completion, 0) };
    assert_eq!(of("message_start"), ApiDelta { usage: Some(counts(9, 0)), ..named("chatcmpl-an1") });
    assert_eq!(of("content_block_start"), ApiDelta::default());
    assert_eq!(
        of("content_block_delta"),
        ApiDelta { choices: vec![says(" ha", None)], ..ApiDelta::default() }
    );
    assert_eq!(of("content_block_stop"), ApiDelta::default());
    // Anthropic's input tokens leave out the cached ones.
    let last = ApiDelta {
        choices: vec![says("", Some("length"))],
        usage: Some(Usage { cached: Some(3), ..counts(9, 4) }),
        ..ApiDelta::default()
    };
    assert_eq!(of("message_delta"), last);
    assert_eq!(of("message_stop"), ApiDelta { done: true, ..ApiDelta::default() });
}

#[test]
fn a_message_calls_tools_in_parts_and_whole() {
    let start = r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"call_1","name":"f","input":{}},"index":2}"#;
    let part = r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"x\""},"index":2}"#;
    let calls = |json| of_event(Endpoint::Messages, json).choices.remove(0).tool_calls.remove(0);
    let call = calls(start);
    assert_eq!((call.index, call.name.as_deref(), call.arguments), (2, Some("f"), None));
    let call = calls(part);
    assert_eq!((call.index, call.arguments.as_deref()), (2, Some("{\"x\"")));

    let whole = r#"{"id":"chatcmpl-1","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"low"},{"type":"tool_use","id":"call_1","name":"f","input":{"x":1}}],"model":"tiny","stop_reason":"tool_use","usage":{"input_tokens":6,"output_tokens":4}}"#;
    let delta = of_body(Endpoint::Messages, whole);
    let choice = delta.choices.first().unwrap();
    assert_eq!((choice.text.as_deref(), choice.reasoning), (Some("hmlow"), 2));
    assert_eq!(choice.finish_reason.as_deref(), Some("tool_calls"));
    let call = choice.tool_calls.first().unwrap();
    assert_eq!((call.index, call.arguments.as_deref()), (2, Some("{\"x\":1}")));
}

#[test]
fn a_streamed_cohere_chat_is_read() {
    let of = |json| of_event(Endpoint::CohereChat, json);
    let start = r#"{"type":"message-start","id":"chatcmpl-1","delta":{"message":{"role":"assistant"}}}"#;
    assert_eq!(of(start), ApiDelta { id: Some("chatcmpl-1".to_owned()), ..ApiDelta::default() });
    let text = r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"a"}}}}"#;
    assert_eq!(of(text).choices, [says("a", None)]);
    let thought = r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"thinking":"a"}}}}"#;
    assert_eq!(of(thought).choices, [ChoiceDelta { reasoning: 1, ..says("a", None) }]);
    let call = r#"{"type":"tool-call-start","index":3,"delta":{"message":{"tool_calls":{"id":"c","type":"function","function":{"name":"f","arguments":""}}}}}"#;
    let call = of(call).choices.remove(0).tool_calls.remove(0);
    assert_eq!((call.index, call.name.as_deref()), (3, Some("f")));
    let end = read(Endpoint::CohereChat, "message-end");
    assert_eq!(end.choices, [says("", Some("length"))]);
    let counts = Usage { total: None, cached: Some(2), ..usage(9, 4, 0) };
    assert_eq!(end.usage, Some(counts));
}

#[test]
fn a_whole_cohere_chat_is_read() {
    let json = r#"{"id":"chatcmpl-1","finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}],"tool_calls":null},"usage":{"tokens":{"input_tokens":1.0,"output_tokens":2.0}}}"#;
    let delta = of_body(Endpoint::CohereChat, json);
    assert_eq!(delta.choices, [ChoiceDelta { reasoning: 2, ..says("hma", Some("stop")) }]);
    assert_eq!(delta.usage, Some(Usage { total: None, ..usage(1, 2, 0) }));
}

/// As SGLang 0.5.23 answered, shortened.
const NATIVE: &str = r#"{"text":"@x","output_ids":[34,110],"meta_info":{"id":"6dfd5d37","finish_reason":{"type":"length","length":2},"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1}}"#;

#[test]
fn sglangs_own_answer_names_its_request() {
    let delta = of_body(Endpoint::Native, NATIVE);
    assert_eq!(delta.id.as_deref(), Some("6dfd5d37"));
    let usage = Usage { prompt: Some(3), completion: Some(2), total: None, cached: Some(1) };
    assert_eq!(delta.usage, Some(usage));
    let choice = delta.choices.first().unwrap();
    assert_eq!((choice.text.as_deref(), choice.finish_reason.as_deref()), (Some("@x"), Some("length")));
    assert_eq!(choice.id.as_deref(), Some("6dfd5d37"));
}

#[test]
fn a_batchs_answer_names_each_of_its_requests() {
    let second = NATIVE.replace("6dfd5d37", "7e");
    let delta = of_body(Endpoint::Native, &format!("[{NATIVE},{second}]"));
    let ids: Vec<_> =
        delta.choices.iter().map(|choice| (choice.index, choice.id.as_deref().unwrap())).collect();
    assert_eq!(ids, [(0, "6dfd5d37"), (1, "7e")]);
    assert_eq!(delta.usage.and_then(|usage| usage.completion), Some(4));
}

#[test]
fn a_native_stream_repeats_its_text_and_only_the_last_event_is_kept() {
    let event = |text: &str, ids: &str, count: u32, finish: &str| {
        let json = format!(
            r#"{{"text":"{text}","output_ids":[{ids}],"meta_info":{{"id":"f1","finish_reason":{finish},"completion_tokens":{count}}}}}"#
        );
        of_event(Endpoint::Native, &json).choices.first().unwrap().text.clone()
    };
    assert_eq!(event(",", "14", 1, "null").as_deref(), Some(""));
    assert_eq!(event(",63", "14,507", 2, "null").as_deref(), Some(""));
    assert_eq!(event(",63co", "14,507,347", 3, r#"{"type":"length"}"#).as_deref(), Some(",63co"));
    // With --incremental-streaming-output each event says what is new.
    assert_eq!(event("63", "507", 2, "null").as_deref(), Some("63"));
}
