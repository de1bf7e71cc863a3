//! A real SGLang's own objects, read while it serves: what they say equals what SGLang says. As root.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use enginetap::discover::proc::Proc;
use enginetap::heap::Interpreter;
use enginetap::session::clock;
use enginetap_core::dialect::signal::sglang::{FrontendTimes, ReqState};
use enginetap_core::heap::sglang::{Frontend, Scheduler};
use enginetap_core::ids::Pid;
use enginetap_core::loss::Losses;
use enginetap_tests::engine::Server;
use serde_json::{Value as Json, json};

/// Times are on the wire too: the server says what is compared.
const OPTIONS: [&str; 4] = ["--enable-metrics", "--chunked-prefill-size", "32", "--sleep-on-idle"];
/// Between two samples.
const PAUSE: Duration = Duration::from_millis(5);
/// Requests at once, and one after the other.
const CLIENTS: usize = 6;
const EACH: usize = 8;

/// What was read of the objects while requests ran.
#[derive(Default)]
struct Sampled {
    states: BTreeMap<String, ReqState>,
    frontend: BTreeMap<String, FrontendTimes>,
    decodes: BTreeMap<String, usize>,
    /// Requests that the last sample found.
    left: usize,
    samples: u32,
    busy: u32,
    spent: Duration,
    /// Calls and pieces of samples with requests.
    cost: (u64, u64),
    losses: Losses,
}

#[test]
fn times_read_from_the_objects_are_those_the_server_tells() -> Result<()> {
    let server = Server::sglang(&OPTIONS, &[])?;
    let frontend = Pid(u32::try_from(server.pid)?);
    let scheduler = scheduler(frontend)?;
    let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (told, sampled) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(scheduler, frontend, &ready, &stop));
        while !ready.load(Ordering::Relaxed) && !sampler.is_finished() {
            std::thread::sleep(PAUSE);
        }
        let told = requests(server.port);
        // Requests that ended are gone from the objects after a while.
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        let sampled = sampler.join().map_err(|_| anyhow::anyhow!("the sampler broke"))?;
        anyhow::Ok((told?, sampled?))
    })?;
    let mut seen = 0;
    for meta in &told {
        let id = meta["id"].as_str().context("no id")?;
        let Some(state) = sampled.states.get(id) else { continue };
        let times = state.times;
        let (Some(queued), Some(forward)) = (times.queued, times.forward) else { continue };
        seen += 1;
        assert_eq!(Some(forward.since(queued).0), meta["queue_time"].as_f64(), "{id}: {times:?}");
        if let Some(finished) = times.prefill_finished {
            ensure!(finished > forward, "{id}: {times:?}");
        }
        assert_eq!(state.prompt_tokens, meta["prompt_tokens"].as_u64(), "{id}");
        ensure!(state.output_tokens <= meta["completion_tokens"].as_u64(), "{id}: {state:?}");
    }
    let Sampled { states, frontend, decodes, left, samples, busy, spent, cost, losses } = sampled;
    println!(
        "{seen} of {} requests seen with their times, all equal; {} with {} moments of decode steps; {} of the frontend; \
         {left} left; {samples} samples, {busy} with requests, {:?}, {} calls and {} pieces each; \
         refused: {losses:?}",
        told.len(),
        states.len(),
        decodes.values().sum::<usize>(),
        frontend.len(),
        spent / busy.max(1),
        cost.0 / u64::from(busy.max(1)),
        cost.1 / u64::from(busy.max(1)),
    );
    // A sample may come late on a busy machine; a request lives for many.
    ensure!(10 * seen >= 9 * told.len(), "{seen} of {} requests were seen", told.len());
    ensure!(
        told.iter().filter(|meta| frontend.contains_key(meta["id"].as_str().unwrap_or_default())).count()
            * 10
            >= 9 * told.len()
    );
    ensure!(left == 0 && decodes.values().any(|steps| *steps > 1));
    Ok(())
}

/// The server's scheduler.
fn scheduler(frontend: Pid) -> Result<Pid> {
    let table = Proc::system().table()?;
    let titled = |title: &str| title.starts_with("sglang::scheduler");
    let found = table
        .iter()
        .find(|entry| entry.parent == frontend && entry.argv.first().is_some_and(|title| titled(title)));
    Ok(found.context("the server has no scheduler")?.pid)
}

/// Reads the objects again and again.
fn sample(scheduler: Pid, frontend: Pid, ready: &AtomicBool, stop: &AtomicBool) -> Result<Sampled> {
    let mut heap = Interpreter::find(&Proc::system(), scheduler)?.open()?;
    let mut reader = Scheduler::find(&mut heap, scheduler)?.context("no event loop")?;
    let mut of_frontend = Interpreter::find(&Proc::system(), frontend)?.open()?;
    let mut frontend = Frontend::find(&mut of_frontend, frontend)?.context("no frontend")?;
    let mut sampled = Sampled::default();
    ready.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        let (begun, before) = (Instant::now(), heap.cost());
        let read = reader.sample(&mut heap, clock().mono, None);
        (sampled.samples, sampled.left) = (sampled.samples + 1, read.requests);
        if read.requests > 0 {
            sampled.busy += 1;
            sampled.spent += begun.elapsed();
            sampled.cost.0 += heap.cost().calls - before.calls;
            sampled.cost.1 += heap.cost().pieces - before.pieces;
        }
        if let Some(snapshot) = read.snapshot {
            for state in snapshot.requests {
                let decoded = |state: &ReqState| state.times.last_decode_finished;
                if decoded(&state).is_some()
                    && sampled.states.get(&state.rid).map(decoded) != Some(decoded(&state))
                {
                    *sampled.decodes.entry(state.rid.clone()).or_default() += 1;
                }
                sampled.states.insert(state.rid.clone(), state);
            }
        }
        let (snapshot, _) = frontend.sample(&mut of_frontend, clock().mono);
        sampled.frontend.extend(snapshot.into_iter().flat_map(|snapshot| snapshot.requests));
        std::thread::sleep(PAUSE);
    }
    sampled.losses = heap.refused().losses(&Default::default());
    Ok(sampled)
}

/// What the server said of each of many requests.
fn requests(port: u64) -> Result<Vec<Json>> {
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || client_of(port, client))).collect();
        let mut told = Vec::new();
        for client in clients {
            told.extend(client.join().map_err(|_| anyhow::anyhow!("a client broke"))??);
        }
        Ok(told)
    })
}

fn client_of(port: u64, client: usize) -> Result<Vec<Json>> {
    (0..EACH).map(|number| generate(port, client * EACH + number)).collect()
}

fn generate(port: u64, number: usize) -> Result<Json> {
    let text = format!("tell me a story of {number} ").repeat(4 + number % 9);
    let body = json!({ "text": text, "sampling_params": { "max_new_tokens": 12 + number % 20, "ignore_eos": true } });
    let body = body.to_string();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    write!(
        stream,
        "POST /generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("no body")?.1;
    let answer: Json = serde_json::from_str(body).with_context(|| answer.clone())?;
    Ok(answer["meta_info"].clone())
}
