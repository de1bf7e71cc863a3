//! `enginetap check`.

use anyhow::Result;

use crate::cli::Check;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap check` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(_args: &Check) -> Result<Exit> {
    Err(Refusal::missing("check is not built yet", "use a later build").into())
}
