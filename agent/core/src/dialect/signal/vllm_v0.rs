//! What vLLM's V0 engine said: outputs with the engine's own figures of each request.

use serde::{Deserialize, Serialize};

use super::Finish;
use crate::ids::Pid;
use crate::time::{EpochTime, MonoTime, Seconds};

/// What one request got in one message (`RequestOutput`, or one of a pooling request).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct V0Output {
    /// The request's id.
    pub id: String,
    /// Prompt tokens; only sent with the first output of a stream, and with the only one of others.
    pub prompt_tokens: Option<u32>,
    /// Its candidates; none of a pooling request.
    pub candidates: Vec<V0Candidate>,
    /// Whether the request is over.
    pub finished: bool,
    /// The engine's figures of it, as of this message.
    pub metrics: V0Metrics,
    /// Prompt tokens found in the prefix cache (0.7 on).
    pub cached_tokens: Option<u64>,
}

/// What one candidate got (`CompletionOutput`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V0Candidate {
    /// Which one.
    pub index: u32,
    /// How many tokens the message holds of it: the new ones of a request that wants deltas, else all.
    pub tokens: u64,
    /// Why it ended, if it did.
    pub finish: Option<Finish>,
}

/// The engine's figures of a request. Mirrors `RequestMetrics` of `vllm/sequence.py` (0.6 to 0.10.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct V0Metrics {
    /// When the engine got the request.
    pub arrival: Option<EpochTime>,
    /// When it was first scheduled; a preemption does not reset it.
    pub scheduled: Option<EpochTime>,
    /// When the first token was there.
    pub first_token: Option<EpochTime>,
    /// When the last token so far was there.
    pub last_token: Option<EpochTime>,
    /// When it was over.
    pub finished: Option<EpochTime>,
    /// Time in the queue.
    pub queue: Option<Seconds>,
    /// Time in the scheduler, summed over its steps.
    pub scheduler: Option<Seconds>,
    /// Time in the model's forward pass, summed; only measured where the engine traces in detail.
    pub forward: Option<Seconds>,
    /// Time in the model's execution, workers and sampling included, summed; as `forward`.
    pub execute: Option<Seconds>,
}

impl V0Metrics {
    /// Takes what a later message or reading tells; what it does not tell stays.
    pub fn learn(&mut self, later: Self) {
        let Self {
            arrival,
            scheduled,
            first_token,
            last_token,
            finished,
            queue,
            scheduler,
            forward,
            execute,
        } = later;
        self.arrival = arrival.or(self.arrival);
        self.scheduled = scheduled.or(self.scheduled);
        self.first_token = first_token.or(self.first_token);
        // Of several candidates' request the last message says the arrival instead.
        self.last_token = match (last_token, self.last_token) {
            (Some(later), Some(known)) if later < known => Some(known),
            (later, known) => later.or(known),
        };
        self.finished = finished.or(self.finished);
        self.queue = queue.or(self.queue);
        self.scheduler = scheduler.or(self.scheduler);
        self.forward = forward.or(self.forward);
        self.execute = execute.or(self.execute);
    }

    /// Until the first token.
    #[must_use]
    pub fn time_to_first_token(&self) -> Option<Seconds> {
        Some(self.first_token?.since(self.arrival?))
    }

    /// From arrival to end.
    #[must_use]
    pub fn e2e(&self) -> Option<Seconds> {
        Some(self.finished?.since(self.arrival?))
    }

    /// From the first token to the last.
    #[must_use]
    pub fn decode(&self) -> Option<Seconds> {
        Some(self.last_token?.since(self.first_token?))
    }
}

/// What was read of a V0 engine outside its messages, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct V0Snapshot {
    /// The process it was read of.
    pub pid: Pid,
    /// When.
    pub at: MonoTime,
    /// Where.
    pub source: V0Source,
    /// The scheduler's state, where it changed or was not told yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<V0State>,
    /// What the engine counted since it started, where it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<V0Counts>,
    /// Requests of which something changed, by the engine's ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<(String, V0Reading)>,
    /// Requests that the engine has no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

/// Where a [`V0Snapshot`] is from, the best last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum V0Source {
    /// The engine's own objects.
    #[default]
    Objects,
    /// The files that the engine's metrics are kept in.
    Files,
}

/// The scheduler's state. What the source does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct V0State {
    /// Requests running.
    pub running: Option<u64>,
    /// Requests waiting.
    pub waiting: Option<u64>,
    /// Requests swapped out.
    pub swapped: Option<u64>,
    /// KV cache use on the GPU, 0 to 1.
    pub gpu_cache: Option<f64>,
    /// KV cache use on the CPU, 0 to 1.
    pub cpu_cache: Option<f64>,
}

impl V0State {
    /// What another source tells, where this one does not.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            running: self.running.or(other.running),
            waiting: self.waiting.or(other.waiting),
            swapped: self.swapped.or(other.swapped),
            gpu_cache: self.gpu_cache.or(other.gpu_cache),
            cpu_cache: self.cpu_cache.or(other.cpu_cache),
        }
    }
}

/// What the engine counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct V0Counts {
    /// Iterations reported; an idle engine reports too, without tokens.
    pub iterations: Option<u64>,
    /// Prompt tokens processed, those of preempted requests again.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub generation_tokens: Option<u64>,
    /// All tokens processed.
    pub tokens: Option<u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
}

/// One request as the engine's objects show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct V0Reading {
    /// The engine's figures of it.
    pub metrics: V0Metrics,
    /// Tokens of its prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated so far.
    pub output_tokens: Option<u64>,
}
