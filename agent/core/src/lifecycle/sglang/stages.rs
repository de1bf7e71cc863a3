//! A scheduler's timeline to stages, as SGLang's own tracing cuts it
//! (`SchedulerReqTimeStats` of `sglang/srt/observability/req_time_stats.py` and `TraceReqContext` of `trace.py`, 0.5.23).

use std::collections::BTreeMap;

use super::forwards::Forwards;
use super::moment::{Moment, Source};
use super::steps::{Counted, Marked, Prefill};
use super::timeline::{self, Round, Schedule, Step, Timeline};
use crate::capture::fact::Disaggregation;
use crate::dialect::signal::sglang::ForwardMode;
use crate::model::registry::{StageDef, attr, sglang, span};
use crate::model::span::Value;
use crate::time::{EngineTime, MonoTime};

/// A stage of a thread.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub def: &'static StageDef,
    pub from: Moment,
    pub to: Moment,
    /// The stage it lies in, by its place among the stages; `None`: straight under the thread.
    pub parent: Option<usize>,
    pub attributes: Vec<(&'static str, Value)>,
}

/// The stages of a thread, each after the one it lies in.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages {
    pub stages: Vec<Stage>,
    /// Decode steps that happened and of which nobody told when.
    pub unseen: u64,
}

/// The registry's row of a stage.
pub(super) fn def(name: &str) -> Option<&'static StageDef> {
    sglang::STAGES.iter().flat_map(|group| group.stages).find(|stage| stage.name == name)
}

/// The stages of a scheduler's work on a request that ended at `end`.
pub(super) fn of(timeline: &Timeline, run: Run<'_>, end: Moment) -> Stages {
    let end = timeline.latest().map_or(end, |latest| end.later(latest));
    let node = run.node;
    let mut cut = Cut::of(timeline, run, end);
    cut.before_forward(node);
    match node {
        Disaggregation::Unified => {
            cut.prefill();
            cut.decode();
        }
        Disaggregation::Prefill => {
            cut.prefill();
            let pair = &timeline.pair;
            cut.stage(
                span::PREFILL_TRANSFER_KV_CACHE,
                pair.transfer_queued.get(),
                pair.transfer_finished.get(),
            );
        }
        Disaggregation::Decode => cut.decode_only(),
    }
    Stages { stages: cut.stages, unseen: cut.unseen }
}

/// A request's decode steps, those counted off its scheduler's marked forwards among them.
pub(super) fn steps(timeline: &Timeline, forwards: &Forwards, overlap: bool) -> BTreeMap<u64, Step> {
    let never = Moment { at: EngineTime(f64::INFINITY), source: Source::Estimate };
    let run = Run { forwards, overlap, sent: None, node: Disaggregation::Unified };
    Cut::of(timeline, run, timeline.latest().unwrap_or(never)).steps
}

/// How a scheduler ran.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub forwards: &'a Forwards,
    /// Whether it prepares a step while the one before runs.
    pub overlap: bool,
    /// When the frontend had sent it the request: it took it up soon after.
    pub sent: Option<Moment>,
    pub node: Disaggregation,
}

struct Cut<'a> {
    timeline: &'a Timeline,
    run: Run<'a>,
    /// The forwards of each round's prefill, where they were marked.
    prefills: Vec<Option<Prefill>>,
    /// The forward that was each round's first decode step.
    first_steps: Vec<Option<usize>>,
    /// Decode steps, those counted off the marked forwards among them.
    steps: BTreeMap<u64, Step>,
    end: Moment,
    stages: Vec<Stage>,
    unseen: u64,
    /// The number of the last decode step that was given a stage or passed.
    last_step: u64,
}

impl<'a> Cut<'a> {
    /// Its forwards found and its steps counted off them, before anything is cut.
    fn of(timeline: &'a Timeline, run: Run<'a>, end: Moment) -> Self {
        let mut cut = Self {
            timeline,
            run,
            prefills: Vec::new(),
            first_steps: Vec::new(),
            steps: timeline.steps.clone(),
            end,
            stages: Vec::new(),
            unseen: 0,
            last_step: 0,
        };
        cut.count_off();
        cut
    }

