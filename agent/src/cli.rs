//! The command line.

pub mod daemon;
pub mod profile;
pub mod why;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ColorChoice, Parser, Subcommand, ValueEnum};
use enginetap_common::config::DEFAULT_CAP;
use enginetap_core::settings::{SglangLevel, VllmLevel};
use log::LevelFilter;

use crate::gpu::Source;

/// Bytes of the ring buffer unless configured otherwise. It counts twice in the agent's resident memory.
pub const DEFAULT_RING: u32 = 8 * 1024 * 1024;

/// See what a running LLM inference server does to each request, from outside.
///
/// enginetap attaches to a running vLLM server with eBPF and gives a trace per request (an entry span and
/// the engine's own queue, prefill and decode times) and the engine's metrics. No engine flag, no restart,
/// nothing loaded into the server.
#[derive(Clone, Debug, Parser)]
#[command(name = "enginetap", version, after_help = help::MAIN, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The agent's own diagnostics on standard error: off, error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn", env = "ENGINETAP_LOG", value_parser = log_level)]
    pub log: LevelFilter,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Attach to running servers and show a trace per request.
    #[command(after_help = help::ATTACH)]
    Attach(Attach),
    /// Follow every server of this machine, as a service: one configuration file, changed while it runs.
    #[command(after_help = daemon::help::RUN)]
    Run(daemon::Run),
    /// Look at a configuration, and change that of a running daemon.
    #[command(after_help = daemon::help::CONFIG)]
    Config(daemon::Config),
    /// List the inference servers on this machine.
    #[command(after_help = help::PS)]
    Ps(Ps),
    /// Say whether a server can be attached to, and what will be seen of it.
    #[command(after_help = help::CHECK)]
    Check(Check),
    /// Record what the kernel sees of a server into a capture file.
    #[command(after_help = help::RECORD)]
    Record(Record),
    /// Run a capture file through the same pipeline as `attach`.
    #[command(after_help = help::REPLAY)]
    Replay(Replay),
    /// Say why a request was slow: where its time went, who held it up, and what to do about it.
    #[command(after_help = why::HELP)]
    Why(why::Why),
    /// Where a server spends its CPU time: its Python stacks, sampled for a while.
    #[command(after_help = profile::HELP)]
    Profile(profile::Profile),
}

/// Arguments of `attach`.
#[derive(Args, Clone, Debug)]
pub struct Attach {
    /// Which servers, and for how long.
    #[command(flatten)]
    pub target: Target,
    /// Where the results go.
    #[command(flatten)]
    pub output: Output,
    /// What is collected.
    #[command(flatten)]
    pub collect: Collect,
    /// How the kernel side works.
    #[command(flatten)]
    pub kernel: Kernel,
    /// Where the machine's GPUs are read.
    #[command(flatten)]
    pub gpus: Gpus,
    /// At the end, write what the agent itself did and cost to this file, as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub self_stats: Option<PathBuf>,
}

/// Arguments of `ps`.
#[derive(Args, Clone, Debug)]
pub struct Ps {
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct Check {
    /// Any process of the server.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Where the machine's GPUs are read.
    #[command(flatten)]
    pub gpus: Gpus,
}

/// Arguments of `record`.
#[derive(Args, Clone, Debug)]
pub struct Record {
    /// The capture file; with a name that ends in `.gz` it is compressed.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Which servers, and for how long.
    #[command(flatten)]
    pub target: Target,
    /// How the kernel side works.
    #[command(flatten)]
    pub kernel: Kernel,
    /// Where the machine's GPUs are read.
    #[command(flatten)]
    pub gpus: Gpus,
}

/// Arguments of `replay`.
#[derive(Args, Clone, Debug)]
pub struct Replay {
    /// The capture file (`.cap` or `.cap.gz`).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the results go.
    #[command(flatten)]
    pub output: Output,
    /// What is collected.
    #[command(flatten)]
    pub collect: Collect,
    /// At the end, write how much was replayed and how fast to this file, as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub self_stats: Option<PathBuf>,
}

/// Which servers, and for how long.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Target")]
pub struct Target {
    /// Any process of the server: its tree is found from it. May be given several times [default: every
    /// server on this machine].
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Stop after this long (`30s`, `5m`) [default: until Ctrl-C].
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Stop when the servers have exited, instead of waiting for them to come back.
    #[arg(long)]
    pub until_exit: bool,
}

/// Where the results go.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// On the terminal, each request as a tree of its spans; twice (`-vv`) with attributes and events.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// On the terminal, one JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
    /// Colours on the terminal.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// On the terminal, prompts and outputs too where attributes are shown (`-vv`).
    #[arg(long)]
    pub show_content: bool,
    /// Send traces and metrics to this OTLP endpoint [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none].
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Protocol of the endpoint [default: OTEL_EXPORTER_OTLP_PROTOCOL, else by the port: grpc on 4317,
    /// http/protobuf elsewhere].
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<OtlpProtocol>,
    /// Write traces and metrics to this file as OTLP JSON lines.
    #[arg(long, value_name = "FILE")]
    pub otlp_file: Option<PathBuf>,
    /// Serve the metrics to Prometheus at this address (`127.0.0.1:9464`, path /metrics).
    #[arg(long, value_name = "ADDR")]
    pub prometheus: Option<SocketAddr>,
}

/// Protocol of an OTLP endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OtlpProtocol {
    /// Protobuf over gRPC.
    #[value(name = "grpc")]
    Grpc,
    /// Protobuf over HTTP.
    #[value(name = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[value(name = "http/json")]
    HttpJson,
}

