//! Starting an SGLang server with the tiny model.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::install;
use super::quirks::{self, Quirks};
use crate::engines::server::{self, Server, Start};
use crate::engines::{client, model};

/// The name that requests give.
pub const MODEL: &str = "tiny";

/// What makes it run on a CPU, offline, and leave the other cores alone.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("SGLANG_USE_CPU_ENGINE", "1"),
    ("SGLANG_CPU_OMP_THREADS_BIND", "0-1"),
    ("CUDA_VISIBLE_DEVICES", ""),
    ("HF_HUB_OFFLINE", "1"),
    ("TRANSFORMERS_OFFLINE", "1"),
    ("OMP_NUM_THREADS", "1"),
    // Saves half a minute at the first decode of 0.5.6: nothing is compiled.
    ("TORCHDYNAMO_DISABLE", "1"),
];

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
    let venv = install::ensure(version)?;
    let model = model::ensure(quirks.model, &venv)?;
    let port = if port == 0 { client::free_port()? } else { port };
    // A session of its own, so that a Ctrl-C at the terminal does not reach it and its processes are found by it.
    let mut command = Command::new("setsid");
    command.arg("env").args(["-u", "PYTHONDONTWRITEBYTECODE", "-u", "PYTHONPATH"]);
    let variables = ENVIRONMENT.iter().chain(variables);
    command.args(variables.map(|(key, value)| format!("{key}={value}")));
    command.arg(venv.join("bin/python")).args(["-m", "sglang.launch_server"]);
    command.args(arguments(&quirks, &model, port)).args(options);
    server::start(Start { command, engine: "sglang", version: version.to_owned(), port })
}

fn arguments(quirks: &Quirks, model: &Path, port: u16) -> Vec<String> {
    let (model, port) = (model.display().to_string(), port.to_string());
    let words = [
        "--model-path",
        &model,
        "--served-model-name",
        MODEL,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--device",
        "cpu",
        "--attention-backend",
        "torch_native",
        "--sampling-backend",
        "pytorch",
        "--max-total-tokens",
        "4096",
        "--max-running-requests",
        "16",
        "--mem-fraction-static",
        "0.3",
    ];
    words.iter().chain(quirks.flags).map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_a_version_does_not_have_are_not_given() {
        let words = |version| arguments(&quirks::of(version).unwrap(), Path::new("/m"), 1);
        let has = |version, flag: &str| words(version).contains(&flag.to_owned());
        assert!(has("0.5.23", "--sleep-on-idle") && !has("0.4.3", "--sleep-on-idle"));
        assert!(has("0.5.6", "--disable-cuda-graph") && !has("0.5.23", "--disable-cuda-graph"));
        assert!(words("0.5.23").windows(2).any(|pair| pair == ["--port", "1"]));
    }
}
