//! A request inside the engine: what its outputs add up to.

use std::collections::VecDeque;

use super::transfer::Transfer;
use super::v0::Told;
use crate::dialect::signal::{
    CachedTokens, EngineEventKind, EngineOutput, EngineRequest, Finish, KvTransfer,
};
use crate::ids::{ExchangeId, Pid};
use crate::time::{EngineTime, MonoTime, Nanos, Seconds};

/// Outputs of a request with stop strings are held back this deep: the frontend finds the stop, tells the
/// engine a step or two later, and counts nothing past it (0 to 5 outputs measured on 0.9 to 0.32).
const HELD_OUTPUTS: usize = 8;
/// Most preemptions of one request kept.
const MAX_PREEMPTED: usize = 64;

/// The engine's own moments of a request, each as the engine wrote it.
///
/// Mirrors `RequestStateStats` of `vllm/v1/metrics/stats.py` (0.32.0).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// First QUEUED event.
    pub queued: Option<EngineTime>,
    /// First SCHEDULED event; a preemption does not reset it.
    pub scheduled: Option<EngineTime>,
    /// Timestamp of the first output.
    pub first: Option<EngineTime>,
    /// Timestamp of the last output.
    pub last: Option<EngineTime>,
}

impl Moments {
    /// Time in the queue.
    #[must_use]
    pub fn queue(&self) -> Option<Seconds> {
        Some(self.scheduled?.since(self.queued?))
    }

    /// Scheduled until first output.
    #[must_use]
    pub fn prefill(&self) -> Option<Seconds> {
        Some(self.first?.since(self.scheduled?))
    }

    /// First until last output.
    #[must_use]
    pub fn decode(&self) -> Option<Seconds> {
        Some(self.last?.since(self.first?))
    }

    /// Scheduled until last output.
    #[must_use]
    pub fn inference(&self) -> Option<Seconds> {
        Some(self.last?.since(self.scheduled?))
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The engine finished it.
    Finished(Finish),
    /// The frontend found a stop string and took it back.
    StopString,
    /// The frontend took it back: the client went away.
    Aborted,
    /// The engine or the server died.
    Died,
    /// Nothing more came for too long, or there were too many.
    Expired,
    /// The agent went away first.
    Detached,
}

/// What one iteration did to a request; only kept where iteration events are collected.
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// What kind.
    pub kind: IterationKind,
    /// When.
    pub at: EngineTime,
    /// Tokens it gave.
    pub tokens: Vec<u32>,
    /// Their logprobs, where the request asked.
    pub logprobs: Vec<f64>,
    /// Text the client's stream carried for them, where it can be told.
    pub text: Option<String>,
}

/// Kinds of [`Iteration`]: the contract's event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterationKind {
    /// Entered the waiting queue.
    Wait,
    /// One prefill iteration.
    Prefill,
    /// One decode iteration.
    Decode,
    /// Preempted to free KV blocks.
    Preempted,
}

/// An output on its way in.
#[derive(Clone, Debug)]
struct Held {
    output: EngineOutput,
    timestamp: EngineTime,
    at: MonoTime,
}

/// What applying outputs changed, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Applied {
    /// Generated tokens.
    pub tokens: u64,
    /// Prompt tokens, when this was the first output.
    pub prompt_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// TTFT, when this was the first output and the arrival is known.
    pub first_token_at: Option<MonoTime>,
}

impl Applied {
    fn add(&mut self, other: Self) {
        let Self { tokens, prompt_tokens, preemptions, first_token_at } = other;
        self.tokens += tokens;
        self.prompt_tokens += prompt_tokens;
        self.preemptions += preemptions;
        self.first_token_at = self.first_token_at.or(first_token_at);
    }
}

