//! The entry span, and which requests are its.

use super::*;

/// A chat of parallel samples: the frontend fills the cache, then hands the samples over one after the other.
fn parallel(lifecycle: &mut Lifecycle, stream: bool) {
    request(lifecycle, 0, ApiRequest { choices: Some(2), ..ask(stream) });
    let sample = |rid: &str, tokens: u64| {
        let mut request = handed(rid, stream && tokens > 0);
        let sampling = request.sampling.as_mut().unwrap();
        (sampling.n, sampling.max_new_tokens) = (Some(2), Some(tokens));
        request
    };
    dispatch(lifecycle, 103, sample("warm", 0));
    outputs(lifecycle, 106, last("warm", 0, "length"));
    dispatch(lifecycle, 109, sample("one", 3));
    dispatch(lifecycle, 109, sample("two", 3));
}

#[test]
fn the_entry_span_says_what_was_asked_and_answered() {
    let mut lifecycle = lifecycle();
    run(&mut lifecycle, "aaaabbbbcccc");
    let trace = the_trace(&mut lifecycle);
    let entry = &trace.spans[0];
    assert_eq!((entry.start, entry.end), (wall(100), wall(145)));
    assert_eq!(text(entry, "gen_ai.span.kind"), Some("LLM"));
    assert_eq!(text(entry, "gen_ai.operation.name"), Some("chat"));
    assert_eq!(text(entry, "gen_ai.request.id"), Some("aaaabbbbcccc"));
    assert_eq!(text(entry, "gen_ai.response.id"), Some("aaaabbbbcccc"));
    assert_eq!(entry.attribute("gen_ai.response.model"), None, "of what is not streamed only");
    assert_eq!(float(entry, "gen_ai.request.temperature"), Some(0.5), "as the engine was handed it");
    assert_eq!(int(entry, "gen_ai.usage.input_tokens"), Some(10));
    assert_eq!(int(entry, "gen_ai.usage.output_tokens"), Some(3));
    assert_eq!(int(entry, "gen_ai.usage.total_tokens"), Some(13));
    assert_eq!(int(entry, "gen_ai.usage.cache_read.input_tokens"), Some(4));
    assert_eq!(int(entry, "gen_ai.response.tokens_streamed"), Some(3));
    assert_eq!(float(entry, "gen_ai.latency.e2e"), Some(0.045));
}

#[test]
fn the_request_span_says_what_the_engine_counted() {
    let mut lifecycle = lifecycle();
    run(&mut lifecycle, "aaaabbbbcccc");
    let trace = the_trace(&mut lifecycle);
    let request = span(&trace, "Req aaaabbbb");
    assert_eq!((request.start, request.end), (wall(101), wall(143)));
    assert_eq!(text(request, "rid"), Some("aaaabbbbcccc"));
    assert_eq!(text(request, "module"), Some("sglang::request"));
    assert_eq!(text(request, "gen_ai.response.finish_reasons"), Some(r#"["length"]"#));
    assert_eq!(text(request, "gen_ai.response.model"), Some("tiny"));
    assert_eq!(int(request, "gen_ai.request.max_tokens"), Some(3));
    for (key, millis) in [
        ("gen_ai.latency.time_to_first_token", 22),
        ("gen_ai.latency.e2e", 42),
        ("gen_ai.latency.time_in_model_prefill", 20),
        ("gen_ai.latency.time_in_model_decode", 20),
        ("gen_ai.latency.time_in_model_inference", 40),
    ] {
        let seconds = float(request, key).unwrap();
        assert!((seconds * 1e3 - f64::from(millis)).abs() < 1e-6, "{key} {seconds}");
    }
}

#[test]
fn streamed_increments_count_for_as_many_tokens_as_the_interval_says() {
    let launch = SglangLaunch { stream_interval: 4, ..SglangLaunch::default() };
    let mut lifecycle = lifecycle_of(Settings::default(), launch);
    run(&mut lifecycle, "aaaabbbbcccc");
    let trace = the_trace(&mut lifecycle);
    assert_eq!(int(&trace.spans[0], "gen_ai.response.tokens_streamed"), Some(12));
}

#[test]
fn where_nothing_else_counts_the_increments_stand_for_the_output() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(true));
    delta(&mut lifecycle, 0, 124, says("a", 0, "x"));
    delta(&mut lifecycle, 0, 134, says("a", 0, "y"));
    end(&mut lifecycle, 0, 145, true);
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    assert_eq!(int(&trace.spans[0], "gen_ai.usage.output_tokens"), Some(2));
    let estimated = trace.spans[0].attribute("enginetap.estimated");
    assert_eq!(estimated, Some(&Value::Strs(vec!["gen_ai.usage.output_tokens".into()])));
}

