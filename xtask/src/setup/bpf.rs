//! The toolchain of the kernel programs. Needed only when they change: their object is committed.
//!
//! They are Rust for `bpfel-unknown-none`, a target without a ready standard library, so `core` is built from source
//! (a nightly option) and bpf-linker, an LLVM program, links the bitcode. Its LLVM must not be older than rustc's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian::{self, Group};
use crate::{say, shell};

/// The bpf-linker that the committed object was linked with.
pub const LINKER: &str = "0.13.0";
/// The LLVM that bpf-linker is built against: rustc's may be as new, not newer.
const LLVM_MAJOR: u32 = 22;
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
/// Installed where no fitting nightly is: the last that was seen to work.
const NIGHTLY: &str = "nightly-2026-05-20";

/// A compiler that can build `core` from source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// rustup's, by its name.
    Rustup(String),
    /// Debian's `rustc-web` with `rust-web-src`, told to allow nightly options.
    Debian,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustup(name) => write!(f, "rustup's {name} with rust-src"),
            Self::Debian => f.write_str("Debian's rustc-web with rust-web-src"),
        }
    }
}

impl Toolchain {
    /// Its cargo, without what the calling cargo left in the environment.
    pub fn cargo(&self) -> Command {
        let mut command = match self {
            Self::Rustup(name) => {
                let mut command = Command::new("rustup");
                command.args(["run", name, "cargo"]);
                command
            }
            Self::Debian => {
                let mut command = Command::new("/usr/bin/cargo");
                command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
                command
            }
        };
        for leftover in
            ["RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO", "CARGO_TARGET_DIR"]
        {
            command.env_remove(leftover);
        }
        command
    }

    /// What rustc says of itself in one line: two builds with the same one give the same bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn version(&self) -> Result<String> {
        shell::capture(self.rustc().arg("-V"))
    }

    /// The folder of its libraries and sources.
    ///
    /// # Errors
    /// When it does not run.
    pub fn sysroot(&self) -> Result<PathBuf> {
        shell::capture(self.rustc().args(["--print", "sysroot"])).map(PathBuf::from)
    }

    fn rustc(&self) -> Command {
        match self {
            Self::Rustup(name) => {
                let mut command = Command::new("rustup");
                command.args(["run", name, "rustc"]).env_remove("RUSTUP_TOOLCHAIN");
                command
            }
            Self::Debian => Command::new("/usr/bin/rustc"),
        }
    }

    fn has_source(&self) -> bool {
        self.sysroot().is_ok_and(|root| root.join("lib/rustlib/src/rust/library/core/src/lib.rs").exists())
    }

    fn llvm_fits(&self) -> bool {
        shell::capture(self.rustc().arg("-vV"))
            .ok()
            .and_then(|text| llvm_major(&text))
            .is_some_and(|major| major <= LLVM_MAJOR)
    }
}

/// Finds a toolchain, or installs one: rustup's nightly first, Debian's packages where that fails.
///
/// # Errors
/// When neither can be had.
pub fn ensure() -> Result<Toolchain> {
    let toolchain = match nightly() {
        Ok(toolchain) => toolchain,
        Err(error) => {
            say::detail(format!("no rustup nightly with rust-src ({error:#}); taking Debian's packages"));
            debian::ensure(&[Group::DebianRust])?;
            Toolchain::Debian
        }
    };
    if !toolchain.llvm_fits() {
        bail!(
            "the LLVM of {toolchain} is newer than bpf-linker's ({LLVM_MAJOR}): `rustup toolchain install {NIGHTLY} -c rust-src`"
        );
    }
    ensure_linker()?;
    Ok(toolchain)
}

fn nightly() -> Result<Toolchain> {
    if !shell::on_path("rustup") {
        bail!("rustup is not installed");
    }
    for name in ["nightly", NIGHTLY] {
        let toolchain = Toolchain::Rustup(name.to_owned());
        if !toolchain.llvm_fits() {
            continue;
        }
        if !toolchain.has_source() {
            say::step(format!("adding rust-src to {name}: core is compiled for the kernel from its source"));
            shell::prepare(Command::new("rustup").args([
                "component",
                "add",
                "rust-src",
                "--toolchain",
                name,
            ]))?;
        }
        return Ok(toolchain);
    }
    say::step(format!("installing {NIGHTLY}: building core from source needs a nightly compiler"));
    shell::prepare(Command::new("rustup").args([
        "toolchain",
        "install",
        NIGHTLY,
        "--profile",
        "minimal",
        "-c",
        "rust-src",
    ]))?;
    Ok(Toolchain::Rustup(NIGHTLY.to_owned()))
}

fn ensure_linker() -> Result<()> {
    debian::ensure(&[Group::Ebpf])?;
    if linker_version().as_deref() == Some(LINKER) {
        return Ok(());
    }
    say::step(format!("installing bpf-linker {LINKER}: links the kernel programs (some minutes, once)"));
    let mut install = Command::new("cargo");
    install.args(["install", "bpf-linker", "--locked", "--version", LINKER, "--no-default-features"]);
    install.args(["--features", &format!("llvm-{LLVM_MAJOR}")]).env("LLVM_PREFIX", LLVM_PREFIX);
    shell::prepare(install.env_remove("CARGO_TARGET_DIR")).context("bpf-linker could not be installed")
}

/// The installed bpf-linker's version.
pub fn linker_version() -> Option<String> {
    let text = shell::capture(Command::new("bpf-linker").arg("--version")).ok()?;
    text.split_ascii_whitespace().nth(1).map(str::to_owned)
}

/// The LLVM's objcopy.
pub fn objcopy() -> PathBuf {
    Path::new(LLVM_PREFIX).join("bin/llvm-objcopy")
}

fn llvm_major(verbose_version: &str) -> Option<u32> {
    let line = verbose_version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_of_a_compiler_is_read_from_its_verbose_version() {
        assert_eq!(llvm_major("rustc 1.97.0-nightly\nrelease: 1.97.0\nLLVM version: 22.1.4"), Some(22));
        assert_eq!(llvm_major("rustc 1.97.0-nightly"), None);
        assert_eq!(llvm_major("LLVM version: x"), None);
    }
}