/// A request inside the engine.
#[derive(Clone, Debug)]
pub struct Request {
    /// As the engine got it; `None`: it was there before the agent.
    pub engine: Option<EngineRequest>,
    /// The frontend process it passed through.
    pub pid: Pid,
    /// When it was first seen.
    pub since: MonoTime,
    /// When it was handed to the engine.
    pub added: Option<MonoTime>,
    /// Which EngineCore works on it, once it said so.
    pub engine_index: Option<u32>,
    /// The engine's own moments.
    pub moments: Moments,
    /// When the frontend got its first output.
    pub first_at: Option<MonoTime>,
    /// When the frontend got its last output.
    pub last_at: Option<MonoTime>,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Times preempted.
    pub preemptions: u64,
    /// The first of them: when, and when it was scheduled again.
    pub preempted: Vec<(EngineTime, Option<EngineTime>)>,
    /// Where its prompt's KV came from.
    pub cached: Option<CachedTokens>,
    /// The pull of its KV cache from another node.
    pub transfer: Option<Transfer>,
    /// When the engine first said, after it was handed over, that KV caches are being fetched.
    pub fetch_since: Option<EngineTime>,
    /// Iterations, bounded; how many more there were.
    pub iterations: Vec<Iteration>,
    /// Iterations left out over the limit.
    pub dropped_iterations: u32,
    /// Summed time from an output's arrival at the frontend to its write to the client: an upper bound of
    /// detokenizing.
    pub detokenize: Option<Nanos>,
    /// Arrival of the oldest output not yet written to the client.
    pub unwritten: Option<MonoTime>,
    /// How many outputs have come since the client was last sent something, and how many had at that moment. Of several the
    /// last may have come while an earlier one was being written.
    pub outputs_unwritten: u32,
    /// See `outputs_unwritten`.
    pub outputs_at_write: u32,
    /// Whether the engine sends no events (`--disable-log-stats`).
    pub no_events: bool,
    /// The engine's step before the one that gave the first output, where there are no events.
    pub step_before_first: Option<EngineTime>,
    /// Whether queued and scheduled are estimates.
    pub estimated: bool,
    /// When the frontend took it back.
    pub abort_at: Option<MonoTime>,
    /// How and when it ended.
    pub ending: Option<(Ending, MonoTime)>,
    /// The exchange it belongs to, once known.
    pub exchange: Option<ExchangeId>,
    /// Last sign of life.
    pub touched: MonoTime,
    /// What V0's engine told of it.
    pub v0: Option<Box<Told>>,
    held: VecDeque<Held>,
}

/// What `Request::apply` needs to know around the output.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Timestamps of the engine's steps before this one, oldest first; empty where iterations are not kept.
    pub steps: &'a VecDeque<EngineTime>,
    /// Whether iterations are kept.
    pub iterations: bool,
    /// Most iterations kept.
    pub limit: usize,
}

impl Request {
    /// A request just handed to the engine.
    #[must_use]
    pub fn added(engine: EngineRequest, pid: Pid, at: MonoTime) -> Self {
        Self { engine: Some(engine), added: Some(at), ..Self::seen(pid, at) }
    }

    /// What was handed to the engine is told after all.
    pub fn learn(&mut self, engine: EngineRequest, at: MonoTime) {
        if self.engine.is_none() {
            (self.engine, self.added, self.since) = (Some(engine), Some(at), at.min(self.since));
        }
    }

    /// A request first seen by an output: it was there before the agent.
    #[must_use]
    pub fn seen(pid: Pid, at: MonoTime) -> Self {
        Self {
            engine: None,
            pid,
            since: at,
            added: None,
            engine_index: None,
            moments: Moments::default(),
            first_at: None,
            last_at: None,
            output_tokens: 0,
            preemptions: 0,
            preempted: Vec::new(),
            cached: None,
            transfer: None,
            fetch_since: None,
            iterations: Vec::new(),
            dropped_iterations: 0,
            detokenize: None,
            unwritten: None,
            outputs_unwritten: 0,
            outputs_at_write: 0,
            no_events: false,
            step_before_first: None,
            estimated: false,
            abort_at: None,
            ending: None,
            exchange: None,
            touched: at,
            v0: None,
            held: VecDeque::new(),
        }
    }

    /// Whether the agent came after its start.
    #[must_use]
    pub fn partial(&self) -> bool {
        self.engine.is_none()
    }

    /// Whether the frontend looks for stop strings in its text.
    #[must_use]
    pub fn has_stop(&self) -> bool {
        self.engine.as_ref().and_then(|e| e.sampling.as_ref()).is_some_and(|s| s.stop)
    }

