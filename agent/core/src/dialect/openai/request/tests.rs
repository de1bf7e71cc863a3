use proptest::strategy::Strategy as _;

use super::*;
use crate::dialect::openai::{Route, route};

const ALL: Collect = Collect { content: true, texts: true, limit: 8192 };
const NONE: Collect = Collect { content: false, texts: false, limit: 8192 };

fn read_with(path: &str, headers: &[(&str, &str)], body: &[u8], cut: bool, collect: Collect) -> ApiRequest {
    let Route::Span(endpoint) = route("POST", path) else { panic!("{path} makes no span") };
    let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes());
    request(endpoint, path.as_bytes(), header, body, cut, collect)
}

fn read(path: &str, body: &str) -> ApiRequest {
    read_with(path, &[], body.as_bytes(), false, ALL)
}

/// As vLLM 0.32.0 got it.
const CHAT: &str = r#"{"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": "import os; print the path of this file"}], "max_tokens": 12, "stream": true, "stream_options": {"include_usage": true}}"#;

#[test]
fn a_chat_request_is_read() {
    let request =
        read_with("/v1/chat/completions?x=1", &[("x-request-id", "scn-b")], CHAT.as_bytes(), false, ALL);
    let wanted = ApiRequest {
        operation: Operation::Chat,
        path: "/v1/chat/completions".to_owned(),
        request_id: Some("scn-b".to_owned()),
        traceparent: None,
        tracestate: None,
        model: Some("tiny".to_owned()),
        choices: None,
        prompts: 1,
        temperature: Some(0.0),
        top_p: None,
        top_k: None,
        max_tokens: Some(12),
        stream: true,
        user: None,
        stop: false,
        logprobs: false,
        tools: false,
        content: Some(
            concat!(
                r#"[{"role":"user","parts":[{"type":"text","#,
                r#""content":"import os; print the path of this file"}]}]"#
            )
            .to_owned(),
        ),
        cut: false,
    };
    assert_eq!(request, wanted);
}