    /// Finds each round's forwards among the marked ones, and counts its steps off them.
    fn count_off(&mut self) {
        let marked = Marked { forwards: self.run.forwards, overlap: self.run.overlap };
        let last = self.last_step_told();
        for (number, round) in self.timeline.rounds.iter().enumerate() {
            let (begin, until) = self.span_of(number);
            let until = if until.0 < self.end.at.0 { until } else { self.end.at };
            let prefill = marked.prefill(round);
            let first = prefill.and_then(|prefill| marked.first_step(prefill, until));
            self.prefills.push(prefill);
            self.first_steps.push(first);
            if let Some(first) = first {
                let before = if number == 0 { Some(0) } else { self.steps_before(begin) };
                let last = last.filter(|_| number + 1 == self.timeline.rounds.len());
                marked.fill(&Counted { first, begin, until, before, last }, &mut self.steps);
            }
        }
        let counted = self.first_steps.last().copied().flatten().is_some();
        let refined = last.filter(|_| counted).and_then(|(ordinal, _)| self.steps.get(&ordinal));
        if let Some(step) = refined.filter(|_| !self.timeline.completed.exact()) {
            self.end = step.end.estimated();
        }
    }

    /// The number of the last step, and when it was worked in, as the last message told.
    fn last_step_told(&self) -> Option<(u64, Moment)> {
        let Timeline { tokens, rounds, completed, steps, .. } = self.timeline;
        let drafts = steps.values().any(|step| step.accepted.is_some());
        let ordinal = timeline::ordinal(*tokens, rounds.len() - 1, None);
        completed.get().filter(|_| !drafts && ordinal > 0).map(|end| (ordinal, end))
    }

    /// How many steps there were before a moment; `None` where some of them are not known.
    fn steps_before(&self, begin: EngineTime) -> Option<u64> {
        let before = |(_, step): &(&u64, &Step)| step.end.at <= begin;
        let (&last, _) = self.steps.iter().rev().find(before)?;
        (u64::try_from(self.steps.range(..=last).count()) == Ok(last)).then_some(last)
    }

    /// A stage straight under the thread, where both its ends are known.
    fn stage(&mut self, name: &str, from: Option<Moment>, to: Option<Moment>) -> Option<usize> {
        self.push(name, from?, to?, None)
    }

    fn push(&mut self, name: &str, from: Moment, to: Moment, parent: Option<usize>) -> Option<usize> {
        let def = def(name)?;
        if to.at < from.at {
            return None;
        }
        self.stages.push(Stage { def, from, to, parent, attributes: Vec::new() });
        Some(self.stages.len() - 1)
    }

    /// Up to the first forward.
    fn before_forward(&mut self, node: Disaggregation) {
        let Timeline { received, queued, forward, pair, .. } = self.timeline;
        let (queued, forward) = (queued.get(), forward.get());
        let received = received.get().or(self.run.sent.map(Moment::estimated));
        match node {
            Disaggregation::Unified => {
                self.stage(span::REQUEST_PROCESS, received, queued);
                self.stage(span::PREFILL_WAITING, queued, forward);
            }
            Disaggregation::Prefill => {
                self.stage(span::PREFILL_PREPARE, received, pair.bootstrap_queued.get());
                self.stage(span::PREFILL_BOOTSTRAP, pair.bootstrap_queued.get(), queued);
                self.stage(span::PREFILL_WAITING, queued, forward);
            }
            Disaggregation::Decode => {
                self.stage(span::DECODE_PREPARE, received, pair.prealloc_queued.get());
                let transfer = pair.decode_transfer_queued.get();
                self.stage(span::DECODE_BOOTSTRAP, pair.prealloc_queued.get(), transfer);
                self.stage(span::DECODE_TRANSFERRED, transfer, queued);
                self.stage(span::DECODE_WAITING, queued, forward);
            }
        }
    }

    /// The first prefill; one that never ended ends with the request.
    fn prefill(&mut self) {
        let Some(round) = self.timeline.rounds.first() else { return };
        let Some(from) = self.timeline.forward.get() else { return };
        let to = round.prefilled.get().unwrap_or(self.end);
        let parent = self.push(span::PREFILL_FORWARD, from, to, None);
        self.chunks(0, round, from, parent);
    }

    /// The chunks of a prefill, the last one of which ends with it; gives whether there were any.
    fn chunks(&mut self, number: usize, round: &Round, from: Moment, parent: Option<usize>) -> bool {
        let marked = Marked { forwards: self.run.forwards, overlap: self.run.overlap };
        let written = || round.chunks.iter().map(|&at| Moment { at, source: Source::Engine }).collect();
        let prefill = self.prefills.get(number).copied().flatten();
        let chunks: Vec<Moment> = prefill.map_or_else(written, |prefill| marked.chunks(round, prefill));
        let mut from = from;
        for &to in &chunks {
            self.push(span::CHUNKED_PREFILL, from, to, parent);
            from = to;
        }
        if let (false, Some(prefilled)) = (chunks.is_empty(), round.prefilled.get()) {
            self.push(span::CHUNKED_PREFILL, from, prefilled, parent);
        }
        !chunks.is_empty()
    }

