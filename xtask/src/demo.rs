//! `cargo xtask demo`: what a user would see, for one who has no server at hand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::engines::Engine;
use crate::engines::load::Background;
use crate::engines::server::Server;
use crate::interrupt::Interrupt;
use crate::{agent, repo, say, setup};

/// Options of `demo`.
#[derive(Args, Debug)]
pub struct Options {
    /// The engine.
    #[arg(value_enum, default_value = "vllm")]
    pub engine: Engine,
    /// Show it from a recorded capture: no root, no engine, no download.
    #[arg(long)]
    pub replay: bool,
    /// The version to bring up; the newest known to run when left out.
    #[arg(long)]
    pub version: Option<String>,
    /// How long to watch it, in seconds.
    #[arg(long, default_value_t = 20)]
    pub seconds: u32,
    /// Options for the agent, after `--`, in place of `-v`.
    #[arg(last = true)]
    pub agent: Vec<String>,
}

/// Shows it.
///
/// # Errors
/// When something cannot be brought up; what was started is stopped in any case.
pub fn run(options: &Options) -> Result<()> {
    if options.replay { replay(options) } else { live(options) }
}

fn live(options: &Options) -> Result<()> {
    if !repo::is_root() {
        bail!(
            "attaching needs root: `sudo -E cargo xtask demo`, or `cargo xtask demo --replay` for a recorded one"
        );
    }
    let interrupt = Interrupt::watch()?;
    setup::for_attach()?;
    let binary = agent::build(true)?;
    let Options { engine, version, .. } = options;
    let server = engine.start(version.as_deref().unwrap_or_else(|| engine.default_version()), 0, &[], &[])?;
    let shown = watch(options, &binary, &server, &interrupt);
    server.stop()?;
    shown
}

/// Load beside, the agent in front, until it ends.
fn watch(options: &Options, binary: &Path, server: &Server, interrupt: &Interrupt) -> Result<()> {
    let duration = format!("{}", options.seconds.saturating_add(2));
    // A rest between requests: the output is to be read as it comes.
    let pace = ["--concurrency", "3", "--pause", "1.2", "--max-tokens", "16", "--duration", &duration];
    let arguments = [&["--mode", "mixed"], pace.as_slice()].concat();
    say::step("sending it chats, completions, streams, aborts and errors");
    let load = Background::start(server, &arguments, None)?;
    let mut command = Command::new(binary);
    command.args(["attach", "--pid", &server.pid.to_string(), "--for", &format!("{}s", options.seconds)]);
    if options.agent.is_empty() {
        command.arg("-v");
    }
    command.args(&options.agent);
    say::step(format!(
        "enginetap attach --pid {} --for {}s -v   (Ctrl-C stops everything)",
        server.pid, options.seconds
    ));
    let result = foreground(&mut command, interrupt);
    drop(load);
    result
}

/// Runs the agent in front. A Ctrl-C at the terminal reaches it too; a signal to this process alone is passed on.
fn foreground(command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    let mut child = command.spawn().context("cannot start enginetap")?;
    let process = i32::try_from(child.id()).ok().and_then(crate::engines::processes::Process::now);
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() || interrupt.came() {
                Ok(())
            } else {
                bail!("enginetap ended with {status}")
            };
        }
        if interrupt.came() && !told {
            told = true;
            if let Some(process) = process {
                process.signal(rustix::process::Signal::INT);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn replay(options: &Options) -> Result<()> {
    let capture = capture(&options.engine.captures())?;
    let binary = agent::build(true)?;
    let shown = capture.strip_prefix(repo::root()).unwrap_or(&capture);
    say::step(format!("enginetap replay {} -v", shown.display()));
    let mut command = Command::new(binary);
    command.arg("replay").arg(&capture);
    if options.agent.is_empty() {
        command.arg("-v");
    }
    foreground(command.args(&options.agent), &Interrupt::watch()?)
}

/// The capture to show: the one called `demo`, else the one of the newest version.
fn capture(folder: &Path) -> Result<PathBuf> {
    let captures = repo::captures(folder);
    let named = captures.iter().find(|path| repo::capture_name(path) == Some("demo")).cloned();
    let newest = captures.into_iter().max_by_key(|path| version_in(path));
    named.or(newest).with_context(|| format!("{} has no captures", folder.display()))
}

/// `vllm-0.32.0.cap` as [0, 32, 0]; what has no version comes before all that have.
fn version_in(path: &Path) -> Vec<u32> {
    let engines = ["vllm-", "sglang-"];
    let name = repo::capture_name(path).unwrap_or_default();
    let version = engines.iter().find_map(|engine| name.strip_prefix(engine)).unwrap_or_default();
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_largest_number_not_the_last_in_the_alphabet() {
        let mut paths = ["vllm-0.9.2.cap", "vllm-0.32.0.cap.gz", "pd-nixl.cap", "vllm-0.12.0.post2.cap"]
            .map(PathBuf::from);
        paths.sort_by_key(|path| version_in(path));
        assert_eq!(paths.last().unwrap(), Path::new("vllm-0.32.0.cap.gz"));
        assert_eq!(version_in(Path::new("pd-nixl.cap")), Vec::<u32>::new());
        assert_eq!(version_in(Path::new("vllm-0.12.0.post2.cap")), [0, 12, 0]);
    }

    #[test]
    fn no_captures_is_an_error_that_names_the_folder() {
        assert!(capture(Path::new("/no/such")).unwrap_err().to_string().contains("/no/such"));
    }
}
