//! Which of a scheduler's forwards were a request's: the chunks of its prefill, and its decode steps.
//!
//! A request that decodes takes part in every forward that is not a prefill, so its steps are counted off the marked
//! forwards from the first one after its prefill. What is known of single steps must agree with the count; between two
//! that do, the steps that nobody told of are given the moments of their forwards' results.

use std::collections::BTreeMap;

use super::forwards::{Forwards, Seen};
use super::moment::{Moment, Source};
use super::timeline::{Round, Step};
use crate::time::{EngineTime, MonoTime};

/// Most forwards of one round looked at.
const MAX_STEPS: usize = 16_384;

/// A round of a request among its scheduler's forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefill {
    /// Its first forward, where it is known.
    first: Option<usize>,
    /// The one whose result ended the prefill.
    last: usize,
}

/// A scheduler's forwards, and whether it plans ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked<'a> {
    pub forwards: &'a Forwards,
    pub overlap: bool,
}

/// What is known of a step: its number, and when its result was worked in.
#[derive(Clone, Copy, Debug)]
struct Known {
    ordinal: u64,
    end: Moment,
    /// It was the request's last.
    last: bool,
}

impl Marked<'_> {
    /// The forwards of a round's prefill; `None` where none was marked.
    pub fn prefill(&self, round: &Round) -> Option<Prefill> {
        let end = round.prefilled.get()?;
        let entered = round.forward.get().filter(|moment| moment.exact());
        let begun =
            |from: Moment| self.forwards.first_after(from.mono()).filter(|_| self.reaches(from.mono()));
        let first = entered.and_then(begun);
        let mut behind = self.forwards.behind(end.mono(), self.seen(end, true));
        let possible = |index: &usize| first.is_none_or(|first| *index >= first);
        let likeliest = behind.by_ref().find(possible)?;
        let last = if self.forwards.prefills(likeliest) {
            likeliest
        } else {
            behind.filter(possible).find(|index| self.forwards.prefills(*index)).unwrap_or(likeliest)
        };
        Some(Prefill { first, last })
    }

    fn seen(&self, end: Moment, idles: bool) -> Seen {
        Seen { overlap: self.overlap, sent: !end.exact(), idles }
    }

    /// Whether forwards were marked already at a moment.
    fn reaches(&self, at: MonoTime) -> bool {
        self.forwards.began_at(0).is_some_and(|oldest| oldest < at)
    }

    /// The first forward that decoded after a prefill.
    pub fn first_step(&self, prefill: Prefill, until: EngineTime) -> Option<usize> {
        self.forwards.steps_from(prefill.last + 1, until).next()
    }

    /// The ends of a prefill's chunks but the last, where each of its forwards is known to be a prefill. What the
    /// scheduler wrote of them stands.
    pub fn chunks(&self, round: &Round, prefill: Prefill) -> Vec<Moment> {
        let written = || round.chunks.iter().map(|&at| Moment { at, source: Source::Engine });
        let Some(first) = prefill.first.filter(|first| *first < prefill.last) else {
            return written().collect();
        };
        if !(first..=prefill.last).all(|index| self.forwards.prefills(index)) {
            return written().collect();
        }
        let counted: Option<Vec<Moment>> =
            (first..prefill.last).map(|index| self.chunk(round, index)).collect();
        let counted = counted.unwrap_or_default();
        let all = written().all(|chunk| counted.contains(&chunk));
        if all { counted } else { written().collect() }
    }

    /// The end of the chunk that a forward was.
    fn chunk(&self, round: &Round, index: usize) -> Option<Moment> {
        let mut written = round.chunks.iter().map(|&at| Moment { at, source: Source::Engine });
        let seen = |end: Moment| self.forwards.behind(end.mono(), self.seen(end, false));
        let written = written.find(|end| seen(*end).next() == Some(index));
        written.or_else(|| self.forwards.result(index, self.overlap, None))
    }

    /// Adds to a round's decode steps those that only marks tell of.
    pub fn fill(&self, round: &Counted, steps: &mut BTreeMap<u64, Step>) {
        let Counted { first, begin, until, before, last } = *round;
        let marks: Vec<usize> = self.forwards.steps_from(first, until).take(MAX_STEPS).collect();
        let of_round = |end: EngineTime| end > begin && end <= until;
        if let Some(first) = self.forwards.began_at(first) {
            // Of a step that ended before its forward began, the plan was read.
            steps.retain(|_, step| !of_round(step.end.at) || !step.end.exact() || step.end.mono() > first);
        }
        let told = steps.iter().filter(|(_, step)| of_round(step.end.at));
        let is_last = |ordinal: u64| last.is_some_and(|(last, _)| last == ordinal);
        let told = told.map(|(&ordinal, step)| Known { ordinal, end: step.end, last: is_last(ordinal) });
        let last = last.map(|(ordinal, end)| Known { ordinal, end, last: true });
        let known: Vec<Known> = told.chain(last).collect();
        let Some(base) = before.or_else(|| self.base(&known, &marks)) else { return };
        let agree =
            |known: &&Known| self.places(known, &marks).any(|place| place + base + 1 == known.ordinal);
        let Some(furthest) = known.iter().filter(agree).map(|known| known.ordinal).max() else { return };
        for stray in known.iter().filter(|known| known.end.exact() && !known.last && !agree(known)) {
            self.renumber(stray, base, &marks, steps);
        }
        for (ordinal, &index) in (base + 1..=furthest).zip(&marks) {
            let known = steps.get(&ordinal).copied();
            if known.is_some_and(|step| step.end.exact()) {
                continue;
            }
            let bound = known.map(|step| step.end.mono());
            let accepted = known.and_then(|step| step.accepted);
            if let Some(end) = self.forwards.result(index, self.overlap, bound) {
                steps.insert(ordinal, Step { end, accepted });
            }
        }
    }

    /// Gives a step whose end the scheduler wrote the number that its end says: the count of tokens beside it was read a
    /// little later.
    fn renumber(&self, stray: &Known, base: u64, marks: &[usize], steps: &mut BTreeMap<u64, Step>) {
        let Some(ordinal) = self.places(stray, marks).next().map(|place| place + base + 1) else { return };
        if steps.get(&ordinal).is_some_and(|step| step.end.exact()) {
            return;
        }
        if let Some(step) = steps.remove(&stray.ordinal) {
            steps.insert(ordinal, step);
        }
    }

    /// How many steps there were before a round, by the first of its steps that is known.
    fn base(&self, known: &[Known], marks: &[usize]) -> Option<u64> {
        known.iter().find_map(|step| step.ordinal.checked_sub(self.places(step, marks).next()? + 1))
    }

    /// In which places of a round a step may have been, by its end.
    fn places(&self, known: &Known, marks: &[usize]) -> impl Iterator<Item = u64> {
        let behind = self.forwards.behind(known.end.mono(), self.seen(known.end, known.last));
        behind.filter_map(move |index| u64::try_from(marks.binary_search(&index).ok()?).ok())
    }
}

/// A round whose steps are to be counted off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// The forward that was its first step.
    pub first: usize,
    pub begin: EngineTime,
    pub until: EngineTime,
    /// How many steps there were before it, where that is known.
    pub before: Option<u64>,
    /// The number and end of the request's last step, where it was in this round.
    pub last: Option<(u64, Moment)>,
}
