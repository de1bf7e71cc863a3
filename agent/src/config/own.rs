//! The agent's own settings: where results go, how the kernel side works. They hold from the start on; a change needs
//! a restart of the agent (never of a server).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use enginetap_common::config::DEFAULT_CAP;
use enginetap_core::settings::switch::Unfit;

use super::layers::Layers;
use super::setting::Setting;
use crate::cli::{self, DEFAULT_RING, OtlpProtocol};
use crate::gpu::Source;

/// Where `config set` finds a daemon unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/enginetap/control.sock";

/// One of the agent's own settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// OTLP receiver.
    OtlpEndpoint,
    /// Its protocol.
    OtlpProtocol,
    /// File of OTLP JSON lines.
    OtlpFile,
    /// Address that Prometheus and the health checks find.
    Prometheus,
    /// Whether requests are printed too.
    Terminal,
    /// Most bytes copied of one system call.
    Cap,
    /// Bytes of the ring buffer.
    Ring,
    /// The control socket.
    Socket,
    /// Where NVML is.
    Nvml,
    /// Whether garbage collections are timed.
    Gc,
}

/// What may be said of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnKind {
    /// `true` or `false`.
    Truth,
    /// An address of an OTLP receiver.
    Url,
    /// A protocol of one.
    Protocol,
    /// A path.
    Path,
    /// An address to listen at, or `none`.
    Address,
    /// Most bytes of a call.
    Cap,
    /// Bytes of a ring.
    Ring,
}

/// A row of the table.
#[derive(Debug)]
pub struct OwnDef {
    /// Which it is.
    pub own: Own,
    /// Its key.
    pub key: &'static str,
    /// Its environment variable.
    pub env: Option<&'static str>,
    /// Its default; empty where nothing is the default.
    pub default: &'static str,
    /// What may be said.
    pub kind: OwnKind,
    /// What it does.
    pub doc: &'static str,
}

/// The table.
pub static OWN: &[OwnDef] = &[
    OwnDef {
        own: Own::OtlpEndpoint,
        key: "output.otlp.endpoint",
        env: Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
        default: "",
        kind: OwnKind::Url,
        doc: "OTLP receiver of traces, metrics and log lines; the other OTEL_* variables say how",
    },
    OwnDef {
        own: Own::OtlpProtocol,
        key: "output.otlp.protocol",
        env: Some("OTEL_EXPORTER_OTLP_PROTOCOL"),
        default: "",
        kind: OwnKind::Protocol,
        doc: "its protocol; by the port where nothing is said: grpc on 4317, http/protobuf elsewhere",
    },
    OwnDef {
        own: Own::OtlpFile,
        key: "output.otlp.file",
        env: None,
        default: "",
        kind: OwnKind::Path,
        doc: "file of OTLP JSON lines; replaced at the start",
    },
    OwnDef {
        own: Own::Prometheus,
        key: "output.prometheus",
        env: None,
        default: "127.0.0.1:9464",
        kind: OwnKind::Address,
        doc: "where /metrics, /healthz and /readyz are served; none: nowhere",
    },
    OwnDef {
        own: Own::Terminal,
        key: "output.terminal",
        env: None,
        default: "false",
        kind: OwnKind::Truth,
        doc: "a line per request on standard output",
    },
    OwnDef {
        own: Own::Cap,
        key: "kernel.cap",
        env: None,
        default: "1M",
        kind: OwnKind::Cap,
        doc: "most bytes copied of one system call; the rest is a gap",
    },
    OwnDef {
        own: Own::Ring,
        key: "kernel.ring",
        env: None,
        default: "8M",
        kind: OwnKind::Ring,
        doc: "bytes of the ring buffer, a power of two",
    },
    OwnDef {
        own: Own::Socket,
        key: "control.socket",
        env: Some("ENGINETAP_SOCKET"),
        default: DEFAULT_SOCKET,
        kind: OwnKind::Path,
        doc: "Unix socket of `enginetap config set`; root's only",
    },
    OwnDef {
        own: Own::Nvml,
        key: "gpu.nvml",
        env: Some("ENGINETAP_NVML"),
        default: "auto",
        kind: OwnKind::Path,
        doc: "NVIDIA's management library: auto where it usually is, none for no GPUs, or the path of libnvidia-ml.so.1",
    },
    OwnDef {
        own: Own::Gc,
        key: "kernel.gc",
        env: None,
        default: "false",
        kind: OwnKind::Truth,
        doc: "time garbage collections of the servers' interpreters: a breakpoint at the start and the end of each",
    },
];

