use super::*;
use crate::dialect::signal::{ChoiceDelta, ToolCall};

const ALL: Collect = Collect { content: true, texts: true, limit: 8192 };
const NONE: Collect = Collect { content: false, texts: false, limit: 8192 };

fn of_body(endpoint: Endpoint, json: &str) -> ApiDelta {
    body(endpoint, json.as_bytes(), false, ALL)
}

fn of_event(endpoint: Endpoint, json: &str) -> ApiDelta {
    event(endpoint, None, json.as_bytes(), false, ALL)
}

/// One candidate that says `text`.
fn says(text: &str, finish: Option<&str>) -> ChoiceDelta {
    ChoiceDelta {
        id: None,
        text: (!text.is_empty()).then(|| text.to_owned()),
        finish_reason: finish.map(str::to_owned),
        ..ChoiceDelta::default()
    }
}

fn usage(prompt: u64, completion: u64, total: u64) -> Usage {
    Usage { prompt: Some(prompt), completion: Some(completion), total: Some(total), cached: None }
}

fn named(id: &str) -> ApiDelta {
    ApiDelta { id: Some(id.to_owned()), model: Some("tiny".to_owned()), ..ApiDelta::default() }
}

/// As vLLM 0.32.0 wrote them.
const CHAT_EVENTS: [&str; 5] = [
    r#"{"id":"chatcmpl-scn-b","object":"chat.completion.chunk","created":1796055637,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#,
    r#"{"id":"chatcmpl-scn-b","object":"chat.completion.chunk","created":1796055637,"model":"tiny","choices":[{"index":0,"delta":{"content":" with"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    r#"{"id":"chatcmpl-scn-b","object":"chat.completion.chunk","created":1796055637,"model":"tiny","choices":[{"index":0,"delta":{"content":"ata"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}"#,
    r#"{"id":"chatcmpl-scn-b","object":"chat.completion.chunk","created":1796055637,"model":"tiny","choices":[],"usage":{"prompt_tokens":14,"total_tokens":26,"completion_tokens":12},"system_fingerprint":"vllm-0.32.0-d7930469"}"#,
    "[DONE]",
];

#[test]
fn a_streamed_chat_is_read() {
    let [role, text, last, counts, done] = CHAT_EVENTS.map(|json| of_event(Endpoint::Chat, json));
    let chunk = || named("chatcmpl-scn-b");
    assert_eq!(role, ApiDelta { choices: vec![says("", None)], ..chunk() });
    assert_eq!(text, ApiDelta { choices: vec![says(" with", None)], ..chunk() });
    assert_eq!(last, ApiDelta { choices: vec![says("ata", Some("length"))], ..chunk() });
    assert_eq!(counts, ApiDelta { usage: Some(usage(14, 12, 26)), ..chunk() });
    assert_eq!(done, ApiDelta { done: true, ..ApiDelta::default() });
}

#[test]
fn a_streamed_completion_is_read_with_its_running_counts() {
    let json = r#"{"id":"cmpl-a7a914941ec51171","object":"text_completion","created":1796055641,"model":"tiny","choices":[{"index":1,"text":"�\",","logprobs":{"tokens":["x"],"token_logprobs":[-0.5]},"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}"#;
    let wanted = ApiDelta {
        choices: vec![ChoiceDelta { index: 1, ..says("\u{fffd}\",", None) }],
        usage: Some(usage(3, 2, 5)),
        ..named("cmpl-a7a914941ec51171")
    };
    assert_eq!(of_event(Endpoint::Completions, json), wanted);
}

#[test]
fn whole_bodies_of_old_and_new_versions_are_read_alike() {
    let text = "fixrrorrrorrrorrrorrrorrror f withfixjata";
    let v085 = r#"{"id":"chatcmpl-scn-a","object":"chat.completion","created":1796055240,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":null,"content":"fixrrorrrorrrorrrorrrorrror f withfixjata","tool_calls":[]},"logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":14,"total_tokens":26,"completion_tokens":12,"prompt_tokens_details":null},"prompt_logprobs":null}"#;
    let v0320 = r#"{"id":"chatcmpl-scn-a","object":"chat.completion","created":1796055637,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"fixrrorrrorrrorrrorrrorrror f withfixjata","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-d7930469","usage":{"prompt_tokens":14,"total_tokens":26,"completion_tokens":12,"prompt_tokens_details":null,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#;
    let wanted = ApiDelta {
        choices: vec![says(text, Some("length"))],
        usage: Some(usage(14, 12, 26)),
        ..named("chatcmpl-scn-a")
    };
    assert_eq!(of_body(Endpoint::Chat, v085), wanted);
    assert_eq!(of_body(Endpoint::Chat, v0320), wanted);
}

