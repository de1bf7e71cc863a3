//! Which processes' forwards are marked: those of SGLang's schedulers, as long as it costs little.

use std::collections::BTreeMap;

use enginetap_common::record::{Header, Kind};
use enginetap_core::ids::Pid;
use enginetap_core::time::{MonoTime, Nanos};

use crate::discover::marks::{MarkError, Place, find};
use crate::discover::proc::Proc;
use crate::probe::Probe;

/// How long to look again for a library that was not loaded yet.
const PATIENCE: Nanos = Nanos::from_millis(60_000);

/// How long between two looks.
const PAUSE: Nanos = Nanos::from_millis(1000);

/// What one mark costs the target at most (6 to 9 us in nested virtual machines, a tenth of it on ordinary hardware).
const COST: Nanos = Nanos(10_000);

/// How much of a second the marks of one process may cost.
const BUDGET: Nanos = Nanos::from_millis(10);

/// How long marks are counted before they are judged.
const WINDOW: Nanos = Nanos::from_millis(1000);

/// The processes to be marked, and those that are.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<Pid, State>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its library was not loaded yet.
    Wanted { until: MonoTime, next: MonoTime },
    /// It is marked; what was counted since.
    Marked { since: MonoTime, count: u64 },
    /// It cannot be, or not at this price.
    Off,
}

impl Marks {
    /// A scheduler's forwards are to be marked.
    pub fn want(&mut self, pid: Pid, now: MonoTime) {
        self.0.entry(pid).or_insert(State::Wanted { until: after(now, PATIENCE), next: now });
    }

    /// A process is watched no more.
    pub fn forget(&mut self, pid: Pid) {
        self.0.remove(&pid);
    }

    /// Counts a record if it is a mark.
    pub fn notice(&mut self, record: &[u8]) {
        if let Some(header) = Header::from_bytes(record)
            && header.kind == Kind::Mark as u8
            && let Some(State::Marked { count, .. }) = self.0.get_mut(&Pid(header.pid))
        {
            *count += 1;
        }
    }

    /// Marks the processes whose turn it is, and takes marks away that cost too much. What cannot be marked is said, once;
    /// everything else goes on without.
    pub fn attend(&mut self, proc: &Proc, probe: &mut Probe, now: MonoTime) {
        for (pid, state) in &mut self.0 {
            *state = match *state {
                State::Wanted { until, next } if now >= next => attach(proc, probe, *pid, now, until),
                State::Marked { since, count } if now.0.saturating_sub(since.0) >= WINDOW.0 => {
                    judged(probe, *pid, count, Nanos(now.0.saturating_sub(since.0)), now)
                }
                State::Wanted { .. } | State::Marked { .. } | State::Off => *state,
            };
        }
    }
}

fn after(now: MonoTime, pause: Nanos) -> MonoTime {
    MonoTime(now.0.saturating_add(pause.0))
}

fn attach(proc: &Proc, probe: &mut Probe, pid: Pid, now: MonoTime, until: MonoTime) -> State {
    match find(proc, pid) {
        Ok(places) => mark(probe, pid, &places, now),
        Err(error @ MarkError::NotLoaded { .. }) if now < until => {
            log::debug!("{error}");
            State::Wanted { until, next: after(now, PAUSE) }
        }
        Err(error) => {
            off(pid, &error.to_string());
            State::Off
        }
    }
}

fn mark(probe: &mut Probe, pid: Pid, places: &[Place], now: MonoTime) -> State {
    for Place { file, offset, function } in places {
        if let Err(error) = probe.mark(pid, file, *offset) {
            off(pid, &format!("{error:#}"));
            return State::Off;
        }
        log::info!("process {}: forwards are marked at {} ({})", pid.0, function.symbol, function.what);
    }
    State::Marked { since: now, count: 0 }
}

fn judged(probe: &mut Probe, pid: Pid, count: u64, window: Nanos, now: MonoTime) -> State {
    if affordable(count, window) {
        return State::Marked { since: now, count: 0 };
    }
    match probe.unmark(pid) {
        Ok(()) => off(pid, &format!("{count} marks in {:.1} s cost too much", window.seconds().0)),
        Err(error) => log::warn!("{error:#}"),
    }
    State::Off
}

/// Whether so many marks in so long are within the budget.
fn affordable(count: u64, window: Nanos) -> bool {
    let cost = u128::from(count) * u128::from(COST.0) * 1_000_000_000;
    cost <= u128::from(BUDGET.0) * u128::from(window.0)
}

fn off(pid: Pid, why: &str) {
    log::warn!("forwards of process {} are not marked: {why}; steps are told by its messages only", pid.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_forwards_a_second_are_the_most() {
        assert!(affordable(1000, Nanos::from_millis(1000)));
        assert!(!affordable(1001, Nanos::from_millis(1000)));
        assert!(affordable(2000, Nanos::from_millis(2000)));
        assert!(!affordable(u64::MAX, Nanos::from_millis(1000)));
        assert!(affordable(0, Nanos(0)));
    }

    #[test]
    fn only_marks_of_marked_processes_count() {
        let mut marks = Marks::default();
        marks.0.insert(Pid(7), State::Marked { since: MonoTime(0), count: 0 });
        let record = |pid, kind: Kind| Header { pid, kind: kind as u8, ..Header::default() }.to_bytes();
        marks.notice(&record(7, Kind::Mark));
        marks.notice(&record(7, Kind::Rx));
        marks.notice(&record(8, Kind::Mark));
        marks.notice(b"short");
        assert_eq!(marks.0.get(&Pid(7)), Some(&State::Marked { since: MonoTime(0), count: 1 }));
        marks.forget(Pid(7));
        assert!(marks.0.is_empty());
    }
}
