//! `cargo xtask captures`: recordings of real engines, for replays.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use enginetap_core::capture::{self, fact};
use flate2::read::MultiGzDecoder;
use flate2::{Compression, GzBuilder};

use crate::engines::load::Background;
use crate::engines::server::Server;
use crate::engines::{Engine, client, processes};
use crate::{agent, say, setup};

/// What to do with captures.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Convert a recording of socket calls (JSON lines, gzip) to a capture file.
    Import(Import),
    /// Record a real engine under load into tests/captures (SGLang: tests/captures/sglang): NAME.cap.gz, its /metrics
    /// where it has them, and the client's view.
    Record(Record),
}

/// Options of `import`.
#[derive(Args, Debug)]
pub struct Import {
    /// The recording.
    pub file: PathBuf,
    /// The capture to write, packed if its name ends in `.gz`.
    #[arg(short, long)]
    pub output: PathBuf,
    /// The engine's version, where the recording does not say it.
    #[arg(long)]
    pub version: Option<String>,
}

/// Options of `record`.
#[derive(Args, Debug)]
pub struct Record {
    /// The capture's name.
    pub name: String,
    /// The engine to record.
    #[arg(long, value_enum, default_value = "vllm")]
    pub engine: Engine,
    /// Its version; the newest known to run when left out.
    #[arg(long)]
    pub version: Option<String>,
    /// A variable in its environment, as `NAME=value`; may be given several times.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// Output tokens of each request.
    #[arg(long, default_value_t = 24)]
    pub max_tokens: u32,
    /// The load's kinds of request (see `engines load vllm -- --help`).
    #[arg(long, default_value = "mixed")]
    pub mode: String,
    /// How many requests.
    #[arg(long, default_value_t = 24)]
    pub requests: u32,
    /// How many at once.
    #[arg(long, default_value_t = 4)]
    pub concurrency: u32,
    /// Options for the engine, after `--`.
    #[arg(last = true)]
    pub options: Vec<String>,
}

/// Does it.
///
/// # Errors
/// When a file cannot be read or written, or the engine cannot be recorded.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Import(options) => import(options),
        Command::Record(options) => record(options),
    }
}

/// The file's name says the engine, and the version where nothing else does: `sglang-0.5.23.jsonl.gz`.
fn import(options: &Import) -> Result<()> {
    let Import { file, output, version } = options;
    let text = lines(file)?;
    let (engine, named) = named(file);
    let version = version.as_deref().or(named.as_deref());
    let capture = capture::import::import(text.lines(), engine, version)
        .with_context(|| format!("{} cannot be imported", file.display()))?;
    let packed = if is_packed(output) { pack(&capture)? } else { capture };
    std::fs::write(output, &packed).with_context(|| format!("cannot write {}", output.display()))?;
    say::step(format!("wrote {} ({} bytes)", output.display(), packed.len()));
    Ok(())
}

fn is_packed(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "gz")
}

/// As gzip: the same bytes always give the same file, so that an import can be checked.
fn pack(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

fn lines(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut text = String::new();
    let read = if is_packed(file) {
        MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text)
    } else {
        bytes.as_slice().read_to_string(&mut text)
    };
    read.with_context(|| format!("{} is no text, or damaged", file.display()))?;
    Ok(text)
}

/// The engine (vLLM, unless the name begins with another one's) and the version in a recording's name.
fn named(file: &Path) -> (fact::Engine, Option<String>) {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let engine =
        [fact::Engine::Sglang, fact::Engine::Vllm].into_iter().find(|engine| name.starts_with(engine.name()));
    let engine = engine.unwrap_or(fact::Engine::Vllm);
    let version = || {
        let rest = name.strip_prefix(engine.name())?.strip_prefix('-')?;
        let rest = rest.strip_suffix(".gz").unwrap_or(rest).strip_suffix(".jsonl")?;
        // What follows the version says what kind of recording it is: `0.5.23-msgpack`.
        let version = rest.split('-').next()?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    };
    (engine, version())
}

