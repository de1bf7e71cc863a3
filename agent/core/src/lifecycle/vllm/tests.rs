//! Lifecycle tests: signals as the dialects give them, traces and totals as they must come out.

use crate::capture::fact::{Engine, Process, Role, Server as ServerFact};
use crate::dialect::signal::*;
use crate::ids::{ConnId, ExchangeId};
use crate::lifecycle::*;
use crate::model::metric::Number;
use crate::model::registry::{attr, metric};
use crate::model::span::{Span, Status, Value};
use crate::settings::VllmLevel;
use crate::time::{EngineTime, EpochTime, Nanos, WallTime};

mod clock;
mod content;
mod overrun;
mod transfer;

const PID: Pid = Pid(10);
const SERVER: ServerId = ServerId(1);
/// Wall clock minus monotonic clock in these tests.
const EPOCH: u64 = 1_000_000_000_000;

fn ms(ms: u64) -> MonoTime {
    MonoTime(ms * 1_000_000)
}

/// The same moment as the engine writes it.
fn sec(millis: u64) -> EngineTime {
    ms(millis).engine()
}

fn lifecycle(settings: Settings) -> Lifecycle {
    let mut lifecycle = Lifecycle::new(settings);
    lifecycle.clock(Clock { mono: MonoTime(0), wall: WallTime(EPOCH) });
    lifecycle.server(ServerFact {
        id: SERVER,
        engine: Engine::Vllm,
        version: Some("0.32.0".into()),
        models: vec!["tiny".into()],
        schema: None,
        resource: Vec::new(),
        sglang: None,
        v0: false,
    });
    let role = Role::ApiServer;
    lifecycle.process(Process { pid: PID, server: SERVER, role, title: "vllm".into() });
    lifecycle
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { conn: ConnId(7), number }
}

fn ask(stream: bool) -> ApiRequest {
    ApiRequest {
        operation: Operation::Chat,
        path: "/v1/chat/completions".into(),
        request_id: None,
        traceparent: None,
        tracestate: None,
        model: Some("tiny".into()),
        choices: None,
        prompts: 1,
        temperature: None,
        top_p: None,
        top_k: None,
        max_tokens: Some(3),
        stream,
        user: Some("ann".into()),
        stop: false,
        logprobs: false,
        tools: false,
        content: Some("[]".into()),
        cut: false,
    }
}

/// What the client asks at 100 ms.
fn request(lifecycle: &mut Lifecycle, number: u64, request: ApiRequest) {
    let signal = ApiSignal::Request {
        exchange: exchange(number),
        first_byte: ms(100),
        last_byte: ms(101),
        request: Box::new(request),
    };
    lifecycle.api(PID, signal);
}

fn delta(lifecycle: &mut Lifecycle, number: u64, at: u64, delta: ApiDelta) {
    let delta = Box::new(delta);
    lifecycle.api(PID, ApiSignal::Delta { exchange: exchange(number), at: ms(at), delta });
}

fn end(lifecycle: &mut Lifecycle, number: u64, at: u64, complete: bool) {
    lifecycle.api(PID, ApiSignal::End { exchange: exchange(number), at: ms(at), complete });
}

fn sampling(delta: bool) -> Sampling {
    Sampling { max_tokens: Some(3), delta, temperature: 0.5, ..Sampling::default() }
}

/// The frontend hands a request to the engine at 104 ms; it took it up at 102 ms.
fn add(lifecycle: &mut Lifecycle, id: &str, external: &str, sampling: Sampling) {
    let request = EngineRequest {
        id: id.into(),
        external_id: Some(external.into()),
        prompt_tokens: Some(10),
        sampling: Some(sampling),
        arrival: Some(EpochTime((EPOCH as f64 + 102e6) / 1e9)),
        ..EngineRequest::default()
    };
    lifecycle.engine(PID, EngineSignal::Added { at: ms(104), request: Box::new(request) });
}

fn output(id: &str, tokens: &[u32]) -> EngineOutput {
    let token_count = u32::try_from(tokens.len()).unwrap();
    EngineOutput { id: id.into(), tokens: tokens.to_vec(), token_count, ..EngineOutput::default() }
}

