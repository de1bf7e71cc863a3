//! A real engine under the same load, with and without the agent in turn, then with its own tracing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::collector::Collector;
use super::figures::Figure;
use super::windows::{self, Shape, Watched, Windows};
use super::{Options, costs, replay};
use crate::captures::Recorder;
use crate::engines::certificate::Certificate;
use crate::engines::load;
use crate::engines::server::Server;
use crate::engines::{Engine, Weights};
use crate::interrupt::Interrupt;
use crate::say;

/// Streams at once that the budget of resident memory is for.
const CROWD: u32 = 256;

/// Windows of each measurement.
struct Size {
    /// On the model whose steps take as long as a real one's: for the ratio.
    small: Shape,
    /// On the tiny one, which keeps the machine busy with nothing but messages: for what a token costs.
    tiny: Shape,
    tls: bool,
}

impl Size {
    fn of(options: &Options) -> Self {
        let shape = |pairs, seconds| Shape {
            pairs,
            window: Duration::from_secs(seconds),
            concurrency: options.concurrency,
        };
        let (small, tiny) = if options.quick { (3, 2) } else { (16, 6) };
        Self { small: shape(small, 5), tiny: shape(tiny, 4), tls: options.tls }
    }
}

/// Measures all that a running server shows.
///
/// # Errors
/// When the server or the agent cannot be run; whatever was started is stopped.
pub fn measure(binary: &Path, options: &Options) -> Result<Vec<Figure>> {
    let interrupt = Interrupt::watch()?;
    let size = Size::of(options);
    let version = options.version.as_deref().unwrap_or_else(|| options.engine.default_version());
    let certificate = options.tls.then(Certificate::make).transpose()?;
    let on_server = Fresh { engine: options.engine, version, certificate };
    let small = on_server.run(Weights::Small, None, |server| {
        warm_up(server)?;
        windows::alternate(binary, server, size.small, &interrupt)
    })?;
    let collector = Collector::start()?;
    let traced = on_server.run(Weights::Small, Some(&collector), |server| {
        warm_up(server)?;
        windows::plain(server, size.small, &interrupt)
    })?;
    let (tiny, crowd) =
        on_server.run(Weights::Tiny, None, |server| saturate(binary, server, &size, &interrupt))?;
    let streams = format!("{} streams{}", options.concurrency, if size.tls { ", HTTPS" } else { "" });
    let mut figures = costs::ratios(&format!("a model of 80 M, {streams}"), &small);
    figures.push(costs::own_tracing(options.engine, &small.plain, &traced));
    figures.extend(costs::ratios(&format!("a model of 0.5 M, {streams}"), &tiny));
    figures.extend(costs::each(&tiny.watched, &crowd, CROWD));
    Ok(figures)
}

/// What a fresh server runs.
struct Fresh<'a> {
    engine: Engine,
    version: &'a str,
    /// Of a server over HTTPS.
    certificate: Option<Certificate>,
}

impl Fresh<'_> {
    /// Runs something on a fresh server, which is stopped in any case; its own tracing goes to the collector.
    fn run<T>(
        &self,
        weights: Weights,
        collector: Option<&Collector>,
        work: impl FnOnce(&Server) -> Result<T>,
    ) -> Result<T> {
        let tracing = collector.map(|collector| self.engine.own_tracing(&collector.endpoint()));
        let (mut options, variables) = tracing.unwrap_or_default();
        options.extend(self.certificate.iter().flat_map(Certificate::options));
        options.extend(self.engine.weights(weights));
        let server = self.engine.start(self.version, 0, &options, &variables)?;
        let result = work(&server);
        server.stop()?;
        result
    }
}

/// Records a load, measures windows of it, then a crowd of streams.
fn saturate(
    binary: &Path,
    server: &Server,
    size: &Size,
    interrupt: &Interrupt,
) -> Result<(Windows, Watched)> {
    warm_up(server)?;
    record(binary, server, size)?;
    let windows = windows::alternate(binary, server, size.tiny, interrupt)?;
    if interrupt.came() {
        bail!("interrupted");
    }
    say::step(format!("{CROWD} streams at once, for the agent's memory"));
    let crowd = Shape { concurrency: CROWD, window: Duration::from_secs(8), ..size.tiny };
    Ok((windows, windows::crowd(binary, server, crowd)?))
}

/// A large capture of the same load, for the replay.
fn record(binary: &Path, server: &Server, size: &Size) -> Result<()> {
    say::step("recording the load, to be replayed");
    let recorder = Recorder::start(binary, server, &replay::recorded())?;
    let concurrency = size.tiny.concurrency.to_string();
    let duration = (3 * size.tiny.pairs).to_string();
    let mode = "chat-stream,completion-stream";
    let options =
        ["--mode", mode, "--duration", &duration, "--concurrency", &concurrency, "--max-tokens", "64"];
    load::to_its_end(server, &options)?;
    recorder.stop()
}

fn warm_up(server: &Server) -> Result<()> {
    load::to_its_end(server, &["--mode", "mixed", "--requests", "24"])
}
