use super::*;
use crate::capture::fact::{Engine as EngineKind, Process, Role, Server as ServerFact};
use crate::dialect::signal::vllm_v0::{V0Candidate, V0State};
use crate::dialect::signal::{
    ApiDelta, ApiRequest, ApiSignal, ChoiceDelta, EngineSignal, Operation, Sampling, Usage,
};
use crate::ids::{ConnId, ServerId};
use crate::lifecycle::Lifecycle;
use crate::model::registry::attr;
use crate::model::span::{Span, Status, Value};
use crate::settings::Settings;
use crate::time::{Clock, EpochTime, MonoTime, Seconds, WallTime};

const PID: Pid = Pid(7);

fn lifecycle() -> Lifecycle {
    let mut lifecycle = Lifecycle::new(Settings::default());
    lifecycle.clock(Clock { mono: MonoTime(0), wall: WallTime(1_000_000_000_000) });
    lifecycle.server(ServerFact {
        id: ServerId(1),
        engine: EngineKind::Vllm,
        version: Some("0.9.2".to_owned()),
        models: vec!["tiny".to_owned()],
        schema: None,
        resource: Vec::new(),
        sglang: None,
        v0: true,
    });
    lifecycle.process(Process { pid: PID, server: ServerId(1), role: Role::ApiServer, title: String::new() });
    lifecycle
}

fn ms(at: u64) -> MonoTime {
    MonoTime(at * 1_000_000)
}

const EXCHANGE: ExchangeId = ExchangeId { conn: ConnId(1), number: 0 };

/// A client asks for `choices` candidates, and is named `cmpl-x` in the response.
fn asked(lifecycle: &mut Lifecycle, choices: u32, stream: bool) {
    let request = ApiRequest {
        operation: Operation::TextCompletion,
        path: "/v1/completions".to_owned(),
        request_id: None,
        traceparent: None,
        tracestate: None,
        model: Some("tiny".to_owned()),
        choices: Some(choices),
        prompts: 1,
        temperature: None,
        top_p: None,
        top_k: None,
        max_tokens: Some(4),
        stream,
        user: None,
        stop: false,
        logprobs: false,
        tools: false,
        content: None,
        cut: false,
    };
    let request = Box::new(request);
    lifecycle
        .api(PID, ApiSignal::Request { exchange: EXCHANGE, first_byte: ms(1), last_byte: ms(1), request });
}

fn answered(lifecycle: &mut Lifecycle, at: u64, usage: Option<Usage>, reason: Option<&str>) {
    let choice = ChoiceDelta {
        text: Some("t".to_owned()),
        finish_reason: reason.map(str::to_owned),
        ..ChoiceDelta::default()
    };
    let delta =
        ApiDelta { id: Some("cmpl-x".to_owned()), choices: vec![choice], usage, ..ApiDelta::default() };
    lifecycle.api(PID, ApiSignal::Delta { exchange: EXCHANGE, at: ms(at), delta: Box::new(delta) });
}

fn ended(lifecycle: &mut Lifecycle, at: u64) {
    lifecycle.api(PID, ApiSignal::End { exchange: EXCHANGE, at: ms(at), complete: true });
}

fn handed(lifecycle: &mut Lifecycle, n: u32, delta: bool) {
    let sampling = Sampling { n, delta, max_tokens: Some(4), ..Sampling::default() };
    let request = EngineRequest {
        id: "cmpl-x-0".to_owned(),
        prompt_tokens: Some(3),
        sampling: Some(sampling),
        ..EngineRequest::default()
    };
    lifecycle.engine(PID, EngineSignal::Added { at: ms(2), request: Box::new(request) });
}

/// The engine's times, in seconds after the wall clock's 1000.
fn metrics(finished: Option<f64>) -> V0Metrics {
    V0Metrics {
        arrival: Some(EpochTime(1000.003)),
        scheduled: Some(EpochTime(1000.004)),
        first_token: Some(EpochTime(1000.010)),
        last_token: Some(EpochTime(1000.016)),
        finished: finished.map(|at| EpochTime(1000.0 + at)),
        queue: Some(Seconds(0.001)),
        ..V0Metrics::default()
    }
}

fn output(candidates: &[(u32, u64, Option<Finish>)], metrics: V0Metrics, finished: bool) -> V0Output {
    let candidate =
        |&(index, tokens, finish): &(u32, u64, Option<Finish>)| V0Candidate { index, tokens, finish };
    V0Output {
        id: "cmpl-x-0".to_owned(),
        candidates: candidates.iter().map(candidate).collect(),
        finished,
        metrics,
        ..V0Output::default()
    }
}

fn told(lifecycle: &mut Lifecycle, at: u64, output: V0Output) {
    lifecycle.engine(PID, EngineSignal::Outputs { at: ms(at), outputs: vec![output] });
}