fn first_output(id: &str, token: u32) -> EngineOutput {
    let event = |kind, at| EngineEvent { kind, at: sec(at) };
    let events = vec![event(EngineEventKind::Queued, 105), event(EngineEventKind::Scheduled, 110)];
    let cached = Some(CachedTokens { total: 4, external: 0, computed: Some(6) });
    EngineOutput { events, cached, ..output(id, &[token]) }
}

/// A step that ended at `at` and reached the frontend 1 ms later.
fn step(lifecycle: &mut Lifecycle, at: u64, outputs: Vec<EngineOutput>) {
    let stats = SchedulerStats { running: 1, kv_usage: 0.25, ..SchedulerStats::default() };
    let step = EngineStep { timestamp: Some(sec(at)), outputs, stats: Some(stats), ..EngineStep::default() };
    lifecycle.engine(PID, EngineSignal::Step { at: ms(at + 1), step: Box::new(step) });
}

/// Three tokens: steps at 120, 130 and 140 ms.
fn run(lifecycle: &mut Lifecycle, id: &str) {
    step(lifecycle, 120, vec![first_output(id, 1)]);
    step(lifecycle, 130, vec![output(id, &[2])]);
    step(lifecycle, 140, vec![EngineOutput { finish: Some(Finish::Length), ..output(id, &[3]) }]);
}

fn body(id: &str) -> ApiDelta {
    let choice = ChoiceDelta {
        id: None,
        text: Some("abc".into()),
        finish_reason: Some("length".into()),
        ..ChoiceDelta::default()
    };
    let usage = Usage { prompt: Some(10), completion: Some(3), total: Some(13), cached: None };
    ApiDelta { id: Some(id.into()), choices: vec![choice], usage: Some(usage), ..ApiDelta::default() }
}

fn one(lifecycle: &mut Lifecycle) -> Trace {
    let mut traces = lifecycle.traces();
    assert_eq!(traces.len(), 1, "{traces:#?}");
    traces.remove(0)
}

fn span<'a>(trace: &'a Trace, name: &str) -> &'a Span {
    trace.spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {trace:#?}"))
}

fn int(span: &Span, key: &str) -> i64 {
    match span.attribute(key) {
        Some(Value::Int(value)) => *value,
        other => panic!("{key} is {other:?}"),
    }
}

fn counter(lifecycle: &Lifecycle, name: &str) -> f64 {
    let points = lifecycle.points(ms(1000));
    points.iter().filter(|point| point.metric.name == name).map(|point| point.value.as_f64()).sum()
}

#[test]
fn a_whole_request_becomes_one_trace_with_the_engines_own_times() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    assert!(lifecycle.traces().is_empty());
    end(&mut lifecycle, 0, 145, true);

    let trace = one(&mut lifecycle);
    let names: Vec<&str> = trace.spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["chat tiny", "llm_request", "wait", "prefill", "decode"]);
    let entry = span(&trace, "chat tiny");
    assert_eq!((entry.start, entry.end), (WallTime(EPOCH + 100_000_000), WallTime(EPOCH + 145_000_000)));
    let engine = span(&trace, "llm_request");
    assert_eq!(engine.parent, Some(entry.id));
    assert_eq!(span(&trace, "wait").parent, Some(engine.id));
    let ns = |key| int(engine, key);
    assert_eq!(ns(attr::LATENCY_TIME_IN_QUEUE), 5_000_000);
    assert_eq!(ns(attr::LATENCY_TIME_IN_MODEL_PREFILL), 10_000_000);
    assert_eq!(ns(attr::LATENCY_TIME_IN_MODEL_DECODE), 20_000_000);
    assert_eq!(ns(attr::LATENCY_TIME_IN_MODEL_INFERENCE), 30_000_000);
    assert_eq!(ns(attr::LATENCY_TIME_TO_FIRST_TOKEN), 19_000_000);
    assert_eq!(ns(attr::LATENCY_E2E), 39_000_000);
    assert_eq!(ns(attr::USAGE_CACHE_READ_INPUT_TOKENS), 4);
    assert_eq!(lifecycle.open(), 0);
}