#[test]
fn every_candidate_of_a_body_is_read() {
    let json = r#"{"id":"cmpl-a1665290f3f8498a9e61f8e5c356bb52","object":"text_completion","created":1796055241,"model":"tiny","choices":[{"index":0,"text":"�dir fromab�triagep","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_logprobs":null},{"index":1,"text":" ne filename     ]instancedictminse","logprobs":null,"finish_reason":"stop","stop_reason":"Ome","prompt_logprobs":null}],"usage":{"prompt_tokens":2,"total_tokens":18,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":1}}}"#;
    let delta = of_body(Endpoint::Completions, json);
    let reasons: Vec<_> = delta.choices.iter().map(|c| (c.index, c.finish_reason.as_deref())).collect();
    assert_eq!(reasons, [(0, Some("length")), (1, Some("stop"))]);
    assert_eq!(delta.usage.and_then(|usage| usage.cached), Some(1));
}

#[test]
fn errors_of_every_shape_are_read() {
    let message = "temperature must be non-negative, got -3.0.";
    let wanted = ApiError {
        kind: Some("BadRequestError".to_owned()),
        message: Some(message.to_owned()),
        code: Some(400),
    };
    let v092 = r#"{"object":"error","message":"temperature must be non-negative, got -3.0.","type":"BadRequestError","param":null,"code":400}"#;
    let v0102 = r#"{"error":{"message":"temperature must be non-negative, got -3.0.","type":"BadRequestError","param":null,"code":400}}"#;
    for json in [v092, v0102] {
        assert_eq!(of_body(Endpoint::Completions, json).error, Some(wanted.clone()));
        assert_eq!(of_event(Endpoint::Completions, json).error, Some(wanted.clone()));
        let silent = body(Endpoint::Completions, json.as_bytes(), false, NONE).error.unwrap();
        assert_eq!((silent.message, silent.code), (None, Some(400)), "an error may quote the prompt");
    }
    let said = |error: Option<ApiError>| error.and_then(|error| error.message);
    assert_eq!(
        said(of_body(Endpoint::Chat, r#"{"error":"Unauthorized"}"#).error).as_deref(),
        Some("Unauthorized")
    );
    assert_eq!(
        said(of_body(Endpoint::Chat, r#"{"detail":"Not Found"}"#).error).as_deref(),
        Some("Not Found")
    );
    assert_eq!(of_body(Endpoint::Chat, r#"{"detail":[{"loc":["body"]}]}"#).error, Some(ApiError::default()));
    assert_eq!(of_body(Endpoint::Chat, r#"{"error":null,"model":"tiny"}"#).error, None);
    let anthropic = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    for delta in [of_body(Endpoint::Messages, anthropic), of_event(Endpoint::Messages, anthropic)] {
        assert_eq!(delta.error.and_then(|error| error.kind).as_deref(), Some("invalid_request_error"));
    }
    assert_eq!(
        said(of_body(Endpoint::CohereChat, r#"{"message":"no","id":null}"#).error).as_deref(),
        Some("no")
    );
}

#[test]
fn reasoning_goes_before_the_answer_and_is_told_apart() {
    let json = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"42","reasoning":"hmm","reasoning_content":"hmm"},"finish_reason":"stop"}]}"#;
    let delta = of_body(Endpoint::Chat, json);
    let choice = delta.choices.first().unwrap();
    assert_eq!((choice.text.as_deref(), choice.reasoning), (Some("hmm42"), 3));
    let json = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"h"},"finish_reason":null}]}"#;
    let delta = of_event(Endpoint::Chat, json);
    let choice = delta.choices.first().unwrap();
    assert_eq!((choice.text.as_deref(), choice.reasoning), (Some("h"), 1));
}

#[test]
fn tool_calls_are_read_in_parts_and_whole() {
    let first = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}"#;
    let more = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"x\":"}}]},"finish_reason":null}]}"#;
    let calls = |json| of_event(Endpoint::Chat, json).choices.remove(0).tool_calls;
    let text = |text: &str| Some(text.to_owned());
    let call = ToolCall { index: 1, id: text("call_1"), name: text("f"), arguments: text("") };
    assert_eq!(calls(first), [call]);
    assert_eq!(calls(more), [ToolCall { index: 1, arguments: text("{\"x\":"), ..ToolCall::default() }]);

    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let delta = of_body(Endpoint::Chat, whole);
    let choice = delta.choices.first().unwrap();
    let places: Vec<_> = choice.tool_calls.iter().map(|call| (call.index, call.name.as_deref())).collect();
    assert_eq!(places, [(0, Some("f")), (1, Some("g"))]);
    assert_eq!((choice.text.as_deref(), choice.finish_reason.as_deref()), (None, Some("tool_calls")));
}

#[test]
fn where_nothing_is_collected_it_is_still_known_that_something_was_said() {
    let json = CHAT_EVENTS.get(1).unwrap();
    let delta = event(Endpoint::Chat, None, json.as_bytes(), false, NONE);
    assert_eq!(delta.choices.first().unwrap().text.as_deref(), Some(""));
    let role = CHAT_EVENTS.first().unwrap();
    let delta = event(Endpoint::Chat, None, role.as_bytes(), false, NONE);
    assert_eq!(delta.choices.first().unwrap().text, None);
}

