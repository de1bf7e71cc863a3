//! What the kernel says that servers' threads waited for, read from `/proc` and from their cgroups ten times a second.
//!
//! The scheduler adds up each thread's time in the run queue (`schedstat`), whoever asks: reading it costs a microsecond a
//! thread and the rest of the machine nothing, where a program at each switch of threads would cost all of it some. What it
//! cannot tell is the moment within the tenth of a second.

mod cgroup;
mod thread;

use std::collections::BTreeMap;

use enginetap_core::capture::fact::{Fact, Waits};
use enginetap_core::ids::Pid;
use enginetap_core::time::{MonoTime, Nanos};

use crate::discover::proc::Proc;
use cgroup::Cgroup;
use thread::{Thread, Times};

/// How often what waited is read.
pub const PERIOD: std::time::Duration = std::time::Duration::from_millis(100);
/// How often a process's threads are looked through for those at work, and its pages are counted.
const SCAN: Nanos = Nanos::from_millis(3000);
/// Most threads read of a process: those that work most.
const MAX_THREADS: usize = 16;
/// A thread that wants less of the time, in per cent, is not at work.
const AT_WORK: u64 = 25;
/// Shorter waits are ordinary.
const LEAST: Nanos = Nanos::from_millis(2);

/// The processes whose waits are read.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<Pid, Process>);

#[derive(Debug)]
struct Process {
    /// Those at work, the main thread among them.
    threads: BTreeMap<u32, Thread>,
    /// What each thread had done when they were looked through.
    seen: BTreeMap<u32, Times>,
    scanned: Option<MonoTime>,
    cgroup: Option<Cgroup>,
    faults: Option<u64>,
    read: MonoTime,
}

/// Whether this kernel adds up what threads wait (`CONFIG_SCHED_INFO`: every distribution's does).
#[must_use]
pub fn are_counted() -> bool {
    std::path::Path::new("/proc/self/schedstat").exists()
}

impl Watch {
    /// Reads these processes from now on, and no others.
    pub fn follow(&mut self, proc: &Proc, pids: impl Iterator<Item = Pid> + Clone, now: MonoTime) {
        self.0.retain(|pid, _| pids.clone().any(|other| other == *pid));
        for pid in pids {
            self.0.entry(pid).or_insert_with(|| Process::new(proc, pid, now));
        }
    }

    /// What was waited for since the last reading, where it is worth telling.
    pub fn read(&mut self, proc: &Proc, now: MonoTime) -> Vec<Fact> {
        let told = self.0.iter_mut().filter_map(|(pid, process)| process.read(proc, *pid, now));
        told.map(Fact::Waits).collect()
    }
}

impl Process {
    fn new(proc: &Proc, pid: Pid, now: MonoTime) -> Self {
        Self {
            threads: BTreeMap::new(),
            seen: BTreeMap::new(),
            scanned: None,
            cgroup: Cgroup::of(proc, pid),
            faults: None,
            read: now,
        }
    }

    fn read(&mut self, proc: &Proc, pid: Pid, now: MonoTime) -> Option<Waits> {
        let mut faults = 0;
        if self.scanned.is_none_or(|at| now.since(at) >= SCAN) {
            self.scanned = Some(now);
            self.scan(proc, pid);
            faults = self.faults(proc, pid);
        }
        let from = std::mem::replace(&mut self.read, now);
        let period = now.since(from);
        let waited = self.waited(pid, period);
        let throttled = self.cgroup.as_mut().map_or(Nanos(0), Cgroup::throttled);
        let worth = waited >= LEAST || faults > 0;
        worth.then_some(Waits { pid, from, to: now, waited, throttled, faults })
    }

    /// The most that a thread at work waited, and the main thread whatever it is at.
    fn waited(&mut self, pid: Pid, period: Nanos) -> Nanos {
        let mut most = Nanos(0);
        self.threads.retain(|tid, thread| {
            let Some(Times { ran, waited }) = thread.since() else { return false };
            let wanted = ran.0.saturating_add(waited.0);
            if *tid == pid.0 || wanted.saturating_mul(100) >= period.0.saturating_mul(AT_WORK) {
                most = most.max(waited);
            }
            true
        });
        // A reading that came late tells of the time before it, not of more.
        most.min(period)
    }

    /// Finds the threads at work.
    fn scan(&mut self, proc: &Proc, pid: Pid) {
        let now = thread::all(proc, pid);
        let busy = |tid: &u32, times: &Times| {
            let before = self.seen.get(tid).copied().unwrap_or_default();
            times.less(before).wanted()
        };
        let mut by_work: Vec<(u64, u32)> = now.iter().map(|(tid, times)| (busy(tid, times), *tid)).collect();
        by_work.sort_unstable_by(|a, b| b.cmp(a));
        let chosen = by_work.into_iter().filter(|(work, _)| *work > 0).map(|(_, tid)| tid).take(MAX_THREADS);
        let chosen: Vec<u32> = chosen.chain([pid.0]).collect();
        self.threads.retain(|tid, _| chosen.contains(tid));
        for tid in chosen {
            if let std::collections::btree_map::Entry::Vacant(place) = self.threads.entry(tid)
                && let Some(thread) = Thread::open(proc, pid, tid)
            {
                place.insert(thread);
            }
        }
        self.seen = now;
    }

    fn faults(&mut self, proc: &Proc, pid: Pid) -> u64 {
        let Some(now) = thread::major_faults(proc, pid) else { return 0 };
        let before = self.faults.replace(now);
        before.map_or(0, |before| now.saturating_sub(before))
    }
}
