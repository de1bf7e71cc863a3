//! Stretches of one steady load, with and without the agent in turn. The load never stops between them, so that neither
//! side pays for its start, and what changes on the machine meanwhile meets both.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::attached::{Attached, SelfStats, stats_file};
use super::ticks::{Moment, Progress, Ticks};
use crate::engines::load::Background;
use crate::engines::server::Server;
use crate::interrupt::Interrupt;
use crate::say;

/// How a load is measured.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Pairs of windows.
    pub pairs: usize,
    /// Length of a window.
    pub window: Duration,
    /// Requests at once.
    pub concurrency: u32,
}

/// A window with the agent.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What the load got in the window.
    pub got: Progress,
    /// What it got while the agent was attached, which is somewhat longer: the agent's own figures are of that.
    pub whole: Progress,
    /// The agent's own figures.
    pub own: SelfStats,
}

/// The windows of a load.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Those without the agent.
    pub plain: Vec<Progress>,
    /// Those with it, in the same order.
    pub watched: Vec<Watched>,
}

/// When a window was.
struct Stretch {
    from: Moment,
    to: Moment,
}

/// As [`Watched`], before the load's ticks are known.
struct Visit {
    window: Stretch,
    attached: Stretch,
    own: SelfStats,
}

/// What a load needs to come to its pace, and a server to forget a detach.
const SETTLE: Duration = Duration::from_secs(2);
/// Output tokens of each request.
const MAX_TOKENS: &str = "64";
/// More requests than any measurement lasts.
const ENDLESS: &str = "1000000000";

/// Measures windows with and without the agent in turn.
///
/// # Errors
/// When the load or the agent cannot be run.
pub fn alternate(binary: &Path, server: &Server, shape: Shape, interrupt: &Interrupt) -> Result<Windows> {
    let (mut plain, mut visits) = (Vec::new(), Vec::new());
    let ticks = under_load(server, shape.concurrency, || {
        for pair in 0..shape.pairs {
            say::detail(format!("pair {} of {} of windows", pair + 1, shape.pairs));
            // The order changes, so that a machine that gets slower or faster favours neither.
            for with_agent in [pair % 2 == 0, pair % 2 != 0] {
                if interrupt.came() {
                    bail!("interrupted");
                }
                if with_agent {
                    visits.push(visit(binary, server, shape.window)?);
                } else {
                    plain.push(window(shape.window));
                }
            }
        }
        Ok(())
    })?;
    let watched = visits.into_iter().map(|visit| watched(&ticks, visit)).collect::<Result<_>>()?;
    Ok(Windows { plain: progress(&ticks, &plain)?, watched })
}

/// Measures windows without the agent.
///
/// # Errors
/// When the load cannot be run.
pub fn plain(server: &Server, shape: Shape, interrupt: &Interrupt) -> Result<Vec<Progress>> {
    let mut windows = Vec::new();
    let ticks = under_load(server, shape.concurrency, || {
        for _ in 0..shape.pairs {
            if interrupt.came() {
                bail!("interrupted");
            }
            windows.push(window(shape.window));
        }
        Ok(())
    })?;
    progress(&ticks, &windows)
}

/// One window with the agent, all under load.
///
/// # Errors
/// As [`alternate`].
pub fn crowd(binary: &Path, server: &Server, shape: Shape) -> Result<Watched> {
    let mut one = None;
    let ticks = under_load(server, shape.concurrency, || {
        one = Some(visit(binary, server, shape.window)?);
        Ok(())
    })?;
    watched(&ticks, one.context("no window was measured")?)
}

/// Does something while a load runs, and gives how the load went: streamed chats and completions, the shape that makes
/// most calls a token.
fn under_load(server: &Server, concurrency: u32, work: impl FnOnce() -> Result<()>) -> Result<Ticks> {
    let (file, concurrency) = (stats_file("ticks"), concurrency.to_string());
    let path = file.display().to_string();
    let options =
        ["--mode", "chat-stream,completion-stream", "--requests", ENDLESS, "--max-tokens", MAX_TOKENS];
    let options = [&options[..], &["--concurrency", &concurrency, "--ticks", &path, "--quiet"]].concat();
    let load = Background::start(server, &options, None)?;
    std::thread::sleep(SETTLE);
    work()?;
    // So that the last moment lies between two ticks.
    std::thread::sleep(Duration::from_millis(300));
    drop(load);
    Ticks::read(&file)
}

fn window(length: Duration) -> Stretch {
    std::thread::sleep(SETTLE);
    let from = Moment::now();
    std::thread::sleep(length);
    Stretch { from, to: Moment::now() }
}

fn visit(binary: &Path, server: &Server, length: Duration) -> Result<Visit> {
    let started = Moment::now();
    let agent = Attached::start(binary, server)?;
    let from = Moment::now();
    std::thread::sleep(length);
    let to = Moment::now();
    let own = agent.stop()?;
    let attached = Stretch { from: started.plus_ms(own.attach_ms.unwrap_or_default()), to };
    Ok(Visit { window: Stretch { from, to }, attached, own })
}

fn watched(ticks: &Ticks, visit: Visit) -> Result<Watched> {
    let Visit { window, attached, own } = visit;
    Ok(Watched { got: of(ticks, &window)?, whole: of(ticks, &attached)?, own })
}

fn progress(ticks: &Ticks, windows: &[Stretch]) -> Result<Vec<Progress>> {
    windows.iter().map(|window| of(ticks, window)).collect()
}

fn of(ticks: &Ticks, stretch: &Stretch) -> Result<Progress> {
    let Stretch { from, to } = stretch;
    ticks.between(*from, *to).context("the load generator ended before the measurement did")
}