#[test]
fn totals_are_the_engines_own_sums() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 145, true);
    assert_eq!(counter(&lifecycle, metric::REQUEST_QUEUE_TIME_SECONDS.name), 0.110 - 0.105);
    assert_eq!(counter(&lifecycle, metric::REQUEST_PREFILL_TIME_SECONDS.name), 0.120 - 0.110);
    assert_eq!(counter(&lifecycle, metric::REQUEST_DECODE_TIME_SECONDS.name), 0.140 - 0.120);
    assert_eq!(counter(&lifecycle, metric::GENERATION_TOKENS.name), 3.0);
    assert_eq!(counter(&lifecycle, metric::PROMPT_TOKENS.name), 10.0);
    assert_eq!(counter(&lifecycle, metric::REQUEST_SUCCESS.name), 1.0);
    assert_eq!(counter(&lifecycle, metric::REQUEST_PARAMS_N.name), 1.0);
    assert_eq!(counter(&lifecycle, metric::REQUEST_PARAMS_MAX_TOKENS.name), 3.0);
    assert_eq!(counter(&lifecycle, metric::VLLM_ITER_COUNT.name), 3.0);
    assert_eq!(counter(&lifecycle, metric::USAGE_TOKENS.name), 13.0);
}

#[test]
fn candidates_share_one_trace_and_count_n_once() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ApiRequest { choices: Some(2), ..ask(false) });
    for id in ["0_chatcmpl-x-0a0a0a0a", "1_chatcmpl-x-0a0a0a0a"] {
        add(&mut lifecycle, id, "chatcmpl-x", sampling(false));
    }
    for id in ["1_chatcmpl-x-0a0a0a0a", "0_chatcmpl-x-0a0a0a0a"] {
        run(&mut lifecycle, id);
    }
    delta(&mut lifecycle, 0, 145, ApiDelta { usage: None, ..body("chatcmpl-x") });
    end(&mut lifecycle, 0, 145, true);
    let trace = one(&mut lifecycle);
    assert_eq!(trace.spans.iter().filter(|span| span.name == "llm_request").count(), 2);
    assert_eq!(int(span(&trace, "chat tiny"), attr::USAGE_INPUT_TOKENS), 10);
    assert_eq!(int(span(&trace, "chat tiny"), attr::USAGE_OUTPUT_TOKENS), 6);
    assert_eq!(counter(&lifecycle, metric::REQUEST_PARAMS_N.name), 2.0);
    assert_eq!(counter(&lifecycle, metric::REQUEST_SUCCESS.name), 2.0);
}

#[test]
fn a_client_that_goes_away_leaves_an_error_and_no_success() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    step(&mut lifecycle, 120, vec![first_output("chatcmpl-x-0a0a0a0a", 1)]);
    delta(&mut lifecycle, 0, 122, ApiDelta { id: Some("chatcmpl-x".into()), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 125, false);
    assert!(lifecycle.traces().is_empty(), "the engine has not been told yet");
    let ids = vec!["chatcmpl-x-0a0a0a0a".into()];
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(135), ids });
    let trace = one(&mut lifecycle);
    assert!(matches!(span(&trace, "chat tiny").status, Status::Error(_)));
    assert_eq!(span(&trace, "llm_request").attribute(attr::FINISH_REASON), Some(&"abort".into()));
    assert_eq!(counter(&lifecycle, metric::REQUEST_SUCCESS.name), 0.0);
    assert_eq!(counter(&lifecycle, metric::GENERATION_TOKENS.name), 1.0);
}

#[test]
fn a_client_that_goes_away_before_any_answer_is_joined_by_its_parameters() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-other-0a0a0a0a", "chatcmpl-other", sampling(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    end(&mut lifecycle, 0, 125, false);
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(135), ids: vec!["chatcmpl-x-0a0a0a0a".into()] });
    lifecycle.tick(ms(140));
    let trace = one(&mut lifecycle);
    assert_eq!(span(&trace, "llm_request").attribute(attr::REQUEST_ID), Some(&"chatcmpl-x-0a0a0a0a".into()));
}

