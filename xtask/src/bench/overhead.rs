//! A real engine under the same load, with and without the agent in turn, then with its own tracing.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::attached::{Attached, SelfStats};
use super::figures::{Figure, figure, median, real, spread};
use super::{Options, replay};
use crate::captures::Recorder;
use crate::engines::certificate::Certificate;
use crate::engines::load::{self, Summary};
use crate::engines::server::Server;
use crate::engines::{Engine, client, python};
use crate::interrupt::Interrupt;
use crate::say;

/// One run under load with the agent.
struct Watched {
    load: Summary,
    own: SelfStats,
}

impl Watched {
    /// A total in nanoseconds as microseconds an output token.
    fn per_token(&self, total: Option<u64>) -> Option<f64> {
        Some(real(total?) / real(self.load.output_tokens.max(1)) / 1000.0)
    }

    /// Runs of the kernel programs an output token. They run at every system call of the machine, so whatever else
    /// is busy on it counts too.
    fn runs_per_token(&self) -> Option<f64> {
        Some(real(self.own.kernel_calls?) / real(self.load.output_tokens.max(1)))
    }

    fn ns_per_run(&self) -> Option<f64> {
        Some(real(self.own.kernel_ns?) / real(self.own.kernel_calls.filter(|calls| *calls > 0)?))
    }

    /// A total in nanoseconds as microseconds a request.
    fn per_request(&self, total: Option<u64>) -> Option<f64> {
        Some(real(total?) / real(self.load.requests.max(1)) / 1000.0)
    }

    fn resident_mib(&self) -> Option<f64> {
        self.own.rss_bytes.map(|bytes| real(bytes) / 1_048_576.0)
    }
}

/// All runs on one server.
#[derive(Default)]
struct Runs {
    plain: Vec<Summary>,
    watched: Vec<Watched>,
    /// With as many streams at once as the budget of memory is for.
    crowd: Vec<Watched>,
}

/// Streams at once that the budget of resident memory is for.
const CROWD: u32 = 256;

/// How much.
struct Size {
    pairs: usize,
    requests: u32,
    concurrency: u32,
    tls: bool,
}

