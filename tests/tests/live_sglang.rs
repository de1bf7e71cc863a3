//! The agent on a real SGLang under mixed load, against the server's own truth: its tracing, its `/metrics`, and what the
//! client saw. Two servers serve all tests, one after the other: one that traces and counts itself, and one as it comes.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use enginetap_tests::captures::Metrics;
use enginetap_tests::collector::Collector;
use enginetap_tests::engine::{Agent, Seen, Server, int, items, text};
use enginetap_tests::trees::{Tree, compare, native, seen};
use serde_json::Value as Json;

/// What was seen of one server.
struct Run {
    /// What the client saw, request by request.
    client: Vec<Json>,
    /// What the agent saw of the same requests.
    seen: Seen,
    /// Its request trees by rid.
    trees: BTreeMap<String, Tree>,
}

/// Both servers.
struct Runs {
    /// The one that traces and counts itself.
    told: Run,
    /// Its own request trees.
    own: BTreeMap<String, Tree>,
    /// What it counted of the requests.
    counted: Metrics,
    /// The one with no flag for observers.
    plain: Run,
}

/// Small chunks, so that long prompts are chunked; few tokens, so that requests queue.
const OPTIONS: &[&str] = &["--chunked-prefill-size", "64", "--max-running-requests", "8"];

/// Every 40th decode step sends a request back to the queue.
const RETRACT: [(&str, &str); 2] = [("SGLANG_TEST_RETRACT", "1"), ("SGLANG_TEST_RETRACT_INTERVAL", "40")];

fn runs() -> &'static Runs {
    static RUNS: OnceLock<Result<Runs>> = OnceLock::new();
    // A server that does not come up is not tried again for each test.
    RUNS.get_or_init(see).as_ref().unwrap_or_else(|error| panic!("{error:#}"))
}

fn see() -> Result<Runs> {
    let collector = Collector::start()?;
    let flags = ["--enable-metrics", "--enable-trace", "--otlp-traces-endpoint"];
    let options: Vec<&str> =
        OPTIONS.iter().copied().chain(flags).chain([collector.endpoint.as_str()]).collect();
    let environment: Vec<(&str, &str)> = RETRACT
        .into_iter()
        .chain([("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"), ("SGLANG_TRACE_LEVEL", "3")])
        .collect();
    let server = Server::sglang(&options, &environment)?;
    let before = server.metrics()?;
    let told = watched(&server)?;
    let counted = server.metrics()?.since(&before);
    // The exporter sends in batches.
    std::thread::sleep(Duration::from_secs(6));
    drop(server);
    let own = native(&collector.all());
    let server = Server::sglang(OPTIONS, &RETRACT)?;
    let plain = watched(&server)?;
    Ok(Runs { told, own, counted, plain })
}

/// The same load for both.
fn watched(server: &Server) -> Result<Run> {
    let agent = Agent::attach(server, &[])?;
    let mut client = server.load(&["-n", "50", "-c", "6", "--max-tokens", "30"])?;
    // More than run at once.
    let crowd =
        ["-n", "20", "-c", "20", "--max-tokens", "60", "--mode", "generate-stream,long", "--seed", "1"];
    client.extend(server.load(&crowd)?);
    client.extend(server.load(&["-n", "2", "-c", "1", "--mode", "tools", "--seed", "2"])?);
    // The last tokens of aborted requests are still on their way, and a last snapshot is to be read.
    std::thread::sleep(Duration::from_secs(3));
    let seen = agent.stop()?;
    println!("the agent's own figures: {}", seen.figures);
    let trees = self::seen(&seen.spans);
    Ok(Run { client, seen, trees })
}

/// How many requests of the engine a request of the client's makes.
fn engine_requests(asked: &Json) -> RangeInclusive<usize> {
    match asked["kind"].as_str().unwrap() {
        "bad" => 0..=0,
        // Before the two samples one request with no output caches what they have in common; a fourth, the one that was
        // asked for, is seen if the frontend is read while that goes on.
        "parallel" | "generate-parallel" => 3..=4,
        "batch" | "generate-batch" => 3..=3,
        _ => 1..=1,
    }
}

