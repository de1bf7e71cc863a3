//! Behaviours of real vLLM servers, each recorded once from outside by `enginetap record` while
//! `tests/scenarios/vllm.py` ran, replayed through the whole pipeline: every request its client made must be one
//! trace that says what the client saw, and the metrics what the server counted.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeSet;

use enginetap_core::capture::fact::Fact;
use enginetap_core::model::metric::Point;
use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{Event, Span, Status, Trace, Value};
use enginetap_core::settings::{Settings, VllmLevel};
use enginetap_tests::captures::{Capture, Input, Metrics, VLLM_TOTALS};
use enginetap_tests::replayed::{Replayed, int};
use serde_json::Value as Json;

/// A behaviour: what came out, what the client saw, and by how much the server's own counters grew.
struct Behaviour {
    name: &'static str,
    replayed: Replayed,
    client: Vec<Json>,
    server: Metrics,
}

impl Behaviour {
    fn of(name: &'static str) -> Self {
        let capture = Capture::read(name).unwrap();
        let settings = Settings { vllm_level: VllmLevel::Iterations, ..Settings::default() };
        Self {
            name,
            replayed: Replayed::of(&capture, settings).unwrap(),
            // Nobody is left to tell where the server was killed.
            client: capture.scenario().unwrap_or_default(),
            // A server without statistics has no page.
            server: capture.metrics().unwrap_or_else(|_| Metrics::parse(String::new())),
        }
    }

    /// A request of the client's, by its label.
    fn asked(&self, label: &str) -> &Json {
        self.client.iter().find(|asked| asked["label"] == label).unwrap_or_else(|| panic!("no {label}"))
    }

    /// The traces of a request that was answered with an id.
    fn of_id(&self, id: &str) -> Vec<&Trace> {
        let id = Value::from(id);
        let of_id =
            |trace: &&Trace| entry(trace).is_some_and(|e| e.attribute(attr::RESPONSE_ID) == Some(&id));
        self.replayed.traces.iter().filter(of_id).collect()
    }

    /// The trace of a request, by its label.
    fn trace(&self, label: &str) -> &Trace {
        let traces = self.of_id(self.asked(label)["id"].as_str().unwrap());
        assert_eq!(traces.len(), 1, "{}: {label}", self.name);
        traces[0]
    }

    /// Every request is one trace that says what the client saw, and nothing was lost.
    fn check_traces(&self) {
        let entries = self.replayed.traces.iter().filter(|trace| entry(trace).is_some()).count();
        let spans = |wanted: bool| self.client.iter().filter(|asked| asked["span"] == wanted).count();
        let doubtful = self.client.iter().filter(|asked| asked["span"].is_null()).count();
        let expected = spans(true)..=spans(true) + doubtful;
        assert!(expected.contains(&entries), "{}: {entries} entry spans, not {expected:?}", self.name);
        for asked in &self.client {
            self.check_trace(asked);
        }
        for (reason, count) in self.replayed.losses.iter() {
            assert_eq!(count, 0, "{}: {}", self.name, reason.name());
        }
        let marked = self.replayed.traces.iter().flat_map(|trace| &trace.spans);
        assert!(marked.clone().all(|span| span.attribute(attr::LOSS).is_none()), "{}", self.name);
    }

    fn check_trace(&self, asked: &Json) {
        let Some(id) = asked["id"].as_str() else { return };
        if asked["span"] != true {
            return;
        }
        let traces = self.of_id(id);
        let same = self.client.iter().filter(|other| other["id"] == id).count();
        assert_eq!(traces.len(), same, "{}: {asked}", self.name);
        for trace in traces {
            let (entry, engine) = (entry(trace).unwrap(), engine(trace));
            let label = format!("{}: {asked}\n{trace:#?}", self.name);
            if let Some(expected) = asked["engine"].as_u64() {
                assert_eq!(u64::try_from(engine.len()).unwrap(), expected, "{label}");
            }
            assert!(engine.iter().all(|span| span.parent == Some(entry.id)), "{label}");
            assert!(
                trace.spans.iter().all(|span| span.trace == entry.trace && span.start <= span.end),
                "{label}"
            );
            check_usage(asked, entry, &engine, &label);
            check_finish(asked, entry, &label);
            check_caller(asked, trace, &label);
        }
    }