/// What is collected.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Collection")]
pub struct Collect {
    /// Depth of a trace: 0 the request, 1 its stages too (wait, prefill, decode), 2 an event for each
    /// iteration too [default: OTEL_INSTRUMENTATION_VLLM_TRACING_LEVEL, of the server's environment or else of
    /// this one's, else 1].
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub level: Option<VllmLevel>,
    /// Depth of an SGLang trace, as its own tracing counts it: 0 the entry span only, 1 its stages too, 2 also those of
    /// handing over, 3 each chunk of a prefill, each decode step and each batch, 4 the batches' work on the CPU
    /// [default: SGLANG_TRACE_LEVEL, of the server's environment or else of this one's, else 3].
    #[arg(long, value_name = "LEVEL", value_parser = sglang_level)]
    pub sglang_level: Option<SglangLevel>,
    /// Leave out prompts and outputs (as OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=false does).
    #[arg(long)]
    pub no_content: bool,
}

/// Where the machine's GPUs are read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "GPUs")]
pub struct Gpus {
    /// NVIDIA's management library (NVML): `auto` where it usually is, `none` for no GPUs, or the path of
    /// libnvidia-ml.so.1.
    #[arg(long, value_name = "WHERE", env = "ENGINETAP_NVML", default_value = "auto")]
    pub nvml: Source,
}

/// How the kernel side works.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kernel side")]
pub struct Kernel {
    /// Most bytes copied of one system call (`256K`, `1M`); the rest is a gap.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_CAP, value_parser = cap)]
    pub cap: u32,
    /// Bytes of the ring buffer, a power of two (`4M`).
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_RING, value_parser = ring)]
    pub ring: u32,
    /// Time the garbage collections of the servers' interpreters: a breakpoint at the start and the end of each (1 to 10 us).
    #[arg(long)]
    pub gc: bool,
    /// Show the kernel programs' own debug messages (slow).
    #[arg(long)]
    pub debug_kernel: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s, 5m or 1h30m"))
}

fn log_level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| "off, error, warn, info, debug or trace".to_owned())
}

fn level(text: &str) -> Result<VllmLevel, String> {
    match text {
        "0" => Ok(VllmLevel::Request),
        "1" => Ok(VllmLevel::Stages),
        "2" => Ok(VllmLevel::Iterations),
        _ => Err("0 is the request, 1 its stages too, 2 an event for each iteration too".to_owned()),
    }
}

fn sglang_level(text: &str) -> Result<SglangLevel, String> {
    let level = text.parse().ok().and_then(SglangLevel::new);
    level.ok_or_else(|| "a whole number from 0 (the entry span only) to 4 (everything)".to_owned())
}

/// Bytes with an optional suffix: `K`, `M`, `G`, also as `KiB` or `KB`, all of them powers of 1024.
fn bytes(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("write a number of bytes, with K, M or G: 65536, 256K, 1M".to_owned()),
    };
    let count: u64 = digits.parse().map_err(|_| "write a number of bytes: 65536, 256K, 1M".to_owned())?;
    let scaled = count.checked_mul(1 << shift).ok_or("too many bytes")?;
    u32::try_from(scaled).map_err(|_| "more than 4G bytes".to_owned())
}

pub(crate) fn cap(text: &str) -> Result<u32, String> {
    let value = bytes(text)?;
    if (256..=DEFAULT_CAP).contains(&value) {
        return Ok(value);
    }
    Err("between 256 bytes and 1M: heads and engine messages need a few hundred bytes".to_owned())
}

pub(crate) fn ring(text: &str) -> Result<u32, String> {
    let value = bytes(text)?;
    if value.is_power_of_two() && (64 * 1024..=1024 * 1024 * 1024).contains(&value) {
        return Ok(value);
    }
    Err("a power of two between 64K and 1G: 4M, 8M, 16M".to_owned())
}

/// The help's longer texts.
mod help {
    pub(super) const MAIN: &str = "\
Start here:
  enginetap ps                  which servers run here
  enginetap check --pid PID     can it be attached to, and what will be seen
  enginetap attach              attach to all of them; Ctrl-C detaches
  enginetap why --for 30s       why the slowest requests of half a minute were slow
  enginetap profile             where the servers' CPU time goes, in their Python code
  enginetap run                 traces and metrics as a service

Needs Linux 5.15 or later and root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE). The engine needs no
flag, no change and no restart.

