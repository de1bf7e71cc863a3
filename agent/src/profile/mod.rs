//! Profiling: processes with their Python threads and functions, and the samples of them.

pub mod files;
pub mod pprof;
mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use enginetap_common::sample::Sample;
use enginetap_core::ids::Pid;
use enginetap_core::profile::{Process, Profile};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, interval, sleep_until};

use crate::discover::proc::Proc;
use crate::probe::Sampler;

use self::process::Sampled;

/// How often samples are fetched, and each so many times the threads are looked for anew.
const FETCH: Duration = Duration::from_millis(100);
const THREADS_EACH: u32 = 5;

/// Processes that are sampled.
pub struct Profiler {
    sampler: Sampler,
    processes: BTreeMap<Pid, Sampled>,
    profile: Profile,
}

impl Profiler {
    /// Begins to sample these processes.
    ///
    /// # Errors
    /// When the kernel refuses, or none of them can be read.
    pub fn start(proc: &Proc, processes: Vec<Process>, hertz: u32) -> Result<Self> {
        let mut sampled = BTreeMap::new();
        for process in processes {
            sampled.insert(process.pid, Sampled::find(proc, process)?);
        }
        let sampler = Sampler::load(hertz)?;
        let mut profiler = Self { sampler, processes: sampled, profile: Profile::new(hertz) };
        profiler.look_for_threads()?;
        for pid in profiler.processes.keys() {
            profiler.sampler.watch(*pid)?;
        }
        Ok(profiler)
    }

    /// Samples for so long, or until a signal; the profile.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn run(mut self, duration: Duration) -> Result<Profile> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let end = sleep_until(Instant::now() + duration);
        tokio::pin!(end);
        let mut fetch = interval(FETCH);
        let mut fetched = 0;
        loop {
            tokio::select! {
                biased;
                () = &mut end => break,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = fetch.tick() => {
                    self.fetch();
                    fetched += 1;
                    if fetched % THREADS_EACH == 0 {
                        self.look_for_threads()?;
                    }
                }
            }
        }
        self.fetch();
        self.profile.lost = self.sampler.lost()?;
        Ok(self.profile)
    }

    fn look_for_threads(&mut self) -> Result<()> {
        for process in self.processes.values_mut() {
            process.look_for_threads(&mut self.sampler)?;
        }
        Ok(())
    }

    fn fetch(&mut self) {
        let Self { sampler, processes, profile } = self;
        sampler.drain(|sample: &Sample| {
            if let Some(process) = processes.get_mut(&Pid(sample.pid)) {
                let stack = process.stack(sample);
                profile.add(process.named(), stack);
            }
        });
    }
}
