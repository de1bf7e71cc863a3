//! Real SGLang servers of several versions and ways to run them, each recorded once from outside by `enginetap record`
//! under a mixed load (`tests/captures/README.md`) and replayed through the whole pipeline: every request of the client's
//! is one trace that says what it saw, with the stages that the version's sources tell; where the server counted itself,
//! the counts are equal.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use enginetap_core::capture::fact::Fact;
use enginetap_core::model::registry::{attr, event, span};
use enginetap_core::model::span::{Span, Trace, Value};
use enginetap_core::settings::Settings;
use enginetap_tests::captures::{Capture, Input};
use enginetap_tests::replayed::{Replayed, int};
use serde_json::Value as Json;

/// Stages of every request that ended normally, by recording: what the version's sources tell.
const STAGES: &[(&str, &[&str])] = &[
    ("sglang-0.4.9", FRONT),
    ("sglang-0.5.3", FRONT),
    ("sglang-0.5.6", QUEUED),
    ("sglang-0.5.9", QUEUED),
    ("sglang-0.5.10", WHOLE),
    // A machine so busy that the agent came too late for some readings.
    ("sglang-0.5.13", FRONT),
    ("sglang-0.5.16", WHOLE),
    ("sglang-0.5.23", WHOLE),
    ("metrics", WHOLE),
    ("msgpack", WHOLE),
    ("no-overlap", WHOLE),
];

/// From messages alone.
const FRONT: &[&str] = &[span::TOKENIZE, span::DECODE_FORWARD];
/// With the queue's times of the scheduler's objects.
const QUEUED: &[&str] = &[span::TOKENIZE, span::PREFILL_WAITING, span::PREFILL_FORWARD, span::DECODE_FORWARD];
/// With all of the scheduler's times.
const WHOLE: &[&str] = &[
    span::TOKENIZE,
    span::REQUEST_PROCESS,
    span::PREFILL_WAITING,
    span::PREFILL_FORWARD,
    span::DECODE_FORWARD,
];

/// A recording: what came out, and what the client saw.
struct Recording {
    name: &'static str,
    stages: &'static [&'static str],
    capture: Capture,
    replayed: Replayed,
    client: Vec<Json>,
}