Exit codes:
  0  done
  1  failed while working
  2  wrong usage or configuration
  3  a capability, kernel feature or target is missing; the message says what to do about it";

    pub(super) const ATTACH: &str = "\
Examples:
  enginetap attach                                every server on this machine, to the terminal
  enginetap attach --pid 4242 -v                  one server, by any of its processes; spans as a tree
  enginetap attach --for 30s --otlp-file t.jsonl  half a minute, as OTLP JSON lines
  enginetap attach --otlp-endpoint http://localhost:4317 --prometheus 127.0.0.1:9464

With no other output named, the results go to the terminal. The OTEL_* variables are honoured; a flag wins
over a variable. Ctrl-C and SIGTERM detach cleanly: whatever was seen is flushed first. Servers that
restart or fork meanwhile are followed.

Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; `enginetap check --pid PID` says what is missing.
Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 missing capability, kernel feature or target.";

    pub(super) const PS: &str = "\
Examples:
  enginetap ps
  enginetap ps --json | jq '.servers[].pid'

Needs nothing for servers of the same user; root (or CAP_SYS_PTRACE) for those of others and in containers.
Exit codes: 0 done (also when there is no server), 1 failed, 2 usage.";

    pub(super) const CHECK: &str = "\
Examples:
  enginetap check --pid 4242
  enginetap check --pid 4242 --json | jq .ok

Changes nothing and attaches nothing. Any process of the server will do, a shell or container init above
it too.
Exit codes: 0 attaching works, 1 failed, 2 usage, 3 attaching cannot work (each reason is listed).";

    pub(super) const RECORD: &str = "\
Examples:
  enginetap record -o slow.cap.gz --pid 4242 --for 30s
  enginetap replay slow.cap.gz -v

A capture holds what went over the server's sockets, prompts and outputs included: treat it as you treat
those. Needs what `attach` needs.
Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 missing capability, kernel feature or target.";

    pub(super) const REPLAY: &str = "\
Examples:
  enginetap replay slow.cap.gz -v
  enginetap replay slow.cap --level 2 --otlp-file traces.jsonl

Needs no root, no engine and no network. A replay of one capture always gives the same spans.
Exit codes: 0 done, 1 failed (a capture cut short or corrupt: what was whole is shown), 2 usage.";
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn attach_takes_several_pids_and_a_duration() {
        let Ok(Command::Attach(attach)) = parse("enginetap attach --pid 4 --pid 5 --for 1m30s -vv") else {
            panic!("attach")
        };
        assert_eq!(attach.target.pid, [4, 5]);
        assert_eq!(attach.target.duration, Some(Duration::from_secs(90)));
        assert_eq!((attach.output.verbose, attach.collect.level), (2, None));
        assert_eq!((attach.kernel.cap, attach.kernel.ring), (DEFAULT_CAP, DEFAULT_RING));
    }

    #[test]
    fn the_otlp_protocols_have_their_standard_names() {
        for (name, protocol) in [
            ("grpc", OtlpProtocol::Grpc),
            ("http/protobuf", OtlpProtocol::HttpProtobuf),
            ("http/json", OtlpProtocol::HttpJson),
        ] {
            let Ok(Command::Replay(replay)) =
                parse(&format!("enginetap replay a.cap --otlp-protocol {name}"))
            else {
                panic!("{name}")
            };
            assert_eq!(replay.output.otlp_protocol, Some(protocol));
        }
    }

    #[test]
    fn sizes_take_suffixes_and_bounds() {
        assert_eq!(bytes("65536"), Ok(65_536));
        assert_eq!((bytes("256K"), bytes("1MiB"), bytes("4m")), (Ok(262_144), Ok(1 << 20), Ok(4 << 20)));
        for bad in ["", "K", "12Q", "99999999999", "-1", "18446744073709551615G", "1é"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(cap("1").is_err() && cap("2M").is_err() && cap("64K").is_ok());
        assert!(ring("3M").is_err() && ring("4M").is_ok() && ring("2G").is_err());
    }

    #[test]
    fn bad_usage_is_refused_with_exit_code_2() {
        for line in [
            "enginetap",
            "enginetap attach --pid 0",
            "enginetap attach --pid x",
            "enginetap attach --for soon",
            "enginetap attach --level 3",
            "enginetap attach --sglang-level 5",
            "enginetap attach --prometheus nowhere",
            "enginetap check",
            "enginetap record --pid 1",
            "enginetap replay",
            "enginetap run --for soon",
            "enginetap run --set x",
            "enginetap config",
            "enginetap config set KEY",
            "enginetap fly",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn diagnostics_may_be_set_before_and_after_the_subcommand() {
        for line in ["enginetap --log debug ps", "enginetap ps --log debug"] {
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
            assert_eq!(cli.log, LevelFilter::Debug);
        }
    }
}
