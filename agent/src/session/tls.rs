//! Which processes' TLS libraries are probed: those of frontends that serve HTTPS, and no other.

use std::collections::BTreeMap;

use enginetap_core::ids::Pid;
use enginetap_core::time::{MonoTime, Nanos};

use crate::discover::proc::Proc;
use crate::discover::tls::find;
use crate::probe::Probe;

/// How long to look again for a library that was not found: a server that starts has not loaded it yet.
const PATIENCE: Nanos = Nanos::from_millis(60_000);

/// How long between two looks.
const PAUSE: Nanos = Nanos::from_millis(1000);

/// The processes to be probed, and those that are.
#[derive(Debug, Default)]
pub(super) struct Libraries(BTreeMap<Pid, State>);

#[derive(Clone, Copy, Debug)]
enum State {
    /// Its library was not found yet.
    Wanted { until: MonoTime, next: MonoTime },
    /// It is probed, or cannot be.
    Settled,
}

impl Libraries {
    /// A process was started to serve TLS, or was seen to.
    pub fn want(&mut self, pid: Pid, now: MonoTime) {
        let until = MonoTime(now.0.saturating_add(PATIENCE.0));
        self.0.entry(pid).or_insert(State::Wanted { until, next: now });
    }

    /// A process is watched no more.
    pub fn forget(&mut self, pid: Pid) {
        self.0.remove(&pid);
    }

    /// Probes the processes whose turn it is. What cannot be probed is said, once; everything else goes on without.
    pub fn attach(&mut self, proc: &Proc, probe: &mut Probe, now: MonoTime) {
        for (pid, state) in &mut self.0 {
            let State::Wanted { until, next } = *state else { continue };
            if now < next {
                continue;
            }
            *state = match find(proc, *pid) {
                Ok(libraries) => {
                    for library in &libraries {
                        report(*pid, &library.path.display().to_string(), probe.attach_tls(*pid, library));
                    }
                    State::Settled
                }
                Err(reason) if now >= until => {
                    log::warn!(
                        "process {} serves TLS, but its plain text cannot be seen: {reason}; no entry spans of it",
                        pid.0
                    );
                    State::Settled
                }
                Err(reason) => {
                    log::debug!("process {}: {reason}", pid.0);
                    State::Wanted { until, next: MonoTime(now.0.saturating_add(PAUSE.0)) }
                }
            };
        }
    }
}

fn report(pid: Pid, path: &str, attached: anyhow::Result<()>) {
    match attached {
        Ok(()) => log::info!("process {}: plain text of TLS is taken at {path}", pid.0),
        Err(error) => log::warn!("{error:#}; no entry spans of process {}", pid.0),
    }
}
