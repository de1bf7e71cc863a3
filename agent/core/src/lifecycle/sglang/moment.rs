//! Moments of a request, merged from several sources: the better source wins, and what it told stays.

use crate::time::{EngineTime, MonoTime};

/// Who told a moment, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Nobody: something near it was seen.
    Estimate,
    /// A message at the frontend's end: later by the detokenizer and two sockets.
    Frontend,
    /// A message at the scheduler's end, or the launch of a batch: later by some bookkeeping, well under a millisecond.
    Scheduler,
    /// The engine itself, by its message or its objects: exact.
    Engine,
}

/// A moment and who told it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    pub at: EngineTime,
    pub source: Source,
}

impl Moment {
    /// A moment seen from outside.
    pub fn seen(at: MonoTime, source: Source) -> Self {
        Self { at: at.engine(), source }
    }

    /// Whether the engine told it.
    pub fn exact(self) -> bool {
        self.source == Source::Engine
    }

    /// Whether the engine told it, or a moment right after it.
    pub fn told(self) -> bool {
        self.source >= Source::Scheduler
    }

    /// The same moment, only guessed at.
    pub fn estimated(self) -> Self {
        Self { source: Source::Estimate, ..self }
    }

    pub fn mono(self) -> MonoTime {
        self.at.mono()
    }

    /// The later of two.
    pub fn later(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// A moment that is told once: what a better source says replaces it, what an equal one says does not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slot(Option<Moment>);

impl Slot {
    pub fn get(self) -> Option<Moment> {
        self.0
    }

    pub fn is_some(self) -> bool {
        self.0.is_some()
    }

    /// Whether the engine told it.
    pub fn exact(self) -> bool {
        self.0.is_some_and(Moment::exact)
    }

    pub fn tell(&mut self, moment: Moment) {
        if self.0.is_none_or(|known| moment.source > known.source) {
            self.0 = Some(moment);
        }
    }

    /// What the engine wrote. Zero is its "not yet"; what no clock can say is none.
    pub fn engine(&mut self, at: Option<EngineTime>) {
        if let Some(at) = written(at) {
            self.tell(Moment { at, source: Source::Engine });
        }
    }

    /// What was seen from outside.
    pub fn seen(&mut self, at: MonoTime, source: Source) {
        self.tell(Moment::seen(at, source));
    }
}

/// A time that the engine wrote, if it did: zero is its "not yet".
pub(super) fn written(at: Option<EngineTime>) -> Option<EngineTime> {
    at.filter(|at| at.0.is_finite() && at.0 > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_source_wins_and_an_equal_one_changes_nothing() {
        let mut slot = Slot::default();
        slot.seen(MonoTime(5_000_000_000), Source::Frontend);
        slot.seen(MonoTime(6_000_000_000), Source::Frontend);
        assert_eq!(slot.get().map(|m| m.at), Some(EngineTime(5.0)));
        slot.engine(Some(EngineTime(4.0)));
        slot.engine(Some(EngineTime(4.5)));
        slot.seen(MonoTime(1), Source::Scheduler);
        assert_eq!(slot.get(), Some(Moment { at: EngineTime(4.0), source: Source::Engine }));
    }

    #[test]
    fn what_the_engine_has_not_written_yet_is_nothing() {
        let mut slot = Slot::default();
        for at in [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            slot.engine(at.map(EngineTime));
        }
        assert!(!slot.is_some());
    }
}
