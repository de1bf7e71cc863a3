//! Tests of the logs: signals and lines as they come, log lines as they must come out.

use super::*;
use crate::dialect::signal::sglang::SglangRequest;
use crate::dialect::signal::{
    ApiDelta, ApiError, ApiRequest, CachedTokens, EngineEvent, EngineEventKind, EngineOutput, EngineRequest,
    EngineStep, Finish, Operation, Sampling,
};
use crate::ids::{ConnId, ExchangeId, SpanId, TraceId};
use crate::model::log::LogContext;
use crate::model::registry::{attr, log};
use crate::model::span::{Span, Status};
use crate::time::EngineTime;

const SERVER: ServerId = ServerId(1);
const PID: Pid = Pid(10);
const EXCHANGE: ExchangeId = ExchangeId { conn: ConnId(7), number: 0 };

fn ms(ms: u64) -> MonoTime {
    MonoTime(ms * 1_000_000)
}

fn all_on(engine: Engine) -> Settings {
    let mut settings = Settings::default();
    let log = match engine {
        Engine::Vllm => &mut settings.vllm_log,
        Engine::Sglang => &mut settings.sglang_log,
    };
    (log.requests, log.iterations, log.lines) = (true, true, true);
    settings
}

fn about(settings: &Settings, engine: Engine, open: usize) -> About<'_> {
    About { server: SERVER, engine, settings, clock: Clock::default(), open }
}

fn events(journal: &mut Journal) -> Vec<&'static str> {
    journal.logs().iter().filter_map(|log| log.event).collect()
}

fn request() -> ApiRequest {
    ApiRequest {
        operation: Operation::Chat,
        path: "/v1/chat/completions".into(),
        request_id: Some("mine".into()),
        traceparent: None,
        tracestate: None,
        model: Some("tiny".into()),
        choices: None,
        prompts: 1,
        temperature: Some(0.5),
        top_p: None,
        top_k: None,
        max_tokens: Some(3),
        stream: false,
        user: None,
        stop: false,
        logprobs: false,
        tools: false,
        content: Some("é".repeat(3000)),
        cut: false,
    }
}

fn received(settings: &Settings) -> Log {
    let mut journal = Journal::default();
    let signal = ApiSignal::Request {
        exchange: EXCHANGE,
        first_byte: ms(1),
        last_byte: ms(2),
        request: Box::new(request()),
    };
    journal.api(&about(settings, Engine::Sglang, 1), &signal);
    journal.logs().remove(0)
}

fn has(log: &Log, key: &str) -> bool {
    log.attributes.iter().any(|attribute| attribute.key == key)
}

