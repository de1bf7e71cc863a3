//! Lifecycle tests of SGLang: signals as the dialects give them, traces and totals as they must come out.

mod entry;
mod marks;
mod metrics;
mod native;
mod order;
mod pairs;
mod stages;

use crate::capture::fact::{Disaggregation, Engine, Process, Role, Server as ServerFact, SglangLaunch};
use crate::dialect::signal::sglang::*;
use crate::dialect::signal::*;
use crate::ids::{ConnId, ExchangeId, Pid, ServerId};
use crate::lifecycle::Lifecycle;
use crate::model::registry::{Dialect, check};
use crate::model::span::{Span, Trace, Value};
use crate::settings::Settings;
use crate::time::{Clock, EngineTime, MonoTime, WallTime};

const FRONTEND: Pid = Pid(10);
const SCHEDULER: Pid = Pid(11);
const SERVER: ServerId = ServerId(1);
const HOST: &str = "0123456789abcdef";

fn ms(ms: u64) -> MonoTime {
    MonoTime(ms * 1_000_000)
}

/// The same moment as the engine writes it.
fn sec(millis: u64) -> Option<EngineTime> {
    Some(ms(millis).engine())
}

/// The same moment as spans carry it: both clocks are one here.
fn wall(millis: u64) -> WallTime {
    WallTime(ms(millis).0)
}

fn lifecycle_of(settings: Settings, launch: SglangLaunch) -> Lifecycle {
    let mut lifecycle = Lifecycle::new(settings);
    lifecycle.clock(Clock { mono: MonoTime(0), wall: WallTime(0) });
    lifecycle.server(ServerFact {
        v0: false,
        id: SERVER,
        engine: Engine::Sglang,
        version: Some("0.5.23".into()),
        models: vec!["tiny".into()],
        schema: None,
        resource: vec![("host.id".into(), HOST.into())],
        sglang: Some(launch),
    });
    process(&mut lifecycle, FRONTEND, Role::ApiServer, "python");
    process(&mut lifecycle, SCHEDULER, Role::EngineCore, "sglang::scheduler");
    lifecycle
}

fn lifecycle() -> Lifecycle {
    lifecycle_of(Settings::default(), SglangLaunch::default())
}

fn process(lifecycle: &mut Lifecycle, pid: Pid, role: Role, title: &str) {
    lifecycle.process(Process { pid, server: SERVER, role, title: title.into() });
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
        user: None,
        stop: false,
        logprobs: false,
        tools: false,
        content: Some("[]".into()),
        cut: false,
    }
}

/// What the client asks at 100 ms, read whole at 101 ms.
fn request(lifecycle: &mut Lifecycle, number: u64, request: ApiRequest) {
    let signal = ApiSignal::Request {
        exchange: exchange(number),
        first_byte: ms(100),
        last_byte: ms(101),
        request: Box::new(request),
    };
    lifecycle.api(FRONTEND, signal);
}

fn head(lifecycle: &mut Lifecycle, number: u64, at: u64, status: u16) {
    let head = ApiSignal::Head { exchange: exchange(number), at: ms(at), status, streaming: false };
    lifecycle.api(FRONTEND, head);
}

fn delta(lifecycle: &mut Lifecycle, number: u64, at: u64, delta: ApiDelta) {
    let delta = Box::new(delta);
    lifecycle.api(FRONTEND, ApiSignal::Delta { exchange: exchange(number), at: ms(at), delta });
}

/// A part of the response that names its request and says something.
fn says(rid: &str, index: u32, text: &str) -> ApiDelta {
    let choice = ChoiceDelta { index, text: Some(text.into()), ..ChoiceDelta::default() };
    ApiDelta {
        id: Some(rid.into()),
        model: Some("tiny".into()),
        choices: vec![choice],
        ..ApiDelta::default()
    }
}

fn end(lifecycle: &mut Lifecycle, number: u64, at: u64, complete: bool) {
    lifecycle.api(FRONTEND, ApiSignal::End { exchange: exchange(number), at: ms(at), complete });
}

fn handed(rid: &str, stream: bool) -> SglangRequest {
    let sampling = SglangSampling {
        max_new_tokens: Some(3),
        temperature: Some(0.5),
        n: Some(1),
        ..SglangSampling::default()
    };
    SglangRequest {
        rid: rid.into(),
        prompt_tokens: Some(10),
        sampling: Some(sampling),
        stream,
        ..SglangRequest::default()
    }
}

fn dispatch(lifecycle: &mut Lifecycle, at: u64, request: SglangRequest) {
    lifecycle.sglang(FRONTEND, SglangSignal::Dispatched { at: ms(at), requests: vec![request] });
}

fn output(rid: &str, tokens: u64) -> SglangOutput {
    SglangOutput {
        rid: rid.into(),
        prompt_tokens: Some(10),
        completion_tokens: Some(tokens),
        cached_tokens: Some(4),
        retractions: Some(0),
        ..SglangOutput::default()
    }
}

fn last(rid: &str, tokens: u64, kind: &str) -> SglangOutput {
    let finish = SglangFinish { kind: kind.into(), ..SglangFinish::default() };
    SglangOutput { finish: Some(finish), ..output(rid, tokens) }
}

/// An output that leaves the scheduler at `at` and reaches the frontend 2 ms later.
fn outputs(lifecycle: &mut Lifecycle, at: u64, output: SglangOutput) {
    for (pid, hop, at) in [(SCHEDULER, Hop::Scheduler, at), (FRONTEND, Hop::Frontend, at + 2)] {
        let outputs = vec![output.clone()];
        lifecycle.sglang(pid, SglangSignal::Outputs { at: ms(at), hop, outputs, cut: false });
    }
}

