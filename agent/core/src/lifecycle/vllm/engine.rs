//! One EngineCore: the latest state of its scheduler and the moments of its latest steps.

use std::collections::VecDeque;

use super::transfer::Reports;
use crate::dialect::signal::{CacheStats, EngineStep, SchedulerStats};
use crate::ids::Pid;
use crate::time::{EngineTime, MonoTime};

/// Steps remembered, to place the prefill chunks that gave no token.
const MAX_STEPS: usize = 4096;
/// Messages remembered, to tell those of one step to several frontends; they arrive out of order.
const MAX_MESSAGES: usize = 64;
/// A step's messages to its frontends are stamped within this many seconds (1 to 2 us measured on 0.32.0), while no
/// step of the scheduler is as short.
const SAME_STEP: f64 = 250e-6;

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
    /// The latest messages that were steps, and the frontends they went to.
    messages: VecDeque<(EngineTime, Pid)>,
    /// Whether it sends statistics.
    pub stats: bool,
    /// What its KV connector reported.
    pub transfers: Reports,
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

    /// Takes a step as one frontend was told of it, after its outputs were given to their requests.
    pub fn take(&mut self, step: &EngineStep, had_outputs: bool, frontend: Pid, at: MonoTime) {
        self.heard = Some(at);
        if let Some(stats) = &step.stats {
            self.take_stats(stats);
        }
        // A node that waits for a KV transfer floods its frontend with empty messages: no steps.
        let running = step.stats.as_ref().is_some_and(|stats| stats.running > 0);
        if step.utility || !(had_outputs || running) {
            return;
        }
        if step.timestamp.is_some_and(|timestamp| self.told(timestamp, frontend)) {
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

    /// Whether another frontend was told of the same step already.
    fn told(&mut self, timestamp: EngineTime, frontend: Pid) -> bool {
        let same = |(at, to): &(EngineTime, Pid)| *to != frontend && (at.0 - timestamp.0).abs() < SAME_STEP;
        let told = self.messages.iter().any(same);
        if self.messages.len() >= MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((timestamp, frontend));
        told
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_told_to_two_frontends_is_one_iteration() {
        let mut core = EngineCore::default();
        let mut take = |seconds: f64, frontend: u32| {
            let step = EngineStep { timestamp: Some(EngineTime(seconds)), ..EngineStep::default() };
            core.take(&step, true, Pid(frontend), MonoTime(1));
            core.iterations
        };
        assert_eq!([take(1.0, 1), take(1.000_002, 2)], [1, 1]);
        // The second frontend is slow: it reads of a step when the first has read of the next.
        assert_eq!([take(1.002, 1), take(1.004, 1), take(1.002_001, 2)], [2, 3, 3]);
        assert_eq!(take(1.004_1, 1), 4, "one frontend is told of a step once");
    }
}