#[test]
fn a_stop_string_ends_a_request_where_the_client_was_told() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ApiRequest { stop: true, ..ask(false) });
    let id = "chatcmpl-x-0a0a0a0a";
    add(&mut lifecycle, id, "chatcmpl-x", Sampling { stop: true, max_tokens: Some(50), ..sampling(false) });
    step(&mut lifecycle, 120, vec![first_output(id, 1)]);
    // The stop was in the token of 130; those of 140 and 150 are the engine's overrun.
    for at in [130, 140, 150] {
        step(&mut lifecycle, at, vec![output(id, &[2])]);
    }
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(152), ids: vec![id.into()] });
    step(&mut lifecycle, 160, vec![output(id, &[2])]);
    let mut said = body("chatcmpl-x");
    said.usage = Some(Usage { completion: Some(2), ..Usage::default() });
    delta(&mut lifecycle, 0, 153, said);
    end(&mut lifecycle, 0, 153, true);
    let trace = one(&mut lifecycle);
    let engine = span(&trace, "llm_request");
    assert_eq!(int(engine, attr::USAGE_COMPLETION_TOKENS), 2);
    assert_eq!(int(engine, attr::LATENCY_TIME_IN_MODEL_DECODE), 10_000_000);
    assert_eq!(engine.attribute(attr::FINISH_REASON), Some(&"stop".into()));
    assert_eq!(counter(&lifecycle, metric::GENERATION_TOKENS.name), 2.0);
    assert_eq!(counter(&lifecycle, metric::REQUEST_SUCCESS.name), 1.0);
}

#[test]
fn a_refused_request_is_an_entry_span_alone() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    lifecycle.api(PID, ApiSignal::Head { exchange: exchange(0), at: ms(103), status: 400, streaming: false });
    let error = ApiError { kind: Some("BadRequestError".into()), message: None, code: Some(400) };
    delta(&mut lifecycle, 0, 103, ApiDelta { error: Some(error), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 103, true);
    let trace = one(&mut lifecycle);
    assert_eq!(trace.spans.len(), 1);
    assert_eq!(trace.spans[0].attribute(attr::ERROR_TYPE), Some(&"BadRequestError".into()));
    assert_eq!(int(&trace.spans[0], attr::HTTP_STATUS), 400);
}

#[test]
fn a_preemption_is_counted_and_does_not_reset_the_schedule() {
    let mut lifecycle = lifecycle(Settings { vllm_level: VllmLevel::Iterations, ..Settings::default() });
    request(&mut lifecycle, 0, ask(false));
    let id = "chatcmpl-x-0a0a0a0a";
    add(&mut lifecycle, id, "chatcmpl-x", sampling(false));
    step(&mut lifecycle, 120, vec![first_output(id, 1)]);
    let event = |kind, at| EngineEvent { kind, at: sec(at) };
    let events = vec![event(EngineEventKind::Preempted, 125), event(EngineEventKind::Scheduled, 135)];
    let finish = Some(Finish::Length);
    step(&mut lifecycle, 140, vec![EngineOutput { events, finish, ..output(id, &[2]) }]);
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 145, true);
    let trace = one(&mut lifecycle);
    let engine = span(&trace, "llm_request");
    assert_eq!(int(engine, attr::REQUEST_PREEMPTION_COUNT), 1);
    assert_eq!(int(engine, attr::LATENCY_TIME_IN_MODEL_PREFILL), 10_000_000);
    let names: Vec<&str> = engine.events.iter().map(|event| event.name.as_ref()).collect();
    assert_eq!(names, ["WAIT", "PREFILL", "PREEMPTED", "PREFILL"]);
    assert_eq!(counter(&lifecycle, metric::NUM_PREEMPTIONS.name), 1.0);
}

#[test]
fn chunks_of_a_prefill_without_tokens_are_prefill_events() {
    let mut lifecycle = lifecycle(Settings { vllm_level: VllmLevel::Iterations, ..Settings::default() });
    request(&mut lifecycle, 0, ask(false));
    let id = "chatcmpl-x-0a0a0a0a";
    add(&mut lifecycle, id, "chatcmpl-x", sampling(false));
    step(&mut lifecycle, 113, Vec::new());
    step(&mut lifecycle, 116, Vec::new());
    run(&mut lifecycle, id);
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 145, true);
    let trace = one(&mut lifecycle);
    let names: Vec<&str> =
        span(&trace, "llm_request").events.iter().map(|event| event.name.as_ref()).collect();
    assert_eq!(names, ["WAIT", "PREFILL", "PREFILL", "PREFILL", "DECODE", "DECODE"]);
}

