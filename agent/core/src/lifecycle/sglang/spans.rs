//! Spans of one API request to SGLang: the entry span, a request span for each request inside, a span for each thread
//! that worked on it, and the threads' stages.

use std::collections::BTreeMap;

use super::forwards::Forwards;
use super::moment::{Moment, Source};
use super::request::{Ending, Request};
use super::{entry, threads};
use crate::capture::fact::{self, Disaggregation, Process};
use crate::ids::{Mint, Pid, SpanId};
use crate::lifecycle::exchange::Exchange;
use crate::lifecycle::maker::{Caller, Maker};
use crate::model::registry::attr;
use crate::model::span::{Span, Trace};
use crate::settings::Settings;
use crate::time::{Clock, Seconds};

/// What a trace is made of.
pub(super) struct Parts<'a> {
    pub server: &'a fact::Server,
    pub processes: &'a BTreeMap<Pid, Process>,
    /// Forwards of each scheduler.
    pub forwards: &'a BTreeMap<Pid, Forwards>,
    pub exchange: Option<&'a Exchange>,
    /// Requests, in the order in which they were handed over.
    pub requests: &'a [Request],
}

impl Parts<'_> {
    /// Which part of a disaggregated pair the server is.
    pub fn node(&self) -> Disaggregation {
        self.server.sglang.as_ref().map(|launch| launch.disaggregation).unwrap_or_default()
    }
}

/// A trace, and how many decode steps nobody told the time of.
pub(super) struct Made {
    pub trace: Trace,
    pub unseen: u64,
}

/// Makes the trace.
pub(super) fn trace(parts: &Parts<'_>, settings: &Settings, clock: Clock, mint: &mut Mint) -> Made {
    let caller = Caller::of(parts.exchange.map(|exchange| &exchange.request), None);
    let mut maker = Maker::new(clock, settings, mint, &caller);
    let mut spans = Vec::new();
    let mut parent = caller.span();
    if let Some(entry) = parts.exchange.and_then(|exchange| entry::of(exchange, parts, parent, &mut maker)) {
        parent = Some(entry.id);
        spans.push(entry);
    }
    let mut unseen = 0;
    if settings.sglang_level.shows(1) {
        for request in &parts.requests.iter().flat_map(Request::shown).collect::<Vec<_>>() {
            let span = request_span(request, parts, parent, &mut maker);
            let threads = threads::of(request, &span, parts, &mut maker);
            unseen += threads.unseen;
            spans.push(span);
            spans.extend(threads.spans);
        }
    }
    Made {
        trace: Trace { server: parts.server.id, sampled: caller.sampled(), spans, logs: Vec::new() },
        unseen,
    }
}

/// `{role} Req {first 8 characters of rid}`.
fn name(rid: &str, node: Disaggregation) -> String {
    let first: String = rid.chars().take(8).collect();
    match role(node) {
        "" => format!("Req {first}"),
        role => format!("{role} Req {first}"),
    }
}

fn role(node: Disaggregation) -> &'static str {
    match node {
        Disaggregation::Unified => "",
        Disaggregation::Prefill => "prefill",
        Disaggregation::Decode => "decode",
    }
}

/// The id without the worker that several tokenizers put before it.
fn own_id(rid: &str) -> &str {
    rid.rsplit('_').next().unwrap_or(rid)
}

/// When the frontend took a request up, as far as anybody can tell.
pub(super) fn begin(request: &Request) -> Moment {
    let earliest = request.schedulers.values().filter_map(super::timeline::Timeline::earliest);
    let seen = Moment::seen(request.since, Source::Estimate);
    let seen = earliest.fold(seen, |a, b| if b.at < a.at { b.estimated() } else { a });
    request.frontend.created.get().map_or(seen, |created| if created.at <= seen.at { created } else { seen })
}

/// When it was over.
pub(super) fn end(request: &Request) -> Moment {
    let ended = request.ending.map_or(request.touched, |(_, at)| at);
    request.frontend.finished.get().unwrap_or(Moment::seen(ended, Source::Estimate))
}

