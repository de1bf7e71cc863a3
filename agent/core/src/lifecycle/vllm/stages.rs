//! Stage spans of an engine request (wait, kv_transfer, prefill, decode) and its iteration events.

use super::request::{Iteration, IterationKind, Request};
use super::spans::model_name;
use super::transfer::Sure;
use crate::capture::fact;
use crate::dialect::vocabulary::Vocabulary;
use crate::ids::SpanId;
use crate::lifecycle::maker::Maker;
use crate::model::registry::{attr, event, span};
use crate::model::span::{Attribute, Event, Span, Value};
use crate::time::{EngineTime, MonoTime, WallTime};

/// Part of a request's KV cache handover between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Prefill node.
    Producer,
    /// Decode node.
    Consumer,
    /// No handover.
    None,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::None => "none",
        }
    }

    /// Prefill time as the contract wants it: a decode node has none.
    pub fn prefill(self, time: Option<u64>) -> Option<u64> {
        match self {
            Self::Consumer => Some(0),
            Self::Producer | Self::None => time,
        }
    }

    /// Decode time as the contract wants it: a prefill node has none.
    pub fn decode(self, time: Option<u64>) -> Option<u64> {
        match self {
            Self::Producer => Some(0),
            Self::Consumer | Self::None => time,
        }
    }
}

/// The request's role, by the transfer parameters it was handed.
pub(super) fn role(request: &Request) -> Role {
    match request.kv_transfer() {
        Some(kv) if kv.do_remote_decode => Role::Producer,
        Some(kv) if kv.do_remote_prefill => Role::Consumer,
        Some(_) | None => Role::None,
    }
}

/// The stage spans: wait (with kv_transfer inside), prefill, decode.
pub(super) fn of(
    name: &str,
    request: &Request,
    parent: &Span,
    server: &fact::Server,
    maker: &mut Maker<'_>,
) -> Vec<Span> {
    let mut stages = Stages { name, request, server, maker, spans: Vec::new() };
    let moments = &request.moments;
    let role = role(request);
    stages.wait(parent.id, role);
    if let (Some(from), Some(to), false) = (moments.scheduled, moments.first, role == Role::Consumer) {
        stages.push(span::PREFILL, parent.id, from.mono(), to.mono(), role);
    }
    if let (Some(from), Some(to), false) = (moments.first, moments.last, role == Role::Producer)
        && to > from
    {
        stages.push(span::DECODE, parent.id, from.mono(), to.mono(), role);
    }
    stages.spans
}

/// What of a stage is an estimate: where the engine does not tell when a request was queued or scheduled, and where no
/// connector told of its transfer.
fn estimates(stage: &str, request: &Request) -> Vec<String> {
    let Request { moments, estimated, transfer, .. } = request;
    let derived = transfer.is_some_and(|transfer| transfer.sure != Sure::Reported);
    let (start, end) = match stage {
        span::WAIT => (moments.queued.is_none(), moments.scheduled.is_none()),
        span::KV_TRANSFER => (derived, derived),
        _ => (false, false),
    };
    let start = start || *estimated && matches!(stage, span::WAIT | span::KV_TRANSFER | span::PREFILL);
    let end = end || *estimated && matches!(stage, span::WAIT | span::KV_TRANSFER);
    let edges = [("start", start), ("end", end)].into_iter().filter(|(_, estimated)| *estimated);
    edges.map(|(edge, _)| edge.to_owned()).collect()
}

struct Stages<'a, 'b> {
    name: &'a str,
    request: &'a Request,
    server: &'a fact::Server,
    maker: &'a mut Maker<'b>,
    spans: Vec<Span>,
}

impl Stages<'_, '_> {
    fn push(
        &mut self,
        name: &'static str,
        parent: SpanId,
        from: MonoTime,
        to: MonoTime,
        role: Role,
    ) -> SpanId {
        let (from, to) = (self.maker.wall(from), self.maker.wall(to));
        let mut span = self.maker.span(name, Some(parent), from, to);
        span.set(attr::REQUEST_ID, self.name);
        span.set_some(attr::REQUEST_MODEL_NAME, model_name(self.server));
        span.set(attr::ENGINE_INDEX, self.request.engine_index.unwrap_or(0));
        span.set(attr::PD_ROLE, role.name());
        let estimated = estimates(name, self.request);
        if !estimated.is_empty() {
            span.set(attr::ESTIMATED, estimated);
        }
        let id = span.id;
        self.spans.push(span);
        id
    }