#[test]
fn empty_messages_of_an_idle_engine_are_no_steps() {
    let mut lifecycle = lifecycle(Settings::default());
    for at in 0..50 {
        let stats = Some(SchedulerStats { skipped_waiting: 1, ..SchedulerStats::default() });
        let step = EngineStep { timestamp: Some(sec(at)), stats, ..EngineStep::default() };
        lifecycle.engine(PID, EngineSignal::Step { at: ms(at), step: Box::new(step) });
    }
    assert_eq!(counter(&lifecycle, metric::VLLM_ITER_COUNT.name), 0.0);
    assert_eq!(counter(&lifecycle, metric::NUM_REQUESTS_WAITING.name), 1.0);
}

#[test]
fn a_request_that_was_there_before_the_agent_is_partial() {
    let mut lifecycle = lifecycle(Settings::default());
    step(&mut lifecycle, 130, vec![output("chatcmpl-x-0a0a0a0a", &[2])]);
    step(
        &mut lifecycle,
        140,
        vec![EngineOutput { finish: Some(Finish::Length), ..output("chatcmpl-x-0a0a0a0a", &[3]) }],
    );
    lifecycle.tick(ms(141));
    assert!(lifecycle.traces().is_empty(), "an exchange may still claim it");
    lifecycle.tick(ms(141 + 2_001));
    let trace = one(&mut lifecycle);
    let engine = span(&trace, "llm_request");
    assert_eq!(engine.attribute(attr::PARTIAL), Some(&Value::Bool(true)));
    assert_eq!(engine.attribute(attr::LATENCY_TIME_IN_QUEUE), None);
    assert_eq!(counter(&lifecycle, metric::REQUEST_QUEUE_TIME_SECONDS.name), 0.0);
}

#[test]
fn without_statistics_queue_time_is_an_estimate_and_says_so() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    let id = "chatcmpl-x-0a0a0a0a";
    add(&mut lifecycle, id, "chatcmpl-x", sampling(false));
    let quiet = |at, outputs| EngineSignal::Step {
        at: ms(at + 1),
        step: Box::new(EngineStep { timestamp: Some(sec(at)), outputs, ..EngineStep::default() }),
    };
    lifecycle.engine(PID, quiet(108, vec![output("someone-else", &[9])]));
    lifecycle.engine(PID, quiet(120, vec![output(id, &[1])]));
    lifecycle.engine(PID, quiet(130, vec![EngineOutput { finish: Some(Finish::Stop), ..output(id, &[2]) }]));
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 145, true);
    let trace = one(&mut lifecycle);
    let engine = span(&trace, "llm_request");
    assert_eq!(int(engine, attr::LATENCY_TIME_IN_QUEUE), 4_000_000);
    assert_eq!(int(engine, attr::LATENCY_TIME_IN_MODEL_PREFILL), 12_000_000);
    let Some(Value::Strs(estimated)) = engine.attribute(attr::ESTIMATED) else { panic!("{engine:#?}") };
    assert!(estimated.iter().any(|key| key == attr::LATENCY_TIME_IN_QUEUE));
    assert_eq!(counter(&lifecycle, metric::REQUEST_QUEUE_TIME_SECONDS.name), 0.0);
}

#[test]
fn a_traceparent_makes_the_entry_span_a_child_of_the_callers() {
    let mut lifecycle = lifecycle(Settings::default());
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request(&mut lifecycle, 0, ApiRequest { traceparent: Some(header.into()), ..ask(false) });
    lifecycle.api(PID, ApiSignal::Head { exchange: exchange(0), at: ms(103), status: 400, streaming: false });
    delta(&mut lifecycle, 0, 103, ApiDelta { error: Some(ApiError::default()), ..ApiDelta::default() });
    end(&mut lifecycle, 0, 103, true);
    let trace = one(&mut lifecycle);
    assert_eq!(trace.spans[0].trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(trace.spans[0].parent.map(|id| id.to_string()).as_deref(), Some("b7ad6b7169203331"));
}

#[test]
fn a_server_that_dies_ends_everything_open() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    lifecycle.engine(PID, EngineSignal::Dead { at: ms(130) });
    assert!(lifecycle.traces().is_empty(), "the frontend may still tell its client");
    lifecycle.gone(PID, ms(140));
    let trace = one(&mut lifecycle);
    assert!(matches!(span(&trace, "chat tiny").status, Status::Error(_)));
    assert_eq!(lifecycle.open(), 0);
}

