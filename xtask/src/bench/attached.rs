//! The agent beside a server, and what it says of its own cost when it leaves.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::engines::processes::Process;
use crate::engines::server::Server;
use crate::repo;

/// What a server takes to forget an attach.
const SETTLE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// What `--self-stats` writes. A figure that the agent cannot measure is absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SelfStats {
    /// From start to the first live probe.
    pub attach_ms: Option<f64>,
    /// From the wish to stop to the last probe's removal.
    pub detach_ms: Option<f64>,
    /// Records taken from the kernel, or from the file.
    pub records: Option<u64>,
    /// Records lost, all reasons.
    pub lost: Option<u64>,
    /// Run time of the kernel programs.
    pub kernel_ns: Option<u64>,
    /// Runs of the kernel programs.
    pub kernel_calls: Option<u64>,
    /// The agent's CPU time until it was attached.
    pub attach_cpu_ns: Option<u64>,
    /// The agent's CPU time from then until it was to leave.
    pub watch_cpu_ns: Option<u64>,
    /// Readings of engines' objects, and the CPU time they took, user and system.
    pub object_readings: Option<u64>,
    /// As [`SelfStats::object_readings`].
    pub object_ns: Option<u64>,
    /// Reads of engines' objects that were refused: they had changed.
    pub object_refused: Option<u64>,
    /// The agent's largest resident memory.
    pub rss_bytes: Option<u64>,
    /// Spans written.
    pub spans: Option<u64>,
    /// Bytes of payload taken, or of the capture (replay).
    pub bytes: Option<u64>,
    /// Seconds in the pipeline (replay).
    pub seconds: Option<f64>,
}

/// Reads what the agent wrote.
///
/// # Errors
/// When the file is not there or no JSON.
pub fn read(path: &Path) -> Result<SelfStats> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("enginetap wrote no figures of itself to {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not what --self-stats writes", path.display()))
}

/// Where the agent writes its figures.
pub fn stats_file(name: &str) -> PathBuf {
    repo::target().join(format!("bench-{name}.json"))
}

/// An attached agent.
#[derive(Debug)]
pub struct Attached {
    child: Child,
    process: Process,
    stats: PathBuf,
}

impl Attached {
    /// Attaches to a server and waits until the probes are live.
    ///
    /// # Errors
    /// When it ends at once.
    pub fn start(binary: &Path, server: &Server) -> Result<Self> {
        let stats = stats_file("attach");
        let _ = std::fs::remove_file(&stats);
        let mut command = Command::new(binary);
        command.args(["attach", "--pid", &server.pid.to_string(), "--self-stats"]).arg(&stats);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start enginetap attach")?;
        let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut said = String::new();
        while !said.contains("attached to") {
            if errors.read_line(&mut said)? == 0 {
                bail!("enginetap attach ended with {}: {said}", child.wait()?);
            }
        }
        eprint!("{said}");
        // What it says later is passed on, and never fills the pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        std::thread::sleep(SETTLE);
        let pid = i32::try_from(child.id()).ok().and_then(Process::now);
        let process = pid.context("enginetap attach is gone")?;
        Ok(Self { child, process, stats })
    }

    /// Asks it to leave and gives its figures.
    ///
    /// # Errors
    /// When it fails, does not leave, or says nothing of itself.
    pub fn stop(mut self) -> Result<SelfStats> {
        self.process.signal(rustix::process::Signal::INT);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return read(&self.stats),
                Some(status) => bail!("enginetap attach ended with {status}"),
                None if Instant::now() > until => bail!("enginetap attach does not end on Ctrl-C"),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // After `stop` it is gone: both calls then do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