    /// Queued until scheduled. Of a request that never was, since its KV cache did not come: until that was over.
    fn wait(&mut self, parent: SpanId, role: Role) {
        let Request { moments, transfer, added, .. } = self.request;
        let from = moments.queued.map(EngineTime::mono).or(*added);
        let to = moments.scheduled.or(transfer.map(|transfer| transfer.ended)).map(EngineTime::mono);
        let told = moments.queued.is_some() && moments.scheduled.is_some();
        if let (Some(from), Some(to), true) = (from, to, told || transfer.is_some()) {
            let wait = self.push(span::WAIT, parent, from, to, role);
            self.kv_transfer(wait, from, to, role);
        }
    }

    /// The pull of a remote KV cache, inside the wait: the connector says how long it took and when it was done.
    fn kv_transfer(&mut self, wait: SpanId, queued: MonoTime, scheduled: MonoTime, role: Role) {
        let Some(transfer) = self.request.transfer else { return };
        let done = transfer.ended.mono().min(scheduled);
        let from = MonoTime(done.0.saturating_sub(transfer.took.nanos().0)).max(queued);
        self.push(span::KV_TRANSFER, wait, from, done, role);
        let external = self.request.cached.map(|cached| cached.external);
        if let Some(span) = self.spans.last_mut() {
            span.set(attr::KV_TRANSFER_DIRECTION, "recv");
            span.set_some(attr::KV_TRANSFER_CACHED_TOKENS, external);
            span.set(attr::KV_TRANSFER_FAILED, transfer.failed);
        }
    }
}

/// Puts the iteration events on an `llm_request`. Texts of tokens come from the model's vocabulary where there is
/// one, else from what was streamed for them.
pub(super) fn iterations(
    span: &mut Span,
    request: &Request,
    vocabulary: Option<&Vocabulary>,
    maker: &Maker<'_>,
) {
    let index = request.engine_index.unwrap_or(0);
    let event = |iteration: &Iteration| {
        let mut event = of_iteration(iteration, index, maker.wall(iteration.at.mono()));
        let texts = maker.settings.content.then(|| texts(iteration, vocabulary)).flatten();
        event.attributes.extend(texts.map(|texts| attribute(attr::TOKEN_TEXTS, texts)));
        event
    };
    span.events = request.iterations.iter().map(event).collect();
    // A preemption is told with a later output than the iterations it came before.
    span.events.sort_by_key(|event| event.at);
    span.dropped_events = request.dropped_iterations;
}

/// Text of each token; of all of them together where only the stream tells.
fn texts(iteration: &Iteration, vocabulary: Option<&Vocabulary>) -> Option<Vec<String>> {
    let known = vocabulary.filter(|_| !iteration.tokens.is_empty()).and_then(|vocabulary| {
        let text = |id: &u32| vocabulary.text(*id).map(std::borrow::Cow::into_owned);
        iteration.tokens.iter().map(text).collect::<Option<Vec<String>>>()
    });
    known.or_else(|| iteration.text.clone().map(|text| vec![text]))
}

fn of_iteration(iteration: &Iteration, index: u32, at: WallTime) -> Event {
    let Iteration { kind, at: _, tokens, logprobs, text: _ } = iteration;
    let name = match kind {
        IterationKind::Wait => event::WAIT,
        IterationKind::Prefill => event::PREFILL,
        IterationKind::Decode => event::DECODE,
        IterationKind::Preempted => event::PREEMPTED,
    };
    let mut attributes = vec![attribute(attr::ENGINE_INDEX, index)];
    if !tokens.is_empty() {
        attributes
            .push(attribute(attr::TOKEN_IDS, tokens.iter().copied().map(i64::from).collect::<Vec<_>>()));
        let count = u64::try_from(tokens.len()).unwrap_or(u64::MAX);
        attributes.push(attribute(attr::TOKEN_COUNT, count));
    }
    if !logprobs.is_empty()
        && let Ok(json) = serde_json::to_string(logprobs)
    {
        attributes.push(attribute(attr::TOKEN_LOGPROBS, json));
    }
    Event { name: name.into(), at, attributes }
}

fn attribute(key: &'static str, value: impl Into<Value>) -> Attribute {
    Attribute { key: key.into(), value: value.into() }
}