fn int(log: &Log, key: &str) -> i64 {
    match log.attributes.iter().find(|attribute| attribute.key == key).map(|attribute| &attribute.value) {
        Some(Value::Int(value)) => *value,
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn what_is_off_is_not_logged() {
    let settings = Settings::default();
    let mut journal = Journal::default();
    let about = about(&settings, Engine::Vllm, 1);
    let added = EngineSignal::Added { at: ms(1), request: Box::default() };
    journal.engine(&about, PID, &added);
    journal.line(&about, b"INFO hello", ms(1), &mut Losses::default());
    journal.finish();
    assert_eq!(journal.logs(), []);
}

#[test]
fn a_request_line_says_as_much_as_its_level_and_content_only_where_it_is_collected() {
    let mut settings = all_on(Engine::Sglang);
    let mut at = |detail, content| {
        (settings.sglang_log.detail, settings.content) = (detail, content);
        received(&settings)
    };
    assert!(!has(&at(0, true), attr::REQUEST_TEMPERATURE) && has(&at(0, true), attr::REQUEST_ID));
    assert!(has(&at(1, true), attr::REQUEST_TEMPERATURE) && !has(&at(1, true), attr::INPUT_MESSAGES));
    let length = |log: Log| {
        let Some(Value::Str(text)) = log.attributes.last().map(|attribute| &attribute.value) else {
            return 0;
        };
        text.chars().count()
    };
    assert_eq!((length(at(2, true)), length(at(3, true))), (2048, 3000));
    assert!(!has(&at(3, false), attr::INPUT_MESSAGES), "content is off");
}

#[test]
fn requests_are_received_added_aborted_and_failed_with_a_line_each() {
    let settings = all_on(Engine::Vllm);
    let about = about(&settings, Engine::Vllm, 1);
    let mut journal = Journal::default();
    let start = ApiSignal::Request {
        exchange: EXCHANGE,
        first_byte: ms(1),
        last_byte: ms(2),
        request: Box::new(request()),
    };
    journal.api(&about, &start);
    let engine = |id: &str, stop| EngineSignal::Added {
        at: ms(3),
        request: Box::new(EngineRequest {
            id: id.into(),
            sampling: Some(Sampling { stop, ..Sampling::default() }),
            ..EngineRequest::default()
        }),
    };
    journal.engine(&about, PID, &engine("a", false));
    journal.engine(&about, PID, &engine("b", true));
    // The frontend takes `b` back since it found a stop string: no abort.
    journal.engine(&about, PID, &EngineSignal::Aborted { at: ms(4), ids: vec!["a".into(), "b".into()] });
    let error = EngineOutput { id: "c".into(), finish: Some(Finish::Error), ..EngineOutput::default() };
    let step = EngineStep { outputs: vec![error], ..EngineStep::default() };
    journal.engine(&about, PID, &EngineSignal::Step { at: ms(5), step: Box::new(step) });
    journal.api(&about, &ApiSignal::Head { exchange: EXCHANGE, at: ms(6), status: 500, streaming: false });
    let kind = Some("InternalServerError".into());
    let error = Some(ApiError { kind, message: Some("quotes the prompt".into()), code: None });
    let delta = Box::new(ApiDelta { error, ..ApiDelta::default() });
    journal.api(&about, &ApiSignal::Delta { exchange: EXCHANGE, at: ms(6), delta });
    journal.api(&about, &ApiSignal::End { exchange: EXCHANGE, at: ms(6), complete: true });
    let logs = journal.logs();
    assert!(!format!("{logs:?}").contains("quotes"));
    let named: Vec<_> = logs.iter().filter_map(|log| log.event).filter(|e| *e != log::ITERATION).collect();
    let (added, failed) = (log::REQUEST_ADDED, log::REQUEST_FAILED);
    assert_eq!(named, [log::REQUEST_RECEIVED, added, added, log::REQUEST_ABORTED, failed, failed]);
}

#[test]
fn an_iteration_tells_its_context_and_its_generation_apart() {
    let settings = all_on(Engine::Vllm);
    let about = about(&settings, Engine::Vllm, 1);
    let mut journal = Journal::default();
    for (id, tokens) in [("a", 40), ("b", 9)] {
        let request =
            EngineRequest { id: id.into(), prompt_tokens: Some(tokens), ..EngineRequest::default() };
        journal.engine(&about, PID, &EngineSignal::Added { at: ms(1), request: Box::new(request) });
    }
    let mut step = |seconds: f64, outputs: Vec<EngineOutput>| {
        let step = EngineStep { timestamp: Some(EngineTime(seconds)), outputs, ..EngineStep::default() };
        journal.engine(&about, PID, &EngineSignal::Step { at: ms(9), step: Box::new(step) });
        journal.logs().into_iter().rfind(|log| log.event == Some(log::ITERATION)).unwrap()
    };
    let output = |id: &str| EngineOutput { id: id.into(), token_count: 1, ..EngineOutput::default() };
    let scheduled = EngineEvent { kind: EngineEventKind::Scheduled, at: EngineTime(1.0) };
    let cached = Some(CachedTokens { total: 16, ..CachedTokens::default() });
    let first = step(1.5, vec![EngineOutput { events: vec![scheduled], cached, ..output("a") }]);
    assert_eq!((int(&first, attr::CONTEXT_REQUESTS), int(&first, attr::CONTEXT_TOKENS)), (1, 24));
    assert!(first.body.unwrap().ends_with("500.000 ms"), "since it was scheduled");
    let second = step(1.75, vec![output("a"), output("b")]);
    assert_eq!((int(&second, attr::CONTEXT_TOKENS), int(&second, attr::GENERATION_TOKENS)), (9, 1));
    assert!(has(&second, attr::ITERATION_SECONDS));
    assert!(second.body.unwrap().contains("iteration 2: 1 context requests, 9 context tokens, 1 generation"));
}

fn trace(id: u64, name: &str, from: u64, to: u64) -> Trace {
    let mut root = Span {
        trace: TraceId(u128::from(id)),
        id: SpanId(id),
        parent: None,
        trace_state: None,
        name: "chat".into(),
        start: Clock::default().wall(ms(from)),
        end: Clock::default().wall(ms(to)),
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        links: Vec::new(),
        status: Status::Unset,
    };
    root.set(attr::RESPONSE_ID, name);
    let mut inner = Span { id: SpanId(id + 1), attributes: Vec::new(), ..root.clone() };
    inner.set(attr::REQUEST_ID, format!("{name}-0a0b0c0d"));
    Trace { server: SERVER, sampled: true, spans: vec![root, inner], logs: Vec::new() }
}

fn of(id: u64, span: u64) -> Option<LogContext> {
    Some(LogContext { trace: TraceId(u128::from(id)), span: SpanId(span) })
}

#[test]
fn a_line_that_names_a_request_is_of_its_span_whether_it_comes_before_or_after_the_trace() {
    let settings = all_on(Engine::Vllm);
    let mut journal = Journal::default();
    let mut losses = Losses::default();
    let busy = about(&settings, Engine::Vllm, 4);
    journal.line(&busy, b"INFO Added request chatcmpl-x-0a0b0c0d.", ms(5), &mut losses);
    journal.line(&busy, b"INFO Received request chatcmpl-x: ...", ms(5), &mut losses);
    journal.line(&busy, b"INFO Added request chatcmpl-y-0a0b0c0d.", ms(5), &mut losses);
    assert!(journal.logs().is_empty(), "they wait");
    journal.trace(&trace(100, "chatcmpl-x", 1, 9));
    journal.line(&busy, b"INFO Aborted request(s) chatcmpl-x-0a0b0c0d.", ms(20), &mut losses);
    let contexts: Vec<_> = journal.logs().iter().map(|log| log.context).collect();
    assert_eq!(contexts, [of(100, 101), of(100, 100), of(100, 101)]);
    journal.finish();
    assert_eq!(journal.logs().len(), 1);
}

#[test]
fn a_line_that_falls_in_the_only_span_of_its_time_is_of_it_and_one_in_several_is_of_none() {
    let settings = all_on(Engine::Vllm);
    let mut journal = Journal::default();
    let mut losses = Losses::default();
    let busy = about(&settings, Engine::Vllm, 2);
    journal.line(&busy, b"WARNING only x was going on", ms(5), &mut losses);
    journal.line(&busy, b"WARNING x and y were", ms(8), &mut losses);
    journal.trace(&trace(100, "chatcmpl-x", 1, 9));
    journal.tick(ms(10), &|_| 2);
    assert!(journal.logs().is_empty(), "y goes on");
    journal.trace(&trace(200, "chatcmpl-y", 7, 12));
    journal.tick(ms(13), &|_| 0);
    let contexts: Vec<_> = journal.logs().iter().map(|log| log.context).collect();
    assert_eq!(contexts, [of(100, 100), None]);
}

#[test]
fn a_line_waits_for_a_bounded_time_and_not_at_all_where_nothing_goes_on() {
    let settings = all_on(Engine::Vllm);
    let mut journal = Journal::default();
    let mut losses = Losses::default();
    journal.line(&about(&settings, Engine::Vllm, 0), b"INFO idle", ms(1), &mut losses);
    assert_eq!(journal.logs().len(), 1);
    journal.line(&about(&settings, Engine::Vllm, 1), b"INFO busy", ms(1), &mut losses);
    journal.tick(ms(9_000), &|_| 1);
    assert!(journal.logs().is_empty());
    journal.tick(ms(11_000), &|_| 1);
    assert_eq!(journal.logs().len(), 1);
    for _ in 0..3000 {
        journal.line(&about(&settings, Engine::Vllm, 1), b"INFO flood", ms(1), &mut losses);
    }
    assert_eq!(journal.logs().len(), 3000 - 2048);
    assert_eq!(losses.get(Loss::LineUnplaced), 3000 - 2048);
}

#[test]
fn lines_below_the_least_severity_are_left_out() {
    let mut settings = all_on(Engine::Sglang);
    settings.sglang_log.least = Severity::Warning;
    let mut journal = Journal::default();
    let about = about(&settings, Engine::Sglang, 0);
    for line in ["INFO: no", "[2026-11-30 17:00:00] Decode batch", "WARNING:root:yes", "ERROR: yes"] {
        journal.line(&about, line.as_bytes(), ms(1), &mut Losses::default());
    }
    assert_eq!(journal.logs().len(), 2);
}

#[test]
fn sglangs_requests_have_their_lines_too() {
    let settings = all_on(Engine::Sglang);
    let about = about(&settings, Engine::Sglang, 1);
    let mut journal = Journal::default();
    let requests = vec![SglangRequest { rid: "r".into(), ..SglangRequest::default() }];
    journal.sglang(&about, &SglangSignal::Dispatched { at: ms(1), requests });
    journal.sglang(&about, &SglangSignal::Aborted { at: ms(2), rid: Some("r".into()), finish: None });
    assert_eq!(events(&mut journal), [log::REQUEST_ADDED, log::REQUEST_ABORTED]);
}
