//! `enginetap ps`.

use anyhow::Result;

use crate::cli::Ps;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap ps` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(_args: &Ps) -> Result<Exit> {
    Err(Refusal::missing("ps is not built yet", "use a later build").into())
}
