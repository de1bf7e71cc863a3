//! What V0's engine told of one request.

use std::collections::BTreeMap;

use crate::dialect::signal::Finish;
use crate::dialect::signal::vllm_v0::{V0Candidate, V0Metrics, V0Output, V0Reading};
use crate::model::registry::attr;
use crate::time::MonoTime;

/// Most candidates kept of one request.
const MAX_CANDIDATES: usize = 1024;

/// What is estimated of a request that no message told the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsaid {
    /// Its end, which is its response's, and what the engine adds up until then, which is as of the last reading.
    Times,
    /// Its tokens too: they are the parts that its client was sent.
    Tokens,
}

impl Unsaid {
    /// The attributes that are estimates.
    pub fn attributes(self) -> &'static [&'static str] {
        let all = &[
            attr::USAGE_COMPLETION_TOKENS,
            attr::LATENCY_E2E,
            attr::LATENCY_TIME_IN_SCHEDULER,
            attr::LATENCY_TIME_IN_MODEL_FORWARD,
            attr::LATENCY_TIME_IN_MODEL_EXECUTE,
        ];
        match self {
            Self::Times => all.get(1..).unwrap_or_default(),
            Self::Tokens => all,
        }
    }
}

/// What the engine told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Its figures.
    pub metrics: V0Metrics,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// When the engine had it no more, where no message tells.
    pub gone: Option<MonoTime>,
    /// What is estimated, where no message told of its end.
    pub unsaid: Option<Unsaid>,
    /// By candidate: tokens, and why it ended.
    candidates: BTreeMap<u32, (u64, Option<Finish>)>,
}

impl Told {
    /// Takes an output. `deltas`: its tokens are new ones, not all so far.
    pub fn take(&mut self, output: &V0Output, deltas: bool) {
        let V0Output { id: _, prompt_tokens, candidates, finished: _, metrics, cached_tokens: _ } = output;
        self.metrics.learn(*metrics);
        self.prompt_tokens = self.prompt_tokens.or(prompt_tokens.map(u64::from));
        for V0Candidate { index, tokens, finish } in candidates {
            if self.candidates.len() >= MAX_CANDIDATES && !self.candidates.contains_key(index) {
                continue;
            }
            let (sum, reason) = self.candidates.entry(*index).or_default();
            *sum = if deltas { sum.saturating_add(*tokens) } else { *tokens };
            *reason = reason.or(*finish);
        }
    }

    /// Takes what the engine's objects hold of it; of a `part` of it (one of several candidates) the earliest moments
    /// and the latest ends count.
    pub fn read(&mut self, reading: V0Reading, part: bool) {
        let V0Reading { mut metrics, prompt_tokens, output_tokens: _ } = reading;
        self.prompt_tokens = self.prompt_tokens.or(prompt_tokens);
        if part {
            let known = &self.metrics;
            metrics.scheduled = earlier(known.scheduled, metrics.scheduled);
            metrics.first_token = earlier(known.first_token, metrics.first_token);
            metrics.queue = earlier(known.queue, metrics.queue);
            metrics.scheduler = later(known.scheduler, metrics.scheduler);
            metrics.forward = later(known.forward, metrics.forward);
            metrics.execute = later(known.execute, metrics.execute);
            // The whole ends with its last message.
            metrics.finished = known.finished;
        }
        self.metrics.learn(metrics);
    }

    /// Takes what its client was told: why each candidate ended, and the tokens of all of them.
    pub fn said<'a>(&mut self, reasons: impl Iterator<Item = Option<&'a str>>, tokens: u64) {
        for (index, reason) in (0..).zip(reasons.take(MAX_CANDIDATES)) {
            let reason = reason.map(|reason| match reason {
                "length" => Finish::Length,
                "abort" => Finish::Abort,
                _ => Finish::Stop,
            });
            // Which candidate has which share is not told.
            self.candidates.insert(index, (if index == 0 { tokens } else { 0 }, reason));
        }
    }

    /// Tokens generated, of all candidates.
    pub fn tokens(&self) -> u64 {
        self.candidates.values().fold(0, |sum, (tokens, _)| sum.saturating_add(*tokens))
    }

    /// How many candidates there are.
    pub fn sequences(&self) -> u64 {
        u64::try_from(self.candidates.len()).unwrap_or(u64::MAX)
    }

    /// Why each candidate ended.
    pub fn reasons(&self) -> Vec<Finish> {
        self.candidates.values().filter_map(|(_, reason)| *reason).collect()
    }
}

/// The earlier of two, or the one there is.
fn earlier<T: PartialOrd + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one < other { one } else { other }),
        (one, other) => one.or(other),
    }
}

/// The later of two, or the one there is.
fn later<T: PartialOrd + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one > other { one } else { other }),
        (one, other) => one.or(other),
    }
}
