//! Spans of the threads that worked on a request, with their stages, events and links.

use super::forwards::Forwards;
use super::moment::{Moment, Source};
use super::request::{Ending, Request};
use super::spans::{self, Parts};
use super::stages::{self, Run, Stage};
use super::timeline::{Schedule, Timeline};
use crate::capture::fact::{Disaggregation, Parallel, Process};
use crate::dialect::signal::sglang::ForwardMode;
use crate::ids::Pid;
use crate::lifecycle::maker::Maker;
use crate::model::registry::{attr, event, span};
use crate::model::span::{Attribute, Event, Link, Span, Status};
use crate::time::WallTime;

/// The lowest levels at which events are collected.
const RETRACT_LEVEL: u8 = 1;
const SCHEDULE_LEVEL: u8 = 3;

/// What stands for a host nobody named, as in SGLang's own traces.
const UNKNOWN_HOST: &str = "unknown";

/// The spans of a request's threads, and how many decode steps nobody told the time of.
#[derive(Default)]
pub(super) struct Threads {
    pub spans: Vec<Span>,
    pub unseen: u64,
}

/// The threads of a request.
pub(super) fn of(request: &Request, parent: &Span, parts: &Parts<'_>, maker: &mut Maker<'_>) -> Threads {
    let mut threads = Threads::default();
    let mut last = frontend(request, parent, parts, maker, &mut threads);
    last = controller(request, parent, parts, maker, last, &mut threads);
    for (&pid, timeline) in &request.schedulers {
        scheduler(request, (pid, timeline), parent, parts, maker, last.as_ref(), &mut threads);
    }
    threads
}

/// A thread: who it is.
struct Thread<'a> {
    label: String,
    pid: Pid,
    ranks: [Option<u32>; 3],
    host: &'a str,
}

impl Thread<'_> {
    /// `{thread label} [TP n] [PP n] [DP n] (host:{host id} | pid:{thread id})`.
    fn name(&self) -> String {
        let ranks = ["TP", "PP", "DP"].into_iter().zip(self.ranks);
        let ranks: String = ranks.filter_map(|(name, rank)| Some(format!("[{name} {}] ", rank?))).collect();
        format!("{} {ranks}(host:{} | pid:{})", self.label, self.host, self.pid.0)
    }

    fn span(&self, parent: &Span, from: Moment, to: Moment, maker: &mut Maker<'_>) -> Span {
        let start = maker.wall(from.mono()).clamp(parent.start, parent.end);
        let end = maker.wall(to.mono()).min(parent.end);
        let mut span = maker.span(self.name(), Some(parent.id), start, end);
        let [tp, pp, dp] = self.ranks;
        span.set_some(attr::TP_RANK, tp);
        span.set_some(attr::PP_RANK, pp);
        span.set_some(attr::DP_RANK, dp);
        span.set(attr::HOST_ID, self.host);
        // The engine's processes do this work on their main threads.
        span.set(attr::PID, self.pid.0);
        span.set(attr::THREAD_LABEL, self.label.as_str());
        span
    }
}

fn host<'a>(parts: &Parts<'a>) -> &'a str {
    let mut resource = parts.server.resource.iter();
    resource.find(|(key, _)| key == "host.id").map_or(UNKNOWN_HOST, |(_, id)| id.as_str())
}

/// A label, with the node's role before it.
fn label(label: &str, node: Disaggregation) -> String {
    match node {
        Disaggregation::Unified => label.to_owned(),
        Disaggregation::Prefill => format!("Prefill {label}"),
        Disaggregation::Decode => format!("Decode {label}"),
    }
}

/// `Tokenizer`, or `MultiTokenizer-{number}` where there are several: they are numbered by their processes.
fn tokenizer(pid: Pid, parts: &Parts<'_>) -> String {
    let title = |process: &Process| process.title.contains("tokenizer_worker");
    let workers = parts.processes.values().filter(|process| title(process));
    match workers.map(|process| process.pid).position(|worker| worker == pid) {
        Some(number) => format!("MultiTokenizer-{number}"),
        None => "Tokenizer".to_owned(),
    }
}

/// The frontend's thread: tokenize and dispatch. Gives the link to its last stage.
fn frontend(
    request: &Request,
    parent: &Span,
    parts: &Parts<'_>,
    maker: &mut Maker<'_>,
    threads: &mut Threads,
) -> Option<Link> {
    let (pid, dispatched) = (request.pid?, request.frontend.dispatched.get()?);
    let label = label(&tokenizer(pid, parts), parts.node());
    let thread = Thread { label, pid, ranks: [None; 3], host: host(parts) };
    let from = spans::begin(request);
    let thread = thread.span(parent, from, dispatched, maker);
    let tokenized = request.frontend.tokenized.get();
    // Where the frontend's objects are not read, sending is all that shows: tokenizing ended at the latest then.
    let tokenize = (span::TOKENIZE, Some(from), tokenized.or(Some(dispatched.estimated())));
    let dispatch = (span::API_SERVER_DISPATCH, request.frontend.dispatch.get(), Some(dispatched));
    let stages: Vec<Stage> = [tokenize, dispatch].into_iter().filter_map(stage).collect();
    put(thread, &stages, &[], None, maker, threads)
}

