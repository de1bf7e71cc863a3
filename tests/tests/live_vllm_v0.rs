//! The agent on a real vLLM whose engine is V0, against what the server counted and what the client saw. It runs where
//! the version under test has that engine (`cargo xtask test --only vllm --vllm 0.9.2`), and says so where not.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use enginetap_tests::captures::{Metrics, V0_COUNTS};
use enginetap_tests::engine::{Agent, Seen, Server, attribute, int, text};
use serde_json::Value as Json;

/// Everything that was seen of one run.
struct Run {
    /// What the client saw, request by request.
    client: Vec<Json>,
    /// What the server counted meanwhile.
    server: Metrics,
    /// What the agent saw of the same requests.
    seen: Seen,
}

/// Little KV cache, so that requests are preempted.
const OPTIONS: &[&str] = &["--num-gpu-blocks-override", "72", "--block-size", "32"];
const V0: (&str, &str) = ("VLLM_USE_V1", "0");

/// The run, where the version under test has a V0 engine that runs on a CPU: 0.8 and 0.9.
fn run() -> Option<&'static Run> {
    static RUN: OnceLock<Option<Result<Run>>> = OnceLock::new();
    let version = std::env::var("ENGINETAP_VLLM_VERSION").unwrap_or_default();
    let has = version.starts_with("0.8.") || version.starts_with("0.9.");
    if !has {
        println!("skipped: vLLM {version} has no V0 engine that runs here; try `--vllm 0.9.2`");
    }
    let run = RUN.get_or_init(|| has.then(see)).as_ref()?;
    Some(run.as_ref().unwrap_or_else(|error| panic!("{error:#}")))
}

fn see() -> Result<Run> {
    let server = Server::vllm(OPTIONS, &[V0])?;
    // The engine counts an idle step every ten seconds.
    let before = server.metrics()?;
    let agent = Agent::attach(&server, &[])?;
    // Its objects are looked at within a second.
    std::thread::sleep(Duration::from_secs(2));
    let mut client = server.load(&["-n", "40", "-c", "4", "--max-tokens", "30"])?;
    let many = ["-n", "14", "-c", "14", "--max-tokens", "250", "--mode", "completion", "--seed", "1"];
    client.extend(server.load(&many)?);
    std::thread::sleep(Duration::from_secs(3));
    let server = server.metrics()?.since(&before);
    let seen = agent.stop()?;
    println!("the agent's own figures: {}", seen.figures);
    Ok(Run { client, server, seen })
}

