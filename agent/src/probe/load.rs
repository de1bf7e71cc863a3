//! Loading and attaching.

use std::collections::HashMap;

use anyhow::{Context, Result};
use aya::maps::{ArrayOfMaps, MapData, ProgramArray, RingBuf};
use aya::programs::{ProgramFd, RawTracePoint};
use aya::sys::Stats;
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use enginetap_common::config::NEW_FD;
use enginetap_common::record::Call;
use tokio::time::Instant;

use super::capability::EXITED_UNTOLD;
use super::plain::Plain;
use super::rings::{Layout, Rings};
use super::{Options, Pace, Probe, Support, object};
use crate::exit::Refusal;

/// The program behind `sys_exit` that handles a call; `None` for those seen elsewhere or not at all.
fn family(call: Call) -> Option<&'static str> {
    match call {
        Call::Read | Call::Write | Call::Recvfrom | Call::Sendto => Some("bytes"),
        Call::Readv | Call::Writev | Call::Recvmsg | Call::Sendmsg => Some("vector"),
        Call::Recvmmsg | Call::Sendmmsg => Some("messages"),
        Call::Sendfile | Call::Splice => Some("unseen"),
        Call::Accept | Call::Accept4 | Call::Connect => Some("opened"),
        Call::Dup | Call::Dup2 | Call::Dup3 | Call::Fcntl => Some("duplicated"),
        Call::Close => Some("closed"),
        Call::Shutdown => None,
        Call::SslRead | Call::SslReadEx | Call::SslWrite | Call::SslWriteEx | Call::SslFree => None,
    }
}

/// The program for calls that make other descriptors.
const RENUMBERED: &str = "renumbered";

/// The programs that are attached, and their tracepoints. Raw ones: they come and go without a grace period of the
/// kernel's, where a tracepoint's perf event takes up to 100 ms to go.
const HOOKS: [(&str, &str); 3] =
    [("forked", "sched_process_fork"), ("executed", "sched_process_exec"), ("sys_exit", "sys_exit")];

/// The programs on the end of a process: the first that the kernel takes.
const ENDS: [&str; 2] = ["exited", EXITED_UNTOLD];
const END: &str = "sched_process_exit";

impl Probe {
    /// Loads the kernel programs and attaches them.
    ///
    /// # Errors
    /// A [`Refusal::Missing`] where this machine, kernel or user cannot run them, with what to do; else what the
    /// kernel said.
    pub fn load(options: &Options) -> Result<Self> {
        refuse_where_hopeless()?;
        let cpus = aya::util::online_cpus().map_or(1, |cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX));
        let layout = Layout::new(cpus, options.ring_bytes_total, options.cap);
        let config = Plain(object::config(options, layout)?);
        let level = u8::from(options.debug) * DEBUG_LEVEL;
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .override_global("CONFIG", &config, true)
            .override_global("AYA_LOG_LEVEL", &level, false)
            .load(object::OBJECT)
            .context("creating the maps of the kernel programs")?;
        let measuring = options.measure.then(|| aya::sys::enable_stats(Stats::RunTime)).transpose();
        let measuring = measuring.context("asking the kernel to measure its programs' run time")?;
        let logger = options.debug.then(|| EbpfLogger::init(&mut ebpf)).transpose();
        let logger = logger.context("listening to the kernel programs' debug messages")?;
        let rings = create_rings(&mut ebpf, layout)?;
        let jump = connect(&mut ebpf)?;
        let (wakeups, pace) = (None, Pace::new(Instant::now()));
        let (tls, marks, gc) = (HashMap::new(), HashMap::new(), HashMap::new());
        let probe = Self { ebpf, _jump: jump, rings, wakeups, pace, logger, measuring, tls, marks, gc };
        probe.attached()
    }
}

/// aya-log's number for debug messages; 0 is none.
const DEBUG_LEVEL: u8 = aya_log::Level::Debug as u8;

pub(super) fn refuse_where_hopeless() -> Result<()> {
    let obstacles = Support::probe().obstacles();
    if obstacles.is_empty() {
        return Ok(());
    }
    let (what, next): (Vec<_>, Vec<_>) =
        obstacles.into_iter().map(|obstacle| (obstacle.what, obstacle.next)).unzip();
    Err(Refusal::missing(what.join("; "), next.join("; ")).into())
}

fn create_rings(ebpf: &mut Ebpf, layout: Layout) -> Result<Rings> {
    let map = ebpf.take_map("RINGS").context("the kernel object has no map RINGS: rebuild it")?;
    Rings::create(layout, ArrayOfMaps::<MapData, RingBuf<MapData>>::try_from(map)?)
}

/// Loads the programs behind `sys_exit` and connects the tail calls. The jump table is to be kept: the kernel empties it
/// when its last descriptor is closed.
fn connect(ebpf: &mut Ebpf) -> Result<ProgramArray<MapData>> {
    let mut jump =
        ProgramArray::try_from(ebpf.take_map("JUMP").context("the kernel object has no map JUMP")?)?;
    for call in Call::ALL {
        if let Some(name) = family(call) {
            let program = loaded(ebpf, name)?;
            jump.set(call as u32, &program, 0).with_context(|| format!("connecting {name}"))?;
        }
    }
    jump.set(u32::from(NEW_FD), &loaded(ebpf, RENUMBERED)?, 0).context("connecting renumbered")?;
    loaded(ebpf, "control")?;
    Ok(jump)
}

impl Probe {
    /// The probe with its programs attached, the one at every system call last.
    fn attached(mut self) -> Result<Self> {
        self.locate()?;
        attach_end(&mut self.ebpf)?;
        for (name, tracepoint) in HOOKS {
            loaded(&mut self.ebpf, name)?;
            let program: &mut RawTracePoint = program(&mut self.ebpf, name)?;
            program.attach(tracepoint).with_context(|| format!("attaching {name} to {tracepoint}"))?;
        }
        Ok(self)
    }
}

fn attach_end(ebpf: &mut Ebpf) -> Result<()> {
    let mut refusal = None;
    for name in ENDS {
        loaded(ebpf, name)?;
        let program: &mut RawTracePoint = program(ebpf, name)?;
        match program.attach(END) {
            Ok(_) => return Ok(()),
            Err(error) => {
                program.unload().with_context(|| format!("unloading {name}"))?;
                refusal = Some(error);
            }
        }
    }
    refusal.map_or(Ok(()), |error| Err(error).with_context(|| format!("attaching to {END}")))
}

/// A raw tracepoint program, loaded if it is not yet.
fn loaded(ebpf: &mut Ebpf, name: &str) -> Result<ProgramFd> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    if program.fd().is_err() {
        program.load().with_context(|| refused(name))?;
    }
    Ok(program.fd()?.try_clone()?)
}

pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    let program = ebpf
        .program_mut(name)
        .with_context(|| format!("the kernel object has no program {name}: rebuild it"))?;
    Ok(program.try_into()?)
}

pub(super) fn refused(name: &str) -> String {
    format!("the kernel's verifier refused the program {name}: please report this with the kernel's version")
}
