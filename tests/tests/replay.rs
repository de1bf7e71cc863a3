//! Captures of real vLLM servers, replayed: what the pipeline adds up must equal what each server's own
//! `/metrics` said afterwards, and each request its client made must be one trace.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeMap;

use enginetap_common::record::{HEADER_LEN, Header, Kind};
use enginetap_core::capture::fact::{Conn, Fact, Socket};
use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{Span, Trace, Value};
use enginetap_core::settings::{Settings, VllmLevel};
use enginetap_core::time::{EngineTime, MonoTime};
use enginetap_tests::captures::{Capture, Input, Metrics, VLLM_TOTALS};
use enginetap_tests::replayed::{Replayed, int};
use serde_json::Value as Json;

/// Versions whose captures hold the same scenario.
const VERSIONS: &[&str] = &[
    "0.9.2.post2",
    "0.10.2.post2",
    "0.11.2",
    "0.12.0.post2",
    "0.14.1",
    "0.16.0",
    "0.20.2",
    "0.22.1",
    "0.28.0",
    "0.32.0",
];

fn capture(version: &str) -> Capture {
    Capture::read(&format!("vllm-{version}")).unwrap()
}

fn replay(version: &str, level: VllmLevel) -> Replayed {
    let settings = Settings { vllm_level: level, ..Settings::default() };
    Replayed::of(&capture(version), settings).unwrap()
}

fn told(metrics: &Metrics, name: &str) -> f64 {
    metrics.sum(name).unwrap_or_else(|| panic!("the server tells no {name}"))
}

