//! The kernel programs' object: committed beside its source, rebuilt when the sources changed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::bpf::{self, Toolchain};
use crate::stamp::{self, Stamp};
use crate::{repo, say, shell};

/// The program's file name in cargo's output.
const BINARY: &str = "enginetap";

/// Where the committed object is.
pub fn object() -> PathBuf {
    repo::root().join("ebpf/enginetap.bpf.o")
}

fn stamp_file() -> PathBuf {
    repo::root().join("ebpf/enginetap.bpf.o.toml")
}

fn committed() -> Stamp {
    std::fs::read_to_string(stamp_file()).map(|text| Stamp::parse(&text)).unwrap_or_default()
}

/// Makes sure that the object is the sources': the committed one where its stamp matches, else a rebuild.
///
/// # Errors
/// When it has to be rebuilt and that fails.
pub fn ensure() -> Result<()> {
    let sources = stamp::sources(&repo::root())?;
    let stamp = committed();
    if stamp.sources == sources && stamp::file(&object()).is_ok_and(|hash| hash == stamp.object) {
        say::detail("kernel programs: the committed object is of these sources");
        return Ok(());
    }
    say::step("kernel programs: the sources changed since the committed object, rebuilding");
    rebuild()
}

/// `cargo xtask ebpf`: rebuilds the object and its stamp in place.
///
/// # Errors
/// When the toolchain cannot be had or the build fails.
pub fn rebuild() -> Result<()> {
    let toolchain = bpf::ensure()?;
    let (built, stamp) = build(&toolchain)?;
    std::fs::copy(&built, object()).with_context(|| format!("cannot write {}", object().display()))?;
    std::fs::write(stamp_file(), stamp.text())?;
    say::detail(format!("wrote {} and its stamp", object().display()));
    Ok(())
}

/// `cargo xtask ebpf --check`: a rebuild gives the committed bytes.
///
/// # Errors
/// When the stamp is not the sources', or the same programs give other bytes.
pub fn check() -> Result<()> {
    say::step("kernel programs: does a rebuild give the committed bytes?");
    let old = committed();
    if old.sources != stamp::sources(&repo::root())? {
        bail!("ebpf/enginetap.bpf.o is not of these sources: run `cargo xtask ebpf` and commit the result");
    }
    if stamp::file(&object())? != old.object {
        bail!("ebpf/enginetap.bpf.o is not the file that its stamp names: run `cargo xtask ebpf`");
    }
    let toolchain = bpf::ensure()?;
    let (_, new) = build(&toolchain)?;
    if new.object == old.object {
        say::detail("the same bytes");
    } else if new.same_tools(&old) {
        bail!(
            "{} and bpf-linker {} built other bytes than the committed object's: run `cargo xtask ebpf`",
            new.rustc,
            new.linker
        );
    } else {
        say::warn(format!(
            "built, but not comparable: the committed object is by {} and bpf-linker {}, this one by {} and {}",
            old.rustc, old.linker, new.rustc, new.linker
        ));
    }
    Ok(())
}

fn build(toolchain: &Toolchain) -> Result<(PathBuf, Stamp)> {
    say::step(format!("building the kernel programs with {toolchain}"));
    let folder = repo::target().join("ebpf");
    let mut cargo = toolchain.cargo();
    // Target, linker and flags are in ebpf/.cargo/config.toml.
    cargo
        .current_dir(repo::root().join("ebpf"))
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(&folder);
    shell::prepare(&mut cargo).context("the kernel programs did not build")?;
    let built = folder.join("enginetap.bpf.o");
    let mut strip = Command::new(bpf::objcopy());
    strip.arg("--strip-debug").arg(folder.join("bpfel-unknown-none/release").join(BINARY)).arg(&built);
    shell::prepare(&mut strip).context("the object cannot be stripped of its debug information")?;
    let stamp = Stamp {
        sources: stamp::sources(&repo::root())?,
        object: stamp::file(&built)?,
        rustc: toolchain.version()?,
        linker: bpf::linker_version().context("bpf-linker does not run")?,
    };
    Ok((built, stamp))
}
