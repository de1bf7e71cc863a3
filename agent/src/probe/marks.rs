//! Probes on functions of a watched process that mark a moment. Entries only: a probe on a return changes the
//! target's stack, which some kernels and seccomp profiles punish with its death.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, Result};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLinkId, UProbeScope};
use enginetap_core::ids::Pid;

use super::{Probe, load};

/// The program on the start of a forward.
const FORWARD: &str = "forward";

/// A probe on a function of one process.
pub(super) type Link = UProbeLinkId;

impl Probe {
    /// Marks each entry of a function of a watched process: a `Kind::Mark` that says a forward has begun. `offset` is
    /// where its code lies in the file.
    ///
    /// # Errors
    /// When the kernel refuses, or the process is gone.
    pub fn mark(&mut self, pid: Pid, file: &Path, offset: u64) -> Result<()> {
        let scope =
            NonZeroU32::new(pid.0).map(UProbeScope::OneProcess).context("process 0 has no functions")?;
        let program: &mut UProbe = load::program(&mut self.ebpf, FORWARD)?;
        if program.fd().is_err() {
            program.load().with_context(|| load::refused(FORWARD))?;
        }
        let link = program
            .attach(UProbeAttachLocation::AbsoluteOffset(offset), file, scope)
            .with_context(|| format!("marking {offset:#x} of {} in process {}", file.display(), pid.0))?;
        self.marks.entry(pid).or_default().push(link);
        Ok(())
    }

    /// Takes the marks of a process away.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unmark(&mut self, pid: Pid) -> Result<()> {
        for link in self.marks.remove(&pid).unwrap_or_default() {
            let program: &mut UProbe = load::program(&mut self.ebpf, FORWARD)?;
            program.detach(link).with_context(|| format!("taking the marks of process {} away", pid.0))?;
        }
        Ok(())
    }
}
