//! Starting a vLLM server with the tiny model.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::install::{self, Installed};
use super::quirks::{self, Libraries, Preload, Quirks};
use crate::engines::server::{self, Server, Start};
use crate::engines::{client, model, python, trixie};
use crate::setup::debian::{self, Group};

/// The name that requests give.
pub const MODEL: &str = "tiny";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";

/// Installs what is missing, starts a server with variables in its environment and waits until it answers. `options`
/// come last, so they win over ours.
///
/// # Errors
/// When it cannot be installed or does not come up.
pub fn start_with(
    version: &str,
    port: u16,
    options: &[String],
    variables: &[(&str, &str)],
) -> Result<Server> {
    let quirks = quirks::of(version)?;
    if quirks.preload == Preload::TcmallocAndIomp {
        debian::ensure(&[Group::Preload])?;
    }
    let Installed { venv } = install::ensure(version)?;
    let model = model::ensure(quirks.model, &venv)?;
    let port = if port == 0 { client::free_port()? } else { port };
    let mut command = launcher(&quirks)?;
    command
        .args(environment(&quirks, &venv))
        .args(variables.iter().map(|(key, value)| format!("{key}={value}")));
    command.arg(venv.join("bin/python")).arg(venv.join("bin/vllm")).arg("serve").arg(&model);
    command.args(arguments(port)).args(options);
    server::start(Start { command, engine: "vllm", version: version.to_owned(), port })
}

/// What comes before `env`: a session of its own, and the tree where the version needs one. Each of these programs
/// becomes the next, so the process that is started is the server itself.
fn launcher(quirks: &Quirks) -> Result<Command> {
    let mut command = Command::new("setsid");
    if quirks.libraries == Libraries::Trixie {
        let inner = trixie::enter(&trixie::ensure()?, &python::find()?)?;
        command.arg(inner.get_program()).args(inner.get_args());
    }
    command.arg("env");
    // These would slow the start, or are someone else's business.
    command.args(["-u", "PYTHONDONTWRITEBYTECODE", "-u", "PYTHONPATH"]);
    Ok(command)
}

/// The environment as `KEY=value` words.
fn environment(quirks: &Quirks, venv: &Path) -> Vec<String> {
    let mut words: Vec<String> = [
        "HF_HUB_OFFLINE=1",
        "TRANSFORMERS_OFFLINE=1",
        "VLLM_NO_USAGE_STATS=1",
        "DO_NOT_TRACK=1",
        "VLLM_HOST_IP=127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE=1",
        "OMP_NUM_THREADS=1",
        // Saves up to a minute at the start and at the first request with logprobs: no C++ is compiled.
        "TORCHDYNAMO_DISABLE=1",
    ]
    .map(String::from)
    .to_vec();
    words.push(format!("VLLM_CPU_OMP_THREADS_BIND={}", quirks.omp_bind.value()));
    match quirks.preload {
        Preload::Nothing => {}
        Preload::TcmallocAndIomp => {
            words.push(format!("LD_PRELOAD={TCMALLOC}:{}/lib/libiomp5.so", venv.display()))
        }
    }
    words
}

fn arguments(port: u16) -> Vec<String> {
    let port = port.to_string();
    let words = [
        "--served-model-name",
        MODEL,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--dtype",
        "bfloat16",
        "--enforce-eager",
        "--max-model-len",
        "2048",
        "--max-num-seqs",
        "16",
        "--block-size",
        "32",
    ];
    words.map(String::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_gets_its_own_environment() {
        let words = |version: &str| environment(&quirks::of(version).unwrap(), Path::new("/venv"));
        assert!(words("0.32.0").contains(&"VLLM_CPU_OMP_THREADS_BIND=nobind".to_owned()));
        assert!(words("0.9.2").contains(&"VLLM_CPU_OMP_THREADS_BIND=all".to_owned()));
        assert!(
            words("0.18.1")
                .iter()
                .any(|word| word.starts_with("LD_PRELOAD=") && word.ends_with("/venv/lib/libiomp5.so"))
        );
        assert!(!words("0.20.2").iter().any(|word| word.starts_with("LD_PRELOAD=")));
    }
}