#[test]
fn each_request_of_the_client_is_one_entry_span_and_its_engine_requests_trees_below_it() {
    for run in [&runs().told, &runs().plain] {
        let entries: Vec<&Json> =
            run.seen.spans.iter().filter(|span| text(span, "gen_ai.span.kind").is_some()).collect();
        assert_eq!(entries.len(), run.client.len());
        let expected = run.client.iter().map(engine_requests);
        let (least, most) = expected.fold((0, 0), |(least, most), of| (least + of.start(), most + of.end()));
        assert!((least..=most).contains(&run.trees.len()), "{} of {least} to {most}", run.trees.len());
        for asked in &run.client {
            let Some(id) = asked["id"].as_str() else { continue };
            let of_id: Vec<&&Json> =
                entries.iter().filter(|span| text(span, "gen_ai.response.id") == Some(id)).collect();
            let [entry] = of_id.as_slice() else { panic!("{} entry spans of {asked}", of_id.len()) };
            let below = run.trees.values().filter(|tree| tree.parent == entry["spanId"].as_str().unwrap());
            let below: Vec<&Tree> = below.collect();
            assert!(engine_requests(asked).contains(&below.len()), "{} of {asked}\n{entry}", below.len());
            if let Some(tokens) = asked["usage"]["completion_tokens"].as_i64()
                && asked["aborted"] != true
            {
                let counted: i64 =
                    below.iter().filter_map(|tree| int(tree.root(), "gen_ai.usage.completion_tokens")).sum();
                assert_eq!(counted, tokens, "{asked}");
            }
            if let Some(parent) = asked["traceparent"].as_str() {
                let parts: Vec<&str> = parent.split('-').collect();
                assert_eq!(entry["traceId"].as_str(), Some(parts[1]));
            }
        }
    }
}

/// Whether a request tree is that of a request which only fills the cache for parallel samples.
fn fills(tree: &Tree) -> bool {
    int(tree.root(), "gen_ai.usage.completion_tokens") == Some(0)
}

/// What a request tree lacks.
fn lacks(tree: &Tree, tokens: i64) -> Vec<&'static str> {
    let counts = tree.counts();
    let count = |stage: &str| counts.get(stage).copied().unwrap_or(0);
    let once = ["tokenize", "api_server_dispatch", "request_process", "prefill_waiting"];
    let mut missing: Vec<&str> = once.into_iter().filter(|stage| count(stage) != 1).collect();
    // A retraction makes them anew.
    let often: &[&str] =
        if tokens > 1 { &["prefill_forward", "decode_forward"] } else { &["prefill_forward"] };
    missing.extend(often.iter().filter(|stage| count(stage) == 0));
    missing
}

#[test]
fn requests_that_ended_normally_have_their_full_tree() {
    for (name, run) in [("told", &runs().told), ("plain", &runs().plain)] {
        let (mut wrong, mut loops, mut steps) = (Vec::new(), 0, 0);
        for (rid, tree) in run.trees.iter().filter(|(_, tree)| !fills(tree)) {
            let Some(tokens) = int(tree.root(), "gen_ai.usage.completion_tokens") else { continue };
            let missing = lacks(tree, tokens);
            loops += tree.stages("decode_loop").len();
            // Each prefill gave one of the tokens.
            steps += usize::try_from(tokens).unwrap().saturating_sub(tree.prefills());
            if !missing.is_empty() {
                wrong.push(format!("{rid}: {tokens} tokens, {missing:?} in {:?}", tree.counts()));
            }
        }
        println!("{name}: {} trees, {loops} of {steps} decode loops, not whole: {wrong:?}", run.trees.len());
        // Of a request that is over between two readings of a busy machine, something may be missed.
        assert!(wrong.len() * 20 <= run.trees.len(), "{name}: {} of {}", wrong.len(), run.trees.len());
        assert!(loops * 100 >= steps * 90, "{name}: {loops} of {steps}");
    }
}

