//! The schedulers' state, added up once for each of their statistics reports.
//!
//! A report is a statistics line on stderr. What a line does not tell is taken from the best source that last told
//! it: the line before, the snapshot in shared memory, the field `load` of a message, the scheduler's objects. Where
//! a process prints no lines (its log level is above INFO, or its stderr is not seen), each new state from the best
//! of the other sources counts as a report.

use std::collections::BTreeMap;

use crate::dialect::signal::sglang::{LoadSource, SglangLoad};
use crate::ids::Pid;
use crate::time::{MonoTime, Nanos};

/// A state of another source counts as a report when no line follows it for this long.
const LINE_GRACE: Nanos = Nanos::from_secs(1);
/// The engine's own gauge of throughput falls to zero after this (`GEN_THROUGHPUT_STALENESS_SECONDS` of
/// `sglang/srt/managers/scheduler_components/metrics_reporter.py`, 0.5.23).
const THROUGHPUT_STALE: Nanos = Nanos::from_secs(30);
/// Most schedulers told apart.
const MAX_SCHEDULERS: usize = 4096;

/// Sums of the states at each report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub reports: u64,
    pub running: Option<u64>,
    pub queued: Option<u64>,
    pub used_tokens: Option<u64>,
    pub token_usage: Option<f64>,
    pub gen_throughput: Option<f64>,
    pub cache_hit_rate: Option<f64>,
    pub accept_length: Option<f64>,
}

/// The latest state of one scheduler.
#[derive(Clone, Debug, Default)]
struct State {
    running: Option<u64>,
    queued: Option<u64>,
    used_tokens: Option<u64>,
    max_tokens: Option<u64>,
    token_usage: Option<f64>,
    gen_throughput: Option<(f64, MonoTime)>,
    cache_hit_rate: Option<f64>,
    accept_length: Option<f64>,
}

/// One scheduler.
#[derive(Clone, Debug, Default)]
struct Scheduler {
    state: State,
    /// Whether it prints lines.
    lines: bool,
    /// A state of another source, that no line followed yet.
    pending: Option<(LoadSource, MonoTime)>,
    /// The best source seen beside lines.
    best: Option<LoadSource>,
}

/// Every scheduler's state, and the sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    schedulers: BTreeMap<(Pid, Option<u32>), Scheduler>,
    pub sums: Sums,
}

impl Loads {
    /// A state was told. `pid`: the process it came from; messages come to the frontend, for each rank its own.
    pub fn take(&mut self, pid: Pid, at: MonoTime, load: &SglangLoad) {
        let key = (pid, load.dp_rank);
        if self.schedulers.len() >= MAX_SCHEDULERS && !self.schedulers.contains_key(&key) {
            return;
        }
        let scheduler = self.schedulers.entry(key).or_default();
        if load.source.is_report() {
            (scheduler.lines, scheduler.pending) = (true, None);
            scheduler.state.take(load, at);
            self.sums.add(&scheduler.state, at);
        } else if scheduler.best.is_none_or(|best| load.source <= best) {
            if let Some((_, earlier)) = scheduler.pending.take().filter(|_| !scheduler.lines) {
                self.sums.add(&scheduler.state, earlier);
            }
            scheduler.best = Some(load.source);
            scheduler.state.take(load, at);
            scheduler.pending = (!scheduler.lines).then_some((load.source, at));
        }
    }

    /// Time passes: states that no line followed count as reports.
    pub fn tick(&mut self, now: MonoTime) {
        for scheduler in self.schedulers.values_mut() {
            if let Some((_, at)) = scheduler.pending.take_if(|(_, at)| now > at.plus(LINE_GRACE)) {
                self.sums.add(&scheduler.state, at);
            }
        }
    }

    /// Nothing more comes.
    pub fn flush(&mut self) {
        self.tick(MonoTime(u64::MAX));
    }

    /// A process ended.
    pub fn gone(&mut self, pid: Pid) {
        self.schedulers.retain(|(of, _), _| *of != pid);
    }
}

impl State {
    fn take(&mut self, load: &SglangLoad, at: MonoTime) {
        let SglangLoad {
            source,
            dp_rank: _,
            running,
            queued,
            used_tokens,
            max_tokens,
            token_usage,
            gen_throughput,
            input_throughput: _,
            cache_hit_rate,
            new_tokens,
            cached_tokens,
            accept_length,
            accept_rate: _,
        } = load;
        self.running = running.or(self.running);
        self.queued = queued.or(self.queued);
        self.max_tokens = max_tokens.or(self.max_tokens);
        self.token_usage = token_usage.or(self.token_usage);
        self.used_tokens = used_tokens.or(self.used_tokens);
        self.accept_length = accept_length.or(self.accept_length);
        // Only a line tells these two: without --enable-metrics the snapshot and the objects hold zeros.
        let told = |value: &Option<f64>| value.filter(|value| source.is_report() || *value > 0.0);
        self.gen_throughput = told(gen_throughput).map(|rate| (rate, at)).or(self.gen_throughput);
        let counted = new_tokens.zip(*cached_tokens).and_then(|(new, cached)| hit_rate(new, cached));
        self.cache_hit_rate = told(cache_hit_rate).or(counted).or(self.cache_hit_rate);
    }
}