#[test]
fn tool_calls_of_a_streamed_chat_are_named() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ApiRequest { tools: true, ..ask(true) });
    let call = |name: Option<&str>, arguments: &str| {
        let call = ToolCall {
            index: 0,
            id: None,
            name: name.map(str::to_owned),
            arguments: Some(arguments.to_owned()),
        };
        let choice = ChoiceDelta { tool_calls: vec![call], ..ChoiceDelta::default() };
        ApiDelta { id: Some("a".into()), choices: vec![choice], ..ApiDelta::default() }
    };
    dispatch(&mut lifecycle, 103, handed("a", true));
    delta(&mut lifecycle, 0, 120, call(Some("weather"), "{\"city\":"));
    delta(&mut lifecycle, 0, 121, call(None, "\"Oslo\"}"));
    outputs(&mut lifecycle, 130, last("a", 2, "stop"));
    end(&mut lifecycle, 0, 145, true);
    let trace = the_trace(&mut lifecycle);
    let entry = &trace.spans[0];
    assert_eq!(entry.attribute("gen_ai.request.has_tool_calls"), Some(&Value::Bool(true)));
    assert_eq!(entry.attribute("gen_ai.request.tool_call_detected"), Some(&Value::Bool(true)));
    assert_eq!(int(entry, "gen_ai.request.tool_calls_count"), Some(1));
    assert_eq!(text(entry, "gen_ai.completions.0.tool_calls.0.name"), Some("weather"));
    assert_eq!(text(entry, "gen_ai.completions.0.tool_calls.0.arguments"), Some(r#"{"city":"Oslo"}"#));
}

#[test]
fn streamed_parallel_samples_each_name_themselves() {
    let mut lifecycle = lifecycle();
    parallel(&mut lifecycle, true);
    delta(&mut lifecycle, 0, 124, says("two", 1, "x"));
    delta(&mut lifecycle, 0, 125, says("one", 0, "y"));
    outputs(&mut lifecycle, 130, last("one", 3, "length"));
    outputs(&mut lifecycle, 131, last("two", 3, "length"));
    end(&mut lifecycle, 0, 145, true);
    let trace = the_trace(&mut lifecycle);
    let requests: Vec<&str> = names(&trace).into_iter().filter(|name| name.starts_with("Req ")).collect();
    assert_eq!(requests, ["Req warm", "Req one", "Req two"]);
    assert_eq!(int(&trace.spans[0], "gen_ai.usage.input_tokens"), Some(10));
    assert_eq!(int(&trace.spans[0], "gen_ai.usage.output_tokens"), Some(6));
}

#[test]
fn parallel_samples_that_a_response_does_not_name_follow_the_one_it_does() {
    let mut lifecycle = lifecycle();
    parallel(&mut lifecycle, false);
    // Another client's, right after.
    dispatch(&mut lifecycle, 110, handed("other", false));
    outputs(&mut lifecycle, 130, last("one", 3, "length"));
    outputs(&mut lifecycle, 131, last("two", 3, "length"));
    delta(&mut lifecycle, 0, 144, says("one", 0, "x"));
    end(&mut lifecycle, 0, 145, true);
    let trace = the_trace(&mut lifecycle);
    let requests: Vec<&str> = names(&trace).into_iter().filter(|name| name.starts_with("Req ")).collect();
    assert_eq!(requests, ["Req warm", "Req one", "Req two"]);
    assert_eq!(lifecycle.open(), 1);
}

#[test]
fn the_work_of_the_request_that_fills_the_cache_is_that_of_the_one_asked_for() {
    let mut lifecycle = lifecycle();
    parallel(&mut lifecycle, false);
    let parent = FrontendTimes {
        created: sec(101),
        tokenized: sec(101),
        dispatch: sec(102),
        dispatched: sec(103),
        ..FrontendTimes::default()
    };
    let own = FrontendTimes { created: sec(102), ..FrontendTimes::default() };
    let requests = vec![("asked".to_owned(), parent), ("warm".to_owned(), own)];
    lifecycle.frontend_snapshot(FrontendSnapshot { pid: FRONTEND, at: ms(104), requests });
    lifecycle.snapshot(snapshot(SCHEDULER, 121, vec![state("warm", times(), 1)]));
    outputs(&mut lifecycle, 130, last("one", 3, "length"));
    outputs(&mut lifecycle, 131, last("two", 3, "length"));
    delta(&mut lifecycle, 0, 144, says("one", 0, "x"));
    end(&mut lifecycle, 0, 145, true);
    lifecycle.tick(ms(1_000));
    let trace = the_trace(&mut lifecycle);
    let below = |name: &str| {
        let root = span(&trace, name).id;
        let threads: Vec<_> = trace.spans.iter().filter(|span| span.parent == Some(root)).collect();
        let stages = trace.spans.iter().filter(|span| threads.iter().any(|t| span.parent == Some(t.id)));
        stages.map(|span| span.name.to_string()).collect::<Vec<_>>()
    };
    let whole = ["tokenize", "api_server_dispatch", "request_process", "prefill_waiting", "prefill_forward"];
    assert_eq!(below("Req asked"), whole);
    assert_eq!(below("Req warm"), ["tokenize"]);
}

#[test]
fn a_client_that_left_before_any_answer_is_joined_by_what_was_taken_back() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(false));
    dispatch(&mut lifecycle, 103, handed("a", false));
    dispatch(&mut lifecycle, 104, handed("b", false));
    end(&mut lifecycle, 0, 150, false);
    lifecycle.sglang(FRONTEND, SglangSignal::Aborted { at: ms(4_100), rid: Some("b".into()), finish: None });
    outputs(&mut lifecycle, 4_110, last("b", 2, "abort"));
    lifecycle.tick(ms(5_000));
    let trace = the_trace(&mut lifecycle);
    assert!(names(&trace).contains(&"Req b") && !names(&trace).contains(&"Req a"), "{:?}", names(&trace));
}