fn stage((name, from, to): (&str, Option<Moment>, Option<Moment>)) -> Option<Stage> {
    let (from, to) = (from?, to?);
    let def = stages::def(name)?;
    (to.at >= from.at).then(|| Stage { def, from, to, parent: None, attributes: Vec::new() })
}

/// The data-parallel controller's thread, where it was seen to pass the request on.
fn controller(
    request: &Request,
    parent: &Span,
    parts: &Parts<'_>,
    maker: &mut Maker<'_>,
    last: Option<Link>,
    threads: &mut Threads,
) -> Option<Link> {
    let (Some((pid, at)), Some(sent)) = (request.controller, request.frontend.dispatched.get()) else {
        return last;
    };
    let thread =
        Thread { label: label("DP Controller", parts.node()), pid, ranks: [None; 3], host: host(parts) };
    let (from, to) = (sent.estimated(), Moment::seen(at, Source::Frontend));
    let thread = thread.span(parent, from, to, maker);
    let stages: Vec<Stage> =
        [(span::DPC_DISPATCH, Some(from), Some(to))].into_iter().filter_map(stage).collect();
    put(thread, &stages, &[], last.as_ref(), maker, threads).or(last)
}

/// A scheduler's thread.
fn scheduler(
    request: &Request,
    (pid, timeline): (Pid, &Timeline),
    parent: &Span,
    parts: &Parts<'_>,
    maker: &mut Maker<'_>,
    before: Option<&Link>,
    threads: &mut Threads,
) {
    let process = parts.processes.get(&pid);
    let rank = |of| process.and_then(|process| process.rank(of));
    // A scheduler has ranks though there is one only; a data-parallel one where there are several.
    let ranks = [
        Some(rank(Parallel::Tensor).unwrap_or(0)),
        Some(rank(Parallel::Pipeline).unwrap_or(0)),
        rank(Parallel::Data),
    ];
    let thread = Thread { label: label("Scheduler", parts.node()), pid, ranks, host: host(parts) };
    let end = timeline.completed.get().unwrap_or_else(|| spans::end(request).estimated());
    let idle = Forwards::default();
    let forwards = parts.forwards.get(&pid).unwrap_or(&idle);
    let overlap = parts.server.sglang.as_ref().is_some_and(|launch| launch.overlap);
    let cut = stages::of(
        timeline,
        Run { forwards, overlap, sent: request.frontend.dispatched.get(), node: parts.node() },
        end,
    );
    threads.unseen += cut.unseen + timeline.dropped;
    let sent = request.frontend.dispatched.get().map(Moment::estimated);
    let first = timeline.received.get().or(sent).or(timeline.earliest());
    let from = first.unwrap_or_else(|| spans::begin(request));
    let to = timeline.latest().map_or(end, |latest| end.later(latest));
    let mut thread = thread.span(parent, from, to, maker);
    ending(&mut thread, request, maker.settings.content);
    let events = events(timeline, maker);
    put(thread, &cut.stages, &events, before, maker, threads);
}

/// An abnormal end stands on the scheduler's thread: the request span is not marked.
fn ending(thread: &mut Span, request: &Request, content: bool) {
    let (ending, _) = request.ending.unwrap_or((Ending::Detached, request.touched));
    let kind = request.finish.as_ref().map(|finish| finish.kind.clone());
    match ending {
        Ending::Finished | Ending::Expired | Ending::Detached => {}
        Ending::Aborted => {
            let told = request.finish.as_ref().and_then(|finish| finish.message.clone());
            let kind = kind.unwrap_or_else(|| "abort".to_owned());
            // The engine's word may quote the prompt.
            thread.status = Status::Error(told.filter(|_| content).unwrap_or_else(|| kind.clone()));
            let status = request.finish.as_ref().and_then(|finish| finish.status);
            thread.set(attr::ERROR_TYPE, status.map_or_else(|| kind.clone(), |status| status.to_string()));
            thread.set(attr::FINISH_REASON, kind);
        }
        Ending::Died => {
            thread.status = Status::Error("the server died before the request ended".to_owned());
            thread.set(attr::ERROR_TYPE, "server_died");
            thread.set_some(attr::FINISH_REASON, kind);
        }
    }
}

