//! Whether `enginetap why` names the fault that was injected: `tests/scenarios/why.py` makes requests of a real vLLM slow
//! in one way after another. Recorded once; `--live` does it again.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Options;
use super::figures::{Figure, figure, real};
use crate::captures::Recorder;
use crate::engines::load::Background;
use crate::engines::server::Server;
use crate::engines::{Engine, Weights, python};
use crate::{repo, say, setup, shell};

/// A fault, and what the server needs so that it is one.
struct Fault {
    name: &'static str,
    flags: &'static [&'static str],
}

/// A server with room for short steps only.
const CHUNKS: &[&str] = &["--max-num-batched-tokens", "256"];
/// A server whose KV cache holds 768 tokens.
const SMALL: &[&str] = &["--max-model-len", "512", "--num-gpu-blocks-override", "24"];

/// Every fault. Those with the same flags come one after the other: they share a server.
const FAULTS: [Fault; 6] = [
    Fault { name: "healthy", flags: CHUNKS },
    Fault { name: "giant", flags: CHUNKS },
    Fault { name: "many", flags: CHUNKS },
    Fault { name: "slow", flags: CHUNKS },
    Fault { name: "leaver", flags: CHUNKS },
    Fault { name: "kv", flags: SMALL },
];

/// Requests of the capture that the time of an answer is measured on.
const MANY: u32 = 10_000;

/// What came of one fault.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Requests that the fault made slow, and those of which it was named first.
    injected: u32,
    named: u32,
    /// Requests that nothing made slow, and those of which something was named.
    healthy: u32,
    blamed: u32,
    /// What was named, and how often.
    causes: BTreeMap<String, u32>,
}

/// Measures.
///
/// # Errors
/// When a capture cannot be made or read.
pub fn measure(binary: &Path, options: &Options) -> Result<Vec<Figure>> {
    let folder = if options.live { live(binary)? } else { repo::root().join("tests/captures") };
    let mut figures = Vec::new();
    let mut all = Outcome::default();
    for Fault { name, .. } in &FAULTS {
        let outcome = outcome(binary, &folder, name)?;
        figures.push(figure(format!("why: {name}"), outcome.says(), ""));
        all.add(&outcome);
    }
    figures.push(figure("why: injected faults named first", ratio(all.named, all.injected), ""));
    figures.push(figure("why: healthy requests blamed", ratio(all.blamed, all.healthy), ""));
    figures.extend(time(binary, options)?);
    Ok(figures)
}

fn ratio(part: u32, whole: u32) -> String {
    format!("{part} of {whole}")
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.injected += other.injected;
        self.named += other.named;
        self.healthy += other.healthy;
        self.blamed += other.blamed;
    }

    /// Takes a request: the cause injected and that named first, if any.
    fn take(&mut self, injected: Option<&str>, named: Option<&str>) {
        match injected {
            Some(cause) => {
                self.injected += 1;
                self.named += u32::from(named == Some(cause));
            }
            None => {
                self.healthy += 1;
                self.blamed += u32::from(named.is_some());
            }
        }
        *self.causes.entry(named.unwrap_or("nothing").to_owned()).or_default() += 1;
    }

    fn says(&self) -> String {
        let causes: Vec<String> =
            self.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let right = self.named + self.healthy - self.blamed;
        format!("{} right; named: {}", ratio(right, self.injected + self.healthy), causes.join(", "))
    }
}

/// Holds what is named in a capture against what its scenario injected.
fn outcome(binary: &Path, folder: &Path, name: &str) -> Result<Outcome> {
    let file = |ending: &str| folder.join(format!("why-{name}.{ending}"));
    let capture = file("cap.gz");
    let mut why = Command::new(binary);
    why.args(["why", "--json", "--slowest", "1000", "--capture"]).arg(&capture);
    let answer: Value = serde_json::from_str(&shell::capture(&mut why)?)?;
    let scenario = std::fs::read_to_string(file("scenario.jsonl"))
        .with_context(|| format!("{} has no scenario beside it", capture.display()))?;
    let mut outcome = Outcome::default();
    for line in scenario.lines() {
        let line: Value = serde_json::from_str(line)?;
        if let (Some(injected), Some(id)) = (line.get("cause"), line["id"].as_str()) {
            outcome.take(injected.as_str(), first_cause(&answer, id));
        }
    }
    Ok(outcome)
}

fn first_cause<'a>(answer: &'a Value, id: &str) -> Option<&'a str> {
    let requests = answer["requests"].as_array()?;
    let request = requests.iter().find(|request| request["ids"][0] == id)?;
    request["causes"][0]["cause"].as_str()
}

