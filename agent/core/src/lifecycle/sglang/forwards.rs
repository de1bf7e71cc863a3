//! When a scheduler's forwards began, as a probe marked them, and what follows of it for steps nobody told of.

use std::collections::{BTreeMap, VecDeque};

use super::moment::{Moment, Source};
use super::timeline::{Step, Timeline};
use crate::dialect::signal::sglang::ForwardMode;
use crate::time::{EngineTime, MonoTime};

/// Most forwards of one scheduler remembered.
const MAX_FORWARDS: usize = 65_536;

/// The forwards of one scheduler, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwards(VecDeque<Forward>);

#[derive(Clone, Copy, Debug)]
struct Forward {
    at: MonoTime,
    /// What it did, where the scheduler's objects were looked at then.
    mode: Option<ForwardMode>,
}

impl Forwards {
    /// One began.
    pub fn began(&mut self, at: MonoTime) {
        if self.0.back().is_some_and(|last| last.at >= at) {
            return;
        }
        if self.0.len() >= MAX_FORWARDS {
            self.0.pop_front();
        }
        self.0.push_back(Forward { at, mode: None });
    }

    /// What one of them did.
    pub fn did(&mut self, at: MonoTime, mode: ForwardMode) {
        let index = self.0.partition_point(|forward| forward.at < at);
        if let Some(forward) = self.0.get_mut(index).filter(|forward| forward.at == at) {
            forward.mode = Some(mode);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those between two moments that may have been decode steps.
    fn between(&self, from: EngineTime, to: EngineTime) -> impl DoubleEndedIterator<Item = Moment> + '_ {
        let begin = self.0.partition_point(|forward| forward.at.engine() <= from);
        let end = self.0.partition_point(|forward| forward.at.engine() < to);
        let decodes = |forward: &&Forward| forward.mode.is_none_or(|mode| mode == ForwardMode::Decode);
        let seen = self.0.range(begin.min(end)..end).filter(decodes);
        seen.map(|forward| Moment::seen(forward.at, Source::Estimate))
    }

    /// The newest before a moment but `skip`.
    pub fn before(&self, at: EngineTime, skip: usize) -> Option<Moment> {
        self.between(EngineTime(0.0), at).rev().nth(skip)
    }

    /// A timeline's decode steps, with those that nobody told of but whose forwards were marked: a scheduler works a
    /// step's result in right before the next forward but one begins, with overlapped scheduling as without. Where
    /// other forwards were in between, nothing is said.
    pub fn steps(&self, timeline: &Timeline) -> BTreeMap<u64, Step> {
        let mut steps = timeline.steps.clone();
        let prefilled = timeline.rounds.first().and_then(|round| round.prefilled.get());
        let first = prefilled.map(|prefilled| (0, prefilled.at));
        let known = timeline.steps.iter().map(|(&ordinal, step)| (ordinal, step.end.at));
        let known: Vec<(u64, EngineTime)> = first.into_iter().chain(known).collect();
        for pair in known.windows(2) {
            let [(last, from), (next, to)] = pair else { continue };
            let returns = timeline.rounds.iter().filter_map(|round| round.retracted.get());
            if next - last < 2 || returns.into_iter().any(|at| at.at > *from && at.at < *to) {
                continue;
            }
            let marks: Vec<Moment> = self.between(*from, *to).collect();
            if u64::try_from(marks.len()) != Ok(next - last) {
                continue;
            }
            for (ordinal, &end) in (last + 1..*next).zip(marks.iter().skip(1)) {
                steps.insert(ordinal, Step { end, accepted: None });
            }
        }
        steps
    }
}
