//! The agent on a real vLLM under mixed load, against the server's own truth: its `/metrics`, its own OTel spans,
//! and what the client saw, over HTTP and over HTTPS. One server of each serves all tests: it takes a minute to come up.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use enginetap_tests::captures::{Metrics, VLLM_TOTALS};
use enginetap_tests::collector::Collector;
use enginetap_tests::engine::{Agent, Seen, Server, int, items, text};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as OwnSpan;
use serde_json::Value as Json;

/// Everything that was seen of one run.
struct Run {
    /// What the client saw, request by request.
    client: Vec<Json>,
    /// What the server counted.
    server: Metrics,
    /// The server's own spans.
    own: Vec<OwnSpan>,
    /// What the agent saw of the same requests.
    whole: Seen,
    /// What a second agent saw that came and went in the middle of a load.
    middle: Seen,
    /// A profile of the same load.
    profile: Json,
}

/// Little KV cache, so that requests are preempted; the server's own tracing on, to compare with.
const OPTIONS: &[&str] = &["--num-gpu-blocks-override", "72", "--block-size", "32"];

/// How clients reach the server.
#[derive(Clone, Copy, Debug)]
enum Scheme {
    Http,
    /// Its plain text is taken from its TLS library.
    Https,
}

/// The same over HTTP and over HTTPS.
fn runs() -> [&'static Run; 2] {
    static HTTP: OnceLock<Result<Run>> = OnceLock::new();
    static HTTPS: OnceLock<Result<Run>> = OnceLock::new();
    // A server that does not come up is not tried again for each test.
    [(&HTTP, Scheme::Http), (&HTTPS, Scheme::Https)].map(|(run, scheme)| {
        println!("over {scheme:?}");
        run.get_or_init(|| see(scheme)).as_ref().unwrap_or_else(|error| panic!("{error:#}"))
    })
}

fn see(scheme: Scheme) -> Result<Run> {
    let collector = Collector::start()?;
    let options: Vec<&str> =
        OPTIONS.iter().copied().chain(["--otlp-traces-endpoint", &collector.endpoint]).collect();
    let environment =
        [("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"), ("OTEL_BSP_SCHEDULE_DELAY", "500")];
    let server = match scheme {
        Scheme::Http => Server::vllm(&options, &environment)?,
        Scheme::Https => Server::vllm_over_https(&options, &environment)?,
    };

    let agent = Agent::attach(&server, &["--level", "2"])?;
    let mut client = server.load(&["-n", "60", "-c", "6", "--max-tokens", "40"])?;
    // Four times what the KV cache holds: some are preempted however slowly the clients come.
    client.extend(server.load(&[
        "-n",
        "32",
        "-c",
        "32",
        "--max-tokens",
        "250",
        "--mode",
        "completion",
        "--seed",
        "1",
    ])?);
    // The last tokens of aborted requests are still on their way.
    std::thread::sleep(Duration::from_secs(3));
    let counted = server.metrics()?;
    let whole = agent.stop()?;
    let own = collector.spans("llm_request");

    let beside = ["-d", "60", "-c", "6", "--max-tokens", "100", "--mode", "chat-stream", "--quiet"];
    let load = server.load_beside(&beside)?;
    server.until_running(3.0)?;
    let agent = Agent::attach(&server, &[])?;
    std::thread::sleep(Duration::from_secs(3));
    server.until_running(3.0)?;
    let middle = agent.stop()?;
    let profile = server.profile("3s")?;
    drop(load);
    println!("the agent's own figures: {}", whole.figures);
    Ok(Run { client, server: counted, own, whole, middle, profile })
}