impl Size {
    fn of(options: &Options) -> Self {
        let (pairs, rounds) = if options.quick { (2, 8) } else { (5, 24) };
        Self {
            pairs,
            requests: rounds * options.concurrency,
            concurrency: options.concurrency,
            tls: options.tls,
        }
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
    let runs = on_server.run(None, |server| alternate(binary, server, &size, &interrupt))?;
    let mut figures = describe(&runs, &size);
    let collector = Collector::start()?;
    let traced = on_server.run(Some(&collector), |server| repeat(server, &size, &interrupt))?;
    figures.push(own_tracing(options.engine, &runs.plain, &traced));
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
    fn run<T>(&self, collector: Option<&Collector>, work: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        let tracing = collector.map(|collector| self.engine.own_tracing(&collector.endpoint()));
        let (mut options, variables) = tracing.unwrap_or_default();
        options.extend(self.certificate.iter().flat_map(Certificate::options));
        let server = self.engine.start(self.version, 0, &options, &variables)?;
        let result = work(&server);
        server.stop()?;
        result
    }
}

fn alternate(binary: &Path, server: &Server, size: &Size, interrupt: &Interrupt) -> Result<Runs> {
    warm_up(server)?;
    record(binary, server, size)?;
    let mut runs = Runs::default();
    for pair in 0..size.pairs {
        say::step(format!("pair {} of {}", pair + 1, size.pairs));
        // The order changes, so that a machine that gets slower or faster favours neither.
        for with_agent in [pair % 2 == 0, pair % 2 != 0] {
            if interrupt.came() {
                bail!("interrupted");
            }
            if with_agent {
                runs.watched.push(watched(binary, server, size)?);
            } else {
                runs.plain.push(tell("without", under_load(server, size)?));
            }
        }
    }
    say::step(format!("{CROWD} streams at once, for the agent's memory"));
    let crowd = Size { pairs: 1, requests: 3 * CROWD, concurrency: CROWD, tls: size.tls };
    runs.crowd.push(watched(binary, server, &crowd)?);
    Ok(runs)
}

fn watched(binary: &Path, server: &Server, size: &Size) -> Result<Watched> {
    let agent = Attached::start(binary, server)?;
    let load = tell("with", under_load(server, size)?);
    Ok(Watched { load, own: agent.stop()? })
}

/// A large capture of the same load, for the replay.
fn record(binary: &Path, server: &Server, size: &Size) -> Result<()> {
    say::step("recording the load, to be replayed");
    let recorder = Recorder::start(binary, server, &replay::recorded())?;
    for _ in 0..size.pairs {
        under_load(server, size)?;
    }
    recorder.stop()
}

fn repeat(server: &Server, size: &Size, interrupt: &Interrupt) -> Result<Vec<Summary>> {
    warm_up(server)?;
    let mut runs = Vec::new();
    for _ in 0..size.pairs {
        if interrupt.came() {
            bail!("interrupted");
        }
        runs.push(tell("its own tracing", under_load(server, size)?));
    }
    Ok(runs)
}

fn warm_up(server: &Server) -> Result<()> {
    load::measure(server, &["--mode", "mixed", "--requests", "24"]).map(drop)
}

/// The same requests each time: streamed chats and completions, the shape that makes most calls a token.
fn under_load(server: &Server, size: &Size) -> Result<Summary> {
    let (requests, concurrency) = (size.requests.to_string(), size.concurrency.to_string());
    let mode = "chat-stream,completion-stream";
    let options =
        ["--mode", mode, "--requests", &requests, "--concurrency", &concurrency, "--max-tokens", "64"];
    load::measure(server, &options)
}

fn tell(what: &str, load: Summary) -> Summary {
    say::detail(format!("{what}: {:.1} output tokens/s", load.output_tokens_per_s));
    load
}

fn speeds(runs: &[Summary]) -> Vec<f64> {
    runs.iter().map(|run| run.output_tokens_per_s).collect()
}

fn describe(runs: &Runs, size: &Size) -> Vec<Figure> {
    let watched: Vec<f64> = runs.watched.iter().map(|run| run.load.output_tokens_per_s).collect();
    let plain = speeds(&runs.plain);
    let ratios: Vec<f64> = watched.iter().zip(&plain).map(|(with, without)| with / without).collect();
    let each = |of: fn(&Watched) -> Option<f64>| runs.watched.iter().filter_map(of).collect::<Vec<f64>>();
    let at = format!("{} streams{}", size.concurrency, if size.tls { ", HTTPS" } else { "" });
    let lost: u64 = runs.watched.iter().filter_map(|run| run.own.lost).sum();
    let records: u64 = runs.watched.iter().filter_map(|run| run.own.records).sum();
    let mut figures = vec![
        figure(format!("output tokens/s without the agent ({at})"), spread(&plain, 1), ""),
        figure(format!("output tokens/s with the agent ({at})"), spread(&watched, 1), ""),
        figure("ratio, by pair", spread(&ratios, 4), ">= 0.99"),
        figure(
            "BPF run time per output token, us",
            spread(&each(|run| run.per_token(run.own.kernel_ns)), 2),
            "<= 5 where a tracepoint costs 50 ns",
        ),
        figure(
            "BPF run time per request, us",
            spread(&each(|run| run.per_request(run.own.kernel_ns)), 1),
            "",
        ),
        figure(
            "BPF runs per output token, those for other processes included",
            spread(&each(Watched::runs_per_token), 1),
            "",
        ),
        figure("BPF run time per run, ns", spread(&each(Watched::ns_per_run), 0), ""),
        figure(
            "agent CPU per output token, us",
            spread(&each(|run| run.per_token(run.own.watch_cpu_ns)), 2),
            "<= 10",
        ),
        figure("agent CPU to attach, ms", spread(&each(|run| milliseconds(run.own.attach_cpu_ns)), 0), ""),
        resident(format!("agent's largest resident memory, MiB ({at})"), &runs.watched, ""),
        resident(
            format!("agent's largest resident memory, MiB ({CROWD} streams)"),
            &runs.crowd,
            "<= 50 at 256 streams",
        ),
        figure("start to first probe, ms", spread(&each(|run| run.own.attach_ms), 0), "<= 300"),
        figure("detach, ms", spread(&each(|run| run.own.detach_ms), 0), "<= 300"),
        figure("records lost", format!("{lost} of {records}"), "0 at 100 k records/s"),
    ];
    figures.extend(objects(&runs.watched));
    figures
}

/// What reading the engine's own objects cost; nothing where none were read.
fn objects(watched: &[Watched]) -> Vec<Figure> {
    let read = |run: &&Watched| run.own.object_readings.is_some_and(|readings| readings > 0);
    let runs: Vec<&Watched> = watched.iter().filter(read).collect();
    if runs.is_empty() {
        return Vec::new();
    }
    let each = |of: fn(&Watched) -> Option<f64>| runs.iter().filter_map(|run| of(run)).collect::<Vec<f64>>();
    let sum = |of: fn(&SelfStats) -> Option<u64>| runs.iter().filter_map(|run| of(&run.own)).sum::<u64>();
    vec![
        figure(
            "reading the engine's objects, CPU per request, us",
            spread(&each(|run| run.per_request(run.own.object_ns)), 1),
            "",
        ),
        figure(
            "the same per reading, us",
            spread(&each(|run| Some(real(run.own.object_ns?) / real(run.own.object_readings?) / 1000.0)), 1),
            "",
        ),
        figure(
            "object reads refused, since they had changed",
            format!("{} in {} readings", sum(|own| own.object_refused), sum(|own| own.object_readings)),
            "",
        ),
    ]
}

fn resident(what: String, runs: &[Watched], budget: &'static str) -> Figure {
    let values: Vec<f64> = runs.iter().filter_map(Watched::resident_mib).collect();
    figure(what, spread(&values, 1), budget)
}

fn milliseconds(nanoseconds: Option<u64>) -> Option<f64> {
    nanoseconds.map(|nanoseconds| real(nanoseconds) / 1e6)
}

fn own_tracing(engine: Engine, plain: &[Summary], traced: &[Summary]) -> Figure {
    let traced = speeds(traced);
    let ratio = median(&traced).zip(median(&speeds(plain))).map(|(with, without)| with / without);
    let ratio = ratio.map_or_else(String::new, |ratio| format!(", ratio {ratio:.4}"));
    let what = format!("output tokens/s with {}'s own OTel tracing (a start of its own)", engine.name());
    figure(what, format!("{}{ratio}", spread(&traced, 1)), "")
}

/// Takes the engine's spans and drops them; ended when dropped.
struct Collector {
    child: Child,
    port: u16,
}

impl Collector {
    fn start() -> Result<Self> {
        let port = client::free_port()?;
        let mut command: Command = python::script(&python::find()?.executable, "null_collector.py");
        let child = command.arg(port.to_string()).stdout(Stdio::null()).spawn();
        Ok(Self { child: child.context("cannot start the collector")?, port })
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/v1/traces", self.port)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended: both calls then do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(speed: f64) -> Summary {
        Summary { requests: 10, output_tokens: 100, output_tokens_per_s: speed }
    }

    #[test]
    fn costs_are_per_token_and_per_request() {
        let own =
            SelfStats { kernel_ns: Some(200_000), watch_cpu_ns: Some(1_000_000), ..SelfStats::default() };
        let runs = Runs {
            plain: vec![load(100.0)],
            watched: vec![Watched { load: load(99.0), own }],
            ..Runs::default()
        };
        let figures = describe(&runs, &Size { pairs: 1, requests: 10, concurrency: 8, tls: false });
        let value = |what: &str| figures.iter().find(|f| f.what.starts_with(what)).unwrap().value.clone();
        assert!(value("ratio").starts_with("0.9900 "));
        assert!(value("BPF run time per output token").starts_with("2.00 "));
        assert!(value("BPF run time per request").starts_with("20.0 "));
        assert!(value("agent CPU").starts_with("10.00 "));
        assert_eq!(value("detach"), "not measured");
    }
}