fn recordings() -> Vec<Recording> {
    let of = |&(name, stages): &(&'static str, &'static [&'static str])| {
        let capture = Capture::read(&format!("sglang/{name}")).unwrap();
        let replayed = Replayed::of(&capture, Settings::default()).unwrap();
        let client = capture.client().unwrap();
        Recording { name, stages, capture, replayed, client }
    };
    STAGES.iter().map(of).collect()
}

fn recording(name: &str) -> Recording {
    recordings().into_iter().find(|recording| recording.name == name).unwrap()
}

/// How many requests of the engine a request of the client's makes.
fn engine_requests(asked: &Json) -> RangeInclusive<usize> {
    match asked["kind"].as_str().unwrap() {
        "bad" => 0..=0,
        // Before the two samples one request with no output caches what they have in common; a fourth, the one that was
        // asked for, is seen if the frontend was read while that went on.
        "parallel" | "generate-parallel" => 3..=4,
        "batch" | "generate-batch" | "embed-batch" => 3..=3,
        _ => 1..=1,
    }
}

fn requests(trace: &Trace) -> Vec<&Span> {
    trace.spans.iter().filter(|span| span.attribute(attr::RID).is_some()).collect()
}

/// The stages below a request span, by name.
fn stages(trace: &Trace, request: &Span) -> BTreeMap<String, usize> {
    let parents: BTreeMap<_, _> = trace.spans.iter().map(|span| (span.id, span.parent)).collect();
    let mut counts = BTreeMap::new();
    for span in &trace.spans {
        let above = std::iter::successors(span.parent, |id| parents.get(id).copied().flatten());
        if above.take(8).any(|id| id == request.id) {
            *counts.entry(span.name.to_string()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn each_request_of_the_client_is_one_trace_that_says_what_it_saw() {
    for recording in recordings() {
        let Recording { name, replayed, client, .. } = &recording;
        let entries = replayed.traces.iter().filter(|trace| entry(trace).is_some()).count();
        assert_eq!(entries, client.len(), "{name}");
        for asked in client {
            let Some(id) = asked["id"].as_str() else { continue };
            let of_id = |trace: &&Trace| {
                entry(trace).is_some_and(|it| it.attribute(attr::RESPONSE_ID) == Some(&Value::from(id)))
            };
            let traces: Vec<&Trace> = replayed.traces.iter().filter(of_id).collect();
            let [trace] = traces.as_slice() else { panic!("{name}: {} traces of {asked}", traces.len()) };
            let engine = requests(trace);
            assert!(engine_requests(asked).contains(&engine.len()), "{name}: {} of {asked}", engine.len());
            let entry = entry(trace).unwrap();
            assert!(engine.iter().all(|span| span.parent == Some(entry.id)), "{name}: {asked}");
            let tokens = asked["usage"]["completion_tokens"].as_i64().filter(|_| asked["aborted"] != true);
            if let Some(tokens) = tokens {
                let counted: i64 =
                    engine.iter().filter_map(|span| int(span, attr::USAGE_COMPLETION_TOKENS)).sum();
                assert_eq!(counted, tokens, "{name}: {asked}");
                assert_eq!(int(entry, attr::USAGE_OUTPUT_TOKENS), Some(tokens), "{name}: {asked}");
            }
        }
    }
}

fn entry(trace: &Trace) -> Option<&Span> {
    trace.spans.iter().find(|span| span.attribute(attr::SPAN_KIND).is_some())
}

#[test]
fn every_request_that_ended_normally_has_the_stages_its_version_tells_of() {
    for recording in recordings() {
        let Recording { name, stages: expected, replayed, .. } = &recording;
        let mut seen = 0;
        for trace in &replayed.traces {
            assert!(trace.spans.iter().all(|span| span.start <= span.end), "{name}");
            for request in requests(trace) {
                let Some(tokens) = int(request, attr::USAGE_COMPLETION_TOKENS).filter(|it| *it > 1) else {
                    continue;
                };
                seen += 1;
                let found = stages(trace, request);
                let missing: Vec<_> = expected.iter().filter(|stage| !found.contains_key(**stage)).collect();
                assert!(missing.is_empty(), "{name}: {missing:?} in {found:?}\n{request:#?}");
                let loops = found.get(span::DECODE_LOOP).copied().unwrap_or(0);
                assert!(i64::try_from(loops).unwrap() < tokens, "{name}: {loops} steps, {tokens} tokens");
                // No speculative decoding ran.
                assert!(!found.contains_key(span::SPEC_VERIFY), "{name}: {found:?}");
            }
        }
        assert!(seen > 10, "{name}: {seen} requests ended normally");
    }
}

#[test]
fn embeddings_are_request_trees_without_an_entry_span_and_without_decoding() {
    let capture = Capture::read("sglang/embeddings").unwrap();
    let replayed = Replayed::of(&capture, Settings::default()).unwrap();
    let client = capture.client().unwrap();
    assert!(replayed.traces.iter().all(|trace| entry(trace).is_none()));
    let trees: Vec<(&Trace, &Span)> = replayed
        .traces
        .iter()
        .flat_map(|trace| requests(trace).into_iter().map(move |request| (trace, request)))
        .collect();
    assert_eq!(trees.len(), client.iter().map(|asked| *engine_requests(asked).start()).sum::<usize>());
    for (trace, request) in &trees {
        let found = stages(trace, request);
        assert!(found.contains_key(span::TOKENIZE), "{found:?}");
        assert!(
            !found.contains_key(span::DECODE_FORWARD) && !found.contains_key(span::DECODE_LOOP),
            "{found:?}"
        );
        assert_eq!(int(request, attr::USAGE_COMPLETION_TOKENS), None);
    }
    // As many as were in the scheduler when it was read.
    let worked =
        trees.iter().filter(|(trace, request)| stages(trace, request).contains_key(span::PREFILL_FORWARD));
    assert_eq!(worked.count(), 32);
    let asked: i64 = client.iter().filter_map(|asked| asked["usage"]["prompt_tokens"].as_i64()).sum();
    let counted =
        trees.iter().filter_map(|(_, request)| int(request, attr::USAGE_PROMPT_TOKENS)).sum::<i64>();
    assert_eq!(counted, asked);
}

/// The names of all stages and events of a recording.
fn names(recording: &Recording) -> BTreeSet<String> {
    let spans = || recording.replayed.traces.iter().flat_map(|trace| &trace.spans);
    let events = spans().flat_map(|span| &span.events).map(|event| event.name.to_string());
    spans().map(|span| span.name.to_string()).chain(events).collect()
}

#[test]
fn chunks_retractions_and_schedules_are_told_where_they_happened() {
    for name in ["metrics", "no-overlap"] {
        let names = names(&recording(name));
        for expected in [span::CHUNKED_PREFILL, event::RETRACT, event::SCHEDULE] {
            assert!(names.contains(expected), "{name}: no {expected} in {names:?}");
        }
    }
    let plain = names(&recording("sglang-0.5.23"));
    assert!(!plain.contains(event::RETRACT) && !plain.contains(span::CHUNKED_PREFILL), "{plain:?}");
}

/// Counts: ours, the server's.
const EQUAL: &[(&str, &str)] = &[
    ("prompt_tokens_total", "sglang:prompt_tokens_total"),
    ("generation_tokens_total", "sglang:generation_tokens_total"),
    ("gen_ai_sglang_cached_tokens_total", "sglang:cached_tokens_total"),
    ("num_requests_total", "sglang:num_requests_total"),
];

#[test]
fn the_counts_equal_the_servers_own() {
    let Recording { capture, replayed, .. } = recording("metrics");
    let counted = capture.counted().unwrap();
    for (ours, theirs) in EQUAL {
        assert_eq!(Some(replayed.metric(ours)), counted.sum(theirs), "{ours}");
    }
}

#[test]
fn the_state_of_every_scheduler_is_known() {
    for recording in recordings() {
        for metric in ["sglang_log_count", "genai_llm_usage_tokens", "gen_ai_server_request_duration"] {
            assert!(recording.replayed.metric(metric) > 0.0, "{}: {metric} is still", recording.name);
        }
    }
}

#[test]
fn what_a_recording_holds_needs_no_process_to_replay() {
    let holds = |name: &str, wanted: fn(&Fact) -> bool| {
        let inputs = recording(name).capture.inputs().unwrap();
        inputs.iter().any(|input| matches!(input, Input::Fact(fact) if wanted(fact)))
    };
    assert!(holds("sglang-0.5.23", |fact| matches!(fact, Fact::Shared(_))));
    assert!(holds("sglang-0.5.23", |fact| matches!(fact, Fact::Snapshot(_))));
    assert!(holds("sglang-0.5.23", |fact| matches!(fact, Fact::FrontendSnapshot(_))));
    // The state in shared memory came with 0.5.13.
    assert!(!holds("sglang-0.5.10", |fact| matches!(fact, Fact::Shared(_))));
}
