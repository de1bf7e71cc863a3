//! Whose garbage collections are timed: those of the processes that requests wait for, where it is wanted.

use std::collections::{BTreeMap, BTreeSet};

use enginetap_core::ids::Pid;

use crate::discover::gc::find;
use crate::discover::proc::Proc;
use crate::probe::Probe;

/// The processes, and whether they have been attended to.
#[derive(Debug, Default)]
pub(super) struct Collections {
    wanted: bool,
    done: BTreeMap<Pid, bool>,
}

impl Collections {
    /// Times them, or none.
    pub fn new(wanted: bool) -> Self {
        Self { wanted, done: BTreeMap::new() }
    }

    /// These are the processes now.
    pub fn follow(&mut self, pids: &BTreeSet<Pid>) {
        if self.wanted {
            self.done.retain(|pid, _| pids.contains(pid));
            for pid in pids {
                self.done.entry(*pid).or_insert(false);
            }
        }
    }

    /// Attends to the next process, one a call: each probe takes the kernel some milliseconds. What cannot be timed is said,
    /// once a process; everything else goes on without.
    pub fn attend(&mut self, proc: &Proc, probe: &mut Probe) {
        let Some((pid, done)) = self.done.iter_mut().find(|(_, done)| !**done) else { return };
        *done = true;
        match find(proc, *pid) {
            Ok(collector) => match probe.attach_gc(*pid, &collector) {
                Ok(()) => log::info!("process {}: garbage collections are timed ({})", pid.0, collector.name),
                Err(error) => log::warn!("{error:#}"),
            },
            Err(why) => log::warn!("process {}: garbage collections are not timed: {why}", pid.0),
        }
    }
}
