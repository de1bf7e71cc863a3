//! A scheduler's forwards, as a probe marked when they began: what each of them did, and when its result was worked in.
//!
//! Where the scheduler plans ahead (overlapped scheduling) it works a forward's result in once the next forward has begun,
//! else before it: `event_loop_overlap` and `event_loop_normal` of `sglang/srt/managers/scheduler.py` (0.5.23).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::moment::{Moment, Source};
use crate::dialect::signal::sglang::{BatchState, ForwardMode, ReqState};
use crate::time::{EngineTime, MonoTime, Nanos};

/// Most forwards of one scheduler remembered, and most moments of each kind.
const MAX_FORWARDS: usize = 65_536;
/// A message leaves by another thread, which may be late by this much.
const LATE: Nanos = Nanos::from_millis(2);
/// Of so many forwards it is remembered how long before their begin they were launched.
const LEADS: usize = 31;
/// No forward is launched longer before it begins: it was another one's launch.
const LEAD: Nanos = Nanos::from_millis(100);
/// No forward takes less: what is told earlier after its begin is of the one before.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The forwards of one scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwards {
    /// Oldest first.
    marks: VecDeque<Forward>,
    /// Forwards that were forgotten.
    forgotten: u64,
    /// What forwards did, by the scheduler's own count.
    modes: BTreeMap<u64, ForwardMode>,
    /// The scheduler's count of the first forward that was marked.
    counted_from: Option<u64>,
    /// When requests were put in a prefill batch: its forward is the next one.
    entries: Moments,
    /// When results were worked in, as the scheduler wrote it on one of the batch's requests.
    worked: Moments,
    /// When it sent outputs, or reported a prefill: soon after a result was worked in.
    told: Moments,
    /// Whether it reports its prefills: then what it does not report is none.
    reports: bool,
    /// By how much forwards were handed to the model before they began, of the newest of which that was told.
    leads: VecDeque<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Forward {
    at: MonoTime,
    /// What it did, by who looked at that moment.
    mode: Option<ForwardMode>,
    /// Whether the scheduler reported its prefill.
    reported: bool,
}

/// How a result was seen to be worked in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Whether the scheduler plans ahead.
    pub overlap: bool,
    /// It was told by a message, which may be late.
    pub sent: bool,
    /// It may have been the last before the scheduler idled, which is worked in with no forward after it.
    pub idles: bool,
}

/// Moments in order, the newest of them.
#[derive(Clone, Debug, Default)]
struct Moments(BTreeSet<MonoTime>);

impl Moments {
    fn add(&mut self, at: MonoTime) {
        self.0.insert(at);
        if self.0.len() > MAX_FORWARDS {
            self.0.pop_first();
        }
    }

    /// Those after one moment and before another.
    fn between(&self, from: MonoTime, to: MonoTime) -> impl DoubleEndedIterator<Item = MonoTime> + '_ {
        let after = MonoTime(from.0.saturating_add(1));
        self.0.range(after..to.max(after)).copied()
    }
}

impl Forwards {
    /// One began.
    pub fn began(&mut self, at: MonoTime) {
        if self.marks.back().is_some_and(|last| last.at >= at) {
            return;
        }
        if self.marks.len() >= MAX_FORWARDS {
            self.marks.pop_front();
            self.forgotten += 1;
        }
        self.marks.push_back(Forward { at, mode: None, reported: false });
    }

    /// The batch that was looked at when the forward `mark` had begun. A late look may find a later forward's: the
    /// scheduler's count tells.
    pub fn did(&mut self, mark: MonoTime, batch: &BatchState) {
        let index = self.marks.partition_point(|forward| forward.at < mark);
        let Some(forward) = self.marks.get_mut(index).filter(|forward| forward.at == mark) else { return };
        let Some(count) = batch.forward_count else {
            forward.mode = Some(batch.mode);
            return;
        };
        let marked = self.forgotten.saturating_add(u64::try_from(index).unwrap_or(u64::MAX));
        if let Some(from) = count.checked_sub(marked) {
            self.counted_from = Some(self.counted_from.map_or(from, |known| known.min(from)));
        }
        self.count(count, batch.mode);
    }

    /// A forward was handed to the model at this moment: the first that began after it.
    pub fn launched(&mut self, at: Option<EngineTime>) {
        let Some(at) = at.map(EngineTime::mono) else { return };
        let Some(began) = self.first_after(at).and_then(|index| self.began_at(index)) else { return };
        let lead = began.since(at);
        if lead < LEAD {
            self.leads.push_back(lead);
        }
        if self.leads.len() > LEADS {
            self.leads.pop_front();
        }
    }

    /// When a forward was handed to the model, by how long before their begin others were.
    pub fn launched_at(&self, index: usize) -> Option<Moment> {
        let began = self.began_at(index)?;
        let mut leads: Vec<Nanos> = self.leads.iter().copied().collect();
        leads.sort_unstable();
        let lead = leads.get(leads.len() / 2).copied().unwrap_or_default();
        let before = index.checked_sub(1).and_then(|before| self.began_at(before)).unwrap_or(MonoTime(0));
        let at = MonoTime(began.0.saturating_sub(lead.0)).max(before);
        Some(Moment::seen(at, Source::Estimate))
    }

    /// What the forward of this number, by the scheduler's count, did.
    pub fn count(&mut self, count: u64, mode: ForwardMode) {
        self.modes.insert(count, mode);
        if self.modes.len() > MAX_FORWARDS {
            self.modes.pop_first();
        }
    }