/// The rate as the engine computes it for its gauge: cached tokens of a prefill batch over all of them.
fn hit_rate(new: u64, cached: u64) -> Option<f64> {
    let all = new.saturating_add(cached);
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
    let rate = cached as f64 / all as f64;
    (all > 0).then_some(rate)
}

impl Sums {
    fn add(&mut self, state: &State, at: MonoTime) {
        let State {
            running,
            queued,
            used_tokens,
            max_tokens: _,
            token_usage,
            gen_throughput,
            cache_hit_rate,
            accept_length,
        } = state;
        self.reports += 1;
        add_count(&mut self.running, *running);
        add_count(&mut self.queued, *queued);
        add_count(&mut self.used_tokens, *used_tokens);
        add_value(&mut self.token_usage, *token_usage);
        let fresh =
            gen_throughput.map(|(rate, told)| if at > told.plus(THROUGHPUT_STALE) { 0.0 } else { rate });
        add_value(&mut self.gen_throughput, fresh);
        add_value(&mut self.cache_hit_rate, *cache_hit_rate);
        add_value(&mut self.accept_length, *accept_length);
    }
}

fn add_count(sum: &mut Option<u64>, value: Option<u64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

fn add_value(sum: &mut Option<f64>, value: Option<f64>) {
    if let Some(value) = value.filter(|value| value.is_finite()) {
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(source: LoadSource) -> SglangLoad {
        SglangLoad { running: Some(2), queued: Some(1), token_usage: Some(0.25), ..SglangLoad::of(source) }
    }

    fn at(ms: u64) -> MonoTime {
        MonoTime(ms * 1_000_000)
    }

    #[test]
    fn a_line_is_a_report_and_what_it_does_not_tell_is_the_last_that_was_told() {
        let mut loads = Loads::default();
        let shared = SglangLoad { used_tokens: Some(100), ..load(LoadSource::SharedMemory) };
        loads.take(Pid(1), at(0), &shared);
        let prefill =
            SglangLoad { new_tokens: Some(6), cached_tokens: Some(2), ..load(LoadSource::PrefillLine) };
        loads.take(Pid(1), at(1), &prefill);
        let decode = SglangLoad { gen_throughput: Some(50.0), ..load(LoadSource::DecodeLine) };
        loads.take(Pid(1), at(2), &decode);
        loads.flush();
        let Sums { reports, running, used_tokens, token_usage, gen_throughput, cache_hit_rate, .. } =
            loads.sums;
        assert_eq!((reports, running, used_tokens), (2, Some(4), Some(200)));
        assert_eq!((token_usage, gen_throughput, cache_hit_rate), (Some(0.5), Some(50.0), Some(0.5)));
    }

    #[test]
    fn without_lines_the_best_other_source_counts() {
        let mut loads = Loads::default();
        loads.take(Pid(1), at(0), &load(LoadSource::Objects));
        loads.take(Pid(1), at(10), &load(LoadSource::SharedMemory));
        loads.take(Pid(1), at(20), &load(LoadSource::Objects));
        loads.take(Pid(1), at(30), &load(LoadSource::SharedMemory));
        assert_eq!(loads.sums.reports, 2);
        loads.tick(at(5_000));
        assert_eq!((loads.sums.reports, loads.sums.running), (3, Some(6)));
        // Lines after all.
        loads.take(Pid(1), at(6_000), &load(LoadSource::SharedMemory));
        loads.take(Pid(1), at(6_001), &load(LoadSource::PrefillLine));
        loads.flush();
        assert_eq!(loads.sums.reports, 4);
    }

    #[test]
    fn a_throughput_nobody_renews_falls_to_zero_as_the_engines_gauge_does() {
        let mut loads = Loads::default();
        let decode = SglangLoad { gen_throughput: Some(50.0), ..load(LoadSource::DecodeLine) };
        loads.take(Pid(1), at(0), &decode);
        loads.take(Pid(1), at(29_000), &load(LoadSource::PrefillLine));
        loads.take(Pid(1), at(31_000), &load(LoadSource::PrefillLine));
        assert_eq!(loads.sums.gen_throughput, Some(100.0));
    }
}