fn record(options: &Record) -> Result<()> {
    let Record { name, engine, version, variables, options: flags, .. } = options;
    setup::for_attach()?;
    let binary = agent::build(true)?;
    let folder = engine.captures();
    std::fs::create_dir_all(&folder)?;
    let version = version.as_deref().unwrap_or_else(|| engine.default_version());
    let variables: Vec<_> = variables.iter().filter_map(|text| text.split_once('=')).collect();
    let server = engine.start(version, 0, flags, &variables)?;
    let recorded = record_server(options, &binary, &server, &folder);
    server.stop()?;
    recorded?;
    say::step(format!("wrote {}", folder.join(format!("{name}.cap.gz")).display()));
    Ok(())
}

fn record_server(options: &Record, binary: &Path, server: &Server, folder: &Path) -> Result<()> {
    let Record { name, mode, requests, concurrency, max_tokens, .. } = options;
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let recorder = Recorder::start(binary, server, &file("cap.gz"))?;
    let [requests, concurrency, max_tokens] = [requests, concurrency, max_tokens].map(ToString::to_string);
    let arguments = [
        ["--mode", mode],
        ["--requests", &requests],
        ["--concurrency", &concurrency],
        ["--max-tokens", &max_tokens],
    ]
    .concat();
    Background::start(server, &arguments, Some(&file("client.jsonl")))?.wait()?;
    recorder.stop()?;
    // SGLang has none unless told so.
    if let Ok(page) = client::get(&format!("{}/metrics", server.url())) {
        std::fs::write(file("metrics.txt"), page)?;
    }
    Ok(())
}

/// `enginetap record` beside a server; ended when dropped.
#[derive(Debug)]
pub struct Recorder(Child);

impl Recorder {
    /// Starts it and waits until its probes are live.
    ///
    /// # Errors
    /// When it ends at once.
    pub fn start(binary: &Path, server: &Server, file: &Path) -> Result<Self> {
        let mut command = Process::new(binary);
        command.args(["record", "--pid", &server.pid.to_string(), "-o"]).arg(file);
        let mut child = command.spawn().context("cannot start enginetap record")?;
        // A request that is sent before the probes are live would be recorded in part.
        std::thread::sleep(Duration::from_secs(3));
        match child.try_wait()? {
            None => Ok(Self(child)),
            Some(status) => bail!("enginetap record ended with {status}"),
        }
    }

    /// Lets it take what is still on its way, and ends it.
    ///
    /// # Errors
    /// When it fails.
    pub fn stop(mut self) -> Result<()> {
        std::thread::sleep(Duration::from_secs(1));
        self.interrupt();
        let status = self.0.wait()?;
        if !status.success() {
            bail!("enginetap record ended with {status}");
        }
        Ok(())
    }

    fn interrupt(&self) {
        if let Some(process) = i32::try_from(self.0.id()).ok().and_then(processes::Process::now) {
            process.signal(rustix::process::Signal::INT);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // After `stop` it is gone: both calls then do nothing.
        self.interrupt();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_and_version_are_in_the_recordings_name() {
        let version = |name: &str| named(Path::new(name)).1;
        assert_eq!(version("a/vllm-0.32.0.jsonl.gz").as_deref(), Some("0.32.0"));
        assert_eq!(version("vllm-0.12.0.post2.jsonl").as_deref(), Some("0.12.0.post2"));
        assert_eq!(version("sglang-0.5.23-msgpack.jsonl.gz").as_deref(), Some("0.5.23"));
        assert_eq!(named(Path::new("sglang-0.5.6.jsonl")).0, fact::Engine::Sglang);
        assert_eq!(named(Path::new("pd-nixl-decode.jsonl.gz")), (fact::Engine::Vllm, None));
    }

    #[test]
    fn a_recording_that_is_not_there_is_named() {
        assert!(lines(Path::new("/no/such.jsonl.gz")).unwrap_err().to_string().contains("/no/such.jsonl.gz"));
    }
}
