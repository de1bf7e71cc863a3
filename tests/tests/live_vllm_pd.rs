//! The agent on two real vLLMs at once: one prefills, the other pulls the KV cache with NIXL and decodes, driven as a proxy
//! drives them. What it says of both is held against what the servers count themselves. Then the prefill server goes.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use enginetap_tests::captures::{Metrics, VLLM_TOTALS};
use enginetap_tests::engine::{Agent, Seen, Server, attribute, int, text};
use serde_json::{Value as Json, json};

/// Everything that was seen.
struct Run {
    /// What the client saw, request by request.
    client: Vec<Json>,
    /// What both servers counted: prefill, decode.
    servers: [Metrics; 2],
    /// What one agent saw of both.
    seen: Seen,
    /// What another saw of the decode server when the prefill server had gone.
    orphan: Seen,
}

fn run() -> &'static Run {
    static RUN: OnceLock<Result<Run>> = OnceLock::new();
    RUN.get_or_init(see).as_ref().unwrap_or_else(|error| panic!("{error:#}"))
}

fn see() -> Result<Run> {
    let [prefill, decode] = Server::vllm_pair()?;
    let agent = Agent::attach(&decode, &["--pid", &prefill.pid.to_string()])?;
    let to = format!("http://127.0.0.1:{}", prefill.port);
    let kinds = ["--mode", "traced,completion,completion-stream,prefix"];
    let count = ["--prefill-url", &to, "-n", "10", "-c", "2", "--max-tokens", "12"];
    let client = decode.load(&[kinds.as_slice(), &count].concat())?;
    std::thread::sleep(Duration::from_secs(2));
    let servers = [prefill.metrics()?, decode.metrics()?];
    let seen = agent.stop()?;
    println!("the agent's own figures: {}", seen.figures);

    let agent = Agent::attach(&decode, &[])?;
    let body = json!({"model": "tiny", "prompt": (100..160).collect::<Vec<u32>>(), "max_tokens": 1,
        "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false}});
    let (status, told) = prefill.post("/v1/completions", &body)?;
    ensure!(status == 200, "the prefill server says {told}");
    drop(prefill);
    let mut body = body;
    body["kv_transfer_params"] = told.get("kv_transfer_params").context("no KV cache was kept")?.clone();
    body["max_tokens"] = json!(4);
    let (status, told) = decode.post("/v1/completions", &body)?;
    ensure!(status == 500, "a KV cache came from a server that is gone: {told}");
    Ok(Run { client, servers, seen, orphan: agent.stop()? })
}

#[test]
fn the_metrics_of_both_equal_the_servers_own() {
    let Run { servers: [prefill, decode], seen, .. } = run();
    let mut wrong = Vec::new();
    for (ours, theirs) in VLLM_TOTALS {
        let their = prefill.sum(theirs).unwrap() + decode.sum(theirs).unwrap();
        let our = seen.metrics.get(ours).copied();
        println!("{ours}: {our:?} {their}");
        if our.is_none_or(|our| (our - their).abs() > 1e-9 * their.max(1.0)) {
            wrong.push(format!("{ours}: {our:?}, the servers say {their}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.figures["lost"], 0, "{}", seen.figures);
}

fn under<'a>(seen: &'a Seen, parent: &'a Json) -> Vec<&'a Json> {
    let of = |span: &&Json| span["parentSpanId"] == parent["spanId"] && span["traceId"] == parent["traceId"];
    seen.spans.iter().filter(of).collect()
}

fn names(spans: &[&Json]) -> Vec<String> {
    spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect()
}

fn role(span: &Json) -> Option<&str> {
    text(span, "gen_ai.pd_role")
}

/// The entry spans of a response: one a server, both by the id that the proxy gave it.
fn engines<'a>(seen: &'a Seen, id: &'a str) -> Vec<(&'a Json, &'a Json)> {
    let entries = seen.spans.iter().filter(|span| text(span, "gen_ai.response.id") == Some(id));
    entries.map(|entry| (entry, *under(seen, entry).first().expect("an engine span"))).collect()
}

#[test]
fn each_request_is_prefilled_on_one_and_pulled_and_decoded_on_the_other() {
    let Run { client, seen, .. } = run();
    for asked in client {
        let id = asked["id"].as_str().unwrap();
        let both = engines(seen, id);
        let of = |wanted: &str| both.iter().find(|(_, engine)| role(engine) == Some(wanted)).unwrap();
        let ((_, prefill), (_, decode)) = (of("producer"), of("consumer"));
        assert_eq!(both.len(), 2, "{asked}");
        assert_eq!(names(&under(seen, prefill)), ["wait", "prefill"]);
        assert_eq!(int(prefill, "gen_ai.latency.time_in_model_decode"), Some(0));
        let stages = under(seen, decode);
        assert_eq!(names(&stages), ["wait", "decode"], "{decode}");
        assert!(stages.iter().all(|stage| role(stage) == Some("consumer")));
        assert_eq!(int(decode, "gen_ai.latency.time_in_model_prefill"), Some(0));
        let inside = under(seen, stages[0]);
        let [pull] = inside.as_slice() else { panic!("in the wait of {decode}: {inside:?}") };
        assert_eq!(
            (pull["name"].as_str(), text(pull, "gen_ai.kv_transfer.direction")),
            (Some("kv_transfer"), Some("recv"))
        );
        assert!(int(pull, "gen_ai.kv_transfer.cached_tokens").unwrap() > 0, "{pull}");
        let failed = attribute(pull, "gen_ai.kv_transfer.failed").unwrap();
        assert_eq!(failed, &json!(false), "{pull}");
        // How the two are found where the ids are not the proxy's.
        assert_eq!(
            text(decode, "enginetap.kv_transfer.remote_request_id"),
            text(prefill, "gen_ai.request.id")
        );
    }
}

#[test]
fn halves_with_a_callers_trace_are_one_trace() {
    let Run { client, seen, .. } = run();
    let mut traced = 0;
    for asked in client {
        let Some(parent) = asked["traceparent"].as_str() else { continue };
        traced += 1;
        let parts: Vec<&str> = parent.split('-').collect();
        for (entry, engine) in engines(seen, asked["id"].as_str().unwrap()) {
            assert_eq!(
                (entry["traceId"].as_str(), entry["parentSpanId"].as_str()),
                (Some(parts[1]), Some(parts[2]))
            );
            assert_eq!(engine["traceId"], entry["traceId"]);
        }
    }
    assert!(traced > 0, "no request had a caller's trace");
}

#[test]
fn the_pulls_take_what_the_server_says_they_take() {
    let Run { servers: [_, decode], seen, .. } = run();
    let all = seen.spans.iter().filter_map(|span| int(span, "gen_ai.latency.time_in_kv_transfer"));
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a few requests")]
    let ours = all.sum::<i64>() as f64 / 1e9;
    let theirs = decode.sum("vllm:nixl_xfer_time_seconds_sum").unwrap();
    assert!((ours - theirs).abs() < 1e-6, "{ours} s, the server says {theirs} s");
    let pulled =
        seen.spans.iter().filter_map(|span| int(span, "gen_ai.kv_transfer.cached_tokens")).sum::<i64>();
    let theirs = decode.sum("vllm:external_prefix_cache_hits_total").unwrap();
    assert_eq!(pulled.to_string(), format!("{theirs:.0}"));
}

#[test]
fn a_pull_from_a_server_that_is_gone_has_failed() {
    let Run { orphan, .. } = run();
    let pulls: Vec<&Json> = orphan.spans.iter().filter(|span| span["name"] == "kv_transfer").collect();
    let [pull] = pulls.as_slice() else { panic!("{pulls:#?}") };
    assert_eq!(attribute(pull, "gen_ai.kv_transfer.failed"), Some(&json!(true)), "{pull}");
    let engine = orphan.spans.iter().find(|span| span["name"] == "llm_request").unwrap();
    assert_eq!(text(engine, "enginetap.finish_reason"), Some("error"), "{engine}");
}