#[test]
fn the_text_of_a_body_is_cut_to_the_limit() {
    let json = format!(r#"{{"choices":[{{"index":0,"message":{{"content":"{}"}}}}]}}"#, "é".repeat(50));
    let collect = Collect { limit: 7, ..ALL };
    let delta = body(Endpoint::Chat, json.as_bytes(), false, collect);
    assert_eq!(delta.choices.first().unwrap().text.as_deref(), Some("é".repeat(7).as_str()));
}

#[test]
fn vectors_and_scores_are_passed_for_what_stands_beside_them() {
    let vector = vec!["-0.0123456"; 4096].join(",");
    let json = format!(
        r#"{{"id":"embd-1","object":"list","created":1,"model":"tiny","data":[{{"index":0,"object":"embedding","embedding":[{vector}]}}],"usage":{{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0,"prompt_tokens_details":null}}}}"#
    );
    let wanted = ApiDelta { usage: Some(usage(3, 0, 3)), ..named("embd-1") };
    assert_eq!(of_body(Endpoint::Embeddings, &json), wanted);
    let json = r#"{"id":"score-1","model":"tiny","usage":{"prompt_tokens":9,"total_tokens":9},"results":[{"index":0,"document":{"text":"d","multi_modal":null},"relevance_score":0.5}]}"#;
    let counts = Usage { completion: None, ..usage(9, 0, 9) };
    assert_eq!(of_body(Endpoint::Rerank, json), ApiDelta { usage: Some(counts), ..named("score-1") });
    let json = r#"{"id":"embd-2","embeddings":{"float":[[0.1]]},"texts":null,"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":4,"image_tokens":null}},"response_type":"embeddings_by_type"}"#;
    let delta = of_body(Endpoint::CohereEmbed, json);
    assert_eq!((delta.id.as_deref(), delta.usage.and_then(|u| u.prompt)), (Some("embd-2"), Some(4)));
    assert_eq!(of_body(Endpoint::Pooling, "\u{0}\u{1}binary"), ApiDelta::default());
}

#[test]
fn token_ids_without_text_are_something_said() {
    let json =
        r#"{"request_id":"generate-tokens-1","choices":[{"index":0,"finish_reason":null,"token_ids":[5]}]}"#;
    let delta = of_event(Endpoint::Generate, json);
    assert_eq!(delta.id.as_deref(), Some("generate-tokens-1"));
    assert_eq!(delta.choices.first().unwrap().text.as_deref(), Some(""));
}

#[test]
fn an_event_cut_by_a_gap_gives_what_it_has() {
    let json = CHAT_EVENTS.get(1).unwrap();
    let at = json.find("ith").unwrap();
    let delta = event(Endpoint::Chat, None, json.get(..at).unwrap().as_bytes(), true, ALL);
    let wanted = ApiDelta { choices: vec![says(" w", None)], cut: true, ..named("chatcmpl-scn-b") };
    assert_eq!(delta, wanted);
    let tail = event(Endpoint::Chat, None, json.get(at..).unwrap().as_bytes(), true, ALL);
    assert_eq!(tail, ApiDelta { cut: true, ..ApiDelta::default() });
}

proptest::proptest! {
    #[test]
    fn an_event_cut_anywhere_gives_a_prefix_of_itself(which in 0_usize..4, keep in 0_usize..300) {
        let json = CHAT_EVENTS[which];
        let cut = &json.as_bytes()[..keep.min(json.len())];
        let (whole, part) = (of_event(Endpoint::Chat, json), event(Endpoint::Chat, None, cut, false, ALL));
        proptest::prop_assert!(part.id.is_none() || part.id == whole.id);
        proptest::prop_assert!(part.model.is_none() || part.model == whole.model);
        proptest::prop_assert!(part.usage.is_none() || part.usage == whole.usage);
        proptest::prop_assert!(part.choices.len() <= whole.choices.len());
        for (part, whole) in part.choices.iter().zip(&whole.choices) {
            let text = |choice: &ChoiceDelta| choice.text.clone().unwrap_or_default();
            proptest::prop_assert!(text(whole).starts_with(&text(part)));
        }
        proptest::prop_assert_eq!(part.cut, keep > 0 && keep < json.len());
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), at in 0_usize..300, byte: u8) {
        let endpoints = [Endpoint::Chat, Endpoint::Responses, Endpoint::Messages, Endpoint::CohereChat];
        for endpoint in endpoints {
            let _ = (body(endpoint, &bytes, false, ALL), event(endpoint, Some(b"x"), &bytes, false, ALL));
            for json in CHAT_EVENTS.into_iter().chain(other::EVENTS.iter().map(|(_, json)| *json)) {
                let mut json = json.as_bytes().to_vec();
                if let Some(place) = json.get_mut(at) { *place = byte; }
                let _ = (body(endpoint, &json, false, ALL), event(endpoint, None, &json, false, ALL));
            }
        }
    }
}

mod other;
