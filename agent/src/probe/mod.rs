//! The probe: the kernel programs of enginetap, loaded, attached and talked to.
//!
//! [`Probe::load`] puts the programs into the kernel; from then on they watch nothing until [`Probe::watch`] names a
//! process. Records come out of [`Probe::drain`], in order of time. Dropping the probe takes everything out of the
//! kernel again; so does the kernel itself when the agent dies, since nothing is pinned.
//!
//! How to attach to a running process without missing bytes: [`Probe::watch`] it, then list its sockets and
//! [`Probe::adopt`] each, then list again and adopt what came meanwhile. A call on a socket that nobody adopted yet
//! makes it a connection with an id of the kernel's own (the top bit set); `adopt` then says so by `false`.
//!
//! The socket calls that `read` and `write` share with files are passed over on unknown descriptors; all others
//! (`recv*`, `send*`, `accept*`, `connect`) make them known.

mod capability;
mod cost;
mod gc;
mod load;
mod marks;
mod object;
mod plain;
mod rings;
mod sampler;
mod syscalls;
mod tls;
mod watch;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use aya::Ebpf;
use aya::maps::{MapData, ProgramArray};
use aya_log::EbpfLogger;
use enginetap_common::config::DEFAULT_CAP;
use enginetap_core::ids::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

pub use self::capability::{CostClass, OLDEST, OLDEST_ARM, Obstacle, PROGRAMS, Program, Support, oldest};
pub use self::cost::{RunTime, programs_loaded};
use self::rings::Rings;
pub use self::sampler::Sampler;

/// What the probe may be told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most payload bytes copied of one call; the rest of a longer one is a gap. At most 1 MiB.
    pub cap: u32,
    /// Bytes of all rings together. They count twice in the agent's resident memory.
    pub ring_bytes_total: u32,
    /// Whether the kernel programs send their debug messages (to the `log` facade).
    pub debug: bool,
    /// Whether the kernel measures the programs' run time: some tens of nanoseconds more a run.
    pub measure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { cap: DEFAULT_CAP, ring_bytes_total: 8 * 1024 * 1024, debug: false, measure: false }
    }
}

/// The loaded kernel programs.
pub struct Probe {
    ebpf: Ebpf,
    /// Held, not used: see `load`.
    _jump: ProgramArray<MapData>,
    rings: Rings,
    /// Made at the first wait: only then is there surely a runtime.
    wakeups: Option<AsyncFd<OwnedFd>>,
    pace: Pace,
    logger: Option<EbpfLogger<&'static dyn log::Log>>,
    /// While this is open, the kernel measures.
    measuring: Option<OwnedFd>,
    /// Probes on TLS libraries.
    tls: HashMap<Pid, Vec<tls::Attached>>,
    /// Probes on functions that mark a moment.
    marks: HashMap<Pid, Vec<marks::Link>>,
    /// Probes on interpreters' collectors.
    gc: HashMap<Pid, Vec<tls::Attached>>,
}

/// When to look at the rings again unasked: soon while records come, later when idle. A moment, not a pause: who waits
/// may be interrupted, and waits on for the rest.
struct Pace {
    pause: Duration,
    next: Instant,
}

impl Pace {
    const BUSY: Duration = Duration::from_millis(20);
    const IDLE: Duration = Duration::from_millis(80);
    /// What happens in a step of an engine is looked at while the step lasts.
    const STEP: Duration = Duration::from_millis(3);

    fn new(now: Instant) -> Self {
        Self { pause: Self::BUSY, next: now + Self::BUSY }
    }

    /// So many records came.
    fn after(&mut self, records: u64, now: Instant) {
        let pause = if records > 0 { Self::BUSY } else { (self.pause * 2).min(Self::IDLE) };
        self.again(pause, now);
    }

    fn again(&mut self, pause: Duration, now: Instant) {
        (self.pause, self.next) = (pause, now + pause);
    }
}

impl Probe {
    /// Waits until it is time to [`Probe::drain`]: a ring fills up, a process came or went, or a short time has passed.
    ///
    /// # Errors
    /// When the runtime has no I/O driver, or its descriptors are used up.
    pub async fn ready(&mut self) -> Result<()> {
        let wakeups = match &self.wakeups {
            Some(wakeups) => wakeups,
            None => {
                let descriptor = self.rings.wakeups().try_clone()?;
                // SAFETY: the descriptor is owned, and stays the same until the `AsyncFd` is dropped with it.
                let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
                self.wakeups.insert(registered.map_err(std::io::Error::from)?)
            }
        };
        tokio::select! {
            guard = wakeups.readable() => {
                self.rings.take_wakeups()?;
                guard?.clear_ready();
            }
            () = tokio::time::sleep_until(self.pace.next) => {}
        }
        Ok(())
    }

    /// Passes on the bytes of every record that is old enough to be in order of time; how many. Those of the
    /// last millisecond stay for the next round.
    pub fn drain(&mut self, mut sink: impl FnMut(&[u8])) -> u64 {
        let count = self.rings.drain(&mut sink);
        self.pace.after(count, Instant::now());
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        count
    }

    /// The next look at the rings is to be soon: a step of an engine was marked, and more follow.
    pub fn hurry(&mut self) {
        self.pace.again(Pace::STEP, Instant::now());
    }

    /// Passes on every record there is: the last call before the end.
    pub fn flush(&mut self, mut sink: impl FnMut(&[u8])) -> u64 {
        self.rings.flush(&mut sink)
    }
}
