//! Debian packages: one table, with the reason for each.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{repo, say, shell};

/// What a package is for; a task installs only its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Building the agent.
    Base,
    /// Installing and running real engines.
    Engines,
    /// Engines built against newer C libraries than this machine's.
    OldEngines,
    /// Engines that want a library loaded before all others.
    Preload,
    /// Booting other kernels.
    Vm,
    /// Rebuilding the kernel programs.
    Ebpf,
    /// Rebuilding the kernel programs where rustup offers no nightly.
    DebianRust,
}

/// How to see that a package's content is there, whoever installed it.
#[derive(Clone, Copy, Debug)]
enum Proof {
    Program(&'static str),
    File(&'static str),
    PythonModule(&'static str),
}

impl Proof {
    fn holds(self) -> bool {
        match self {
            Self::Program(name) => shell::on_path(name),
            Self::File(path) => Path::new(path).exists(),
            Self::PythonModule(name) => {
                shell::succeeds(Command::new("python3").args(["-c", &format!("import {name}")]))
            }
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Package {
    group: Group,
    name: &'static str,
    proof: Proof,
    why: &'static str,
}

const fn row(group: Group, name: &'static str, proof: Proof, why: &'static str) -> Package {
    Package { group, name, proof, why }
}

/// Everything any task may install.
const PACKAGES: &[Package] = &[
    row(Group::Base, "build-essential", Proof::Program("cc"), "Rust links with the C compiler"),
    row(Group::Engines, "python3", Proof::Program("python3"), "the engines are Python programs"),
    row(
        Group::Engines,
        "python3-venv",
        Proof::PythonModule("ensurepip"),
        "engines live in their own environments",
    ),
    row(
        Group::Engines,
        "binutils",
        Proof::Program("readelf"),
        "torch's CUDA needs are read for the stub libraries",
    ),
    row(
        Group::OldEngines,
        "debootstrap",
        Proof::Program("debootstrap"),
        "makes the Debian 13 tree they run in",
    ),
    row(
        Group::Preload,
        "libtcmalloc-minimal4",
        Proof::File("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"),
        "vLLM 0.17 to 0.19 refuse to start without it",
    ),
    row(
        Group::Vm,
        "qemu-system-x86",
        Proof::Program("qemu-system-x86_64"),
        "boots other kernels on an emulated processor",
    ),
    row(Group::Vm, "busybox-static", Proof::File("/bin/busybox"), "the shell inside the machine"),
    row(
        Group::Ebpf,
        "llvm-22-dev",
        Proof::File("/usr/lib/llvm-22/bin/llvm-config"),
        "bpf-linker is built against an LLVM no older than rustc's",
    ),
    row(Group::Ebpf, "zlib1g-dev", Proof::File("/usr/include/zlib.h"), "LLVM links with it"),
    row(
        Group::DebianRust,
        "rustc-web",
        Proof::File("/usr/bin/rustc"),
        "a compiler whose library source Debian has",
    ),
    row(Group::DebianRust, "cargo-web", Proof::File("/usr/bin/cargo"), "its cargo"),
    row(
        Group::DebianRust,
        "rust-web-src",
        Proof::File("/usr/lib/rustlib/src/rust/library/core/src/lib.rs"),
        "core is compiled for the kernel from its source",
    ),
];

/// Installs what is missing of the groups.
///
/// # Errors
/// When something is missing and this is not root on a machine with apt-get, or the installation fails.
pub fn ensure(groups: &[Group]) -> Result<()> {
    let missing: Vec<&Package> =
        PACKAGES.iter().filter(|p| groups.contains(&p.group)).filter(|p| !p.proof.holds()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    say::step("installing Debian packages");
    for Package { group: _, name, proof: _, why } in &missing {
        say::detail(format!("{name}: {why}"));
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    let by_hand = format!("apt-get install {}", names.join(" "));
    if !shell::on_path("apt-get") {
        bail!("this machine has no apt-get: install what `{by_hand}` would");
    }
    if !repo::is_root() {
        bail!("not root: run `sudo {by_hand}`, then this again");
    }
    install(&names).with_context(|| format!("`{by_hand}` failed"))
}

fn install(names: &[&str]) -> Result<()> {
    if let Err(error) = shell::prepare(apt().args(["update", "-qq"])) {
        say::warn(format!("{error}; going on with the package lists at hand"));
    }
    shell::prepare(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(names))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_says_why_in_one_line() {
        for package in PACKAGES {
            assert!(!package.why.is_empty() && !package.why.contains('\n'), "{}", package.name);
        }
    }

    #[test]
    fn no_package_stands_twice() {
        let mut names: Vec<_> = PACKAGES.iter().map(|p| p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PACKAGES.len());
    }

    #[test]
    fn proofs_see_what_is_there_and_what_is_not() {
        assert!(Proof::Program("sh").holds() && !Proof::Program("no-such-program").holds());
        assert!(Proof::File("/proc").holds() && !Proof::File("/no/such/file").holds());
    }
}
