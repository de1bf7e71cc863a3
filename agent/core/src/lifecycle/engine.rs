//! One EngineCore: the latest state of its scheduler and the moments of its latest steps.

use std::collections::VecDeque;

use crate::dialect::signal::{CacheStats, EngineStep, SchedulerStats};
use crate::time::{EngineTime, MonoTime};

/// Steps remembered, to place the prefill chunks that gave no token.
const MAX_STEPS: usize = 4096;

/// One EngineCore.
#[derive(Clone, Debug, Default)]
pub struct EngineCore {
    /// Requests running, waiting, and KV use, at the last step that said so.
    pub state: Option<SchedulerState>,
    /// Prefix cache look-ups, summed.
    pub prefix: CacheStats,
    /// Moments of the latest steps, oldest first.
    pub steps: VecDeque<EngineTime>,
    /// Steps counted.
    pub iterations: u64,
    /// Whether it sends statistics.
    pub stats: bool,
    /// When it was last heard.
    pub heard: Option<MonoTime>,
}

/// The scheduler's state, as gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulerState {
    /// Requests in the running batch.
    pub running: u64,
    /// Requests waiting, those waiting for a remote KV cache among them.
    pub waiting: u64,
    /// KV-cache use, 0 to 1.
    pub kv_usage: f64,
}

impl EngineCore {
    /// The moment of the newest step.
    #[must_use]
    pub fn last_step(&self) -> Option<EngineTime> {
        self.steps.back().copied()
    }

    /// Takes a step, after its outputs were given to their requests.
    pub fn take(&mut self, step: &EngineStep, had_outputs: bool, at: MonoTime) {
        self.heard = Some(at);
        if let Some(stats) = &step.stats {
            self.take_stats(stats);
        }
        // A node that waits for a KV transfer floods its frontend with empty messages: no steps.
        let running = step.stats.as_ref().is_some_and(|stats| stats.running > 0);
        if step.utility || !(had_outputs || running) {
            return;
        }
        self.iterations += 1;
        if let Some(timestamp) = step.timestamp {
            if self.steps.len() >= MAX_STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(timestamp);
        }
    }

    fn take_stats(&mut self, stats: &SchedulerStats) {
        let SchedulerStats { running, waiting, skipped_waiting, kv_usage, prefix, .. } = stats;
        self.stats = true;
        self.state = Some(SchedulerState {
            running: *running,
            waiting: waiting.saturating_add(*skipped_waiting),
            kv_usage: *kv_usage,
        });
        if let Some(prefix) = prefix {
            self.prefix.requests = self.prefix.requests.saturating_add(prefix.requests);
            self.prefix.queries = self.prefix.queries.saturating_add(prefix.queries);
            self.prefix.hits = self.prefix.hits.saturating_add(prefix.hits);
        }
    }
}
