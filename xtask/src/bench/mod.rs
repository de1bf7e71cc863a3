//! `cargo xtask bench`: what the agent costs, in figures beside their budgets. It prints, it never asserts: a shared
//! machine's figures are upper bounds.

mod attached;
mod collector;
mod costs;
mod figures;
mod overhead;
mod pickle;
mod replay;
mod ticks;
mod why;
mod windows;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::engines::Engine;
use crate::{agent, repo, say, setup};
use figures::Figure;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// A real engine under load with and without the agent, and with its own tracing.
    Overhead,
    /// A capture through the core; of SGLang, its pickles beside CPython's unpickler too.
    Replay,
    /// Faults injected into a real engine, and whether `enginetap why` names them.
    Why,
}

/// Options of `bench`.
#[derive(Args, Debug)]
pub struct Options {
    /// Only this part (the same as `--only`).
    #[arg(value_enum, value_name = "PART", conflicts_with = "only")]
    pub part: Option<Part>,
    /// Inject faults into a real engine again, instead of reading the captures of when that was done last (`why`).
    #[arg(long)]
    pub live: bool,
    /// Fewer and shorter runs: the shape of the result, not its last digit.
    #[arg(long)]
    pub quick: bool,
    /// Only this part.
    #[arg(long, value_enum)]
    pub only: Option<Part>,
    /// The engine to measure.
    #[arg(long, value_enum, default_value = "vllm")]
    pub engine: Engine,
    /// Its version; the newest known to run when left out.
    #[arg(long)]
    pub version: Option<String>,
    /// Over HTTPS, so that its plain text is taken from the TLS library.
    #[arg(long)]
    pub tls: bool,
    /// Requests at once.
    #[arg(long, default_value_t = 8)]
    pub concurrency: u32,
    /// The capture to replay; when left out, the one recorded of the last overhead, else the largest of tests/captures.
    #[arg(long)]
    pub capture: Option<PathBuf>,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.part.or(self.only).is_none_or(|only| only == part)
    }
}

/// Measures and prints a table on stdout.
///
/// # Errors
/// When something cannot be brought up or run; the figures measured so far are printed before.
pub fn run(options: &Options) -> Result<()> {
    let binary = agent::build(true)?;
    let mut figures = Vec::new();
    let mut failed = None;
    if options.wants(Part::Overhead) {
        if repo::is_root() {
            setup::for_attach()?;
            failed = add(&mut figures, overhead::measure(&binary, options));
        } else {
            say::warn("the overhead is not measured: attaching needs root");
        }
    }
    if options.wants(Part::Replay) {
        failed = add(&mut figures, replay::measure(&binary, options)).or(failed);
        if options.engine == Engine::Sglang {
            failed = add(&mut figures, pickle::measure()).or(failed);
        }
    }
    if options.wants(Part::Why) {
        failed = add(&mut figures, why::measure(&binary, options)).or(failed);
    }
    print!("{}", figures::table(&figures));
    match failed {
        Some(error) => bail!("{error:#}"),
        None => Ok(()),
    }
}

fn add(figures: &mut Vec<Figure>, measured: Result<Vec<Figure>>) -> Option<anyhow::Error> {
    measured.map(|more| figures.extend(more)).err()
}
