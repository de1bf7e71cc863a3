//! The command line of the daemon, and of the commands that steer it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;
use crate::config::DEFAULT_FILE;

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// Its configuration.
    #[command(flatten)]
    pub source: Source,
    /// Stop after this long (`30s`, `5m`) [default: until SIGTERM].
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
}

/// Where a configuration comes from.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Configuration")]
pub struct Source {
    /// The configuration file [default: /etc/enginetap/config.toml, if it is there].
    #[arg(long, value_name = "FILE", env = "ENGINETAP_CONFIG")]
    pub config: Option<PathBuf>,
    /// A setting over the file and the environment; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

impl Source {
    /// The file, and whether it must be there.
    #[must_use]
    pub fn file(&self) -> (PathBuf, bool) {
        match &self.config {
            Some(path) => (path.clone(), true),
            None => (PathBuf::from(DEFAULT_FILE), false),
        }
    }
}

/// Arguments of `config`.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with a configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether a configuration file can be used, and if not, why, line by line.
    Check {
        /// The file [default: /etc/enginetap/config.toml].
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show every setting as it holds, and where it comes from: of the running daemon, else of the file.
    Show {
        /// The daemon.
        #[command(flatten)]
        daemon: Daemon,
        /// For one server: any of its processes.
        #[arg(long, value_name = "PID")]
        target: Option<u32>,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Say what a setting does, what it takes, and where its value comes from.
    Explain {
        /// The setting.
        #[arg(value_name = "KEY")]
        key: String,
        /// The daemon.
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change a setting of the running daemon; the old value comes back after the time given.
    Set {
        /// The setting.
        #[arg(value_name = "KEY")]
        key: String,
        /// Its value.
        #[arg(value_name = "VALUE")]
        value: String,
        /// For how long (`10m`) [default: until the daemon ends].
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        duration: Option<Duration>,
        /// For one server only: any of its processes.
        #[arg(long, value_name = "PID")]
        target: Option<u32>,
        /// The daemon.
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Take back what `set` changed.
    Unset {
        /// The setting.
        #[arg(value_name = "KEY")]
        key: String,
        /// What was set for one server only: any of its processes.
        #[arg(long, value_name = "PID")]
        target: Option<u32>,
        /// The daemon.
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Let the running daemon read its file again, and say what came of it.
    Reload {
        /// The daemon.
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// Where a daemon is found.
#[derive(Args, Clone, Debug, Default)]
pub struct Daemon {
    /// Its control socket [default: what the configuration says].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Its configuration.
    #[command(flatten)]
    pub source: Source,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// The help's longer texts.
pub(super) mod help {
    pub(in crate::cli) const RUN: &str = "\
Examples:
  enginetap run                                          by /etc/enginetap/config.toml
  enginetap run --config ./config.toml
  enginetap run --set output.otlp.endpoint=http://localhost:4317

Follows every server of this machine as it comes and goes, and does not end when there is none. Changes of
the file take effect while it runs, and so do `enginetap config set` and SIGHUP; a file that cannot be used
is told on standard error and changes nothing. A value comes from, the last wins: the default, the
environment, a server's own environment (for that server), the file, --set, `config set`.

Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE.
Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 missing capability or kernel feature.";

    pub(in crate::cli) const CONFIG: &str = "\
Examples:
  enginetap config check config.toml
  enginetap config explain otel.instrumentation.vllm.tracing.level
  enginetap config set otel.instrumentation.vllm.tracing.level 2 --for 10m --target 4242
  enginetap config show

Exit codes: 0 done, 1 refused by the daemon, 2 usage or configuration, 3 no daemon.";
}