/// Sums of seconds to the last bit: the same doubles, subtracted and added in the same order.
#[test]
fn the_sums_equal_what_the_server_counted() {
    let mut wrong = Vec::new();
    for version in VERSIONS {
        let ours = replay(version, VllmLevel::Stages);
        let theirs = capture(version).metrics().unwrap();
        for (name, their) in VLLM_TOTALS {
            let (our, their) = (ours.metric(name), told(&theirs, their));
            if our != their {
                wrong.push(format!("{version}: {name} is {our:?}, the server says {their:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The frontend stamps a token when its event loop gets to it, we when its I/O thread received it.
#[test]
fn ttft_and_duration_are_near_the_servers_own() {
    for version in VERSIONS {
        let ours = replay(version, VllmLevel::Stages);
        let theirs = capture(version).metrics().unwrap();
        let pairs = [
            ("genai_llm_first_token_seconds", "vllm:time_to_first_token_seconds"),
            ("gen_ai_server_request_duration", "vllm:e2e_request_latency_seconds"),
        ];
        for (our, their) in pairs {
            let count = told(&theirs, &format!("{their}_count"));
            let difference = (ours.metric(our) - told(&theirs, &format!("{their}_sum"))).abs() / count;
            println!("{version} {our}: {:.3} ms a request apart", difference * 1e3);
            assert!(difference < 0.005, "{version} {our}: {difference} s a request apart");
        }
    }
}

#[test]
fn each_request_of_the_client_is_one_trace() {
    for version in VERSIONS {
        let replayed = replay(version, VllmLevel::Stages);
        let scenario = capture(version).scenario().unwrap();
        assert_eq!(replayed.traces.len(), scenario.len(), "{version}");
        for asked in &scenario {
            let label = format!("{version} {}", asked["label"]);
            let trace = match asked["id"].as_str() {
                Some(id) => with_response(&replayed.traces, id),
                None => replayed.traces.iter().find(|t| t.spans[0].attribute(attr::ERROR_TYPE).is_some()),
            };
            check_trace(trace.unwrap_or_else(|| panic!("no trace of {label}")), asked, &label);
        }
    }
}

fn with_response<'a>(traces: &'a [Trace], id: &str) -> Option<&'a Trace> {
    let id = Value::from(id);
    traces.iter().find(|trace| trace.spans[0].attribute(attr::RESPONSE_ID) == Some(&id))
}

fn check_trace(trace: &Trace, asked: &Json, label: &str) {
    let entry = &trace.spans[0];
    let engine: Vec<&Span> = trace.spans.iter().filter(|span| span.name == "llm_request").collect();
    let candidates = if label.contains("n=2") { 2 } else { 1 };
    let expected = if asked["status"] == 400 { 0 } else { candidates };
    assert_eq!(engine.len(), expected, "{label}: {trace:#?}");
    for span in &engine {
        assert_eq!((span.trace, span.parent), (entry.trace, Some(entry.id)), "{label}");
    }
    if let Some(tokens) = asked["usage"]["completion_tokens"].as_i64() {
        let counted = engine.iter().map(|span| int(span, attr::USAGE_COMPLETION_TOKENS)).sum::<Option<i64>>();
        assert_eq!(counted, Some(tokens), "{label}");
        assert_eq!(int(entry, attr::USAGE_OUTPUT_TOKENS), Some(tokens), "{label}");
    }
    if let Some(tokens) = asked["usage"]["prompt_tokens"].as_i64() {
        assert_eq!(int(entry, attr::USAGE_INPUT_TOKENS), Some(tokens), "{label}");
    }
    for span in &trace.spans {
        assert!(span.start <= span.end, "{label}: {span:#?}");
    }
}

#[test]
fn finished_requests_have_every_stage_and_time() {
    for version in VERSIONS {
        let replayed = replay(version, VllmLevel::Stages);
        for trace in &replayed.traces {
            for engine in trace.spans.iter().filter(|span| span.name == "llm_request") {
                if engine.attribute(attr::FINISH_REASON) == Some(&Value::from("abort")) {
                    continue;
                }
                let children: Vec<&str> = trace
                    .spans
                    .iter()
                    .filter(|s| s.parent == Some(engine.id))
                    .map(|s| s.name.as_ref())
                    .collect();
                assert_eq!(children, ["wait", "prefill", "decode"], "{version} {engine:#?}");
                let time = |key| int(engine, key).unwrap();
                let total = time(attr::LATENCY_TIME_IN_MODEL_INFERENCE);
                let parts =
                    time(attr::LATENCY_TIME_IN_MODEL_PREFILL) + time(attr::LATENCY_TIME_IN_MODEL_DECODE);
                assert!((total - parts).abs() <= 1, "{version}: {engine:#?}");
            }
        }
    }
}

#[test]
fn iterations_of_a_preempted_request_are_events() {
    let replayed = replay("0.32.0", VllmLevel::Iterations);
    let engine = replayed.traces.iter().flat_map(|trace| &trace.spans).filter(|s| s.name == "llm_request");
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for span in engine {
        assert!(span.events.len() <= 128);
        assert!(span.events.is_sorted_by_key(|event| event.at), "{span:#?}");
        for event in &span.events {
            *names.entry(event.name.to_string()).or_default() += 1;
        }
    }
    assert!(names["PREEMPTED"] > 0 && names["WAIT"] > 0 && names["PREFILL"] > 0 && names["DECODE"] > 0);
}

#[test]
fn a_replay_is_the_same_every_time() {
    let once = replay("0.32.0", VllmLevel::Iterations);
    let again = replay("0.32.0", VllmLevel::Iterations);
    assert_eq!(once.traces, again.traces);
}

#[test]
fn nothing_is_lost_in_a_whole_capture() {
    for version in VERSIONS {
        let replayed = replay(version, VllmLevel::Stages);
        for (reason, count) in replayed.losses.iter() {
            assert_eq!(count, 0, "{version}: {}", reason.name());
        }
    }
}

/// A capture as an agent would have seen it that came before the `n`th client, and whose kernel programs saw each
/// of the engine's sockets move bytes before user space told of it.
fn from_client(capture: &Capture, n: usize) -> (MonoTime, Vec<Input>) {
    let inputs = capture.inputs().unwrap();
    let mut engine: BTreeMap<u64, Input> =
        inputs.iter().filter_map(|input| Some((unix_conn(input)?, input.clone()))).collect();
    let accepts = inputs
        .iter()
        .filter_map(header)
        .filter(|header| header.kind == Kind::Accept as u8 && !engine.contains_key(&header.conn));
    let begin = accepts.map(|header| header.time).nth(n).unwrap();
    let mut bases = BTreeMap::new();
    let mut late = Vec::new();
    for input in inputs {
        match input {
            Input::Fact(_) if unix_conn(&input).is_some() => {}
            Input::Fact(fact) => late.push(Input::Fact(fact)),
            Input::Record(bytes) => {
                let mut header = Header::from_bytes(&bytes).unwrap();
                if header.time >= begin {
                    header.offset -= *bases.entry((header.conn, header.kind)).or_insert(header.offset);
                    late.push(Input::Record([&header.to_bytes(), &bytes[HEADER_LEN..]].concat()));
                    late.extend(engine.remove(&header.conn));
                }
            }
        }
    }
    (MonoTime(begin), late)
}

fn header(input: &Input) -> Option<Header> {
    match input {
        Input::Record(bytes) => Header::from_bytes(bytes),
        Input::Fact(_) => None,
    }
}

fn unix_conn(input: &Input) -> Option<u64> {
    match input {
        Input::Fact(fact) => match fact.as_ref() {
            Fact::Conn(Conn { conn, socket: Socket::Unix { .. }, .. }) => Some(conn.0),
            Fact::Conn(_)
            | Fact::Clock(_)
            | Fact::Server(_)
            | Fact::Process(_)
            | Fact::Detached(_)
            | Fact::Snapshot(_)
            | Fact::FrontendSnapshot(_)
            | Fact::V0Snapshot(_)
            | Fact::Shared(_)
            | Fact::Gpus(_)
            | Fact::Waits(_) => None,
        },
        Input::Record(_) => None,
    }
}

#[test]
fn an_agent_that_comes_later_sees_what_comes_after_it_whole() {
    let capture = capture("0.32.0");
    let (begin, inputs) = from_client(&capture, 4);
    // A live agent watches the frontend only.
    let ours = |input: &Input| header(input).is_none_or(|header| header.pid == API_SERVER);
    let replayed = Replayed::through(inputs.into_iter().filter(ours), Settings::default());
    let after = |asked: &&Json| EngineTime(asked["t1"].as_f64().unwrap()).mono() > begin;
    let asked = capture.scenario().unwrap();
    assert_eq!(replayed.traces.len(), asked.iter().filter(after).count());
    assert!(replayed.traces.len() > 10);
    for span in replayed.spans("llm_request") {
        assert_eq!(span.attribute(attr::PARTIAL), None, "{span:#?}");
    }
}

/// Pid of the API server in the capture of 0.32.0.
const API_SERVER: u32 = 27116;