    /// Decoding after a prefill of one's own.
    fn decode(&mut self) {
        let Some(first) = self.timeline.rounds.first() else { return };
        if !self.decoded() {
            return;
        }
        let scheduled = self.first_decode(0);
        let known = first.prefilled.get();
        let earliest = self.steps.values().next().map(|step| step.end.estimated());
        let Some(prefilled) = known.or(earliest) else { return };
        let from = self.waited(prefilled, scheduled, None);
        let Some(mut inner) = self.push(span::DECODE_FORWARD, from, self.end, None) else { return };
        self.loops(0, known.map(|_| self.first_loop(0, prefilled, from)), inner);
        for number in 1..self.timeline.rounds.len() {
            inner = self.again(number, inner);
        }
    }

    /// Whether a request came to be decoded at all.
    fn decoded(&self) -> bool {
        let Timeline { rounds, tokens, .. } = self.timeline;
        !self.steps.is_empty() || self.plans().next().is_some() || *tokens > 1 || rounds.len() > 1
    }

    /// Where decoding begins: at the end of the prefill, or, where the first step was planned later, then; what is
    /// between is a stage of its own. Where nothing tells of plans, it is an estimate.
    fn waited(&mut self, prefilled: Moment, scheduled: Option<Moment>, parent: Option<usize>) -> Moment {
        let Some(at) = scheduled else { return prefilled.estimated() };
        if at.at <= prefilled.at {
            return prefilled;
        }
        self.push(span::DECODE_WAITING, prefilled, at, parent);
        at
    }

    /// A round after the request was sent back: its prefill, and decoding again, inside the decoding that went on
    /// for the whole time. Gives the stage that the steps after it lie in.
    fn again(&mut self, number: usize, parent: usize) -> usize {
        let Some(round) = self.timeline.rounds.get(number) else { return parent };
        let (forward, prefilled) = (round.forward.get(), round.prefilled.get());
        if let Some(from) = forward
            && !self.chunks(number, round, from, Some(parent))
        {
            self.push(span::PREFILL_FORWARD, from, prefilled.unwrap_or(self.end), Some(parent));
        }
        let Some(prefilled) = prefilled else {
            self.loops(number, None, parent);
            return parent;
        };
        let scheduled = self.first_decode(number);
        let from = self.waited(prefilled, scheduled, Some(parent));
        let waited = scheduled.is_some() && from.at > prefilled.at;
        let nested = waited.then(|| self.push(span::DECODE_FORWARD, from, self.end, Some(parent))).flatten();
        let inner = nested.unwrap_or(parent);
        self.loops(number, Some(self.first_loop(number, prefilled, from)), inner);
        inner
    }

    /// Decoding what another node prefilled.
    fn decode_only(&mut self) {
        let Some(from) = self.timeline.forward.get() else { return };
        let Some(parent) = self.push(span::DECODE_FORWARD, from, self.end, None) else { return };
        let prebuilt = self.timeline.pair.prebuilt_finished.get();
        if let Some(prebuilt) = prebuilt {
            self.push(span::FAKE_OUTPUT, from, prebuilt, Some(parent));
        }
        for number in 0..self.timeline.rounds.len() {
            self.loops(number, prebuilt.filter(|_| number == 0), parent);
        }
    }

    /// The decode steps of a round, the first of which begins at `from`.
    fn loops(&mut self, number: usize, from: Option<Moment>, parent: usize) {
        let (begin, until) = self.span_of(number);
        let of_round = |step: &Step| step.end.at > begin && step.end.at <= until;
        let steps: Vec<(u64, Step)> = self.steps.iter().map(|(&n, step)| (n, *step)).collect();
        let steps = steps.into_iter().filter(|(_, step)| of_round(step));
        let mut before = from.map(|from| (self.last_step, from, None));
        for (ordinal, step) in steps {
            if let Some((_, from, accepted)) = before.filter(|(last, ..)| last + 1 == ordinal) {
                self.a_loop(ordinal, from, &step, accepted, parent);
            } else {
                let last = before.map_or(self.last_step, |(last, ..)| last);
                self.unseen = self.unseen.saturating_add(ordinal.saturating_sub(last));
            }
            before = Some((ordinal, step.end, step.accepted));
            self.last_step = ordinal;
        }
    }