    /// Takes over the moments of a request that are the whole batch's.
    pub fn state(&mut self, state: &ReqState) {
        let times = &state.times;
        for entered in [times.forward, times.last_forward] {
            if let Some(at) = super::moment::written(entered) {
                self.entries.add(at.mono());
            }
        }
        let results = [
            times.prefill_finished,
            times.last_prefill_finished,
            times.last_chunk_finished,
            times.last_decode_finished,
            times.completed,
        ];
        for at in results.into_iter().filter_map(super::moment::written) {
            self.worked.add(at.mono());
        }
    }

    /// Outputs were sent.
    pub fn sent(&mut self, at: MonoTime) {
        self.told.add(at);
    }

    /// The scheduler reported a prefill, right after its result was worked in.
    pub fn reported(&mut self, at: MonoTime, overlap: bool) {
        self.told.add(at);
        self.reports = true;
        let Some(newest) = self.newest(at) else { return };
        let before = newest.checked_sub(1).filter(|_| overlap);
        let free = |index: &usize| self.marks.get(*index).is_some_and(|forward| !forward.reported);
        let index = before.filter(free).unwrap_or(newest);
        if let Some(forward) = self.marks.get_mut(index) {
            forward.reported = true;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// When a forward began.
    pub fn began_at(&self, index: usize) -> Option<MonoTime> {
        self.marks.get(index).map(|forward| forward.at)
    }

    /// The newest that began before a moment.
    pub fn newest(&self, at: MonoTime) -> Option<usize> {
        self.marks.partition_point(|forward| forward.at < at).checked_sub(1)
    }

    /// The first that began after a moment.
    pub fn first_after(&self, at: MonoTime) -> Option<usize> {
        let index = self.marks.partition_point(|forward| forward.at <= at);
        (index < self.marks.len()).then_some(index)
    }

    /// What a forward did, where something tells.
    pub fn mode(&self, index: usize) -> Option<ForwardMode> {
        let forward = self.marks.get(index)?;
        let marked = self.forgotten.saturating_add(u64::try_from(index).ok()?);
        let before = index.checked_sub(1).and_then(|before| self.began_at(before)).unwrap_or(MonoTime(0));
        let entered = self.entries.between(before, forward.at).next().map(|_| ForwardMode::Prefill);
        let reported = forward.reported.then_some(ForwardMode::Prefill);
        // What was looked at late may be of the batch after, which is put together before it is counted.
        let counted =
            self.counted_from.and_then(|from| self.modes.get(&from.saturating_add(marked)).copied());
        let seen = counted.or(forward.mode).filter(|mode| !self.reports || *mode != ForwardMode::Prefill);
        reported.or(entered).or(seen)
    }

    /// Whether a forward was a prefill, surely.
    pub fn prefills(&self, index: usize) -> bool {
        self.mode(index) == Some(ForwardMode::Prefill)
    }

    /// Whether a forward may have been a step of decoding.
    pub fn decodes(&self, index: usize) -> bool {
        self.mode(index).is_none_or(|mode| mode == ForwardMode::Decode)
    }

    /// Those from one on that began before a moment and may have been steps of decoding.
    pub fn steps_from(&self, first: usize, until: EngineTime) -> impl Iterator<Item = usize> + '_ {
        let end = self.marks.partition_point(|forward| forward.at.engine() < until);
        (first..end).filter(|index| self.decodes(*index))
    }

    /// The forwards one of whose results may have been worked in at a moment; the likeliest first.
    pub fn behind(&self, at: MonoTime, seen: Seen) -> impl Iterator<Item = usize> + use<> {
        let Seen { overlap, sent, idles } = seen;
        let newest = self.newest(at);
        let begun = newest.and_then(|newest| self.began_at(newest));
        let late = sent && begun.is_some_and(|begun| at.since(begun) < LATE);
        let back: &[usize] = match (overlap, late, idles) {
            (true, true, true) => &[2, 1, 0],
            (true, true, false) => &[2, 1],
            (true, false, true) => &[1, 0],
            (true, false, false) => &[1],
            (false, true, _) => &[1, 0],
            (false, false, _) => &[0],
        };
        back.iter().filter_map(move |back| newest?.checked_sub(*back))
    }

    /// When a forward's result was worked in, as near as anything tells, and before `bound` if that is known: another
    /// request's moment of the same batch, else what was sent or reported then, else the next forward's begin.
    pub fn result(&self, index: usize, overlap: bool, bound: Option<MonoTime>) -> Option<Moment> {
        let before_bound = |at: &MonoTime| bound.is_none_or(|bound| *at < bound);
        let next = self.began_at(index + 1).filter(before_bound).filter(|_| overlap);
        let from = next.or(self.began_at(index))?;
        let to = self.first_after(from).and_then(|next| self.began_at(next)).filter(before_bound).or(bound);
        let until = to.unwrap_or(MonoTime(u64::MAX));
        let worked = self.worked.between(from, until).next_back();
        // Of several that end at once each takes its while: between the last that is known and the message.
        let worked =
            worked.map(|at| bound.filter(|bound| to == Some(*bound)).map_or(at, |bound| middle(at, bound)));
        let told = || self.told.between(from.plus(SHORTEST), until).next();
        let at = worked.or_else(told).or(to)?;
        Some(Moment::seen(at, Source::Estimate))
    }

    /// The newest that may have been a step of decoding before a moment.
    pub fn before(&self, at: EngineTime, skip: usize) -> Option<usize> {
        let end = self.marks.partition_point(|forward| forward.at.engine() < at);
        (0..end).rev().filter(|index| self.decodes(*index)).nth(skip)
    }
}

fn middle(from: MonoTime, to: MonoTime) -> MonoTime {
    from.plus(Nanos(to.since(from).0 / 2))
}
