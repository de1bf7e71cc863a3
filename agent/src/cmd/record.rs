//! `enginetap record`.

use anyhow::Result;

use crate::cli::Record;
use crate::exit::{Exit, Refusal};

/// Runs `enginetap record` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(_args: &Record) -> Result<Exit> {
    Err(Refusal::missing("record is not built yet", "use a later build").into())
}
