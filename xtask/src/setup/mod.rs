//! What a machine needs, found or installed. Quick and nearly silent when nothing is missing.

pub mod bpf;
pub mod debian;
pub mod deploy;

use anyhow::Result;

use crate::say;

/// `cargo xtask setup`: what building, attaching and testing need; with `ebpf`, also the kernel programs' toolchain.
///
/// # Errors
/// When something is missing and cannot be installed; the error says how to do it by hand.
pub fn all(ebpf: bool) -> Result<()> {
    say::step("looking for what building and testing need");
    debian::ensure(&[debian::Group::Base, debian::Group::Engines])?;
    if ebpf {
        let toolchain = bpf::ensure()?;
        say::detail(format!("kernel programs are built by {toolchain}"));
    }
    say::detail("nothing is missing");
    Ok(())
}

/// What an attach needs: a linker to build with.
///
/// # Errors
/// As [`all`].
pub fn for_attach() -> Result<()> {
    debian::ensure(&[debian::Group::Base])
}