#[test]
fn v0_counts_equal_the_servers_own() {
    let Some(Run { server, seen, .. }) = run() else { return };
    let mut wrong = Vec::new();
    for (ours, theirs) in V0_COUNTS {
        let (our, their) = (seen.metrics.get(ours).copied(), server.sum(theirs));
        println!("{ours}: {our:?} {their:?}");
        if our.is_none() || our != their {
            wrong.push(format!("{ours} is {our:?}, the server says {their:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(server.sum("vllm:num_preemptions_total").unwrap() > 0.0, "the load preempted nothing");
    // Less those of an idle engine.
    let (ours, theirs) =
        (seen.metrics["vllm_iter_count"], server.sum("vllm:iteration_tokens_total_count").unwrap());
    assert!(ours <= theirs && ours + 5.0 >= theirs, "{ours} steps, the server says {theirs}");
}

#[test]
fn v0_has_all_its_gauges() {
    let Some(Run { seen, .. }) = run() else { return };
    for name in [
        "num_running_sys",
        "num_waiting_sys",
        "num_swapped_sys",
        "gpu_cache_usage_sys",
        "cpu_cache_usage_sys",
    ] {
        // All is over.
        assert_eq!(seen.metrics.get(name), Some(&0.0), "{name}");
    }
}

#[test]
fn each_request_to_v0_is_one_trace_with_the_engines_times() {
    let Some(Run { client, seen, .. }) = run() else { return };
    let entries: BTreeMap<&str, &Json> = seen
        .spans
        .iter()
        .filter(|span| text(span, "gen_ai.span.kind").is_some())
        .filter_map(|span| Some((text(span, "gen_ai.response.id")?, span)))
        .collect();
    let (mut finished, mut timed) = (0, 0);
    for asked in client {
        let Some(id) = asked["id"].as_str() else { continue };
        let entry = entries.get(id).unwrap_or_else(|| panic!("no trace of {asked}"));
        let engine: Vec<&Json> =
            seen.spans.iter().filter(|span| span["parentSpanId"] == entry["spanId"]).collect();
        // Several candidates are one request to V0's engine; several prompts are several.
        let expected = if asked["kind"] == "batch" { 3 } else { 1 };
        assert_eq!(engine.len(), expected, "{asked}\n{entry}");
        if let Some(tokens) = asked["usage"]["completion_tokens"].as_i64() {
            let counted: i64 =
                engine.iter().map(|it| int(it, "gen_ai.usage.completion_tokens").unwrap()).sum();
            assert_eq!(counted, tokens, "{asked}");
        }
        if asked["kind"] == "parallel" {
            assert_eq!(int(engine[0], "gen_ai.usage.num_sequences"), Some(2), "{asked}");
        }
        for span in engine.iter().filter(|span| text(span, "enginetap.finish_reason") != Some("abort")) {
            finished += 1;
            assert!(attribute(span, "gen_ai.latency.e2e").is_some(), "{span}");
            let times = ["gen_ai.latency.time_in_queue", "gen_ai.latency.time_to_first_token"];
            timed += usize::from(times.iter().all(|key| attribute(span, key).is_some()));
        }
    }
    // Of requests for several candidates the engine's objects tell them, where they were looked at in time.
    println!("{timed} of {finished} finished requests have all times");
    assert!(finished > 40 && timed * 10 >= finished * 9, "{timed} of {finished}");
}

#[test]
fn nothing_of_v0_is_lost() {
    let Some(Run { seen, .. }) = run() else { return };
    assert_eq!(seen.figures["lost"], 0, "{}", seen.figures);
}

/// No message and no file tells of an engine in the API server's process.
#[test]
fn v0_in_the_api_servers_process_is_read_by_its_objects() {
    if run().is_none() {
        return;
    }
    let options = [OPTIONS, &["--disable-frontend-multiprocessing"]].concat();
    let server = Server::vllm(&options, &[V0]).unwrap();
    let agent = Agent::attach(&server, &[]).unwrap();
    // The engine is found while it works: then its requests and counts are told.
    let beside = ["-d", "6", "-c", "4", "--max-tokens", "100", "--mode", "completion", "--quiet"];
    let first = server.load_beside(&beside).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    drop(first);
    let eight = ["-n", "8", "-c", "8", "--max-tokens", "200", "--mode", "completion", "--seed", "2"];
    let client = server.load(&eight).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let seen = agent.stop().unwrap();
    for name in ["num_running_sys", "num_waiting_sys", "num_swapped_sys", "cpu_cache_usage_sys"] {
        assert_eq!(seen.metrics.get(name), Some(&0.0), "{name}");
    }
    for name in ["vllm_iter_count", "num_prompt_tokens_iter", "num_tokens_iter"] {
        assert!(seen.metrics[name] > 100.0, "{name}: {:?}", seen.metrics);
    }
    let mut timed = 0;
    for asked in &client {
        let id = asked["id"].as_str().unwrap();
        let entry = seen.spans.iter().find(|span| text(span, "gen_ai.response.id") == Some(id)).unwrap();
        let Some(engine) = seen.spans.iter().find(|span| span["parentSpanId"] == entry["spanId"]) else {
            continue;
        };
        assert_eq!(int(engine, "gen_ai.usage.completion_tokens"), Some(200));
        timed += usize::from(attribute(engine, "gen_ai.latency.time_in_queue").is_some());
    }
    assert!(timed >= 6, "{timed} of {} have an engine span with its times", client.len());
}