impl OwnKind {
    /// What may be said, in words.
    #[must_use]
    pub fn wanted(self) -> &'static str {
        match self {
            Self::Truth => "true or false",
            Self::Url => "an address, as http://localhost:4317",
            Self::Protocol => "grpc, http/protobuf or http/json",
            Self::Path => "a path",
            Self::Address => "an address and a port, as 127.0.0.1:9464, or none",
            Self::Cap => "bytes from 256 to 1M, as 256K",
            Self::Ring => "a power of two from 64K to 1G, as 8M",
        }
    }

    /// A value in its one spelling.
    ///
    /// # Errors
    /// When it is none that the setting takes.
    pub fn read(self, value: &str) -> Result<String, Unfit> {
        let value = value.trim();
        let good = match self {
            Self::Truth => matches!(value, "true" | "false"),
            Self::Url | Self::Path => !value.is_empty(),
            Self::Protocol => OtlpProtocol::from_str(value, false).is_ok(),
            Self::Address => value == "none" || value.parse::<SocketAddr>().is_ok(),
            Self::Cap => cli::cap(value).is_ok(),
            Self::Ring => cli::ring(value).is_ok(),
        };
        if good {
            return Ok(value.to_owned());
        }
        Err(Unfit { value: value.to_owned(), wanted: self.wanted().to_owned() })
    }
}

/// The agent's own settings as they were found at the start.
#[derive(Clone, Debug)]
pub struct OwnSettings {
    /// Where results go, as flags would say it.
    pub output: cli::Output,
    /// Whether requests are printed.
    pub terminal: bool,
    /// Most bytes copied of one call.
    pub cap: u32,
    /// Bytes of the ring buffer.
    pub ring: u32,
    /// The control socket.
    pub socket: PathBuf,
    /// Where NVML is.
    pub nvml: Source,
    /// Whether garbage collections are timed.
    pub gc: bool,
}

impl OwnSettings {
    /// What the layers say.
    #[must_use]
    pub fn of(layers: &Layers) -> Self {
        let value = |own| said(layers, own);
        let output = cli::Output {
            otlp_endpoint: value(Own::OtlpEndpoint),
            otlp_protocol: value(Own::OtlpProtocol)
                .and_then(|name| OtlpProtocol::from_str(&name, false).ok()),
            otlp_file: value(Own::OtlpFile).map(PathBuf::from),
            prometheus: value(Own::Prometheus).and_then(|address| address.parse().ok()),
            ..cli::Output::default()
        };
        Self {
            output,
            terminal: value(Own::Terminal).as_deref() == Some("true"),
            cap: value(Own::Cap).and_then(|bytes| cli::cap(&bytes).ok()).unwrap_or(DEFAULT_CAP),
            ring: value(Own::Ring).and_then(|bytes| cli::ring(&bytes).ok()).unwrap_or(DEFAULT_RING),
            socket: value(Own::Socket).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from),
            nvml: value(Own::Nvml).and_then(|place| place.parse().ok()).unwrap_or_default(),
            gc: value(Own::Gc).as_deref() == Some("true"),
        }
    }
}

/// The value of one of them. Those of the standard `OTEL_*` variables are left to the code that reads all of those.
fn said(layers: &Layers, own: Own) -> Option<String> {
    let def = OWN.iter().find(|def| def.own == own)?;
    let standard = def.env.is_some_and(|name| name.starts_with("OTEL_"));
    layers.value(Setting::Own(def), None, !standard).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_that_the_setting_takes() {
        for def in OWN.iter().filter(|def| !def.default.is_empty()) {
            assert_eq!(def.kind.read(def.default).as_deref(), Ok(def.default), "{}", def.key);
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_flags() {
        let own = OwnSettings::of(&Layers::default());
        assert_eq!((own.cap, own.ring, own.terminal), (DEFAULT_CAP, DEFAULT_RING, false));
        assert_eq!(own.output.prometheus, Some("127.0.0.1:9464".parse().unwrap()));
        assert_eq!((own.output.otlp_endpoint, own.socket), (None, PathBuf::from(DEFAULT_SOCKET)));
    }

    #[test]
    fn wrong_values_are_told_what_is_right() {
        for (kind, value) in [
            (OwnKind::Address, "9464"),
            (OwnKind::Protocol, "smoke"),
            (OwnKind::Cap, "2M"),
            (OwnKind::Ring, "3M"),
            (OwnKind::Truth, "1"),
            (OwnKind::Path, " "),
        ] {
            let error = kind.read(value).unwrap_err();
            assert!(error.to_string().contains(kind.wanted()), "{error}");
        }
    }
}