#[test]
fn recorded_completions_are_read() {
    let n2 = r#"{"model": "tiny", "temperature": 0.8, "prompt": "import sys", "n": 2, "seed": 7, "max_tokens": 8}"#;
    let request = read("/v1/completions", n2);
    assert_eq!((request.choices, request.prompts), (Some(2), 1));
    assert_eq!((request.temperature, request.max_tokens), (Some(0.8), Some(8)));
    assert!(!request.stream && !request.stop && !request.logprobs);

    let stop = r#"{"model": "tiny", "temperature": 0, "prompt": "return value 1 of the list", "max_tokens": 24, "ignore_eos": true, "stop": ["Ome"]}"#;
    assert!(read("/v1/completions", stop).stop);

    let ids = r#"{"model": "tiny", "temperature": 0, "prompt": [100, 137, 174], "max_tokens": 4}"#;
    let request = read("/v1/completions", ids);
    assert_eq!(request.prompts, 1);
    assert!(request.content.unwrap().contains(r#"{"type":"token_ids","content":[100,137,174]}"#));

    let logprobs =
        r#"{"model": "tiny", "temperature": 0, "prompt": "while True", "max_tokens": 4, "logprobs": 2}"#;
    assert!(read("/v1/completions", logprobs).logprobs);
}

#[test]
fn every_parameter_is_read() {
    let body = r#"{"model":"m","n":3,"temperature":0.5,"top_p":0.9,"top_k":-1,"max_tokens":5,"max_completion_tokens":7,
        "stream":false,"user":"u-1","stop":"x","logprobs":true,"tools":[{"type":"function"}],"request_id":"r-1",
        "messages":[]}"#;
    let request = read("/v1/chat/completions", body);
    assert_eq!(request.choices, Some(3));
    assert_eq!((request.top_p, request.top_k), (Some(0.9), Some(-1)));
    assert_eq!(request.max_tokens, Some(7), "max_completion_tokens goes before max_tokens");
    assert_eq!((request.user.as_deref(), request.request_id.as_deref()), (Some("u-1"), Some("r-1")));
    assert!(request.stop && request.logprobs && request.tools && !request.stream);
    let headers = [("x-request-id", "h-1"), ("traceparent", "00-a-b-01"), ("tracestate", "k=v")];
    let request = read_with("/v1/chat/completions", &headers, body.as_bytes(), false, NONE);
    assert_eq!(request.request_id.as_deref(), Some("h-1"));
    assert_eq!(
        (request.traceparent.as_deref(), request.tracestate.as_deref()),
        (Some("00-a-b-01"), Some("k=v"))
    );
    assert_eq!(request.content, None);
}

#[test]
fn logprobs_of_zero_are_asked_for_in_completions() {
    assert!(read("/v1/completions", r#"{"prompt":"x","logprobs":0}"#).logprobs);
    assert!(!read("/v1/completions", r#"{"prompt":"x","logprobs":null}"#).logprobs);
    assert!(!read("/v1/chat/completions", r#"{"messages":[],"logprobs":false,"top_logprobs":0}"#).logprobs);
    assert!(read("/v1/responses", r#"{"input":"x","top_logprobs":2}"#).logprobs);
}

#[test]
fn prompts_are_counted_by_endpoint() {
    for (path, body, prompts) in [
        ("/v1/completions", r#"{"prompt":["a","b"]}"#, 2),
        ("/v1/completions", r#"{"prompt":[[1],[2],[3]]}"#, 3),
        ("/v1/completions", r#"{"prompt":null,"prompt_embeds":["AA","BB"]}"#, 2),
        ("/v1/completions", "{}", 1),
        ("/v1/chat/completions/batch", r#"{"messages":[[{"role":"user","content":"a"}],[]]}"#, 2),
        ("/v1/embeddings", r#"{"input":["a","b","c"]}"#, 3),
        ("/v1/embeddings", r#"{"input":[1,2]}"#, 1),
        ("/v1/embeddings", r#"{"messages":[{"role":"user","content":"a"}]}"#, 1),
        ("/v2/embed", r#"{"texts":["a","b"],"max_tokens":9}"#, 2),
        ("/v2/embed", r#"{"inputs":[{"content":[{"type":"text","text":"a"}]},{"content":[]}]}"#, 2),
        ("/pooling", r#"{"input":"a"}"#, 1),
        ("/v1/rerank", r#"{"query":"q","documents":["a","b","c"]}"#, 3),
        ("/score", r#"{"text_1":"q","text_2":["a","b"]}"#, 2),
        ("/score", r#"{"queries":["a","b"],"documents":["c","d"]}"#, 2),
        ("/score", r#"{"data_1":{"content":[]},"data_2":[{"content":[]},{"content":[]}]}"#, 2),
        ("/generative_scoring", r#"{"query":[1,2],"items":[[1],[2]]}"#, 2),
        ("/cohere/v2/chat", r#"{"messages":[{"role":"user","content":"a"}],"documents":["d","e"]}"#, 1),
        ("/inference/v1/generate", r#"{"token_ids":[1,2,3]}"#, 1),
    ] {
        let request = read(path, body);
        assert_eq!(request.prompts, prompts, "{path} {body}");
        assert!(
            !matches!(request.operation, Operation::Embeddings | Operation::Rerank)
                || request.max_tokens.is_none()
        );
    }
}

#[test]
fn a_list_cut_by_a_gap_counts_what_was_seen() {
    let body = br#"{"query":"q","documents":["a","b","c"#;
    let request = read_with("/v1/rerank", &[], body, true, NONE);
    assert_eq!((request.prompts, request.cut), (3, true));
}

#[test]
fn other_apis_are_read_in_their_own_words() {
    let body = r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],
        "instructions":"be nice","max_output_tokens":9,"stream":true,"request_id":"resp_1","top_k":4}"#;
    let request = read_with("/v1/responses", &[("x-request-id", "not this")], body.as_bytes(), false, ALL);
    assert_eq!((request.operation, request.max_tokens, request.top_k), (Operation::Chat, Some(9), Some(4)));
    assert_eq!(request.request_id.as_deref(), Some("resp_1"));
    let content = request.content.unwrap();
    assert!(
        content.starts_with(r#"[{"role":"system","parts":[{"type":"text","content":"be nice"}]},"#),
        "{content}"
    );
    assert!(content.contains(r#"{"role":"user","parts":[{"type":"text","content":"hi"}]}"#), "{content}");

    let body = r#"{"model":"m","max_tokens":5,"system":"s","messages":[{"role":"user","content":"hi"}],
        "metadata":{"user_id":"u-2"},"stop_sequences":["x"],"tools":[{"name":"f"}]}"#;
    let request = read("/v1/messages", body);
    assert_eq!((request.user.as_deref(), request.max_tokens), (Some("u-2"), Some(5)));
    assert!(request.stop && request.tools && request.content.unwrap().contains("system"));

    let request = read("/cohere/v2/chat", r#"{"messages":[],"k":3,"p":0.5,"stream":true}"#);
    assert_eq!((request.top_k, request.top_p, request.stream), (Some(3), Some(0.5), true));
    assert_eq!(read("/v1/chat/completions", r#"{"k":3,"p":0.5}"#).top_k, None);

    let body = r#"{"request_id":"g-1","token_ids":[1,2],"sampling_params":{"max_tokens":4,"temperature":0.1,"n":2,
        "sampling_params":{"n":9}},"model":"m"}"#;
    let request = read("/inference/v1/generate", body);
    assert_eq!((request.max_tokens, request.choices, request.temperature), (Some(4), Some(2), Some(0.1)));
    assert_eq!(request.model.as_deref(), Some("m"));
}

#[test]
fn an_invocation_is_what_its_fields_say() {
    for (body, operation) in [
        (r#"{"messages":[]}"#, Operation::Chat),
        (r#"{"model":"m","prompt":"x"}"#, Operation::TextCompletion),
        (r#"{"input":"x"}"#, Operation::Embeddings),
        (r#"{"query":"x","documents":[]}"#, Operation::Rerank),
        (r#"{"text_1":"x","text_2":"y"}"#, Operation::Rerank),
        ("{}", Operation::TextCompletion),
    ] {
        assert_eq!(read("/invocations", body).operation, operation, "{body}");
    }
}

#[test]
fn a_body_that_is_no_json_object_gives_a_bare_request() {
    for body in ["", "[]", "null", "7", "\"x\"", "nonsense", "{\"a\"", "\u{feff}{}"] {
        let request = read("/v1/completions", body);
        assert_eq!((request.model, request.prompts), (None, 1), "{body}");
    }
}

#[test]
fn a_long_name_is_cut() {
    let body = format!(r#"{{"model":"{}","user":"{}"}}"#, "é".repeat(5000), "u".repeat(5000));
    let request = read("/v1/completions", &body);
    assert_eq!(request.model.unwrap().chars().count(), NAME_LIMIT);
    assert_eq!(request.user.unwrap().len(), NAME_LIMIT);
}

/// The scalar fields of a request, to compare.
fn fields(request: &ApiRequest) -> [(&'static str, Option<String>); 9] {
    let text = |value: Option<String>| value;
    [
        ("model", request.model.clone()),
        ("n", text(request.choices.map(|v| v.to_string()))),
        ("temperature", text(request.temperature.map(|v| v.to_string()))),
        ("top_p", text(request.top_p.map(|v| v.to_string()))),
        ("top_k", text(request.top_k.map(|v| v.to_string()))),
        ("max_tokens", text(request.max_tokens.map(|v| v.to_string()))),
        ("user", request.user.clone()),
        ("stream", text(request.stream.then(String::new))),
        ("stop", text(request.stop.then(String::new))),
    ]
}

const FULL: [(&str, &str); 9] = [
    ("model", r#""mé\n""#),
    ("n", "2"),
    ("temperature", "0.25"),
    ("top_p", "0.5"),
    ("top_k", "7"),
    ("max_tokens", "11"),
    ("user", r#""u""#),
    ("stream", "true"),
    ("stop", r#"["a","b"]"#),
];

fn body_of(pairs: &[(&str, String)]) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

proptest::proptest! {
    #[test]
    fn a_field_of_a_wrong_type_loses_only_itself(
        wrong in 0_usize..9,
        value in proptest::sample::select(vec![
            "null", "[]", "{}", "[[{\"model\":1}]]", "{\"n\":{\"user\":\"x\"}}", "1e999", "-99999999999999999999", "\"\\ud800\"",
            "{\"a\":\"}\"}",
        ]),
    ) {
        let right: Vec<_> = FULL.iter().map(|&(k, v)| (k, v.to_owned())).collect();
        let mut pairs = right.clone();
        pairs[wrong].1 = value.to_owned();
        let whole = fields(&read("/v1/completions", &body_of(&right)));
        let got = fields(&read("/v1/completions", &body_of(&pairs)));
        for (i, (whole, got)) in whole.iter().zip(&got).enumerate() {
            proptest::prop_assert!(whole.1.is_some());
            proptest::prop_assert!(i == wrong || whole == got, "{:?} {:?}", whole, got);
        }
    }

    #[test]
    fn a_cut_body_gives_a_prefix_of_its_fields(order in proptest::prelude::Just(FULL.to_vec()).prop_shuffle(), keep in 0_usize..400) {
        let pairs: Vec<_> = order.iter().map(|&(k, v)| (k, v.to_owned())).collect();
        let body = body_of(&pairs);
        let end = keep.min(body.len());
        let whole = fields(&read("/v1/completions", &body));
        let cut = read_with("/v1/completions", &[], &body.as_bytes()[..end], false, ALL);
        proptest::prop_assert_eq!(cut.cut, end < body.len());
        let got = fields(&cut);
        let mut missing = false;
        for (name, _) in &order {
            let at = whole.iter().position(|(n, _)| n == name).unwrap();
            // `stop` is known to be there before its end is.
            if got[at].1.is_none() { missing = true; continue; }
            proptest::prop_assert!(!missing, "{} after a missing one", name);
            proptest::prop_assert_eq!(&got[at], &whole[at]);
        }
    }

    #[test]
    fn no_body_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), at in 0_usize..400, byte: u8) {
        let _ = read_with("/v1/chat/completions", &[], &bytes, false, ALL);
        let mut chat = CHAT.as_bytes().to_vec();
        if let Some(place) = chat.get_mut(at) { *place = byte; }
        for path in ["/v1/chat/completions", "/v1/responses", "/invocations", "/score", "/inference/v1/generate"] {
            let _ = read_with(path, &[], &chat, false, ALL);
        }
    }
}

#[test]
fn a_request_to_sglangs_own_endpoint_is_read() {
    let body = r#"{"rid": "r-1", "text": ["a", "b"], "stream": true,
                   "sampling_params": {"max_new_tokens": 5, "temperature": 0.5, "n": 2, "stop": "x"}}"#;
    let request = read("/generate", body);
    assert_eq!(
        (request.operation, request.prompts, request.choices),
        (Operation::TextCompletion, 2, Some(2))
    );
    assert_eq!((request.max_tokens, request.temperature), (Some(5), Some(0.5)));
    assert_eq!(request.request_id.as_deref(), Some("r-1"));
    assert!(request.stream && request.stop);
    let ids = read("/generate", r#"{"input_ids": [1, 2, 3], "sampling_params": [{"max_new_tokens": 5}]}"#);
    assert_eq!((ids.prompts, ids.max_tokens), (1, None));
}
