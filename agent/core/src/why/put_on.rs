//! A verdict on a trace: as attributes of its root, and pauses as events of the spans they fell into.

use super::pause::{Pause, PauseKind};
use super::verdict::Verdict;
use crate::model::registry::{attr, event};
use crate::model::span::{Attribute, Event, Span, Trace};
use crate::time::{Nanos, WallTime};

impl Verdict {
    /// Puts the sentence, the causes and the pauses on the trace.
    pub fn put_on(&self, trace: &mut Trace) {
        for pause in &self.pauses {
            self.put_pause(pause, trace);
        }
        let Some(root) = trace.spans.first_mut() else { return };
        root.set(attr::WHY, self.sentence());
        for (kind, sum) in &self.paused {
            root.set(attribute(*kind), int(*sum));
        }
        if self.causes.is_empty() {
            return;
        }
        let names: Vec<String> = self.causes.iter().map(|blame| blame.cause.name().to_owned()).collect();
        root.set(attr::CAUSES, names);
        root.set(attr::CAUSE_TIMES, self.causes.iter().map(|blame| int(blame.took)).collect::<Vec<i64>>());
    }

    /// On the shortest span that was going on: a stage, where there is one.
    fn put_pause(&self, pause: &Pause, trace: &mut Trace) {
        let at = WallTime(self.at.0.saturating_add(pause.from.since(self.begun).0));
        let goes_on = |span: &&mut Span| span.start <= at && span.end >= at;
        let span = trace.spans.iter_mut().filter(goes_on).min_by_key(|span| span.end.since(span.start));
        let Some(span) = span else { return };
        let attributes = vec![
            Attribute { key: attr::PAUSE_TIME.into(), value: int(pause.took).into() },
            Attribute { key: attr::PAUSE_SIDE.into(), value: pause.side.name().into() },
        ];
        span.events.push(Event { name: name(pause.kind).into(), at, attributes });
        span.events.sort_by_key(|event| event.at);
    }
}

fn int(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn name(kind: PauseKind) -> &'static str {
    match kind {
        PauseKind::RunQueue => event::RUNQUEUE_DELAY,
        PauseKind::Cgroup => event::CPU_THROTTLED,
        PauseKind::Gc => event::GC_PAUSE,
    }
}

fn attribute(kind: PauseKind) -> &'static str {
    match kind {
        PauseKind::RunQueue => attr::RUNQUEUE_DELAY,
        PauseKind::Cgroup => attr::CPU_THROTTLED,
        PauseKind::Gc => attr::GC_PAUSE,
    }
}
