//! A server that was started here: found again by a later command, stopped with all its processes.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::client;
use super::processes::{self, Process};
use crate::interrupt::Interrupt;
use crate::{repo, say};

/// How long a server may take from start to its first answer.
const START_LIMIT: Duration = Duration::from_secs(600);
/// How long one may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// The process that was started: the API server, or the supervisor of several.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// The engine's name.
    pub engine: String,
    /// The engine's version.
    pub version: String,
    /// What it writes.
    pub log: PathBuf,
    /// Whether it serves HTTPS.
    #[serde(default)]
    pub tls: bool,
}

impl Server {
    /// Its address.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Whether it answers. Of HTTPS all that is asked is whether it listens: its certificate is its own.
    fn answers(&self) -> bool {
        if self.tls {
            return TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        }
        client::get(&format!("{}/health", self.url())).is_ok()
    }

    /// Its first process.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, started: self.started }
    }

    /// Servers that were started by this or an earlier command and of which a process still runs.
    ///
    /// # Errors
    /// When the folder that remembers them cannot be read.
    pub fn running() -> Result<Vec<Self>> {
        let folder = folder()?;
        let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
        let mut servers = Vec::new();
        for path in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
        {
            let server: Self = match std::fs::read_to_string(&path).map(|text| serde_json::from_str(&text)) {
                Ok(Ok(server)) => server,
                Ok(Err(_)) | Err(_) => continue,
            };
            if !processes::of_server(server.process()).is_empty() {
                servers.push(server);
            } else {
                let _ = std::fs::remove_file(path);
            }
        }
        servers.sort_by_key(|server| server.port);
        Ok(servers)
    }

    /// Ends it and all its processes.
    ///
    /// # Errors
    /// When a process of it cannot be ended.
    pub fn stop(&self) -> Result<()> {
        say::step(format!(
            "stopping {} {} on port {} (pid {})",
            self.engine, self.version, self.port, self.pid
        ));
        processes::end(self.process(), STOP_LIMIT);
        let _ = std::fs::remove_file(file(self.port)?);
        if let Some(left) = processes::of_server(self.process()).first() {
            bail!("process {} does not end: look at it with `ps -p {}`", left.pid, left.pid);
        }
        Ok(())
    }

    fn remember(&self) -> Result<()> {
        std::fs::write(file(self.port)?, serde_json::to_string(self)?).context("cannot remember the server")
    }
}

fn folder() -> Result<PathBuf> {
    Ok(repo::engines()?.join("run"))
}

fn file(port: u16) -> Result<PathBuf> {
    Ok(folder()?.join(format!("{port}.json")))
}

/// A server's log file, its folder made.
///
/// # Errors
/// When the folder cannot be made.
pub fn log_file(name: &str) -> Result<PathBuf> {
    let folder = folder()?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join(format!("{name}.log")))
}

/// What is started: its command, ready but for where its output goes.
#[derive(Debug)]
pub struct Start {
    /// The command. It is put into a session of its own, so that a Ctrl-C at the terminal does not reach it.
    pub command: Command,
    /// The engine's name.
    pub engine: &'static str,
    /// The engine's version.
    pub version: String,
    /// Where it will listen.
    pub port: u16,
}

/// Starts a server and waits until it answers on /health; ends it when it does not, or on Ctrl-C.
///
/// # Errors
/// When it dies (with the end of its log), does not answer in time, or the wait is interrupted.
pub fn start(start: Start) -> Result<Server> {
    let Start { mut command, engine, version, port } = start;
    let interrupt = Interrupt::watch()?;
    let tls = command.get_args().any(|word| word.to_string_lossy().starts_with("--ssl-certfile"));
    let log = log_file(&format!("{engine}-{version}-{port}"))?;
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(std::process::Stdio::null()).stdout(output.try_clone()?).stderr(output);
    say::step(format!(
        "starting {engine} {version} on port {port} (one to four minutes; log: {})",
        log.display()
    ));
    let mut child = command.spawn().with_context(|| format!("cannot start {engine} {version}"))?;
    let pid = i32::try_from(child.id()).context("a process number out of range")?;
    let process =
        Process::now(pid).with_context(|| format!("{engine} ended at once; see {}", log.display()))?;
    let engine = engine.to_owned();
    let server = Server { pid, started: process.started, port, engine, version, log, tls };
    server.remember()?;
    match wait(&server, &mut child, &interrupt) {
        Ok(()) => Ok(server),
        Err(error) => {
            server.stop()?;
            Err(error)
        }
    }
}

fn wait(server: &Server, child: &mut Child, interrupt: &Interrupt) -> Result<()> {
    let began = Instant::now();
    let mut told = 0;
    while !server.answers() {
        if let Some(status) = child.try_wait()? {
            bail!(
                "{} {} ended with {status}; the end of its log:\n{}",
                server.engine,
                server.version,
                tail(&server.log)
            );
        }
        let seconds = began.elapsed().as_secs();
        if interrupt.came() {
            bail!("interrupted");
        }
        if began.elapsed() > START_LIMIT {
            let url = server.url();
            bail!("no answer on {url} after {seconds} s; the end of the log:\n{}", tail(&server.log));
        }
        if seconds / 15 > told {
            told = seconds / 15;
            say::detail(format!("{seconds} s, still starting"));
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    say::detail(format!("answers after {:.0} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// The last errors that a log names, then its last lines: with several processes the cause stands far above the end.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    excerpt(&String::from_utf8_lossy(&text))
}

fn excerpt(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.len().saturating_sub(12);
    let (before, last) = lines.split_at(end);
    let errors: Vec<&str> = before.iter().copied().filter(|line| line.contains("Error: ")).collect();
    let named = errors.get(errors.len().saturating_sub(4)..).unwrap_or_default();
    [named, last].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_shown_though_it_stands_far_above_the_end() {
        let mut lines = vec!["ValueError: too little memory".to_owned()];
        lines.extend((0..40).map(|n| format!("line {n}")));
        let shown = excerpt(&lines.join("\n"));
        assert!(shown.starts_with("ValueError: too little memory\nline 28\n") && shown.ends_with("line 39"));
        assert_eq!(excerpt(""), "");
        assert_eq!(excerpt("one"), "one");
    }
}