    /// The totals equal the server's own counters.
    fn check_metrics(&self) {
        let mut wrong = Vec::new();
        for (name, theirs) in VLLM_TOTALS {
            let (ours, theirs) = (self.replayed.metric(name), self.server.sum(theirs).unwrap_or(0.0));
            // The server's growth is a difference of two sums: not to the last bit.
            if (ours - theirs).abs() > 1e-9 * theirs.abs().max(1.0) {
                wrong.push(format!("{name} is {ours:?}, the server says {theirs:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", self.name, wrong.join("\n"));
    }
}

fn check_usage(asked: &Json, entry: &Span, engine: &[&Span], label: &str) {
    let of = |keys: [&str; 2]| keys.iter().find_map(|key| asked["usage"][key].as_i64());
    if let Some(tokens) = of(["prompt_tokens", "input_tokens"]) {
        assert_eq!(int(entry, attr::USAGE_INPUT_TOKENS), Some(tokens), "{label}");
    }
    if let Some(tokens) = of(["completion_tokens", "output_tokens"]) {
        assert_eq!(int(entry, attr::USAGE_OUTPUT_TOKENS), Some(tokens), "{label}");
        if asked["engine"].is_u64() {
            let counted: Option<i64> = engine.iter().map(|s| int(s, attr::USAGE_COMPLETION_TOKENS)).sum();
            assert_eq!(counted, Some(tokens), "{label}");
        }
    }
}

fn check_finish(asked: &Json, entry: &Span, label: &str) {
    let finish = asked["finish"].as_array().filter(|reasons| !reasons.is_empty());
    if let Some(finish) = finish {
        let finish: Vec<String> = finish.iter().map(|reason| reason.as_str().unwrap().to_owned()).collect();
        assert_eq!(entry.attribute(attr::RESPONSE_FINISH_REASONS), Some(&Value::from(finish)), "{label}");
    }
}

fn check_caller(asked: &Json, trace: &Trace, label: &str) {
    let entry = entry(trace).unwrap();
    match (asked["trace"].as_str(), asked["parent"].as_str()) {
        (Some(id), Some(parent)) => {
            assert_eq!(entry.trace.to_string(), id, "{label}");
            assert_eq!(entry.parent.map(|parent| parent.to_string()).as_deref(), Some(parent), "{label}");
            assert_eq!(trace.sampled, asked["sampled"] == true, "{label}");
        }
        (None, _) | (_, None) => assert!(entry.parent.is_none() && trace.sampled, "{label}"),
    }
}

fn entry(trace: &Trace) -> Option<&Span> {
    trace.spans.first().filter(|span| span.attribute(attr::SPAN_KIND).is_some())
}

fn engine(trace: &Trace) -> Vec<&Span> {
    trace.spans.iter().filter(|span| span.name == "llm_request").collect()
}

fn events(span: &Span, name: &str) -> usize {
    span.events.iter().filter(|event| event.name == name).count()
}

fn event_int(event: &Event, key: &str) -> Option<i64> {
    event.attributes.iter().filter(|attribute| attribute.key == key).find_map(|attribute| {
        match attribute.value {
            Value::Int(value) => Some(value),
            Value::Str(_) | Value::Float(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_) => None,
        }
    })
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match span.attribute(key) {
        Some(Value::Str(value)) => Some(value),
        Some(Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Strs(_) | Value::Ints(_)) | None => {
            None
        }
    }
}

#[test]
fn every_way_to_ask_for_a_generation_is_a_trace_of_its_own() {
    let answers = Behaviour::of("answers");
    answers.check_traces();
    answers.check_metrics();
    let logprobs = engine(answers.trace("logprobs"))[0];
    let with_logprobs = |span: &Span| {
        span.events.iter().filter(|e| e.attributes.iter().any(|a| a.key == attr::TOKEN_LOGPROBS)).count()
    };
    assert_eq!(with_logprobs(logprobs), 6);
    assert_eq!(with_logprobs(engine(answers.trace("completion"))[0]), 0, "nobody asked for them");
    let stopped = engine(answers.trace("stop string streamed"))[0];
    assert_eq!(text(stopped, attr::FINISH_REASON), Some("stop"));
    assert_eq!(stopped.status, Status::Unset);
}

#[test]
fn one_prefill_and_one_event_a_token_where_nothing_disturbs() {
    let answers = Behaviour::of("answers");
    for label in ["chat", "chat streamed", "completion", "one token", "batch of 3, n=2, streamed"] {
        for span in engine(answers.trace(label)) {
            let tokens = usize::try_from(int(span, attr::USAGE_COMPLETION_TOKENS).unwrap()).unwrap();
            assert_eq!((events(span, "WAIT"), events(span, "PREFILL")), (1, 1), "{label}");
            assert_eq!(events(span, "DECODE"), tokens - 1, "{label}: {span:#?}");
        }
    }
}

#[test]
fn the_other_apis_make_entry_spans_or_are_passed_over() {
    let other = Behaviour::of("other-apis");
    other.check_traces();
    other.check_metrics();
}

#[test]
fn callers_own_their_traces_and_may_choose_ids_twice() {
    let callers = Behaviour::of("callers");
    callers.check_traces();
    callers.check_metrics();
    let twins = callers.of_id(callers.asked("x-request-id twice at once")["id"].as_str().unwrap());
    let engines: BTreeSet<Option<&str>> =
        twins.iter().flat_map(|trace| engine(trace)).map(|span| text(span, attr::REQUEST_ID)).collect();
    assert_eq!((twins.len(), engines.len()), (2, 2));
}

#[test]
fn clients_that_go_away_end_in_an_error_and_their_requests_in_an_abort() {
    for name in ["leavers", "tls-leavers"] {
        let leavers = Behaviour::of(name);
        leavers.check_traces();
        leavers.check_metrics();
        let has_left = |trace: &&Trace| {
            entry(trace).is_some_and(|e| text(e, attr::ERROR_TYPE) == Some("client_disconnected"))
        };
        let left: Vec<&Trace> = leavers.replayed.traces.iter().filter(has_left).collect();
        let whole: Vec<usize> =
            left.iter().map(|trace| engine(trace).len()).filter(|count| *count > 0).collect();
        assert_eq!(whole, [1, 1, 2, 1], "{name}");
        for span in left.iter().flat_map(|trace| engine(trace)) {
            assert_eq!(text(span, attr::FINISH_REASON), Some("abort"), "{name}: {span:#?}");
        }
        let queued = left
            .iter()
            .flat_map(|trace| engine(trace))
            .filter(|span| int(span, attr::USAGE_COMPLETION_TOKENS) == Some(0));
        assert_eq!(queued.count(), 1, "{name}: one never got a token");
    }
}

#[test]
fn whatever_http_allows_on_a_connection_is_understood() {
    for name in ["connections", "tls-connections"] {
        let connections = Behaviour::of(name);
        connections.check_traces();
        connections.check_metrics();
        let refused = connections.client.iter().filter(|asked| asked["span"] == true && asked["engine"] == 0);
        let entries = connections.replayed.traces.iter().filter_map(entry);
        let failed = entries.filter(|e| matches!(e.status, Status::Error(_)));
        assert_eq!(failed.count(), refused.count(), "{name}");
    }
}

#[test]
fn behind_tls_every_request_has_its_spans() {
    let tls = Behaviour::of("tls");
    tls.check_traces();
    tls.check_metrics();
    assert!(tls.replayed.spans("llm_request").count() > 16);
}

#[test]
fn of_connections_that_begin_at_once_none_ends_with_another() {
    let capture = Capture::read("tls-at-once").unwrap();
    let replayed = Replayed::of(&capture, Settings::default()).unwrap();
    let entries: Vec<&Span> = replayed.traces.iter().filter_map(entry).collect();
    let left = |e: &&&Span| text(e, attr::ERROR_TYPE) == Some("client_disconnected");
    let client = capture.client().unwrap();
    let aborted = client.iter().filter(|asked| asked["aborted"] == true);
    assert_eq!(
        (entries.len(), entries.iter().filter(left).count()),
        (client.len(), aborted.count()),
        "requests, and those that their clients left"
    );
    for id in client.iter().filter_map(|asked| asked["id"].as_str()) {
        let of_id = entries.iter().filter(|e| text(e, attr::RESPONSE_ID) == Some(id));
        assert_eq!(of_id.count(), 1, "{id}");
    }
}

#[test]
fn many_streams_at_once_are_told_apart() {
    let crowd = Behaviour::of("crowd");
    crowd.check_traces();
    crowd.check_metrics();
    assert_eq!(crowd.replayed.traces.len(), 64);
}

#[test]
fn tools_that_were_forced_are_in_the_output() {
    let tools = Behaviour::of("tools");
    tools.check_traces();
    tools.check_metrics();
    for label in ["named tool streamed", "required tool streamed"] {
        let output = text(entry(tools.trace(label)).unwrap(), attr::OUTPUT_MESSAGES).unwrap();
        let output: Json = serde_json::from_str(output).unwrap();
        let call = &output[0]["parts"][0];
        assert_eq!((&call["type"], &call["name"]), (&"tool_call".into(), &"weather".into()), "{output}");
    }
}

#[test]
fn a_prompt_longer_than_a_step_is_prefilled_in_chunks() {
    let chunks = Behaviour::of("chunks");
    chunks.check_traces();
    chunks.check_metrics();
    let span = engine(chunks.trace("300 tokens"))[0];
    // Steps of 64 tokens: 300 take five, of which the last gives the first token.
    assert_eq!((events(span, "PREFILL"), events(span, "DECODE")), (5, 3), "{span:#?}");
}

#[test]
fn a_step_of_speculation_gives_several_tokens_and_each_counts() {
    let speculation = Behaviour::of("speculation");
    speculation.check_traces();
    speculation.check_metrics();
    for label in ["repeating", "repeating streamed", "repeating, logprobs"] {
        let span = engine(speculation.trace(label))[0];
        let counts: Vec<i64> =
            span.events.iter().filter_map(|event| event_int(event, attr::TOKEN_COUNT)).collect();
        assert_eq!(Some(counts.iter().sum::<i64>()), int(span, attr::USAGE_COMPLETION_TOKENS), "{label}");
        assert!(counts.iter().any(|count| *count > 1), "{label}: {counts:?}");
    }
}

#[test]
fn without_statistics_what_is_estimated_says_so_and_what_is_unknown_is_left_out() {
    let plain = Behaviour::of("no-stats");
    plain.check_traces();
    for span in plain.replayed.spans("llm_request") {
        let Some(Value::Strs(estimated)) = span.attribute(attr::ESTIMATED) else { panic!("{span:#?}") };
        assert!(estimated.contains(&attr::LATENCY_TIME_IN_QUEUE.to_owned()), "{span:#?}");
        assert!(!estimated.contains(&attr::LATENCY_TIME_IN_MODEL_DECODE.to_owned()), "{span:#?}");
    }
    assert!(plain.replayed.spans("wait").all(|span| span.attribute(attr::ESTIMATED).is_some()));
    assert!(plain.replayed.spans("decode").all(|span| span.attribute(attr::ESTIMATED).is_none()));
    let names: BTreeSet<&str> = plain.replayed.points.iter().map(|point| point.metric.name).collect();
    for unknown in [
        "num_requests_running",
        "kv_cache_usage_perc",
        "prefix_cache_hits",
        "num_preemptions",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_inference_time_seconds",
    ] {
        assert!(!names.contains(format!("gen_ai_vllm_{unknown}").as_str()), "{unknown}");
    }
    let tokens: i64 =
        plain.client.iter().filter_map(|asked| asked["usage"]["completion_tokens"].as_i64()).sum();
    #[allow(clippy::cast_precision_loss, reason = "a few hundred tokens")]
    let with_left = tokens as f64..tokens as f64 + 10.0;
    assert!(with_left.contains(&plain.replayed.metric("gen_ai_vllm_generation_tokens")));
}

#[test]
fn pooling_requests_are_joined_to_their_answers_and_have_no_decode() {
    let pooling = Behaviour::of("pooling");
    pooling.check_traces();
    pooling.check_metrics();
    let names: BTreeSet<&str> =
        pooling.replayed.traces.iter().filter_map(entry).map(|span| span.name.as_ref()).collect();
    assert_eq!(names, BTreeSet::from(["chat tiny", "embeddings tiny", "rerank tiny"]));
    for (label, requests) in [("embed v2", 2), ("/score", 3), ("/v2/rerank", 4)] {
        let trace = pooling.trace(label);
        assert_eq!(engine(trace).len(), requests, "{label}");
        assert!(trace.spans.iter().all(|span| span.name != "decode"), "{label}");
    }
}

#[test]
fn two_engines_and_two_frontends_are_one_server_whose_engines_are_told_apart() {
    let parallel = Behaviour::of("data-parallel");
    parallel.check_traces();
    parallel.check_metrics();
    let counted = |name: &str, index: &str| {
        let of_engine = |point: &&Point| {
            point.metric.name == name
                && point.dimensions.iter().any(|(key, value)| *key == "engine_index" && value == index)
        };
        parallel.replayed.points.iter().filter(of_engine).map(|point| point.value.as_f64()).sum::<f64>()
    };
    for index in ["0", "1"] {
        let label = format!("engine=\"{index}\"");
        for (ours, theirs) in VLLM_TOTALS {
            let theirs = parallel.server.sum_of(theirs, &label).unwrap();
            assert!((counted(ours, index) - theirs).abs() < 1e-9, "{ours} of engine {index}, not {theirs}");
        }
        // A step whose outputs go to both frontends is two messages, a microsecond apart.
        let steps: BTreeSet<u64> = parallel
            .replayed
            .spans("llm_request")
            .filter(|span| int(span, attr::ENGINE_INDEX) == index.parse().ok())
            .flat_map(|span| &span.events)
            .filter(|event| event.name == "PREFILL" || event.name == "DECODE")
            .map(|event| event.at.0 / 250_000)
            .collect();
        let steps = u32::try_from(steps.len()).unwrap();
        // The steps of a request taken back, after that, are no events.
        let expected = f64::from(steps)..=f64::from(steps + 3);
        assert!(expected.contains(&counted("vllm_iter_count", index)), "{expected:?}");
    }
}

#[test]
fn a_version_that_nobody_listed_is_read_by_the_field_orders_of_its_sources() {
    let unlisted = Behaviour::of("unlisted");
    let schema =
        Capture::read("unlisted").unwrap().inputs().unwrap().into_iter().find_map(|input| match input {
            Input::Fact(fact) => match *fact {
                Fact::Server(server) => server.schema,
                Fact::Clock(_)
                | Fact::Process(_)
                | Fact::Conn(_)
                | Fact::Detached(_)
                | Fact::Snapshot(_)
                | Fact::FrontendSnapshot(_)
                | Fact::V0Snapshot(_)
                | Fact::Shared(_)
                | Fact::Gpus(_)
                | Fact::Waits(_) => None,
            },
            Input::Record(_) => None,
        });
    // A field that no version has, in the middle of both messages.
    let schema = schema.unwrap();
    assert_eq!(
        (schema.request.iter().position(|f| f == "brand_new"), schema.output[2].as_str()),
        (Some(9), "brand_new")
    );
    unlisted.check_traces();
    unlisted.check_metrics();
}

#[test]
fn a_server_that_is_killed_ends_its_requests_in_an_error() {
    for (name, entry_error, engine_error) in [
        ("server-killed", "server_died", "server_died"),
        ("engine-killed", "InternalServerError", "server_died"),
    ] {
        let killed = Behaviour::of(name);
        let [trace] = killed.replayed.traces.as_slice() else {
            panic!("{name}: {:#?}", killed.replayed.traces)
        };
        let (entry, engine) = (entry(trace).unwrap(), engine(trace));
        assert!(matches!(entry.status, Status::Error(_)), "{name}: {entry:#?}");
        assert_eq!(text(entry, attr::ERROR_TYPE), Some(entry_error), "{name}");
        assert_eq!(engine.len(), 1, "{name}");
        assert_eq!(text(engine[0], attr::ERROR_TYPE), Some(engine_error), "{name}");
        assert!(int(engine[0], attr::USAGE_COMPLETION_TOKENS).unwrap() > 0, "{name}");
    }
}
