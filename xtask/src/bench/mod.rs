//! `cargo xtask bench`: what the agent costs, in figures. It prints, it never asserts.

use anyhow::{Result, bail};
use clap::Args;

/// Options of `bench`.
#[derive(Args, Debug)]
pub struct Options {
    /// Fewer and shorter runs.
    #[arg(long)]
    pub quick: bool,
}

/// Measures.
///
/// # Errors
/// When something cannot be brought up.
pub fn run(_options: &Options) -> Result<()> {
    bail!("not there yet")
}