fn request_span(request: &Request, parts: &Parts<'_>, parent: Option<SpanId>, maker: &mut Maker<'_>) -> Span {
    let (from, to) = (begin(request), end(request));
    // It is over when its threads are: the scheduler's may be told to end a moment later.
    let threads = request.schedulers.values().filter_map(super::timeline::Timeline::latest);
    let last = threads.fold(to, Moment::later);
    let rid = own_id(&request.rid);
    let (start, end) = (maker.wall(from.mono()), maker.wall(last.mono()));
    let mut span = maker.span(name(rid, parts.node()), parent, start, end);
    span.set(attr::RID, rid);
    span.set(attr::MODULE, "sglang::request");
    span.set_some(attr::BOOTSTRAP_ROOM, request.bootstrap_room.map(|room| format!("{room:#x}")));
    if request.normal() {
        asked(&mut span, request);
        answered(&mut span, request, parts);
        latencies(&mut span, request, from);
    }
    if request.partial() || unfinished(request) {
        span.set(attr::PARTIAL, true);
    }
    losses(&mut span, request);
    span
}

fn unfinished(request: &Request) -> bool {
    request.ending.is_none_or(|(ending, _)| matches!(ending, Ending::Expired | Ending::Detached))
}

fn asked(span: &mut Span, request: &Request) {
    span.set(attr::REQUEST_ID, request.rid.as_str());
    let Some(sampling) = request.handed.as_ref().and_then(|handed| handed.sampling.as_ref()) else { return };
    span.set_some(attr::REQUEST_TEMPERATURE, sampling.temperature);
    span.set_some(attr::REQUEST_TOP_P, sampling.top_p);
    span.set_some(attr::REQUEST_TOP_K, sampling.top_k);
    span.set_some(attr::REQUEST_N, sampling.n);
    span.set_some(attr::REQUEST_MAX_TOKENS, sampling.max_new_tokens);
}

fn answered(span: &mut Span, request: &Request, parts: &Parts<'_>) {
    span.set_some(attr::RESPONSE_MODEL, parts.server.models.first().cloned());
    let reasons = request.finish.as_ref().and_then(|finish| serde_json::to_string(&[&finish.kind]).ok());
    span.set_some(attr::RESPONSE_FINISH_REASONS, reasons);
    span.set_some(attr::USAGE_PROMPT_TOKENS, request.prompt_tokens);
    if !request.embedding() {
        span.set_some(attr::USAGE_COMPLETION_TOKENS, request.completion_tokens);
    }
    span.set_some(attr::USAGE_CACHED_TOKENS, request.cached_tokens);
}

/// As `APIServerReqTimeStats.convert_to_gen_ai_span_attrs` subtracts them.
fn latencies(span: &mut Span, request: &Request, from: Moment) {
    let frontend = &request.frontend;
    let created = (!request.partial()).then_some(from);
    let (dispatched, first) = (frontend.dispatched.get(), frontend.first_token.get());
    let finished = frontend.finished.get();
    let between =
        |from: Option<Moment>, to: Option<Moment>| Some(to?.at.since(from?.at)).filter(|s| s.0 >= 0.0);
    let times = [
        (attr::LATENCY_TIME_TO_FIRST_TOKEN, created, first),
        (attr::LATENCY_E2E, created, finished),
        (attr::LATENCY_TIME_IN_MODEL_PREFILL, dispatched, first),
        (attr::LATENCY_TIME_IN_MODEL_DECODE, first, finished),
        (attr::LATENCY_TIME_IN_MODEL_INFERENCE, dispatched, finished),
    ];
    let mut estimated = Vec::new();
    for (key, from, to) in times {
        let Some(Seconds(seconds)) = between(from, to) else { continue };
        span.set(key, seconds);
        if from.is_some_and(|from| from.source == Source::Estimate) {
            estimated.push(key.to_owned());
        }
    }
    if !estimated.is_empty() {
        span.set(attr::ESTIMATED, estimated);
    }
}

fn losses(span: &mut Span, request: &Request) {
    if request.ending.is_some_and(|(ending, _)| ending == Ending::Expired) {
        span.set(attr::LOSS, vec!["request_expired".to_owned()]);
    } else if request.handed.as_ref().is_some_and(|handed| handed.cut) {
        span.set(attr::LOSS, vec!["cut_message".to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_span_is_named_by_role_and_id() {
        assert_eq!(name("829bb6941234", Disaggregation::Unified), "Req 829bb694");
        assert_eq!(name("829bb6941234", Disaggregation::Prefill), "prefill Req 829bb694");
        assert_eq!(name("é1234567890", Disaggregation::Decode), "decode Req é1234567");
        assert_eq!(own_id("7_829bb694"), "829bb694");
    }
}
