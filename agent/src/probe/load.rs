//! Loading and attaching.

use anyhow::{Context, Result};
use aya::maps::{ArrayOfMaps, MapData, ProgramArray, RingBuf};
use aya::programs::{ProgramFd, RawTracePoint, TracePoint};
use aya::sys::Stats;
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use enginetap_common::config::NEW_FD;
use enginetap_common::record::Call;

use super::plain::Plain;
use super::rings::{Layout, Rings};
use super::{Options, Pace, Probe, Support, object, tracefs};
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
        Call::Close | Call::Shutdown => None,
    }
}

/// The program for calls that make other descriptors.
const RENUMBERED: &str = "renumbered";

/// The programs on the life of processes, and their tracepoints.
const LIFE: [(&str, &str); 3] =
    [("forked", "sched_process_fork"), ("executed", "sched_process_exec"), ("exited", "sched_process_exit")];

/// The programs at every system call. The one that sees descriptors go is attached before the one that sees them
/// come, so that none is remembered that has gone.
const SYSCALLS: [&str; 2] = ["sys_enter", "sys_exit"];

impl Probe {
    /// Loads the kernel programs and attaches them.
    ///
    /// # Errors
    /// A [`Refusal::Missing`] where this machine, kernel or user cannot run them, with what to do; else what the
    /// kernel said.
    pub fn load(options: &Options) -> Result<Self> {
        refuse_where_hopeless()?;
        let tracefs = tracefs::find_or_mount()?;
        let cpus = aya::util::online_cpus().map_or(1, |cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX));
        let layout = Layout::new(cpus, options.ring_bytes_total, options.cap);
        let config = Plain(object::config(options, layout, &tracefs)?);
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
        let jump = attach(&mut ebpf)?;
        Ok(Self { ebpf, _jump: jump, rings, wakeups: None, pace: Pace(Pace::BUSY), logger, measuring })
    }
}

/// aya-log's number for debug messages; 0 is none.
const DEBUG_LEVEL: u8 = aya_log::Level::Debug as u8;

fn refuse_where_hopeless() -> Result<()> {
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

/// Loads every program, connects the tail calls, attaches. The jump table is to be kept: the kernel empties it when
/// its last descriptor is closed.
fn attach(ebpf: &mut Ebpf) -> Result<ProgramArray<MapData>> {
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
    for (name, tracepoint) in LIFE {
        let program: &mut TracePoint = program(ebpf, name)?;
        program.load().with_context(|| refused(name))?;
        program
            .attach("sched", tracepoint)
            .with_context(|| format!("attaching {name} to sched:{tracepoint}"))?;
    }
    for name in SYSCALLS {
        let program: &mut RawTracePoint = program(ebpf, name)?;
        program.load().with_context(|| refused(name))?;
        program.attach(name).with_context(|| format!("attaching to raw_syscalls:{name}"))?;
    }
    Ok(jump)
}

/// A raw tracepoint program, loaded if it is not yet.
fn loaded(ebpf: &mut Ebpf, name: &str) -> Result<ProgramFd> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    if program.fd().is_err() {
        program.load().with_context(|| refused(name))?;
    }
    Ok(program.fd()?.try_clone()?)
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    let program = ebpf
        .program_mut(name)
        .with_context(|| format!("the kernel object has no program {name}: rebuild it"))?;
    Ok(program.try_into()?)
}

fn refused(name: &str) -> String {
    format!("the kernel's verifier refused the program {name}: please report this with the kernel's version")
}
