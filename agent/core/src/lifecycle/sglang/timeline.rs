//! What one scheduler did with one request, put together from what its messages and its objects told.

use std::collections::BTreeMap;

use super::moment::{Moment, Slot, Source, written};
use crate::dialect::signal::sglang::{ForwardMode, ReqState, ReqTimes, SglangOutput};
use crate::time::{EngineTime, MonoTime};

/// Most returns to the queue kept.
const MAX_ROUNDS: usize = 256;
/// Most chunks of one prefill kept.
const MAX_CHUNKS: usize = 4096;
/// Most decode steps, and most batches, of one request kept.
const MAX_STEPS: usize = 16_384;

/// What one scheduler did with one request. Mirrors `SchedulerReqTimeStats` of
/// `sglang/srt/observability/req_time_stats.py` (0.5.23), which keeps the last moment of each kind only.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// The scheduler took it up.
    pub received: Slot,
    /// It first entered the waiting queue.
    pub queued: Slot,
    /// It was first put in a batch.
    pub forward: Slot,
    /// It ended.
    pub completed: Slot,
    /// The moments of a disaggregated pair.
    pub pair: Pair,
    /// From each entry of the queue to the next: one, and one more for each time it was sent back.
    pub rounds: Vec<Round>,
    /// Ends of decode steps, by how many there were with it.
    pub steps: BTreeMap<u64, Step>,
    /// Batches it was put in.
    pub schedules: Vec<Schedule>,
    /// Tokens and returns to the queue at the last message.
    told: Option<Told>,
    /// Most tokens seen.
    pub tokens: u64,
    /// What was left out over the limits.
    pub dropped: u64,
}

/// Moments of a request of a disaggregated pair (prefill and decode on different nodes).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub bootstrap_queued: Slot,
    pub transfer_queued: Slot,
    pub transfer_finished: Slot,
    pub prealloc_queued: Slot,
    pub decode_transfer_queued: Slot,
    pub prebuilt_finished: Slot,
}

/// From one entry of the queue to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// It was sent back to the queue: the round's begin, but for the first.
    pub retracted: Slot,
    /// It was put in a prefill batch.
    pub forward: Slot,
    /// Results of the chunks before the last were worked in.
    pub chunks: Vec<EngineTime>,
    /// The prefill's result was worked in.
    pub prefilled: Slot,
}

/// The end of a decode step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub end: Moment,
    /// Draft tokens that had passed by then.
    pub accepted: Option<u64>,
}

/// A batch that a request was put in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Schedule {
    pub at: Moment,
    /// The batch.
    pub batch: Batch,
}

/// A batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub id: u32,
    pub size: u32,
    pub mode: ForwardMode,
}

/// What a message told of how far a request was.
#[derive(Clone, Copy, Debug)]
struct Told {
    tokens: u64,
    retractions: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            received: Slot::default(),
            queued: Slot::default(),
            forward: Slot::default(),
            completed: Slot::default(),
            pair: Pair::default(),
            rounds: vec![Round::default()],
            steps: BTreeMap::new(),
            schedules: Vec::new(),
            told: None,
            tokens: 0,
            dropped: 0,
        }
    }
}

impl Timeline {
    /// Takes what the scheduler's objects held. `at`: when they were looked at.
    pub fn state(&mut self, state: &ReqState, at: MonoTime) {
        let ReqState {
            rid: _,
            place: _,
            times,
            prompt_tokens: _,
            output_tokens,
            cached_tokens: _,
            retractions,
            spec_verify_steps,
            spec_accepted,
            bootstrap_room: _,
        } = state;
        let round = self.times(times, *retractions);
        let Some(tokens) = *output_tokens else { return };
        // Zero where nothing is drafted.
        let spec_accepted = spec_accepted.filter(|_| spec_verify_steps.is_some_and(|steps| steps > 0));
        let grew = tokens > self.tokens;
        self.tokens = self.tokens.max(tokens);
        let ordinal = ordinal(tokens, round, *spec_verify_steps);
        // A server that traces writes the first step's plan where the ends of steps are written.
        let ended = |end: &EngineTime| ordinal > 0 && Some(*end) != written(times.last_scheduled);
        match written(times.last_decode_finished) {
            Some(end) if ended(&end) => self.exact_step(end, ordinal, spec_accepted),
            Some(_) => {}
            // Before 0.5.10 the objects count tokens and keep no times of steps.
            None if grew && times.received.is_none() => {
                self.step(ordinal, Moment::seen(at, Source::Estimate), spec_accepted);
            }
            None => {}
        }
    }