/// Injects every fault again.
fn live(binary: &Path) -> Result<PathBuf> {
    setup::for_attach()?;
    let folder = repo::engines()?.join("why");
    std::fs::create_dir_all(&folder)?;
    let mut running: Option<(&[&str], Server)> = None;
    for fault in &FAULTS {
        let reuse = running.take_if(|(flags, _)| *flags == fault.flags).map(|(_, server)| server);
        let server = match reuse {
            Some(server) => server,
            None => {
                if let Some((_, old)) = running.take() {
                    old.stop()?;
                }
                serve(fault.flags)?
            }
        };
        let injected = inject(binary, &server, fault.name, &folder);
        running = Some((fault.flags, server));
        if injected.is_err() {
            break_down(running.take())?;
        }
        injected?;
    }
    break_down(running)?;
    Ok(folder)
}

fn break_down(running: Option<(&[&str], Server)>) -> Result<()> {
    running.map_or(Ok(()), |(_, server)| server.stop())
}

fn serve(flags: &[&str]) -> Result<Server> {
    let engine = Engine::Vllm;
    let mut options = engine.weights(Weights::Small);
    options.extend(flags.iter().map(|&flag| flag.to_owned()));
    engine.start(engine.default_version(), 0, &options, &[])
}

fn inject(binary: &Path, server: &Server, name: &str, folder: &Path) -> Result<()> {
    say::step(format!("injecting: {name}"));
    let file = |ending: &str| folder.join(format!("why-{name}.{ending}"));
    let recorder = Recorder::start(binary, server, &file("cap.gz"))?;
    let mut scenario = Command::new(python::find()?.executable);
    scenario.arg(repo::root().join("tests/scenarios/why.py")).args(["--url", &server.url(), name]);
    shell::run(scenario.stdout(File::create(file("scenario.jsonl"))?))?;
    recorder.stop()
}

/// How long an answer takes on a capture of many requests, which is recorded the first time (`--live`) and kept.
fn time(binary: &Path, options: &Options) -> Result<Option<Figure>> {
    let capture = repo::engines()?.join(format!("why/{MANY}.cap"));
    if !capture.is_file() {
        if !options.live {
            say::warn("the time on 10,000 requests is not measured: `bench why --live` records them once");
            return Ok(None);
        }
        record_many(binary, &capture)?;
    }
    let begun = Instant::now();
    let mut why = Command::new(binary);
    let answer = shell::capture(why.args(["why", "--json", "--capture"]).arg(&capture))?;
    let seconds = begun.elapsed().as_secs_f64();
    let answer: Value = serde_json::from_str(&answer)?;
    let seen = answer["seen"].as_u64().unwrap_or(0);
    let megabytes = real(std::fs::metadata(&capture)?.len()) / 1e6;
    let what = format!("why: answer on a capture of {seen} requests ({megabytes:.0} MB)");
    Ok(Some(figure(what, format!("{seconds:.2} s"), "")))
}

fn record_many(binary: &Path, capture: &Path) -> Result<()> {
    let engine = Engine::Vllm;
    let server = engine.start(engine.default_version(), 0, &[], &[])?;
    let recorder = Recorder::start(binary, &server, capture)?;
    let count = MANY.to_string();
    let load = ["--mode", "chat", "--requests", &count, "--concurrency", "16", "--max-tokens", "4"];
    let loaded = Background::start(&server, &load, None).and_then(Background::wait);
    let recorded = recorder.stop();
    server.stop()?;
    loaded.and(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_counts_as_named_only_where_it_is_named_first() {
        let mut outcome = Outcome::default();
        outcome.take(Some("kv_full"), Some("kv_full"));
        outcome.take(Some("kv_full"), Some("long_prefill"));
        outcome.take(None, None);
        outcome.take(None, Some("arrivals"));
        assert_eq!((outcome.named, outcome.injected, outcome.blamed, outcome.healthy), (1, 2, 1, 2));
        assert_eq!(outcome.says(), "2 of 4 right; named: arrivals 1, kv_full 1, long_prefill 1, nothing 1");
    }

    #[test]
    fn the_first_cause_is_found_by_the_requests_id() {
        let answer = serde_json::json!({"requests": [{"ids": ["cmpl-a", "cmpl-a-0"], "causes": [{"cause": "kv_full"}]}]});
        assert_eq!(first_cause(&answer, "cmpl-a"), Some("kv_full"));
        assert_eq!(first_cause(&answer, "cmpl-b"), None);
    }
}