    /// Prompt tokens: as handed to the engine, else as its prefill statistics say.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u64> {
        let handed = self.engine.as_ref().and_then(|e| e.prompt_tokens).map(u64::from);
        handed
            .or_else(|| self.v0.as_ref()?.prompt_tokens)
            .or_else(|| self.cached.and_then(|c| Some(c.total + c.computed?)))
    }

    /// Takes an output of a step. Outputs after an abort are the engine's overrun and are dropped, as the
    /// frontend drops them.
    pub fn output(
        &mut self,
        output: EngineOutput,
        timestamp: EngineTime,
        at: MonoTime,
        around: Around<'_>,
    ) -> Applied {
        let mut applied = Applied::default();
        if self.ending.is_some() || self.abort_at.is_some() {
            return applied;
        }
        self.touched = at;
        self.unwritten.get_or_insert(at);
        self.outputs_unwritten = self.outputs_unwritten.saturating_add(1);
        let next = Held { output, timestamp, at };
        if !self.has_stop() {
            return self.apply(next, around);
        }
        self.held.push_back(next);
        while self.held.len() > HELD_OUTPUTS {
            applied.add(self.apply_next(around));
        }
        applied
    }

    /// Takes in every output held back.
    pub fn settle(&mut self, around: Around<'_>) -> Applied {
        self.settle_until(None, around)
    }

    /// Takes in the outputs held back until `tokens` are reached, and drops those past the stop.
    pub fn settle_until(&mut self, tokens: Option<u64>, around: Around<'_>) -> Applied {
        let mut applied = Applied::default();
        while !self.held.is_empty() && tokens.is_none_or(|tokens| self.output_tokens < tokens) {
            applied.add(self.apply_next(around));
        }
        self.held.clear();
        if let Some(tokens) = tokens.filter(|&tokens| tokens < self.output_tokens) {
            let surplus = self.output_tokens - tokens;
            self.output_tokens = tokens;
            applied.tokens = applied.tokens.saturating_sub(surplus);
        }
        applied
    }

    fn apply_next(&mut self, around: Around<'_>) -> Applied {
        match self.held.pop_front() {
            Some(held) => self.apply(held, around),
            None => Applied::default(),
        }
    }

    /// Mirrors `IterationStats.update_from_output` of `vllm/v1/metrics/stats.py` (0.32.0).
    fn apply(&mut self, held: Held, around: Around<'_>) -> Applied {
        let Held { output, timestamp, at } = held;
        let EngineOutput {
            id: _,
            tokens,
            token_count,
            logprobs,
            finish,
            events,
            cached,
            kv_transfer: _,
            pooling: _,
        } = output;
        // What says that a request is given up is no token of it.
        let given_up = finish == Some(Finish::Error) && token_count == 0;
        let first = self.moments.first.is_none() && !given_up;
        let preempted = self.preemptions;
        let mut resumed = false;
        for event in &events {
            resumed |= self.take_event(event.kind, event.at);
        }
        if first {
            self.cached = cached.or(self.cached);
            self.moments.first = Some(timestamp);
            self.first_at = Some(at);
        }
        let count = u64::from(token_count);
        self.output_tokens = self.output_tokens.saturating_add(count);
        if around.iterations {
            self.note_iterations(&events, timestamp, tokens, logprobs, first || resumed, around);
        }
        self.moments.last = Some(timestamp);
        self.last_at = Some(at);
        Applied {
            tokens: count,
            prompt_tokens: if first { self.prompt_tokens().unwrap_or(0) } else { 0 },
            preemptions: self.preemptions - preempted,
            first_token_at: first.then_some(at),
        }
    }

    /// Takes an event; says whether it resumed the request.
    fn take_event(&mut self, kind: EngineEventKind, at: EngineTime) -> bool {
        match kind {
            EngineEventKind::Queued => {
                self.moments.queued = Some(at);
                false
            }
            EngineEventKind::Scheduled => {
                self.moments.scheduled.get_or_insert(at);
                if let Some((_, again @ None)) = self.preempted.last_mut() {
                    *again = Some(at);
                }
                self.preemptions > 0
            }
            EngineEventKind::Preempted => {
                self.preemptions += 1;
                if self.preempted.len() < MAX_PREEMPTED {
                    self.preempted.push((at, None));
                }
                false
            }
        }
    }

    fn note_iterations(
        &mut self,
        events: &[crate::dialect::signal::EngineEvent],
        timestamp: EngineTime,
        tokens: Vec<u32>,
        logprobs: Vec<f64>,
        prefill: bool,
        around: Around<'_>,
    ) {
        for event in events {
            match event.kind {
                EngineEventKind::Queued => {
                    self.note(IterationKind::Wait, event.at, around.limit);
                }
                EngineEventKind::Preempted => {
                    self.note(IterationKind::Preempted, event.at, around.limit);
                }
                // Chunked prefill: steps that gave this request no token show only as steps of the engine.
                EngineEventKind::Scheduled => {
                    let from = event.at;
                    let chunks = around.steps.iter().filter(|&&step| step > from && step < timestamp);
                    for &step in chunks {
                        self.note(IterationKind::Prefill, step, around.limit);
                    }
                }
            }
        }
        let kind = if prefill { IterationKind::Prefill } else { IterationKind::Decode };
        if self.note(kind, timestamp, around.limit)
            && let Some(iteration) = self.iterations.last_mut()
        {
            iteration.tokens = tokens;
            iteration.logprobs = logprobs;
        }
    }

    /// Keeps an iteration if there is room; says whether it did.
    fn note(&mut self, kind: IterationKind, at: EngineTime, limit: usize) -> bool {
        if self.iterations.len() >= limit {
            self.dropped_iterations = self.dropped_iterations.saturating_add(1);
            return false;
        }
        self.iterations.push(Iteration { kind, at, tokens: Vec::new(), logprobs: Vec::new(), text: None });
        true
    }

    /// Ends it, once. The moments a server without statistics does not send are filled in: queued when handed
    /// over, scheduled when the step before the first output's had ended (or when handed over, if later).
    pub fn end(&mut self, ending: Ending, at: MonoTime) {
        self.transfer_left(ending, at);
        self.ending.get_or_insert((ending, at));
        let (Some(added), true, None) = (self.added, self.no_events, self.moments.queued) else { return };
        let added = added.engine();
        let scheduled = self.step_before_first.filter(|&step| step > added).unwrap_or(added);
        self.moments.queued = Some(added);
        self.moments.scheduled = Some(scheduled);
        self.estimated = true;
    }

    /// What the request's KV cache transfer parameters say, if it has any.
    #[must_use]
    pub fn kv_transfer(&self) -> Option<&KvTransfer> {
        self.engine.as_ref()?.sampling.as_ref()?.kv_transfer.as_ref()
    }

    /// Whether its tokens may be more than the frontend counts: it was taken back with outputs that had come and of which
    /// the client was sent nothing yet, or sent something once for several. `AsyncLLM.abort` forgets a request before it tells the engine, and what the event
    /// loop has not got to by then is dropped (`OutputProcessor.process_outputs`, 0.32.0).
    #[must_use]
    pub fn overrun(&self) -> bool {
        let behind = self.unwritten.is_some() || self.outputs_at_write > 1;
        self.abort_at.is_some() && behind && self.output_tokens > 0
    }

    /// The client was sent something: whatever waited to be written has been.
    pub fn written(&mut self, at: MonoTime) {
        if self.outputs_unwritten > 0 {
            self.outputs_at_write = std::mem::take(&mut self.outputs_unwritten);
        }
        if let Some(since) = self.unwritten.take() {
            let sum = self.detokenize.unwrap_or_default();
            self.detokenize = Some(Nanos(sum.0.saturating_add(at.since(since).0)));
        }
    }

    /// Puts streamed text on the newest iteration that has none.
    pub fn streamed(&mut self, text: &str) {
        let newest = self.iterations.iter_mut().rev().find(|i| !i.tokens.is_empty());
        if let Some(iteration) = newest.filter(|i| i.text.is_none()) {
            iteration.text = Some(text.to_owned());
        }
    }
}
