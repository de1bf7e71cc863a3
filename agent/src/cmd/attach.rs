//! `enginetap attach`.

use anyhow::Result;

use crate::cli::Attach;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap attach` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(_args: &Attach) -> Result<Exit> {
    Err(Refusal::missing("attach is not built yet", "use a later build").into())
}
