//! Probes on an interpreter's collector of garbage: at its entry and at its `ret` instructions, no return probe.

use anyhow::Result;
use enginetap_core::ids::Pid;

use super::Probe;
use crate::discover::gc::Collector;

/// The programs at its entry and at its end.
const ENTERED: &str = "gc_entered";
const RETURNED: &str = "gc_returned";

impl Probe {
    /// Times the collections of a process: each of a millisecond or more is a `Kind::Mark`. The programs are loaded when the
    /// first process needs them.
    ///
    /// # Errors
    /// When the kernel refuses; then no probe stays.
    pub fn attach_gc(&mut self, pid: Pid, collector: &Collector) -> Result<()> {
        // Ends before the entry: a collection whose begin was seen is seen to its end.
        let ends = collector.returns.iter().map(|at| (RETURNED, *at));
        let mut attached = Vec::new();
        for (program, at) in ends.chain([(ENTERED, collector.entry)]) {
            match self.attach_at(pid, program, &collector.file, at, 0) {
                Ok(link) => attached.push((program, link)),
                Err(error) => {
                    self.detach(attached)?;
                    return Err(error.context(format!("timing garbage collections of process {}", pid.0)));
                }
            }
        }
        self.gc.insert(pid, attached);
        Ok(())
    }

    /// Takes the probes out of a process.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_gc(&mut self, pid: Pid) -> Result<()> {
        self.gc.remove(&pid).map_or(Ok(()), |attached| self.detach(attached))
    }
}
