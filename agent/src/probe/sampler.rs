//! The sampler: of all kernel programs only the one on the CPUs' clocks. It stands alone, so that a profile costs a server
//! nothing of what a trace costs.

use anyhow::{Context, Result};
use aya::maps::{HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::PerfEvent;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::{Ebpf, EbpfLoader};
use enginetap_common::loss::Loss;
use enginetap_common::sample::{MAX_SAMPLED, MAX_THREADS, SAMPLES_BYTES, Sample, Walk};
use enginetap_core::ids::{Pid, Tid};

use super::plain::Plain;
use super::{load, object};

/// The program, and the maps that are its own.
const SAMPLED: &str = "sampled";
const PROCESSES: &str = "SAMPLED";
const THREADS: &str = "THREADS";
const SAMPLES: &str = "SAMPLES";
const LOSSES: &str = "LOSSES";

/// The loaded and attached program.
pub struct Sampler {
    processes: HashMap<MapData, u32, u32>,
    threads: HashMap<MapData, u32, Plain<Walk>>,
    samples: RingBuf<MapData>,
    losses: PerCpuArray<MapData, u64>,
    /// Held, not used: the program goes with it.
    _ebpf: Ebpf,
}

impl Sampler {
    /// Loads the program and attaches it to every CPU's clock, so many times a second. It samples nothing until
    /// [`Sampler::watch`] names a process.
    ///
    /// # Errors
    /// A [`crate::exit::Refusal::Missing`] where this machine, kernel or user cannot run it; else what the kernel said.
    pub fn load(hertz: u32) -> Result<Self> {
        load::refuse_where_hopeless()?;
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .map_max_entries(PROCESSES, MAX_SAMPLED)
            .map_max_entries(THREADS, MAX_THREADS)
            .map_max_entries(SAMPLES, SAMPLES_BYTES)
            .load(object::OBJECT)
            .context("creating the maps of the kernel programs")?;
        let mut map = |name: &str| {
            ebpf.take_map(name).with_context(|| format!("the kernel object has no map {name}: rebuild it"))
        };
        let processes = HashMap::try_from(map(PROCESSES)?)?;
        let threads = HashMap::try_from(map(THREADS)?)?;
        let samples = RingBuf::try_from(map(SAMPLES)?)?;
        let losses = PerCpuArray::try_from(map(LOSSES)?)?;
        attach(&mut ebpf, hertz)?;
        Ok(Self { processes, threads, samples, losses, _ebpf: ebpf })
    }

    /// Samples a process from now on.
    ///
    /// # Errors
    /// When the table is full.
    pub fn watch(&mut self, pid: Pid) -> Result<()> {
        self.processes
            .insert(pid.0, 0, 0)
            .with_context(|| format!("sampling process {}: {MAX_SAMPLED} at most at once", pid.0))
    }

    /// How the frames of a thread are walked from now on.
    ///
    /// # Errors
    /// When the table is full.
    pub fn thread(&mut self, tid: Tid, walk: Walk) -> Result<()> {
        self.threads
            .insert(tid.0, Plain(walk), 0)
            .with_context(|| format!("sampling thread {}: {MAX_THREADS} at most at once", tid.0))
    }

    /// The thread is none of Python's any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget(&mut self, tid: Tid) -> Result<()> {
        self.threads.remove(&tid.0).with_context(|| format!("forgetting thread {}", tid.0))
    }

    /// Passes on every sample there is.
    pub fn drain(&mut self, mut sink: impl FnMut(&Sample)) {
        while let Some(item) = self.samples.next() {
            if let Some(sample) = Sample::read(&item) {
                sink(&sample);
            }
        }
    }

    /// Samples that found no room since the start.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn lost(&self) -> Result<u64> {
        let counts = self.losses.get(&(Loss::RingFull as u32), 0).context("reading the kernel's losses")?;
        Ok(counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
    }
}

fn attach(ebpf: &mut Ebpf, hertz: u32) -> Result<()> {
    let program: &mut PerfEvent = load::program(ebpf, SAMPLED)?;
    program.load().with_context(|| load::refused(SAMPLED))?;
    let cpus = aya::util::online_cpus().map_err(|(_, error)| error).context("asking which CPUs there are")?;
    for cpu in cpus {
        program
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Frequency(u64::from(hertz)),
                false,
            )
            .with_context(|| format!("attaching to the clock of CPU {cpu}"))?;
    }
    Ok(())
}
