//! `enginetap replay`.

use anyhow::Result;

use crate::cli::Replay;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap replay` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(_args: &Replay) -> Result<Exit> {
    Err(Refusal::missing("replay is not built yet", "use a later build").into())
}