    /// Takes the engine's own moments; gives the round they are of.
    pub fn times(&mut self, times: &ReqTimes, retractions: Option<u64>) -> usize {
        let ReqTimes {
            received,
            queued,
            forward,
            last_forward,
            prefill_finished,
            prefill_finished_epoch: _,
            last_prefill_finished,
            last_chunk_finished,
            last_decode_finished: _,
            last_scheduled,
            retracted,
            completed,
            queue,
            bootstrap_queued,
            transfer_queued,
            transfer_finished,
            prealloc_queued,
            decode_transfer_queued,
            prebuilt_finished,
            epoch_offset: _,
        } = times;
        self.received.engine(*received);
        self.completed.engine(*completed);
        self.pair.bootstrap_queued.engine(*bootstrap_queued);
        self.pair.transfer_queued.engine(*transfer_queued);
        self.pair.transfer_finished.engine(*transfer_finished);
        self.pair.prealloc_queued.engine(*prealloc_queued);
        self.pair.decode_transfer_queued.engine(*decode_transfer_queued);
        self.pair.prebuilt_finished.engine(*prebuilt_finished);
        let round = self.queue(written(*queued), written(*retracted), retractions);
        self.forward.engine(*forward);
        if let (Some(forward), Some(queue)) = (written(*forward), queue) {
            // 0.5.5 to 0.5.9 send how long it waited, not since when.
            self.queued.engine(Some(EngineTime(forward.0 - queue.0)));
        }
        if let Some(first) = self.rounds.first_mut() {
            first.forward.engine(*forward);
            first.prefilled.engine(*prefill_finished);
        }
        self.round(round, *last_forward, *last_prefill_finished, *last_chunk_finished);
        self.rescheduled(written(*last_scheduled));
        round
    }

    /// Takes when it entered the queue: for the first time, or again.
    fn queue(
        &mut self,
        queued: Option<EngineTime>,
        retracted: Option<EngineTime>,
        retractions: Option<u64>,
    ) -> usize {
        let first = self.queued.get().filter(|moment| moment.exact()).map(|moment| moment.at);
        let again = queued.filter(|&queued| first.is_some_and(|first| queued > first));
        let round = match retractions {
            Some(count) => usize::try_from(count).unwrap_or(MAX_ROUNDS),
            None => match again {
                Some(again) if self.last_return().is_none_or(|known| again > known) => self.rounds.len(),
                Some(_) | None => self.rounds.len() - 1,
            },
        };
        let round = self.reach(round);
        if round == 0 {
            self.queued.engine(queued);
        } else if let Some(returned) = self.rounds.get_mut(round) {
            returned.retracted.engine(retracted.or(again));
        }
        round
    }

    fn last_return(&self) -> Option<EngineTime> {
        self.rounds.iter().rev().find_map(|round| round.retracted.get()).map(|moment| moment.at)
    }

    /// Makes sure that a round is there; gives the number of the one to use.
    fn reach(&mut self, round: usize) -> usize {
        let round = round.min(MAX_ROUNDS - 1);
        if self.rounds.len() <= round {
            self.rounds.resize_with(round + 1, Round::default);
        }
        round
    }

    /// Takes the moments that a return to the queue resets. Those older than the return are of the round before,
    /// read while the scheduler was at it.
    fn round(
        &mut self,
        number: usize,
        last_forward: Option<EngineTime>,
        last_prefilled: Option<EngineTime>,
        last_chunk: Option<EngineTime>,
    ) {
        let Some(round) = self.rounds.get_mut(number) else { return };
        let begin = match (number, round.retracted.get()) {
            (0, _) => EngineTime(0.0),
            (_, Some(returned)) => returned.at,
            (_, None) => return,
        };
        let of_round = |at: Option<EngineTime>| written(at).filter(|&at| at > begin);
        round.forward.engine(of_round(last_forward));
        round.prefilled.engine(of_round(last_prefilled));
        let after = round.chunks.last().copied().or(round.forward.get().map(|moment| moment.at));
        let Some(chunk) = of_round(last_chunk).filter(|&at| after.is_none_or(|after| at > after)) else {
            return;
        };
        if round.chunks.len() < MAX_CHUNKS {
            round.chunks.push(chunk);
        } else {
            self.dropped += 1;
        }
    }

    /// Takes the end of a decode step as the scheduler wrote it. It writes the end before it adds the token, so the
    /// number may be that of the step before: what is read of the same end later tells.
    fn exact_step(&mut self, end: EngineTime, ordinal: u64, accepted: Option<u64>) {
        let step = Step { end: Moment { at: end, source: Source::Engine }, accepted };
        let same = self.steps.iter().rev().take(4).find(|(_, known)| known.end == step.end);
        if let Some(known) = same.map(|(&known, _)| known) {
            if known < ordinal {
                self.steps.remove(&known);
                self.keep_step(ordinal, step);
            }
            return;
        }
        let newest = self.steps.iter().rev().find(|(_, step)| step.end.exact()).map(|(&n, step)| (n, *step));
        let Some((last, known)) = newest.filter(|(last, _)| *last >= ordinal) else {
            self.keep_step(ordinal, step);
            return;
        };
        if known.end.at > end {
            return;
        }
        let free = last > 1 && self.steps.get(&(last - 1)).is_none_or(|before| !before.end.exact());
        if last == ordinal && free {
            self.keep_step(last - 1, known);
            self.keep_step(ordinal, step);
        } else {
            self.keep_step(last + 1, step);
        }
    }