fn engine_span(lifecycle: &mut Lifecycle) -> Span {
    let traces = lifecycle.traces();
    let [trace] = traces.as_slice() else { panic!("{traces:?}") };
    let [entry, engine] = trace.spans.as_slice() else { panic!("{trace:?}") };
    assert_eq!((engine.name.as_ref(), engine.parent), ("llm_request", Some(entry.id)));
    engine.clone()
}

fn float(span: &Span, key: &str) -> Option<f64> {
    match span.attribute(key) {
        Some(Value::Float(value)) => Some((value * 1e6).round() / 1e6),
        _ => None,
    }
}

fn metric(lifecycle: &Lifecycle, name: &str) -> Option<f64> {
    let points = lifecycle.points(ms(500));
    let of: Vec<f64> =
        points.iter().filter(|point| point.metric.name == name).map(|point| point.value.as_f64()).collect();
    (!of.is_empty()).then(|| of.iter().sum())
}

#[test]
fn deltas_add_up_and_the_last_message_tells_the_times() {
    let mut lifecycle = lifecycle();
    asked(&mut lifecycle, 1, true);
    handed(&mut lifecycle, 1, true);
    told(&mut lifecycle, 10, output(&[(0, 1, None)], metrics(None), false));
    answered(&mut lifecycle, 11, None, None);
    told(&mut lifecycle, 16, output(&[(0, 2, Some(Finish::Length))], metrics(Some(0.017)), true));
    answered(&mut lifecycle, 17, None, Some("length"));
    ended(&mut lifecycle, 18);
    let span = engine_span(&mut lifecycle);
    assert_eq!(span.attribute(attr::USAGE_COMPLETION_TOKENS), Some(&Value::Int(3)));
    assert_eq!(float(&span, attr::LATENCY_E2E), Some(0.014));
    assert_eq!(float(&span, attr::LATENCY_TIME_TO_FIRST_TOKEN), Some(0.007));
    assert_eq!(float(&span, attr::LATENCY_TIME_IN_QUEUE), Some(0.001));
    assert_eq!((span.start, span.end), (WallTime(1_000_003_000_000), WallTime(1_000_017_000_000)));
    assert_eq!(metric(&lifecycle, "gen_ai_vllm_request_success"), Some(1.0));
    assert_eq!(metric(&lifecycle, "num_tokens_iter"), Some(6.0));
}

#[test]
fn all_tokens_of_an_old_engines_message_replace_those_before() {
    let mut lifecycle = lifecycle();
    asked(&mut lifecycle, 1, true);
    handed(&mut lifecycle, 1, false);
    told(&mut lifecycle, 10, output(&[(0, 1, None)], metrics(None), false));
    told(&mut lifecycle, 13, output(&[(0, 2, None)], metrics(None), false));
    told(&mut lifecycle, 16, output(&[(0, 3, Some(Finish::Stop))], metrics(Some(0.017)), true));
    answered(&mut lifecycle, 17, None, Some("stop"));
    ended(&mut lifecycle, 18);
    let span = engine_span(&mut lifecycle);
    assert_eq!(span.attribute(attr::USAGE_COMPLETION_TOKENS), Some(&Value::Int(3)));
    assert_eq!(metric(&lifecycle, "num_generation_tokens_iter"), Some(3.0));
}

#[test]
fn each_candidate_counts_and_its_parts_tell_the_times_that_the_message_lacks() {
    let mut lifecycle = lifecycle();
    asked(&mut lifecycle, 2, false);
    handed(&mut lifecycle, 2, false);
    let part = |scheduler, first| {
        let metrics = V0Metrics {
            first_token: Some(EpochTime(first)),
            scheduler: Some(Seconds(scheduler)),
            queue: Some(Seconds(0.002)),
            ..V0Metrics::default()
        };
        V0Reading { metrics, ..V0Reading::default() }
    };
    let requests = vec![
        ("cmpl-x-0_parallel_sample_0".to_owned(), part(0.25, 1000.011)),
        ("cmpl-x-0_parallel_sample_1".to_owned(), part(0.5, 1000.009)),
    ];
    lifecycle.v0_snapshot(V0Snapshot { pid: PID, at: ms(12), requests, ..V0Snapshot::default() });
    let bare = V0Metrics {
        arrival: Some(EpochTime(1000.003)),
        last_token: Some(EpochTime(1000.003)),
        finished: Some(EpochTime(1000.02)),
        ..V0Metrics::default()
    };
    let both = [(0, 4, Some(Finish::Length)), (1, 2, Some(Finish::Stop))];
    told(&mut lifecycle, 20, output(&both, bare, true));
    answered(&mut lifecycle, 21, None, Some("length"));
    ended(&mut lifecycle, 22);
    let span = engine_span(&mut lifecycle);
    assert_eq!(span.attribute(attr::USAGE_NUM_SEQUENCES), Some(&Value::Int(2)));
    assert_eq!(span.attribute(attr::USAGE_COMPLETION_TOKENS), Some(&Value::Int(6)));
    assert_eq!(float(&span, attr::LATENCY_TIME_TO_FIRST_TOKEN), Some(0.006));
    assert_eq!(float(&span, attr::LATENCY_TIME_IN_SCHEDULER), Some(0.5));
    assert_eq!(metric(&lifecycle, "gen_ai_vllm_request_success"), Some(2.0));
}

