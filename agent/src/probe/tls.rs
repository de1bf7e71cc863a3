//! Probes on a TLS library of a process: at the entries of its functions and at their `ret` instructions. No return
//! probe: where that can end the target, this cannot.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, Result, bail};
use aya::maps::{HashMap, MapData};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope};
use enginetap_common::record::Call;
use enginetap_common::watch::{Answer, Command, Slot, TlsKey};
use enginetap_core::ids::Pid;

use super::plain::Plain;
use super::watch::MISMATCH;
use super::{Probe, load};
use crate::discover::tls::Library;

/// The programs at the entry of a function that moves bytes, at its end, and at the entry of the one that frees.
const ENTERED: &str = "tls_entered";
const RETURNED: &str = "tls_returned";
const FREED: &str = "tls_freed";

/// A probe that is attached: its program, and which of its links.
pub(super) type Attached = (&'static str, UProbeLinkId);

impl Probe {
    /// Probes a process's TLS library. The programs are loaded when the first process needs them.
    ///
    /// # Errors
    /// When the kernel refuses; then none of the library's probes stays.
    pub fn attach_tls(&mut self, pid: Pid, library: &Library) -> Result<()> {
        // Ends before entries: a call whose entry was seen is seen to its end.
        let ends = library.functions.iter().flat_map(|function| {
            let call = function.call;
            function.returns.iter().map(move |at| (RETURNED, *at, call))
        });
        let entries = library.functions.iter().map(|function| {
            let program = if function.call == Call::SslFree { FREED } else { ENTERED };
            (program, function.entry, function.call)
        });
        let mut attached = Vec::new();
        for (program, at, call) in ends.chain(entries) {
            match self.attach_at(pid, program, &library.file, at, call as u64) {
                Ok(link) => attached.push((program, link)),
                Err(error) => {
                    self.detach(attached)?;
                    return Err(error.context(format!(
                        "probing {} of process {}",
                        library.path.display(),
                        pid.0
                    )));
                }
            }
        }
        self.tls.entry(pid).or_default().extend(attached);
        Ok(())
    }

    /// Takes the probes out of a process, and forgets its TLS connections.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_tls(&mut self, pid: Pid) -> Result<()> {
        if let Some(attached) = self.tls.remove(&pid) {
            self.detach(attached)?;
            for key in self.tls_connections(pid)? {
                self.forget_tls(key)?;
            }
        }
        Ok(())
    }

    /// How many probes are attached to a process's TLS libraries.
    #[must_use]
    pub fn tls_probes(&self, pid: Pid) -> usize {
        self.tls.get(&pid).map_or(0, Vec::len)
    }

    /// Attaches a program to an instruction of a process; the program is told the cookie.
    pub(super) fn attach_at(
        &mut self,
        pid: Pid,
        name: &'static str,
        file: &Path,
        at: u64,
        cookie: u64,
    ) -> Result<UProbeLinkId> {
        let scope = UProbeScope::OneProcess(NonZeroU32::new(pid.0).context("no process has the pid 0")?);
        let program: &mut UProbe = load::program(&mut self.ebpf, name)?;
        if program.fd().is_err() {
            program.load().with_context(|| load::refused(name))?;
        }
        let point =
            UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(at), cookie: Some(cookie) };
        Ok(program.attach(point, file, scope)?)
    }

    /// Takes probes away.
    pub(super) fn detach(&mut self, attached: Vec<Attached>) -> Result<()> {
        for (name, link) in attached {
            let program: &mut UProbe = load::program(&mut self.ebpf, name)?;
            program.detach(link)?;
        }
        Ok(())
    }

    fn tls_connections(&self, pid: Pid) -> Result<Vec<TlsKey>> {
        let map = self.ebpf.map("TLS").context(MISMATCH)?;
        let table: HashMap<&MapData, Plain<TlsKey>, Plain<Slot>> = HashMap::try_from(map)?;
        // A key that goes while the table is walked is none.
        let keys = table.keys().filter_map(|key| key.ok().map(|Plain(key)| key));
        Ok(keys.filter(|key| key.pid == u64::from(pid.0)).collect())
    }

    fn forget_tls(&mut self, key: TlsKey) -> Result<()> {
        match self.command(Command::ForgetTls, [key.pid, key.ssl, 0])? {
            Answer::Done | Answer::Unknown => Ok(()),
            Answer::Known | Answer::Full | Answer::BadCommand => bail!(MISMATCH),
        }
    }
}
