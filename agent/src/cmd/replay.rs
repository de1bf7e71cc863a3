//! `enginetap replay`.

use std::time::Duration;

use anyhow::Result;

use super::attach::write_json;
use crate::cli::Replay;
use crate::exit::Exit;
use crate::export::settings::{Environment, process_environment};
use crate::export::{Config, Overflow, Sinks};
use crate::session::{self, Feed};
use crate::settings::layers;

/// How long the outputs get to take what is left.
const SHUTDOWN: Duration = Duration::from_secs(30);

/// Runs `enginetap replay` to its end.
///
/// # Errors
/// Whatever stopped it.
pub fn run(args: &Replay) -> Result<Exit> {
    let Replay { file, output, collect, self_stats } = args;
    // A fixed seed: a replay of one capture always gives the same ids.
    let settings = layers(collect, &process_environment)?.settings(None, 0);
    let config = Config::new(output, &Environment(&process_environment), Overflow::Wait)?;
    let mut feed = Feed::new(settings, Some(Sinks::start(config)?), None);
    let replayed = session::replay(file, &mut feed);
    feed.metrics(Vec::new());
    if let Some(sinks) = feed.close(0)? {
        sinks.shutdown_blocking(SHUTDOWN)?;
    }
    let replayed = replayed?;
    if let Some(path) = self_stats {
        write_json(path, &replayed)?;
    }
    Ok(Exit::Done)
}