#[test]
fn what_is_read_of_an_engine_before_its_messages_came_through_makes_no_request() {
    let mut lifecycle = lifecycle();
    let (server, title) = (ServerId(1), String::new());
    lifecycle.process(Process { pid: Pid(8), server, role: Role::EngineCore, title });
    let requests = vec![("cmpl-x-0".to_owned(), V0Reading::default())];
    lifecycle.v0_snapshot(V0Snapshot { pid: Pid(8), at: ms(1), requests, ..V0Snapshot::default() });
    assert_eq!(lifecycle.open(), 0);
    asked(&mut lifecycle, 1, false);
    handed(&mut lifecycle, 1, false);
    told(&mut lifecycle, 16, output(&[(0, 4, Some(Finish::Length))], metrics(Some(0.017)), true));
    answered(&mut lifecycle, 17, None, Some("length"));
    ended(&mut lifecycle, 18);
    assert_eq!(engine_span(&mut lifecycle).attribute(attr::PARTIAL), None);
}

#[test]
fn a_request_that_the_engine_could_not_serve_is_an_error() {
    let mut lifecycle = lifecycle();
    asked(&mut lifecycle, 1, false);
    handed(&mut lifecycle, 1, false);
    lifecycle.engine(PID, EngineSignal::Failed { at: ms(5), id: "cmpl-x-0".to_owned() });
    answered(&mut lifecycle, 6, None, None);
    ended(&mut lifecycle, 7);
    let span = engine_span(&mut lifecycle);
    assert!(matches!(span.status, Status::Error(_)));
    assert_eq!(span.attribute(attr::ERROR_TYPE), Some(&Value::Str("engine_error".into())));
    assert_eq!(metric(&lifecycle, "gen_ai_vllm_request_success"), None);
}

#[test]
fn outputs_after_an_abort_change_nothing() {
    let mut lifecycle = lifecycle();
    handed(&mut lifecycle, 1, true);
    told(&mut lifecycle, 10, output(&[(0, 1, None)], metrics(None), false));
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(11), ids: vec!["cmpl-x-0".to_owned()] });
    told(&mut lifecycle, 12, output(&[(0, 1, None)], metrics(None), false));
    assert_eq!(metric(&lifecycle, "num_generation_tokens_iter"), Some(1.0));
    lifecycle.tick(ms(5_000));
    let traces = lifecycle.traces();
    let [trace] = traces.as_slice() else { panic!("{traces:?}") };
    assert_eq!(trace.spans[0].attribute(attr::FINISH_REASON), Some(&Value::Str("abort".into())));
    told(&mut lifecycle, 5_001, output(&[(0, 1, None)], metrics(None), false));
    assert_eq!(lifecycle.open(), 0, "it is known to be taken back");
}

#[test]
fn without_messages_a_request_is_known_by_objects_and_ends_with_its_response() {
    let mut lifecycle = lifecycle();
    let looked = V0State { running: Some(0), ..V0State::default() };
    lifecycle.v0_snapshot(V0Snapshot { pid: PID, at: ms(0), state: Some(looked), ..V0Snapshot::default() });
    asked(&mut lifecycle, 1, false);
    let reading = V0Reading { metrics: metrics(None), ..V0Reading::default() };
    let requests = vec![("cmpl-x-0".to_owned(), reading)];
    lifecycle.v0_snapshot(V0Snapshot { pid: PID, at: ms(12), requests, ..V0Snapshot::default() });
    let usage = Usage { prompt: Some(3), completion: Some(4), ..Usage::default() };
    answered(&mut lifecycle, 19, Some(usage), Some("length"));
    ended(&mut lifecycle, 20);
    assert!(lifecycle.traces().is_empty(), "the engine may have more to tell");
    let gone = vec!["cmpl-x-0".to_owned()];
    lifecycle.v0_snapshot(V0Snapshot { pid: PID, at: ms(25), gone, ..V0Snapshot::default() });
    let span = engine_span(&mut lifecycle);
    assert_eq!(span.attribute(attr::FINISH_REASON), Some(&Value::Str("length".into())));
    assert_eq!(span.attribute(attr::USAGE_COMPLETION_TOKENS), Some(&Value::Int(4)));
    assert_eq!(span.attribute(attr::PARTIAL), None);
    assert_eq!(float(&span, attr::LATENCY_E2E), Some(0.017));
    assert_eq!(span.attribute(attr::ESTIMATED), Some(&Value::Strs(vec![attr::LATENCY_E2E.to_owned()])));
    assert_eq!(metric(&lifecycle, "num_running_sys"), Some(0.0));
    assert_eq!(metric(&lifecycle, "num_preemption_iter"), None, "nobody told");
}