#[test]
fn requests_nobody_hears_of_expire_and_are_counted() {
    let expiry = Nanos::from_secs(10);
    let mut lifecycle = lifecycle(Settings { expiry, ..Settings::default() });
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    lifecycle.tick(ms(10_000));
    assert_eq!(lifecycle.open(), 2);
    lifecycle.tick(ms(10_200));
    assert_eq!(lifecycle.open(), 0);
    assert_eq!(lifecycle.losses().get(crate::loss::Loss::RequestExpired), 2);
}

#[test]
fn too_many_requests_push_out_the_oldest() {
    let mut lifecycle = lifecycle(Settings { request_limit: 4, ..Settings::default() });
    for number in 0..20 {
        request(&mut lifecycle, number, ask(true));
        add(&mut lifecycle, &format!("chatcmpl-{number}"), "chatcmpl-x", sampling(true));
    }
    assert!(lifecycle.open() <= 8, "{}", lifecycle.open());
}

#[test]
fn level_0_has_no_stages() {
    let mut lifecycle = lifecycle(Settings { vllm_level: VllmLevel::Request, ..Settings::default() });
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 145, true);
    assert_eq!(one(&mut lifecycle).spans.len(), 2);
}

#[test]
fn gauges_are_the_newest_state() {
    let mut lifecycle = lifecycle(Settings::default());
    step(&mut lifecycle, 10, Vec::new());
    let points = lifecycle.points(ms(20));
    let usage = points.iter().find(|point| point.metric.name == metric::KV_CACHE_USAGE_PERC.name).unwrap();
    assert_eq!(usage.value, Number::Float(0.25));
    assert!(usage.dimensions.contains(&("engine_index", "0".to_owned())));
    assert!(usage.dimensions.contains(&("model_name", "tiny".to_owned())));
}

#[test]
fn two_clients_that_chose_the_same_id_get_a_trace_each() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    let late = ApiSignal::Request {
        exchange: exchange(1),
        first_byte: ms(108),
        last_byte: ms(108),
        request: Box::new(ask(false)),
    };
    lifecycle.api(PID, late);
    let second = EngineRequest {
        id: "chatcmpl-x-0b0b0b0b".into(),
        external_id: Some("chatcmpl-x".into()),
        sampling: Some(sampling(false)),
        ..EngineRequest::default()
    };
    lifecycle.engine(PID, EngineSignal::Added { at: ms(109), request: Box::new(second) });
    for id in ["chatcmpl-x-0b0b0b0b", "chatcmpl-x-0a0a0a0a"] {
        run(&mut lifecycle, id);
    }
    for number in [1, 0] {
        delta(&mut lifecycle, number, 145, body("chatcmpl-x"));
        end(&mut lifecycle, number, 145, true);
        let trace = one(&mut lifecycle);
        let expected = if number == 0 { "chatcmpl-x-0a0a0a0a" } else { "chatcmpl-x-0b0b0b0b" };
        assert_eq!(span(&trace, "llm_request").attribute(attr::REQUEST_ID), Some(&expected.into()));
    }
}

#[test]
fn what_is_open_when_the_agent_leaves_is_partial_and_no_error() {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(true));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(true));
    step(&mut lifecycle, 120, vec![first_output("chatcmpl-x-0a0a0a0a", 1)]);
    delta(&mut lifecycle, 0, 122, ApiDelta { id: Some("chatcmpl-x".into()), ..ApiDelta::default() });
    // This one has no answer yet, and nothing but its id says whose it is.
    request(&mut lifecycle, 1, ask(false));
    lifecycle.detached(SERVER, ms(125));
    let traces = lifecycle.traces();
    assert_eq!(traces.len(), 2);
    for span in traces.iter().flat_map(|trace| &trace.spans).filter(|span| span.name != "wait") {
        let stage = ["prefill", "decode"].contains(&span.name.as_ref());
        assert!(stage || span.attribute(attr::PARTIAL) == Some(&Value::Bool(true)), "{span:#?}");
        assert_eq!(span.status, Status::Unset, "{span:#?}");
    }
}