#[test]
fn a_refused_request_has_an_entry_span_only() {
    let mut lifecycle = lifecycle();
    request(&mut lifecycle, 0, ask(false));
    head(&mut lifecycle, 0, 103, 400);
    delta(&mut lifecycle, 0, 103, ApiDelta { error: Some(ApiError::default()), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 104, true);
    let trace = the_trace(&mut lifecycle);
    assert_eq!(names(&trace), ["chat tiny"]);
    assert_eq!(text(&trace.spans[0], "error.type"), Some("400"));
}

#[test]
fn embeddings_have_no_entry_span_in_sglangs_contract() {
    let mut lifecycle = lifecycle();
    let asked = ApiRequest { operation: Operation::Embeddings, max_tokens: None, ..ask(false) };
    request(&mut lifecycle, 0, asked);
    let embedding = SglangRequest { embedding: true, sampling: None, ..handed("a", false) };
    dispatch(&mut lifecycle, 103, embedding);
    let done = SglangOutput { completion_tokens: None, embedding: true, ..last("a", 0, "length") };
    outputs(&mut lifecycle, 120, done);
    delta(&mut lifecycle, 0, 122, ApiDelta { id: Some("a".into()), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 123, true);
    let trace = the_trace(&mut lifecycle);
    assert_eq!(trace.spans[0].name, "Req a");
    assert_eq!(trace.spans[0].attribute("gen_ai.usage.completion_tokens"), None);
}

#[test]
fn the_callers_trace_is_continued() {
    let mut lifecycle = lifecycle();
    let traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    request(&mut lifecycle, 0, ApiRequest { traceparent, ..ask(false) });
    dispatch(&mut lifecycle, 103, handed("a", false));
    outputs(&mut lifecycle, 120, last("a", 1, "stop"));
    delta(&mut lifecycle, 0, 122, says("a", 0, "x"));
    end(&mut lifecycle, 0, 123, true);
    let trace = the_trace(&mut lifecycle);
    assert_eq!(trace.spans[0].trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(trace.spans[0].parent.map(|id| id.to_string()).as_deref(), Some("b7ad6b7169203331"));
    assert_eq!(span(&trace, "Req a").parent, Some(trace.spans[0].id));
}
