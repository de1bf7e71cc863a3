//! Prefill and decode on two servers: the connectors that move a KV cache from one CPU process to another.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::install::{self, Installed};
use super::quirks::Line;
use crate::engines::{client, python};
use crate::{repo, say, shell};

/// A server's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Prefills, and hands its KV cache on.
    Prefill,
    /// Takes the KV cache over, and decodes.
    Decode,
}

impl Role {
    /// vLLM's `kv_role`.
    fn name(self) -> &'static str {
        match self {
            Self::Prefill => "kv_producer",
            Self::Decode => "kv_consumer",
        }
    }
}

/// How a KV cache gets from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Connector {
    /// NIXL: the decode server reads the other one's memory.
    Nixl,
    /// Through files (`ExampleConnector`).
    Example,
    /// NIXL first, then files (`MultiConnector`).
    Multi,
}

/// What part of two a server plays.
#[derive(Args, Clone, Copy, Debug)]
pub struct Part {
    /// Half of a prefill/decode pair (vLLM only).
    #[arg(long, value_enum)]
    pub role: Option<Role>,
    /// How the KV cache gets from one to the other.
    #[arg(long, value_enum, default_value = "nixl", requires = "role")]
    pub connector: Connector,
}

/// What a server's part takes.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Options of vLLM.
    pub options: Vec<String>,
    /// Variables in its environment.
    pub variables: Vec<(String, String)>,
}

/// How long a prefill server keeps a KV cache that nobody fetches. It polls without a pause meanwhile, and on few cores it may
/// take as long until a fetch gets a turn.
const LEASE_SECONDS: u32 = 6;

/// Versions that were seen to work with the versions of vLLM around them.
const NIXL: &str = "nixl==1.5.2";
const NIXL_LIBRARY: &str = "1.5.1";

/// Options and variables that make a server one of a pair. Installs what the connector needs.
///
/// # Errors
/// When it cannot be installed.
pub fn prepare(version: &str, part: Part) -> Result<Prepared> {
    let Part { role, connector } = part;
    let Some(role) = role else { return Ok(Prepared::default()) };
    let shared = repo::engines()?.join("run/kv");
    let config = config(connector, role, &shared);
    let variables = match connector {
        Connector::Example => Vec::new(),
        Connector::Nixl | Connector::Multi => {
            ensure_nixl(version)?;
            nixl_variables(client::free_port()?)
        }
    };
    Ok(Prepared { options: vec!["--kv-transfer-config".to_owned(), config.to_string()], variables })
}

fn config(connector: Connector, role: Role, shared: &Path) -> Value {
    let nixl = json!({
        "kv_connector": "NixlConnector",
        "kv_role": role.name(),
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_SECONDS},
    });
    let example = json!({
        "kv_connector": "ExampleConnector",
        "kv_role": role.name(),
        "kv_connector_extra_config": {"shared_storage_path": shared},
    });
    match connector {
        Connector::Nixl => nixl,
        Connector::Example => example,
        Connector::Multi => json!({
            "kv_connector": "MultiConnector",
            "kv_role": role.name(),
            "kv_connector_extra_config": {"connectors": [nixl, example]},
        }),
    }
}

/// The side channel is where the decode server asks the other one for its memory's addresses.
fn nixl_variables(side_channel: u16) -> Vec<(String, String)> {
    [
        ("VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1".to_owned()),
        ("VLLM_NIXL_SIDE_CHANNEL_PORT", side_channel.to_string()),
        ("UCX_NET_DEVICES", "lo".to_owned()),
        ("UCX_TLS", "self,sm,tcp".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// NIXL's wheels hold all they need but CUDA, which they do not ask for on a CPU.
fn ensure_nixl(version: &str) -> Result<()> {
    let Installed { venv } = install::ensure(version)?;
    let packages = install::site_packages(&venv)?;
    let library = library(version)?;
    if packages.join(library.replace('-', "_")).is_dir() {
        return Ok(());
    }
    say::step(format!("installing NIXL into {} (60 MB, once)", venv.display()));
    let mut pip = Command::new(python::uv()?);
    pip.args(["pip", "install", "-q", "--no-deps", "--python"]).arg(venv.join("bin/python"));
    shell::prepare(pip.arg(format!("{library}=={NIXL_LIBRARY}")).arg(NIXL))
        .context("NIXL cannot be installed")?;
    pause(&packages.join(library.replace('-', "_")).join("_api.py"))
}

/// NIXL's own thread polls without a pause, which takes two cores from two servers that share two. Given a pause, it sleeps.
fn pause(api: &Path) -> Result<()> {
    let text = std::fs::read_to_string(api).with_context(|| format!("cannot read {}", api.display()))?;
    let paused = text.replace("agent_config.pthrDelay = 0\n", "agent_config.pthrDelay = 1\n");
    if paused == text {
        say::warn(format!("{} polls without a pause: both servers will be slow", api.display()));
    }
    std::fs::write(api, paused).with_context(|| format!("cannot write {}", api.display()))
}

/// The build for the CUDA that the version's torch is built for.
fn library(version: &str) -> Result<&'static str> {
    let line: Line = version.parse()?;
    Ok(if line >= Line(0, 28) { "nixl-cu13" } else { "nixl-cu12" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_shares_a_connector_and_differs_in_its_role() {
        let of = |role| config(Connector::Multi, role, Path::new("/kv"));
        assert_eq!(of(Role::Prefill)["kv_role"], "kv_producer");
        let both = &of(Role::Decode)["kv_connector_extra_config"]["connectors"];
        assert_eq!(
            (&both[0]["kv_connector"], &both[0]["kv_role"]),
            (&json!("NixlConnector"), &json!("kv_consumer"))
        );
        assert_eq!(both[1]["kv_connector_extra_config"]["shared_storage_path"], "/kv");
    }

    #[test]
    fn nixl_is_the_build_of_the_versions_torch() {
        assert_eq!((library("0.18.1").unwrap(), library("0.32.0").unwrap()), ("nixl-cu12", "nixl-cu13"));
    }
}