fn state(rid: &str, times: ReqTimes, tokens: u64) -> ReqState {
    ReqState {
        rid: rid.into(),
        place: Place::Running,
        times,
        prompt_tokens: Some(10),
        output_tokens: Some(tokens),
        cached_tokens: Some(4),
        retractions: Some(0),
        spec_verify_steps: None,
        spec_accepted: None,
        bootstrap_room: None,
    }
}

fn snapshot(pid: Pid, at: u64, requests: Vec<ReqState>) -> Snapshot {
    Snapshot {
        pid,
        at: ms(at),
        mark: None,
        requests,
        batch: None,
        members: Vec::new(),
        launched: None,
        load: None,
    }
}

/// A forward that began at `at` with these requests in its batch.
fn forward(lifecycle: &mut Lifecycle, at: u64, mode: ForwardMode, members: &[&str]) {
    let size = u32::try_from(members.len()).unwrap();
    let batch = Some(BatchState { mode, size, forward_count: None });
    let members = members.iter().map(|&rid| rid.to_owned()).collect();
    lifecycle.snapshot(Snapshot {
        mark: Some(ms(at)),
        batch,
        members,
        ..snapshot(SCHEDULER, at, Vec::new())
    });
}

/// Where a request of three tokens stood: queued at 105 ms, prefilled from 110 to 120, decoded at 130 and 140.
fn times() -> ReqTimes {
    ReqTimes {
        received: sec(104),
        queued: sec(105),
        forward: sec(110),
        last_forward: sec(110),
        prefill_finished: sec(120),
        last_prefill_finished: sec(120),
        ..ReqTimes::default()
    }
}

/// A streamed chat of three tokens, with everything told that can be.
fn run(lifecycle: &mut Lifecycle, rid: &str) {
    request(lifecycle, 0, ask(true));
    let frontend = FrontendTimes {
        created: sec(101),
        tokenized: sec(102),
        dispatch: sec(102),
        dispatched: sec(103),
        ..FrontendTimes::default()
    };
    let requests = vec![(rid.to_owned(), frontend)];
    lifecycle.frontend_snapshot(FrontendSnapshot { pid: FRONTEND, at: ms(103), requests });
    dispatch(lifecycle, 103, handed(rid, true));
    forward(lifecycle, 111, ForwardMode::Prefill, &[rid]);
    outputs(lifecycle, 121, output(rid, 1));
    delta(lifecycle, 0, 124, says(rid, 0, "a"));
    forward(lifecycle, 122, ForwardMode::Decode, &[rid]);
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state(rid, times(), 1)]));
    outputs(lifecycle, 131, output(rid, 2));
    delta(lifecycle, 0, 134, says(rid, 0, "b"));
    forward(lifecycle, 132, ForwardMode::Decode, &[rid]);
    let decoded = ReqTimes { last_decode_finished: sec(130), ..times() };
    lifecycle.snapshot(snapshot(SCHEDULER, 132, vec![state(rid, decoded, 2)]));
    outputs(lifecycle, 141, last(rid, 3, "length"));
    delta(lifecycle, 0, 144, says(rid, 0, "c"));
    end(lifecycle, 0, 145, true);
    lifecycle.tick(ms(1_000));
}

/// The one trace there is, checked against the registry.
fn the_trace(lifecycle: &mut Lifecycle) -> Trace {
    let mut traces = lifecycle.traces();
    assert_eq!(traces.len(), 1, "{traces:#?}");
    let trace = traces.pop().unwrap();
    checked(&trace);
    trace
}

/// Holds a trace against the registry, and its spans against each other.
fn checked(trace: &Trace) {
    for (nth, span) in trace.spans.iter().enumerate() {
        assert_eq!(check::span(span, Dialect::Sglang), Vec::<String>::new(), "{span:#?}");
        let parent = trace.spans.iter().position(|other| Some(other.id) == span.parent);
        let Some(parent) = parent else {
            assert_eq!(span.trace, trace.spans[0].trace);
            continue;
        };
        assert!(parent < nth, "{} stands before its parent", span.name);
        let parent = &trace.spans[parent];
        let thread_or_stage = !parent.name.contains(" tiny") && !parent.name.contains("Req ");
        if thread_or_stage || parent.name.contains("Req ") {
            assert!(
                parent.start <= span.start && span.end <= parent.end,
                "{} {:?}..{:?} leaves {} {:?}..{:?}",
                span.name,
                span.start,
                span.end,
                parent.name,
                parent.start,
                parent.end
            );
        }
    }
}

fn span<'a>(trace: &'a Trace, name: &str) -> &'a Span {
    let found: Vec<&Span> = trace.spans.iter().filter(|span| span.name.starts_with(name)).collect();
    assert_eq!(found.len(), 1, "{name} in {:?}", names(trace));
    found[0]
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.spans.iter().map(|span| span.name.as_ref()).collect()
}

fn int(span: &Span, key: &str) -> Option<i64> {
    match span.attribute(key) {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match span.attribute(key) {
        Some(Value::Str(value)) => Some(value),
        _ => None,
    }
}

fn float(span: &Span, key: &str) -> Option<f64> {
    match span.attribute(key) {
        Some(Value::Float(value)) => Some(*value),
        _ => None,
    }
}

fn pair(disaggregation: Disaggregation) -> Lifecycle {
    lifecycle_of(Settings::default(), SglangLaunch { disaggregation, ..SglangLaunch::default() })
}
