//! What a scheduler did lately: the ends of its steps and the states it told, each bounded.

use std::collections::VecDeque;

use crate::time::{MonoTime, Nanos};

/// Steps remembered of one scheduler: half a megabyte.
const MAX_STEPS: usize = 16_384;
/// States remembered of one scheduler.
const MAX_STATES: usize = 16_384;

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it ended.
    pub ended: MonoTime,
    /// Requests that got something of it.
    pub outputs: u32,
}

/// A scheduler's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// When it was told.
    pub at: MonoTime,
    /// Requests running.
    pub running: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// KV cache use, 0 to 1.
    pub kv_usage: f64,
}

/// Something that happened at one moment.
pub trait At {
    /// When.
    fn at(&self) -> MonoTime;
}

impl At for Step {
    fn at(&self) -> MonoTime {
        self.ended
    }
}

impl At for State {
    fn at(&self) -> MonoTime {
        self.at
    }
}

/// The latest of something, in order of time; the oldest make room for new ones, and are counted.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    kept: VecDeque<T>,
    limit: usize,
    forgotten: u64,
}

impl<T: At> Ring<T> {
    /// An empty ring that holds at most `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, forgotten: 0 }
    }

    /// Takes one. What comes out of order finds its place among the last few.
    pub fn push(&mut self, item: T) {
        if self.kept.len() >= self.limit {
            self.kept.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        let later = self.kept.iter().rev().take_while(|other| other.at() > item.at()).count();
        let place = self.kept.len().saturating_sub(later);
        self.kept.insert(place, item);
    }

    /// The newest.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.kept.back()
    }

    /// Those after one moment and up to another.
    pub fn between(&self, from: MonoTime, to: MonoTime) -> impl DoubleEndedIterator<Item = &T> + Clone {
        let begin = self.kept.partition_point(|item| item.at() <= from);
        let end = self.kept.partition_point(|item| item.at() <= to);
        self.kept.range(begin..end.max(begin))
    }

    /// Those from `before` items before a moment on, up to another.
    pub fn around(&self, from: MonoTime, to: MonoTime, before: usize) -> impl Iterator<Item = &T> + Clone {
        let begin = self.kept.partition_point(|item| item.at() <= from).saturating_sub(before);
        let end = self.kept.partition_point(|item| item.at() <= to);
        self.kept.range(begin..end.max(begin))
    }

    /// Whether what was at a moment may have been forgotten.
    #[must_use]
    pub fn forgot(&self, at: MonoTime) -> bool {
        self.forgotten > 0 && self.kept.front().is_none_or(|oldest| at < oldest.at())
    }

    /// How many were forgotten.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// One scheduler.
#[derive(Clone, Debug)]
pub struct Core {
    /// Ends of its steps.
    pub steps: Ring<Step>,
    /// Its states.
    pub states: Ring<State>,
    /// The most requests it ever said it ran at once.
    pub most_running: u64,
}

impl Default for Core {
    fn default() -> Self {
        Self { steps: Ring::new(MAX_STEPS), states: Ring::new(MAX_STATES), most_running: 0 }
    }
}

impl Core {
    /// Takes a state.
    pub fn state(&mut self, state: State) {
        self.most_running = self.most_running.max(state.running);
        self.states.push(state);
    }

    /// Steps that ended after one moment and up to another.
    #[must_use]
    pub fn count(&self, from: MonoTime, to: MonoTime) -> u32 {
        u32::try_from(self.steps.between(from, to).count()).unwrap_or(u32::MAX)
    }
}

/// The middle of some lengths of time; `None` of none.
#[must_use]
pub fn median(lengths: &mut [Nanos]) -> Option<Nanos> {
    let middle = lengths.len() / 2;
    if lengths.is_empty() {
        return None;
    }
    Some(*lengths.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ended: u64) -> Step {
        Step { ended: MonoTime(ended), outputs: 1 }
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let mut ring = Ring::new(2);
        for at in [1, 2, 3] {
            ring.push(step(at));
        }
        let kept: Vec<u64> = ring.between(MonoTime(0), MonoTime(9)).map(|step| step.ended.0).collect();
        assert_eq!((kept, ring.forgotten()), (vec![2, 3], 1));
        assert!(ring.forgot(MonoTime(1)) && !ring.forgot(MonoTime(2)));
    }

    #[test]
    fn what_comes_late_finds_its_place() {
        let mut ring = Ring::new(8);
        for at in [10, 30, 20] {
            ring.push(step(at));
        }
        let kept: Vec<u64> = ring.between(MonoTime(10), MonoTime(30)).map(|step| step.ended.0).collect();
        assert_eq!(kept, [20, 30], "after the one, up to the other");
        assert_eq!(ring.around(MonoTime(20), MonoTime(30), 1).count(), 2);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [Nanos(9), Nanos(1), Nanos(5)]), Some(Nanos(5)));
    }
}