/// Stages; of how many percent of the requests there are as many as SGLang says; how many percent of their begins and of
/// their ends are within a millisecond of its own. Moments that its objects keep are exact. The end of decoding, plans
/// and steps that are over before they are read are estimates: see `docs/ARCHITECTURE.md`.
const STAGES: &[(&str, usize, [usize; 2])] = &[
    ("tokenize", 95, [95, 95]),
    ("api_server_dispatch", 95, [95, 95]),
    ("request_process", 95, [95, 95]),
    ("prefill_waiting", 95, [95, 95]),
    ("prefill_forward", 95, [95, 95]),
    ("chunked_prefill", 90, [90, 90]),
    ("decode_waiting", 90, [95, 60]),
    ("decode_forward", 95, [70, 65]),
    ("decode_loop", 80, [80, 80]),
];

#[test]
fn the_stages_are_those_of_sglangs_own_tracing() {
    let Runs { told, own, .. } = runs();
    assert!(own.len() > 60, "SGLang exported {} requests", own.len());
    let (mut by_name, unseen) = compare(&told.trees, own);
    // The server's own warm-up, before the agent came; the request that parallel samples were asked for by, where it was
    // over before the frontend was read.
    println!("not seen: {}", unseen.join("; "));
    assert!(unseen.len() <= 3, "{} of {}", unseen.len(), own.len());
    for (name, compared) in &mut by_name {
        compared.tell(name);
    }
    for (name, counts, moments) in STAGES {
        let compared = &by_name[*name];
        assert!(compared.counts() >= *counts, "{name}: {compared:?}");
        assert!(
            compared.near().iter().zip(moments).all(|(near, least)| near >= least),
            "{name}: {compared:?}"
        );
    }
}

#[test]
fn retractions_and_schedules_are_events() {
    for run in [&runs().told, &runs().plain] {
        let events: Vec<&Json> = run.seen.spans.iter().flat_map(|span| items(&span["events"])).collect();
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert!(count("retract") > 0, "no retract event");
        assert!(count("schedule") > run.trees.len(), "{} schedule events", count("schedule"));
    }
}

/// Counts: ours, the server's.
const EQUAL: &[(&str, &str)] = &[
    ("prompt_tokens_total", "sglang:prompt_tokens_total"),
    ("generation_tokens_total", "sglang:generation_tokens_total"),
    ("gen_ai_sglang_cached_tokens_total", "sglang:cached_tokens_total"),
    ("num_requests_total", "sglang:num_requests_total"),
];

#[test]
fn the_token_counts_equal_the_servers_own() {
    let Runs { told, counted, .. } = runs();
    let mut wrong = Vec::new();
    for (ours, theirs) in EQUAL {
        let (mine, own) = (told.seen.metrics.get(*ours).copied(), counted.sum(theirs));
        if mine != own {
            wrong.push(format!("{ours}: {mine:?}, the server says {own:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_metric_moves() {
    for (name, run) in [("told", &runs().told), ("plain", &runs().plain)] {
        let still: Vec<&str> = MOVING
            .iter()
            .copied()
            .filter(|metric| !run.seen.metrics.get(*metric).is_some_and(|v| *v > 0.0))
            .collect();
        assert!(still.is_empty(), "{name}: {still:?} of {:?}", run.seen.metrics);
    }
}

/// The metrics that this load moves: no speculative decoding runs.
const MOVING: &[&str] = &[
    "genai_llm_usage_tokens",
    "prompt_tokens_total",
    "generation_tokens_total",
    "gen_ai_sglang_cached_tokens_total",
    "num_requests_total",
    "gen_ai_server_time_to_first_token",
    "gen_ai_server_time_per_output_token",
    "sglang_inter_token_latency_seconds",
    "gen_ai_server_request_duration",
    "sglang_num_running_reqs",
    "sglang_num_queue_reqs",
    "sglang_num_used_tokens",
    "sglang_token_usage",
    "sglang_gen_throughput",
    "sglang_log_count",
];

#[test]
fn nothing_is_lost_and_little_is_used() {
    for run in [&runs().told, &runs().plain] {
        assert_eq!(run.seen.figures["lost"], 0, "{}", run.seen.figures);
        assert!(run.seen.figures["rss_bytes"].as_u64().unwrap() < 100 << 20, "{}", run.seen.figures);
    }
}
