//! The metrics that vLLM's V0 engine keeps in files for its API server to serve, read as facts.
//!
//! `prometheus_client` makes them where a server has several processes (`PROMETHEUS_MULTIPROC_DIR`); the engine sets
//! them at each step, in memory that it shares with the file. They are opened through its own descriptors, read-only; a
//! reading that a step cut across is given up until the next time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use enginetap_core::capture::fact::Fact;
use enginetap_core::dialect::signal::vllm_v0::{V0Snapshot, V0Source};
use enginetap_core::dialect::vllm::v0::figures::Figures;
use enginetap_core::ids::Pid;
use enginetap_core::time::MonoTime;

use crate::discover::proc::Proc;

/// Most bytes of one file. They begin with 64 KiB and double when they are full.
const LIMIT: u64 = 4 * 1024 * 1024;
/// Most files of one engine: it has a handful.
const FILES: usize = 64;

/// The engines whose metrics are read.
#[derive(Debug, Default)]
pub(super) struct MetricFiles(BTreeMap<Pid, Engine>);

/// One engine's.
#[derive(Debug, Default)]
struct Engine {
    /// By where each lies.
    files: BTreeMap<PathBuf, File>,
    /// What was told last.
    told: Option<Figures>,
}

impl MetricFiles {
    /// Takes up the files that these engines have open, and lets go of those of others.
    pub fn follow<'a>(&mut self, proc: &Proc, engines: impl Iterator<Item = &'a Pid> + Clone) {
        self.0.retain(|pid, _| engines.clone().any(|engine| engine == pid));
        for &pid in engines {
            let engine = self.0.entry(pid).or_default();
            // The first series of each kind makes a file of its own.
            for (link, path) in proc.opened_named(pid, is_metrics) {
                if engine.files.len() < FILES
                    && !engine.files.contains_key(&link)
                    && let Ok(file) = File::open(path)
                {
                    engine.files.insert(link, file);
                }
            }
        }
    }

    /// Whether an engine has none: one that just starts makes them when it has counted something.
    pub fn lacks(&self) -> bool {
        self.0.values().any(|engine| engine.files.is_empty())
    }

    /// What changed since the last reading.
    pub fn read(&mut self, at: MonoTime) -> Vec<Fact> {
        let told = self.0.iter_mut().filter_map(|(pid, engine)| engine.read(*pid, at));
        told.map(Fact::V0Snapshot).collect()
    }
}

impl Engine {
    fn read(&mut self, pid: Pid, at: MonoTime) -> Option<V0Snapshot> {
        let figures = self.figures().ok()?;
        // Both readings alike: no step was being counted.
        if self.files.is_empty() || self.told == Some(figures) || self.figures().ok()? != figures {
            return None;
        }
        let Figures { state, counts } = figures;
        let told = self.told;
        let state = Some(state).filter(|state| told.is_none_or(|told| told.state != *state));
        let counts = Some(counts).filter(|counts| told.is_none_or(|told| told.counts != *counts));
        self.told = Some(figures);
        Some(V0Snapshot { pid, at, source: V0Source::Files, state, counts, ..V0Snapshot::default() })
    }

    fn figures(&self) -> io::Result<Figures> {
        let mut figures = Figures::default();
        for file in self.files.values() {
            let length = file.metadata()?.len().min(LIMIT);
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut bytes, 0)?;
            figures.read(&bytes);
        }
        Ok(figures)
    }
}

/// Whether a file's name is that of metrics: `gauge_sum_77.db`, `counter_77.db`, `histogram_77.db`.
fn is_metrics(name: &str) -> bool {
    let kinds = ["gauge_", "counter_", "histogram_"];
    kinds.iter().any(|kind| name.starts_with(kind)) && name.ends_with(".db")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use enginetap_core::dialect::signal::vllm_v0::{V0Counts, V0State};

    use super::*;

    fn series(key: &str, value: f64) -> Vec<u8> {
        let length = i32::try_from(key.len()).unwrap().to_le_bytes();
        let spaces = vec![b' '; 8 - (key.len() + 4) % 8];
        [&length, key.as_bytes(), &spaces, &value.to_le_bytes(), &[0; 8]].concat()
    }

    fn write(path: &std::path::Path, entries: &[(&str, f64)]) {
        let table: Vec<u8> = entries.iter().flat_map(|(key, value)| series(key, *value)).collect();
        let used = i32::try_from(table.len() + 8).unwrap().to_le_bytes();
        std::fs::write(path, [used.as_slice(), &[0; 4], &table, &[0; 256]].concat()).unwrap();
    }

    const RUNNING: &str =
        r#"["vllm:num_requests_running", "vllm:num_requests_running", {"model_name": "m"}, "h"]"#;
    const TOKENS: &str = r#"["vllm:prompt_tokens", "vllm:prompt_tokens_total", {"model_name": "m"}, "h"]"#;

    #[test]
    fn an_engines_files_are_told_of_as_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let (gauges, counters) = (folder.path().join("gauge_sum_7.db"), folder.path().join("counter_7.db"));
        write(&gauges, &[(RUNNING, 2.0)]);
        write(&counters, &[(TOKENS, 40.0)]);
        let fds = folder.path().join("7/fd");
        std::fs::create_dir_all(&fds).unwrap();
        // Each is open twice: by prometheus_client, and by its mapping.
        for (fd, file) in [("4", &gauges), ("5", &gauges), ("6", &counters), ("7", &counters)] {
            symlink(file, fds.join(fd)).unwrap();
        }
        symlink("/dev/null", fds.join("1")).unwrap();
        let mut files = MetricFiles::default();
        files.follow(&Proc::at(folder.path()), [Pid(7)].iter());
        let state = |running| V0State { running: Some(running), ..V0State::default() };
        let counts = V0Counts { prompt_tokens: Some(40), ..V0Counts::default() };
        let snapshot = V0Snapshot {
            pid: Pid(7),
            at: MonoTime(5),
            source: V0Source::Files,
            state: Some(state(2)),
            counts: Some(counts),
            ..V0Snapshot::default()
        };
        assert_eq!(files.read(MonoTime(5)), [Fact::V0Snapshot(snapshot.clone())]);
        assert!(files.read(MonoTime(6)).is_empty());
        write(&gauges, &[(RUNNING, 0.0)]);
        let later = V0Snapshot { at: MonoTime(7), state: Some(state(0)), counts: None, ..snapshot };
        assert_eq!(files.read(MonoTime(7)), [Fact::V0Snapshot(later)]);
        files.follow(&Proc::at(folder.path()), [].iter());
        assert!(files.read(MonoTime(8)).is_empty());
    }

    #[test]
    fn an_engine_without_files_tells_nothing() {
        let mut files = MetricFiles::default();
        files.follow(&Proc::at(std::path::Path::new("/no/such")), [Pid(7)].iter());
        assert!(files.read(MonoTime(5)).is_empty());
    }
}