/// The events of a timeline, by time.
fn events(timeline: &Timeline, maker: &Maker<'_>) -> Vec<Event> {
    let level = maker.settings.sglang_level;
    let retracted = timeline.rounds.iter().filter_map(|round| round.retracted.get());
    let retracts = retracted.map(|at| Event {
        name: event::RETRACT.into(),
        at: maker.wall(at.mono()),
        attributes: Vec::new(),
    });
    let schedules = timeline.schedules.iter().filter_map(|schedule| scheduled(schedule, maker));
    let retracts = retracts.filter(|_| level.shows(RETRACT_LEVEL));
    let mut events: Vec<Event> = retracts.chain(schedules.filter(|_| level.shows(SCHEDULE_LEVEL))).collect();
    events.sort_by_key(|event| event.at);
    events
}

fn scheduled(schedule: &Schedule, maker: &Maker<'_>) -> Option<Event> {
    let mode = match schedule.batch.mode {
        ForwardMode::Prefill => "prefill",
        ForwardMode::Decode => "decode",
        ForwardMode::Prebuilt => "prebuilt",
        ForwardMode::Idle => return None,
    };
    let attributes = vec![
        Attribute { key: attr::BID.into(), value: schedule.batch.id.into() },
        Attribute { key: attr::BATCH_SIZE.into(), value: schedule.batch.size.into() },
        Attribute { key: attr::FORWARD_MODE.into(), value: mode.into() },
    ];
    Some(Event { name: event::SCHEDULE.into(), at: maker.wall(schedule.at.mono()), attributes })
}

/// Puts a thread with its stages and events among the spans. Each stage straight under the thread links to the one
/// before it, the first one to the last of the process before. Gives the link to the last one.
fn put(
    thread: Span,
    stages: &[Stage],
    events: &[Event],
    before: Option<&Link>,
    maker: &mut Maker<'_>,
    threads: &mut Threads,
) -> Option<Link> {
    let level = maker.settings.sglang_level;
    let mut link = before.cloned();
    let mut last = None;
    // Where in the list the span of each stage stands; of one that is not shown, that of the stage it lies in.
    let mut places: Vec<Option<usize>> = Vec::with_capacity(stages.len());
    let mut spans = vec![thread];
    for stage in stages {
        let inside = stage.parent.and_then(|parent| places.get(parent).copied().flatten());
        if !level.shows(stage.def.level) {
            places.push(inside);
            continue;
        }
        let Some(parent) = spans.get(inside.unwrap_or(0)) else { continue };
        let mut span = stage_span(stage, parent, maker);
        if inside.is_none() {
            span.links.extend(link.take());
            last = Some(Link { trace: span.trace, span: span.id });
            link.clone_from(&last);
        }
        places.push(Some(spans.len()));
        spans.push(span);
    }
    place(events, &mut spans, maker.settings.event_limit);
    threads.spans.append(&mut spans);
    last
}

fn stage_span(stage: &Stage, parent: &Span, maker: &mut Maker<'_>) -> Span {
    let Stage { def, from, to, parent: _, attributes } = stage;
    let start = maker.wall(from.mono()).clamp(parent.start, parent.end);
    let end = maker.wall(to.mono()).clamp(start, parent.end);
    let mut span = maker.span(def.name, Some(parent.id), start, end);
    for (key, value) in attributes {
        span.set(*key, value.clone());
    }
    let edges = [("start", from), ("end", to)];
    let estimated: Vec<String> =
        edges.into_iter().filter(|(_, edge)| !edge.exact()).map(|(name, _)| name.to_owned()).collect();
    if !estimated.is_empty() {
        span.set(attr::ESTIMATED, estimated);
    }
    span
}

/// Puts each event on the innermost span that covers its moment: a stage, else the thread, which comes first.
fn place(events: &[Event], spans: &mut [Span], limit: usize) {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&index| spans.get(index).map(|span| (span.start, index)));
    // Those that have begun and may cover what comes, the innermost last.
    let mut open: Vec<usize> = Vec::new();
    let mut next = order.into_iter().peekable();
    for event in events {
        let begun = |index: &usize| spans.get(*index).is_some_and(|span| span.start <= event.at);
        while let Some(index) = next.next_if(begun) {
            open.push(index);
        }
        open.retain(|&index| index == 0 || covers(spans.get(index), event.at));
        let Some(span) = spans.get_mut(open.last().copied().unwrap_or(0)) else { return };
        if span.events.len() < limit {
            span.events.push(event.clone());
        } else {
            span.dropped_events = span.dropped_events.saturating_add(1);
        }
    }
}

fn covers(span: Option<&Span>, at: WallTime) -> bool {
    span.is_some_and(|span| span.start <= at && at < span.end)
}
