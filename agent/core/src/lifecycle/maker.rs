//! Makes the spans of one trace: ids, the caller's trace, wall times.

use std::borrow::Cow;

use crate::dialect::signal::ApiRequest;
use crate::dialect::traceparent::{self, TraceParent};
use crate::ids::{Mint, SpanId, TraceId};
use crate::model::span::{Span, Status};
use crate::settings::Settings;
use crate::time::{Clock, MonoTime, WallTime};

/// Makes spans of one trace.
pub(super) struct Maker<'a> {
    pub clock: Clock,
    pub settings: &'a Settings,
    mint: &'a mut Mint,
    trace: TraceId,
    state: Option<String>,
}

/// The caller's span, that of a `traceparent`, if there is one.
#[derive(Debug, Default)]
pub(super) struct Caller {
    parent: Option<TraceParent>,
    state: Option<String>,
}

impl Caller {
    /// By the HTTP headers, else by what the engine was handed.
    pub fn of(asked: Option<&ApiRequest>, handed: Option<&str>) -> Self {
        let header = asked.and_then(|request| request.traceparent.as_deref());
        let parent = header.or(handed).and_then(traceparent::parse);
        let state = asked.and_then(|request| request.tracestate.as_deref());
        Self { parent, state: parent.and(state).and_then(traceparent::state) }
    }

    /// Its id.
    pub fn span(&self) -> Option<SpanId> {
        self.parent.map(|parent| parent.span)
    }

    /// Whether the caller records its spans of the trace; true where there is none.
    pub fn sampled(&self) -> bool {
        self.parent.is_none_or(|parent| parent.sampled)
    }
}

impl<'a> Maker<'a> {
    /// Spans of the caller's trace, or of a new one.
    pub fn new(clock: Clock, settings: &'a Settings, mint: &'a mut Mint, caller: &Caller) -> Self {
        let trace = caller.parent.map_or_else(|| mint.trace(), |parent| parent.trace);
        Self { clock, settings, mint, trace, state: caller.state.clone() }
    }

    /// A span with nothing on it yet.
    pub fn span(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        parent: Option<SpanId>,
        start: WallTime,
        end: WallTime,
    ) -> Span {
        Span {
            trace: self.trace,
            id: self.mint.span(),
            parent,
            trace_state: self.state.clone(),
            name: name.into(),
            start,
            end: end.max(start),
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            status: Status::Unset,
        }
    }

    /// The wall time of a moment.
    pub fn wall(&self, at: MonoTime) -> WallTime {
        self.clock.wall(at)
    }
}
