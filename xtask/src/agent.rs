//! Building the agent, and handing over to it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{ebpf, repo, say, setup, shell};

/// Builds kernel programs and agent; gives the binary's path.
///
/// # Errors
/// When either does not build.
pub fn build(release: bool) -> Result<PathBuf> {
    setup::debian::ensure(&[setup::debian::Group::Base])?;
    ebpf::ensure()?;
    let profile = if release { "release" } else { "debug" };
    say::step(format!("building enginetap ({profile}; some minutes the first time)"));
    let mut cargo = repo::cargo();
    cargo.args(["build", "--package", "enginetap"]);
    if release {
        cargo.arg("--release");
    }
    shell::prepare(&mut cargo)?;
    Ok(repo::target().join(profile).join("enginetap"))
}

/// Sets up what is missing, builds, and becomes `enginetap ARGS`.
///
/// # Errors
/// When something cannot be set up or built; once the agent runs, its exit code is ours.
pub fn become_agent(args: &[OsString]) -> Result<()> {
    setup::for_attach()?;
    let binary = build(true)?;
    let shown: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    say::step(format!("enginetap {}", shown.join(" ")));
    let error = Command::new(&binary).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", binary.display()))
}