    fn a_loop(&mut self, ordinal: u64, from: Moment, step: &Step, accepted: Option<u64>, parent: usize) {
        let Some(index) = self.push(span::DECODE_LOOP, from, step.end, Some(parent)) else { return };
        if let Some(stage) = self.stages.get_mut(index) {
            stage.attributes.push((attr::DECODE_CT, ordinal.saturating_sub(1).into()));
        }
        let (Some(now), Some(before)) = (step.accepted, accepted) else { return };
        // The step was one verification; when it began and ended inside of it, nothing tells.
        let (from, to) = (from.estimated(), step.end.estimated());
        let Some(index) = self.push(span::SPEC_VERIFY, from, to, Some(parent)) else { return };
        if let Some(stage) = self.stages.get_mut(index) {
            let passed = now.saturating_sub(before);
            stage.attributes.push((attr::NUM_CORRECT_DRAFTS, passed.into()));
            stage.attributes.push((attr::ACCEPTED_TOKENS, passed.into()));
        }
    }

    /// When a round's first step begins: with decoding; but where it was planned before the prefill's result was
    /// worked in (overlapped scheduling), with the newest plan before its end.
    fn first_loop(&self, number: usize, prefilled: Moment, from: Moment) -> Moment {
        let Some(end) = self.first_end(number).filter(|_| from.at <= prefilled.at) else { return from };
        let (begin, _) = self.span_of(number);
        let told = self.plans().rev().find(|plan| plan.at < end.at);
        let newest = self.marked(end, 0).or(told).filter(|plan| plan.at > begin);
        newest.map_or(from, |plan| from.later(plan))
    }

    /// The first plan to decode in a round.
    fn first_decode(&self, number: usize) -> Option<Moment> {
        let (begin, until) = self.span_of(number);
        let told = || self.plans().find(|plan| plan.at > begin && plan.at < until);
        let first = self.first_steps.get(number).copied().flatten();
        if self.run.forwards.is_empty() { told() } else { first.and_then(|index| self.planned(index)) }
    }

    /// When a marked forward was planned: as the scheduler tells, else a little before it began.
    fn planned(&self, index: usize) -> Option<Moment> {
        let began = self.run.forwards.began_at(index)?.engine();
        let earlier = index.checked_sub(1).and_then(|before| self.run.forwards.began_at(before));
        let earlier = earlier.unwrap_or(MonoTime(0)).engine();
        let told = self.plans().find(|plan| plan.told() && plan.at > earlier && plan.at <= began);
        told.or_else(|| self.run.forwards.launched_at(index))
    }

    /// The end of the first decode step after a prefill, where it is that of the first one.
    fn first_end(&self, number: usize) -> Option<Moment> {
        let (begin, until) = self.span_of(number);
        let (&ordinal, step) =
            self.steps.iter().find(|(_, step)| step.end.at > begin && step.end.at <= until)?;
        (ordinal == self.last_step + 1).then_some(step.end)
    }

    /// Plans to decode, as the scheduler's objects told.
    fn plans(&self) -> impl DoubleEndedIterator<Item = Moment> + '_ {
        let decode = |schedule: &&Schedule| schedule.batch.mode == ForwardMode::Decode;
        self.timeline.schedules.iter().filter(decode).map(|schedule| schedule.at)
    }

    /// The newest marked forward before a moment but `skip`; as it was planned, where the scheduler tells.
    fn marked(&self, before: Moment, skip: usize) -> Option<Moment> {
        self.planned(self.run.forwards.before(before.at, skip)?)
    }

    /// From a round's begin to its end. A round whose begin nobody told is taken for a part of the one before.
    fn span_of(&self, number: usize) -> (EngineTime, EngineTime) {
        let never = EngineTime(f64::INFINITY);
        let returned = |round: &Round| round.retracted.get().map(|moment| moment.at);
        let begin = match number {
            0 => Some(EngineTime(0.0)),
            number => self.timeline.rounds.get(number).and_then(returned),
        };
        let until = self.timeline.rounds.iter().skip(number + 1).find_map(returned).unwrap_or(never);
        begin.map_or((never, never), |begin| (begin, until))
    }
}
