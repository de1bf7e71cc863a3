//! `cargo xtask docs`: documentation that is made from the code.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use enginetap_core::model::registry::markdown;

use crate::{repo, say};

fn telemetry() -> PathBuf {
    repo::root().join("docs/TELEMETRY.md")
}

/// Writes docs/TELEMETRY.md from the registry.
///
/// # Errors
/// When it cannot be written.
pub fn write() -> Result<()> {
    let path = telemetry();
    std::fs::write(&path, markdown()).with_context(|| format!("cannot write {}", path.display()))?;
    say::step(format!("wrote {}", path.display()));
    Ok(())
}

/// Whether docs/TELEMETRY.md is what the registry says.
///
/// # Errors
/// When it is not.
pub fn check() -> Result<()> {
    say::step("docs/TELEMETRY.md: is it what the registry says?");
    let path = telemetry();
    let found = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if found != markdown() {
        bail!("{} is not what the registry says: run `cargo xtask docs`", path.display());
    }
    Ok(())
}
