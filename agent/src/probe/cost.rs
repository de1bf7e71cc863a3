//! What the kernel programs lost, and what they cost: read from the counters the kernel keeps.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use aya::maps::{MapData, PerCpuArray};
use enginetap_common::loss::Loss;
use enginetap_core::time::Nanos;

use super::{PROGRAMS, Probe};

/// What one kernel program has cost since it was loaded. The programs behind `sys_exit` are in its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTime {
    /// The program, as in [`PROGRAMS`].
    pub program: &'static str,
    /// Runs.
    pub runs: u64,
    /// Time in it.
    pub time: Nanos,
}

impl Probe {
    /// What was lost in the kernel, by reason.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn losses(&self) -> Result<[(Loss, u64); Loss::ALL.len()]> {
        let map = self.ebpf.map("LOSSES").context("the kernel object has no map LOSSES: rebuild it")?;
        let counters: PerCpuArray<&MapData, u64> = PerCpuArray::try_from(map)?;
        let mut losses = Loss::ALL.map(|reason| (reason, 0));
        for (reason, count) in &mut losses {
            let cpus = counters.get(&(*reason as u32), 0).context("reading the loss counters")?;
            *count = cpus.iter().fold(0, |sum: u64, cpu| sum.saturating_add(*cpu));
            if *reason == Loss::Skipped {
                *count = self.info()?.map(|(_, info)| info.skipped).sum();
            }
        }
        Ok(losses)
    }

    /// What each attached program has cost; zeroes unless [`super::Options::measure`] was set (or the machine's owner
    /// has `kernel.bpf_stats_enabled`).
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn run_time(&self) -> Result<Vec<RunTime>> {
        Ok(self
            .info()?
            .map(|(program, info)| RunTime { program, runs: info.runs, time: Nanos(info.nanos) })
            .collect())
    }

    /// Whether the kernel measures at this agent's wish.
    #[must_use]
    pub fn measures(&self) -> bool {
        self.measuring.is_some()
    }

    /// The kernel's ids of the loaded programs, as `bpftool prog` shows them.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn program_ids(&self) -> Result<Vec<u32>> {
        let loaded = self.ebpf.programs().filter(|(_, program)| program.fd().is_ok());
        loaded.map(|(_, program)| Ok(program.info()?.id())).collect()
    }

    fn info(&self) -> Result<impl Iterator<Item = (&'static str, Info)>> {
        let mut all = Vec::new();
        for program in PROGRAMS {
            let found = self.ebpf.program(program.name).context("a kernel program is missing")?;
            // Not every one is needed on every kernel and server.
            let Ok(loaded) = found.fd() else { continue };
            let descriptor = loaded.as_fd().as_raw_fd();
            let path = format!("/proc/self/fdinfo/{descriptor}");
            let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            all.push((program.name, Info::parse(&text)));
        }
        Ok(all.into_iter())
    }
}

/// The kernel's ids of all programs loaded on this machine, anyone's.
///
/// # Errors
/// When the kernel does not say.
pub fn programs_loaded() -> Result<Vec<u32>> {
    // One that goes while the list is walked is none.
    Ok(aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id())).collect())
}

/// The kernel's account of a program (`bpf_prog_show_fdinfo` in `kernel/bpf/syscall.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Info {
    runs: u64,
    nanos: u64,
    skipped: u64,
}

impl Info {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.trim().parse().ok())
                .unwrap_or(0)
        };
        Self { runs: field("run_cnt"), nanos: field("run_time_ns"), skipped: field("recursion_misses") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_account_of_a_program_is_read() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t17\nprog_jited:\t1\nrun_time_ns:\t2145\nrun_cnt:\t7\n\
            recursion_misses:\t3\nverified_insns:\t120\n";
        assert_eq!(Info::parse(text), Info { runs: 7, nanos: 2145, skipped: 3 });
        assert_eq!(Info::parse(""), Info::default());
    }
}
