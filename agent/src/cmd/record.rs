//! `enginetap record`.

use anyhow::Result;
use enginetap_core::settings::Settings;

use super::attach::{plan, session};
use crate::cli::Record;
use crate::config::steering::Steering;
use crate::exit::Exit;
use crate::session::{CaptureFile, Feed};

/// Runs `enginetap record` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Record) -> Result<Exit> {
    let Record { output, target, kernel, gpus } = args;
    let plan = plan(target, kernel, gpus, false, Steering::default())?;
    let capture = CaptureFile::create(output)?;
    // The pipeline runs all the same: it says which connections matter.
    let figures = session(plan, Feed::new(Settings::default(), None, Some(capture)))?;
    eprintln!(
        "{}: {} records, {} bytes of payload, {} lost, {} spans in them",
        output.display(),
        figures.records,
        figures.bytes,
        figures.lost,
        figures.spans
    );
    Ok(Exit::Done)
}