#[test]
fn the_metrics_equal_the_servers_own() {
    for Run { server, whole, .. } in runs() {
        let mut wrong = Vec::new();
        let late = late_tokens(whole);
        println!("{late} requests went while a token of theirs was under way");
        for (name, theirs) in VLLM_TOTALS {
            let (ours, theirs) = (whole.metrics.get(name).copied(), server.sum(theirs));
            let late = if name == GENERATED { late } else { 0.0 };
            let near = ours.zip(theirs).is_some_and(|(a, b)| {
                let rounding = 1e-9 * b.abs().max(1.0);
                a >= b - rounding && a <= b + late + rounding
            });
            println!(
                "{name}: {ours:?} {theirs:?}{}",
                if ours == theirs { "" } else { "  (not to the last bit)" }
            );
            if !near {
                wrong.push(format!("{name}: {ours:?}, the server says {theirs:?}"));
            }
        }
        assert!(server.sum("vllm:num_preemptions_total").unwrap() > 0.0, "the load preempted nothing");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The one total that a client who leaves can change unseen (docs/PROTOCOLS.md, aborts).
const GENERATED: &str = "gen_ai_vllm_generation_tokens";

/// Of how many requests the agent says that a token came which the server may have dropped: the client had gone.
fn late_tokens(seen: &Seen) -> f64 {
    let estimated = |span: &&Json| {
        enginetap_tests::engine::attribute(span, "enginetap.estimated")
            .is_some_and(|names| names.to_string().contains("completion_tokens"))
    };
    let spans = seen.spans.iter().filter(|span| span["name"] == "llm_request");
    f64::from(u32::try_from(spans.filter(estimated).count()).unwrap())
}

#[test]
fn each_request_of_the_client_is_one_trace() {
    for Run { client, whole, .. } in runs() {
        let entries: Vec<&Json> = entries(whole).collect();
        assert_eq!(entries.len(), client.len());
        for asked in client {
            let Some(id) = asked["id"].as_str() else { continue };
            let of_id: Vec<&&Json> =
                entries.iter().filter(|span| text(span, "gen_ai.response.id") == Some(id)).collect();
            let [entry] = of_id.as_slice() else {
                let nameless: Vec<_> =
                    entries.iter().filter(|span| text(span, "gen_ai.response.id").is_none()).collect();
                panic!("{} entry spans of {asked}; without an id: {nameless:#?}", of_id.len())
            };
            let engine: Vec<&Json> = children(whole, entry).collect();
            let expected = match asked["kind"].as_str().unwrap() {
                "parallel" => 2,
                "batch" => 3,
                _ => 1,
            };
            assert_eq!(engine.len(), expected, "{asked}\n{entry}");
            if let Some(tokens) = asked["usage"]["completion_tokens"].as_i64() {
                let counted: i64 =
                    engine.iter().map(|span| int(span, "gen_ai.usage.completion_tokens").unwrap()).sum();
                assert_eq!(
                    (counted, int(entry, "gen_ai.usage.output_tokens")),
                    (tokens, Some(tokens)),
                    "{asked}"
                );
            }
            if let Some(parent) = asked["traceparent"].as_str() {
                let parts: Vec<&str> = parent.split('-').collect();
                assert_eq!(
                    (entry["traceId"].as_str(), entry["parentSpanId"].as_str()),
                    (Some(parts[1]), Some(parts[2]))
                );
            }
        }
    }
}

fn entries(seen: &Seen) -> impl Iterator<Item = &Json> {
    seen.spans.iter().filter(|span| text(span, "gen_ai.span.kind").is_some())
}

fn children<'a>(seen: &'a Seen, parent: &'a Json) -> impl Iterator<Item = &'a Json> {
    seen.spans
        .iter()
        .filter(|span| span["parentSpanId"] == parent["spanId"] && span["traceId"] == parent["traceId"])
}

#[test]
fn finished_requests_have_all_their_stages() {
    for Run { whole, .. } in runs() {
        for engine in whole.spans.iter().filter(|span| span["name"] == "llm_request") {
            if text(engine, "enginetap.finish_reason") == Some("abort") {
                continue;
            }
            let stages: Vec<&str> =
                children(whole, engine).map(|span| span["name"].as_str().unwrap()).collect();
            let one_token = int(engine, "gen_ai.usage.completion_tokens") == Some(1);
            let expected: &[&str] =
                if one_token { &["wait", "prefill"] } else { &["wait", "prefill", "decode"] };
            assert_eq!(stages, expected, "{engine}");
        }
    }
}

/// vLLM's own span of a request says the same, to the nanosecond where it is made of the engine's timestamps.
#[test]
fn the_engine_spans_equal_vllms_own() {
    for Run { own, whole, .. } in runs() {
        assert!(own.len() > 50, "vLLM exported {} spans", own.len());
        let ours: BTreeMap<&str, &Json> = whole
            .spans
            .iter()
            .filter(|span| span["name"] == "llm_request")
            .map(|span| (text(span, "gen_ai.request.id").unwrap(), span))
            .collect();
        let mut late = Vec::new();
        let mut compared = 0;
        for theirs in own {
            let Some(Value::StringValue(id)) = own_attribute(theirs, "gen_ai.request.id") else {
                panic!("{theirs:?}")
            };
            // Candidates of n > 1 share the id that vLLM gives its span.
            let same: Vec<&&Json> = ours
                .iter()
                .filter(|(name, _)| name.strip_prefix(id.as_str()).is_some_and(|rest| rest.len() == 9))
                .map(|(_, span)| span)
                .collect();
            let [span] = same.as_slice() else { continue };
            compared += 1;
            for (ours, theirs) in [
                ("gen_ai.latency.time_in_queue", own_seconds(theirs, "gen_ai.latency.time_in_queue")),
                (
                    "gen_ai.latency.time_in_model_prefill",
                    own_seconds(theirs, "gen_ai.latency.time_in_model_prefill"),
                ),
                (
                    "gen_ai.latency.time_in_model_decode",
                    own_seconds(theirs, "gen_ai.latency.time_in_model_decode"),
                ),
                (
                    "gen_ai.latency.time_in_model_inference",
                    own_seconds(theirs, "gen_ai.latency.time_in_model_inference"),
                ),
            ] {
                #[allow(clippy::cast_possible_truncation, reason = "nanoseconds of a request")]
                let theirs = (theirs * 1e9).round() as i64;
                assert!((int(span, ours).unwrap() - theirs).abs() <= 1, "{ours}: {theirs}\n{span}");
            }
            for (key, theirs) in [
                (
                    "gen_ai.latency.time_to_first_token",
                    own_seconds(theirs, "gen_ai.latency.time_to_first_token"),
                ),
                ("gen_ai.latency.e2e", own_seconds(theirs, "gen_ai.latency.e2e")),
            ] {
                #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a request")]
                let ours = int(span, key).unwrap() as f64 / 1e9;
                late.push((ours - theirs).abs() * 1e3);
            }
        }
        assert!(compared > 40, "{compared} spans could be compared");
        late.sort_by(f64::total_cmp);
        println!(
            "TTFT and e2e against vLLM's own, ms: p50 {:.3}, p99 {:.3}",
            late[late.len() / 2],
            late[late.len() * 99 / 100]
        );
    }
}

fn own_attribute<'a>(span: &'a OwnSpan, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

fn own_seconds(span: &OwnSpan, key: &str) -> f64 {
    match own_attribute(span, key) {
        Some(Value::DoubleValue(seconds)) => *seconds,
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn iterations_carry_tokens_and_logprobs() {
    for Run { whole, .. } in runs() {
        let engine = whole.spans.iter().filter(|span| span["name"] == "llm_request");
        let events: Vec<&Json> = engine.flat_map(|span| items(&span["events"])).collect();
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert!(
            count("WAIT") > 50 && count("PREFILL") > 50 && count("DECODE") > 500 && count("PREEMPTED") > 0
        );
        let with = |key: &str| {
            events.iter().filter(|event| enginetap_tests::engine::attribute(event, key).is_some()).count()
        };
        assert!(with("gen_ai.token.ids") > 500 && with("gen_ai.token.logprobs") > 10);
    }
}

#[test]
fn an_agent_that_comes_and_goes_in_the_middle_sees_whole_and_partial_requests() {
    for Run { middle, .. } in runs() {
        let engine: Vec<&Json> = middle.spans.iter().filter(|span| span["name"] == "llm_request").collect();
        let partial = engine
            .iter()
            .filter(|span| enginetap_tests::engine::attribute(span, "enginetap.partial").is_some());
        let partial = partial.count();
        println!("{partial} of {} requests are partial; {}", engine.len(), middle.figures);
        assert!(partial > 0 && partial < engine.len(), "{partial} of {} are partial", engine.len());
        for entry in entries(middle) {
            assert!(children(middle, entry).count() <= 1, "{entry}");
        }
    }
}

/// Functions of vLLM 0.32.0 under which each process does its work, whatever that is.
const WORK: [(&str, &str); 2] =
    [("engine_core", "run_busy_loop"), ("api_server", "main (vllm/entrypoints/cli/main.py")];

#[test]
fn a_profile_names_the_functions_in_which_the_processes_work() {
    for Run { profile, .. } in runs() {
        assert_eq!(profile["lost"], 0);
        for (title, function) in WORK {
            let process = items(&profile["processes"]).find(|it| it["process"]["title"] == title).unwrap();
            let samples = process["samples"].as_u64().unwrap();
            let all = items(&process["rows"]).map(|row| row["own"].as_u64().unwrap()).sum::<u64>();
            let row = items(&process["rows"]).find(|row| row["place"].as_str().unwrap().contains(function));
            let row = row.unwrap_or_else(|| panic!("no {function} in {process:#}"));
            println!("{title}: {samples} samples, {} below {}", row["total"], row["place"]);
            assert_eq!(all, samples, "each sample has one innermost place: {process:#}");
            assert!(row["total"].as_u64().unwrap() * 2 > samples, "{process:#}");
        }
    }
}

#[test]
fn nothing_is_lost_and_little_is_used() {
    for Run { whole, middle, .. } in runs() {
        for seen in [whole, middle] {
            assert_eq!(seen.figures["lost"], 0, "{}", seen.figures);
            assert!(seen.figures["rss_bytes"].as_u64().unwrap() < 100 << 20, "{}", seen.figures);
        }
        assert_eq!(whole.metrics.get("enginetap_losses"), Some(&0.0));
    }
}