    fn keep_step(&mut self, ordinal: u64, step: Step) {
        if self.steps.len() >= MAX_STEPS && !self.steps.contains_key(&ordinal) {
            self.dropped += 1;
        } else {
            self.steps.insert(ordinal, step);
        }
    }

    /// Takes the end of a decode step as it was seen from outside.
    fn step(&mut self, ordinal: u64, end: Moment, accepted: Option<u64>) {
        if ordinal > 0 && self.steps.get(&ordinal).is_none_or(|known| known.end.source < end.source) {
            self.keep_step(ordinal, Step { end, accepted });
        }
    }

    /// Takes what a message said.
    pub fn output(&mut self, output: &SglangOutput, at: MonoTime, source: Source) {
        let SglangOutput { finish, completion_tokens, retractions, times, .. } = output;
        let round = match times {
            Some(times) => self.times(times, *retractions),
            None => self.reach(retractions.map_or(0, |n| usize::try_from(n).unwrap_or(MAX_ROUNDS))),
        };
        let end = Moment::seen(at, source);
        if let Some(tokens) = *completion_tokens {
            self.tokens = self.tokens.max(tokens);
            let before = self.told.unwrap_or(Told { tokens: 0, retractions: 0 });
            let first_of_round = tokens <= 1 || round > before.retractions;
            if first_of_round {
                // The token that a prefill gives; where more came with it, nobody knows of the prefill's end.
                if tokens <= before.tokens + 1
                    && let Some(round) = self.rounds.get_mut(round)
                {
                    round.prefilled.tell(end);
                }
            } else {
                let ordinal = ordinal(tokens, round, output.spec_verify_steps);
                let drafts = output.spec_verify_steps.is_some_and(|steps| steps > 0);
                self.step(ordinal, end, output.spec_accepted.filter(|_| drafts));
            }
            self.told =
                Some(Told { tokens: before.tokens.max(tokens), retractions: before.retractions.max(round) });
        } else if finish.is_some()
            && let Some(round) = self.rounds.get_mut(round)
        {
            // An embedding: its prefill is all there is.
            round.prefilled.tell(end);
        }
        if finish.is_some() {
            self.completed.tell(end);
        }
    }

    /// The latest moment at which it was at work on the request.
    pub fn latest(&self) -> Option<Moment> {
        let Self { received, queued, forward, completed, pair, rounds, steps, .. } = self;
        let Pair {
            bootstrap_queued,
            transfer_queued,
            transfer_finished,
            prealloc_queued,
            decode_transfer_queued,
            prebuilt_finished,
        } = pair;
        let slots =
            [received, queued, forward, completed, bootstrap_queued, transfer_queued, transfer_finished];
        let slots = slots.into_iter().chain([prealloc_queued, decode_transfer_queued, prebuilt_finished]);
        let of_rounds = rounds.iter().flat_map(|round| {
            let chunk = round.chunks.last().map(|&at| Moment { at, source: Source::Engine });
            [round.retracted.get(), round.forward.get(), round.prefilled.get(), chunk]
        });
        let last_step = steps.values().next_back().map(|step| step.end);
        slots.map(|slot| slot.get()).chain(of_rounds).chain([last_step]).flatten().reduce(Moment::later)
    }

    /// The earliest.
    pub fn earliest(&self) -> Option<Moment> {
        let first = self.rounds.first();
        let slots = [
            self.received.get(),
            self.pair.bootstrap_queued.get(),
            self.pair.prealloc_queued.get(),
            self.queued.get(),
            self.forward.get(),
            first.and_then(|round| round.prefilled.get()),
            self.steps.values().next().map(|step| step.end),
            self.completed.get(),
        ];
        slots.into_iter().flatten().reduce(|a, b| if b.at < a.at { b } else { a })
    }

    /// It was put in a batch.
    pub fn scheduled(&mut self, schedule: Schedule) {
        if self.schedules.last().is_some_and(|last| last.at.at >= schedule.at.at) {
            return;
        }
        if self.schedules.len() < MAX_STEPS {
            self.schedules.push(schedule);
        } else {
            self.dropped += 1;
        }
    }

    /// The engine says when it was last put in a batch: the moment of the batch whose forward began next.
    fn rescheduled(&mut self, at: Option<EngineTime>) {
        let Some(at) = at else { return };
        let next = self.schedules.partition_point(|schedule| schedule.at.at < at);
        if let Some(schedule) = self.schedules.get_mut(next)
            && !schedule.at.exact()
        {
            schedule.at = Moment { at, source: Source::Engine };
        }
    }
}

/// How many decode steps there were when a request had `tokens`: each prefill gave one of them, each step one, or
/// as many as its verify step took.
pub(super) fn ordinal(tokens: u64, round: usize, verify_steps: Option<u64>) -> u64 {
    let prefills = u64::try_from(round).unwrap_or(u64::MAX).saturating_add(1);
    verify_steps.filter(|&steps| steps > 0).unwrap_or_else(|| tokens.saturating_sub(prefills))
}
