//! Captures of real vLLM V0 servers, replayed: spans and counts against what the engines said themselves.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::{BTreeMap, BTreeSet};

use enginetap_core::capture::fact::Role;
use enginetap_core::dialect::signal::EngineSignal;
use enginetap_core::ids::Direction;
use enginetap_core::loss::Loss;
use enginetap_core::model::registry::{Dialect, attr, check};
use enginetap_core::model::span::{Span, Status, Trace, Value};
use enginetap_core::settings::Settings;
use enginetap_tests::captures::{Capture, Input, V0_COUNTS, named};
use enginetap_tests::messages::{Session, timeless};
use enginetap_tests::replayed::{Replayed, int};
use serde_json::Value as Json;

fn capture(name: &str) -> Capture {
    Capture::read(&format!("vllm-v0/{name}")).unwrap()
}

fn replay(name: &str) -> Replayed {
    Replayed::of(&capture(name), Settings::default()).unwrap()
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match span.attribute(key) {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    }
}

fn seconds(span: &Span, key: &str) -> Option<f64> {
    match span.attribute(key) {
        Some(Value::Float(value)) => Some(*value),
        _ => None,
    }
}

#[test]
fn embeddings_and_scores_of_a_v0_engine_are_traces_with_its_requests() {
    let replayed = replay("0.9.2.post2-pooling");
    let shape = |trace: &Trace| {
        let kind = trace.spans.iter().find_map(|span| text(span, attr::OPERATION_NAME)).map(str::to_owned);
        (kind.unwrap_or_default(), trace.spans.len() - 1)
    };
    let traces: Vec<_> = replayed.traces.iter().map(shape).collect();
    let expected = [("embeddings", 1), ("embeddings", 3), ("rerank", 3), ("rerank", 4)];
    let expected = expected.map(|(operation, engine)| (operation.to_owned(), engine));
    // A query and each of its texts are one request each.
    assert_eq!(traces, expected, "{:#?}", replayed.traces);
}

/// The trace of a response.
fn of_response<'a>(replayed: &'a Replayed, id: &str) -> &'a Trace {
    let of =
        |trace: &&Trace| trace.spans.first().is_some_and(|entry| text(entry, attr::RESPONSE_ID) == Some(id));
    replayed.traces.iter().find(of).unwrap_or_else(|| panic!("no trace of {id}"))
}

fn engine_span(trace: &Trace) -> &Span {
    let [entry, engine] = trace.spans.as_slice() else { panic!("{} spans", trace.spans.len()) };
    assert_eq!((engine.name.as_ref(), engine.parent), ("llm_request", Some(entry.id)));
    engine
}

#[test]
fn every_span_and_point_is_as_the_registry_says_of_v0() {
    let mut wrong = BTreeSet::new();
    let mut seen = 0;
    for capture in named("vllm-v0/").unwrap() {
        let replayed = Replayed::of(&capture, Settings::default()).unwrap();
        let spans = replayed.traces.iter().flat_map(|trace| &trace.spans);
        let of_spans = spans.inspect(|_| seen += 1).flat_map(|span| check::span(span, Dialect::VllmV0));
        let of_points = replayed.points.iter().flat_map(|point| check::point(point, Dialect::VllmV0));
        wrong.extend(of_spans.chain(of_points).map(|what| format!("{}: {what}", capture.name)));
        assert_eq!(replayed.losses.get(Loss::UnknownMessage), 0, "{}", capture.name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 35, "{seen} spans are too few to say so");
}

#[test]
fn the_spans_figures_are_those_of_the_engines_own_spans_to_the_last_bit() {
    let replayed = replay("0.8.5.post2-traced");
    let own = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/captures/vllm-v0/0.8.5.post2-traced.spans.jsonl"
    ));
    let own: Vec<Json> = own.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((own.len(), replayed.traces.len()), (2, 2));
    for theirs in own {
        let attributes = theirs["attributes"].as_object().unwrap();
        let id = attributes["gen_ai.request.id"].as_str().unwrap();
        let ours =
            replayed.spans("llm_request").find(|span| text(span, attr::REQUEST_ID) == Some(id)).unwrap();
        let mut compared = 0;
        for (key, value) in attributes.iter().filter(|(key, _)| *key != attr::RESPONSE_MODEL) {
            let same = match (ours.attribute(key), value) {
                (Some(Value::Float(ours)), theirs) => theirs.as_f64() == Some(*ours),
                // Whole numbers are texts in OTLP's JSON.
                (Some(Value::Int(ours)), theirs) => theirs.as_str() == Some(ours.to_string().as_str()),
                (Some(Value::Str(ours)), theirs) => theirs.as_str() == Some(ours.as_ref()),
                _ => false,
            };
            assert!(same, "{id}: {key} is {:?}, the engine says {value}", ours.attribute(key));
            compared += 1;
        }
        assert_eq!(compared, 13, "{attributes:?}");
        // It starts when the engine got it, to the rounding; the engine's span ends when it is made, a little later.
        let ns = |key: &str| theirs[key].as_u64().unwrap();
        assert!(ours.start.0.abs_diff(ns("start_ns")) < 1_000, "{id}");
        assert!(ours.end.0 <= ns("end_ns") && ours.end.0 > ns("start_ns"), "{id}");
        let caller = theirs["parent"].as_str().unwrap();
        let entry = replayed.traces.iter().flat_map(|t| t.spans.first()).find(|e| Some(e.id) == ours.parent);
        assert_eq!(entry.unwrap().parent.unwrap().to_string(), caller);
    }
}

#[test]
fn each_request_of_the_client_is_one_trace() {
    let replayed = replay("0.8.5.post2");
    let scenario = capture("0.8.5.post2").scenario().unwrap();
    assert_eq!(replayed.traces.len(), scenario.len());
    for asked in scenario.iter().filter(|asked| asked["id"].is_string()) {
        let label = asked["label"].as_str().unwrap();
        let trace = of_response(&replayed, asked["id"].as_str().unwrap());
        let (entry, engine) = (&trace.spans[0], engine_span(trace));
        let usage = &asked["usage"];
        if let Some(output) = usage["completion_tokens"].as_i64() {
            assert_eq!(int(entry, attr::USAGE_OUTPUT_TOKENS), Some(output), "{label}");
            assert_eq!(int(engine, attr::USAGE_COMPLETION_TOKENS), Some(output), "{label}");
            assert_eq!(int(engine, attr::USAGE_PROMPT_TOKENS), usage["prompt_tokens"].as_i64(), "{label}");
        }
        if label != "d client abort" {
            assert!(seconds(engine, attr::LATENCY_E2E).is_some_and(|time| time > 0.0), "{label}");
            assert_eq!(engine.status, Status::Unset, "{label}");
        }
    }
}

#[test]
fn one_request_for_two_candidates_is_one_engine_request_with_two_sequences() {
    let replayed = replay("0.8.5.post2");
    let scenario = capture("0.8.5.post2").scenario().unwrap();
    let asked = scenario.iter().find(|asked| asked["label"] == "c completions n=2").unwrap();
    let engine = engine_span(of_response(&replayed, asked["id"].as_str().unwrap()));
    assert_eq!(int(engine, attr::REQUEST_N), Some(2));
    assert_eq!(int(engine, attr::USAGE_NUM_SEQUENCES), Some(2));
    assert_eq!(int(engine, attr::USAGE_COMPLETION_TOKENS), Some(16));
    // Its message says no more than when it came and ended.
    assert!(seconds(engine, attr::LATENCY_E2E).is_some());
    assert_eq!(seconds(engine, attr::LATENCY_TIME_IN_QUEUE), None);
    assert_eq!(seconds(engine, attr::LATENCY_TIME_TO_FIRST_TOKEN), None);
}

#[test]
fn a_client_that_left_is_an_abort_with_the_tokens_it_got() {
    let replayed = replay("0.8.5.post2");
    let scenario = capture("0.8.5.post2").scenario().unwrap();
    let asked = scenario.iter().find(|asked| asked["label"] == "d client abort").unwrap();
    let trace = of_response(&replayed, asked["id"].as_str().unwrap());
    let engine = engine_span(trace);
    assert_eq!(text(engine, attr::FINISH_REASON), Some("abort"));
    // The client saw 14 events.
    assert!(int(engine, attr::USAGE_COMPLETION_TOKENS).unwrap() >= 14);
    assert!(seconds(engine, attr::LATENCY_TIME_TO_FIRST_TOKEN).is_some());
}

#[test]
fn counts_are_the_servers_own_as_far_as_its_messages_tell() {
    let (replayed, metrics) = (replay("0.8.5.post2"), capture("0.8.5.post2").metrics().unwrap());
    let own = |name: &str| metrics.sum(name).unwrap();
    assert_eq!(replayed.metric("gen_ai_vllm_request_success"), own("vllm:request_success_total"));
    // Of the client that left one token was made that nobody was sent.
    assert_eq!(replayed.metric("num_generation_tokens_iter") + 1.0, own("vllm:generation_tokens_total"));
    let by_reason = |reason: &str| {
        let of = replayed.points.iter().filter(|point| {
            point.metric.name == "gen_ai_vllm_request_success"
                && point.dimensions.iter().any(|(_, value)| value == reason)
        });
        of.map(|point| point.value.as_f64()).sum::<f64>()
    };
    for reason in ["length", "stop"] {
        let own = metrics.sum_of("vllm:request_success_total", &format!("finished_reason=\"{reason}\""));
        assert_eq!(Some(by_reason(reason)), own, "{reason}");
    }
    // Its figure is taken at the end of the step, the message's when the output is made; and it has each half of the
    // request for two candidates.
    let (ours, own) =
        (replayed.metric("gen_ai_server_request_duration"), own("vllm:e2e_request_latency_seconds_sum"));
    assert!(ours < own && ours > 0.98 * own, "{ours} {own}");
}

#[test]
fn an_engine_that_no_statistics_are_seen_of_has_no_gauges_and_no_steps() {
    let replayed = replay("0.8.5.post2");
    let names: BTreeSet<&str> = replayed.points.iter().map(|point| point.metric.name).collect();
    for name in [
        "num_running_sys",
        "num_waiting_sys",
        "num_swapped_sys",
        "gpu_cache_usage_sys",
        "cpu_cache_usage_sys",
        "vllm_iter_count",
        "num_preemption_iter",
    ] {
        assert!(!names.contains(name), "{name}");
    }
    assert!(names.contains("genai_llm_usage_tokens") && names.contains("genai_llm_first_token_seconds"));
}

#[test]
fn the_engines_side_says_what_the_frontends_does() {
    for name in ["0.8.5.post2", "0.8.5.post2-traced"] {
        let session = Session::read(&capture(name)).unwrap();
        let told = |role, direction| {
            let decoded = session.decode(role, direction, || session.by_version());
            assert_eq!(decoded.losses.get(Loss::UnknownMessage), 0, "{name}");
            let mut told: Vec<String> =
                decoded.signals.into_iter().map(|signal| format!("{:?}", timeless(signal))).collect();
            told.sort();
            told
        };
        let (asked, answered) = (told(Role::ApiServer, Direction::Tx), told(Role::EngineCore, Direction::Tx));
        assert!(asked == told(Role::EngineCore, Direction::Rx), "{name}");
        assert!(answered == told(Role::ApiServer, Direction::Rx), "{name}");
        assert!(asked.iter().any(|told| told.starts_with("Added")) && !answered.is_empty(), "{name}");
    }
}

#[test]
fn messages_of_real_engines_cut_anywhere_are_counted_and_never_break_anything() {
    let session = Session::read(&capture("0.8.5.post2")).unwrap();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for stream in session.of(Role::ApiServer, Direction::Rx).chain(session.of(Role::ApiServer, Direction::Tx))
    {
        for (nth, (_, bytes)) in stream.calls.iter().enumerate().step_by(7) {
            let cut = &bytes[..bytes.len() * (nth % 10) / 10];
            let mut losses = enginetap_core::loss::Losses::default();
            let signal = session.by_version().decode(&[cut], nth % 2 == 0, Default::default(), &mut losses);
            let what = match signal {
                Some(EngineSignal::Outputs { .. } | EngineSignal::Added { .. }) => "told",
                Some(_) => "other",
                None if losses.get(Loss::UnknownMessage) > 0 => "counted",
                None => "nothing",
            };
            *seen.entry(what).or_default() += 1;
        }
    }
    assert!(seen.values().sum::<u64>() > 50, "{seen:?}");
}

#[test]
fn an_engines_own_counts_are_taken_where_its_files_show_them() {
    let capture = capture("0.9.2.post2");
    let (replayed, own) = (replay("0.9.2.post2"), capture.counted().unwrap());
    let mut wrong = Vec::new();
    for (ours, theirs) in V0_COUNTS {
        let (our, their) = (replayed.metric(ours), own.sum(theirs).unwrap());
        if our != their {
            wrong.push(format!("{ours} is {our}, the server says {their}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(own.sum("vllm:num_preemptions_total").unwrap() > 0.0);
    // It reported once more, before the load, that it had nothing to do.
    assert_eq!(
        replayed.metric("vllm_iter_count") + 1.0,
        own.sum("vllm:iteration_tokens_total_count").unwrap()
    );
}

#[test]
fn the_state_comes_from_files_and_what_those_lack_from_objects() {
    // Up to the middle of the load, so that there is something to see.
    let inputs = capture("0.9.2.post2").inputs().unwrap();
    let mut seen: BTreeMap<&str, f64> = BTreeMap::new();
    let mut pipeline = enginetap_core::pipeline::Pipeline::new(Settings::default());
    for input in inputs {
        match input {
            Input::Record(bytes) => pipeline.push_bytes(&bytes),
            Input::Fact(fact) => pipeline.fact(*fact),
        }
        for point in pipeline.points() {
            let most = seen.entry(point.metric.name).or_default();
            *most = most.max(point.value.as_f64());
        }
    }
    let most = |name: &str| seen.get(name).copied();
    // Twelve requests at once, and too little cache for them.
    assert_eq!(most("num_running_sys"), Some(12.0));
    assert!(most("num_waiting_sys").unwrap() >= 1.0);
    assert_eq!(most("num_swapped_sys"), Some(0.0), "V0 swaps only where it is told to");
    assert_eq!(most("gpu_cache_usage_sys"), Some(0.0), "there is no GPU");
    assert!(most("cpu_cache_usage_sys").is_some_and(|usage| usage > 0.9 && usage <= 1.0));
}

#[test]
fn of_several_candidates_the_objects_tell_the_times() {
    let capture = capture("0.9.2.post2");
    let replayed = replay("0.9.2.post2");
    let mut seen = 0;
    for asked in capture.client().unwrap().iter().filter(|asked| asked["kind"] == "parallel") {
        let engine = engine_span(of_response(&replayed, asked["id"].as_str().unwrap()));
        assert_eq!(int(engine, attr::USAGE_NUM_SEQUENCES), Some(2));
        let [queue, first, e2e] =
            [attr::LATENCY_TIME_IN_QUEUE, attr::LATENCY_TIME_TO_FIRST_TOKEN, attr::LATENCY_E2E]
                .map(|key| seconds(engine, key));
        let (Some(queue), Some(first), Some(e2e)) = (queue, first, e2e) else { continue };
        assert!(0.0 < queue && queue < first && first < e2e, "{queue} {first} {e2e}");
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn an_engine_without_messages_is_known_by_its_objects() {
    let capture = capture("0.9.2.post2-in-process");
    let replayed = replay("0.9.2.post2-in-process");
    let mut told = 0;
    for asked in capture.client().unwrap().iter().filter(|asked| asked["kind"] == "completion") {
        let trace = of_response(&replayed, asked["id"].as_str().unwrap());
        // Those of before it was found have an entry span alone.
        if trace.spans.len() < 2 {
            continue;
        }
        let engine = engine_span(trace);
        assert_eq!(int(engine, attr::USAGE_COMPLETION_TOKENS), asked["usage"]["completion_tokens"].as_i64());
        assert_eq!(text(engine, attr::FINISH_REASON), asked["finish"][0].as_str());
        let Some(Value::Strs(estimated)) = engine.attribute(attr::ESTIMATED) else { panic!("{engine:#?}") };
        assert!(estimated.iter().any(|key| key == attr::LATENCY_E2E), "{estimated:?}");
        let [queue, e2e] =
            [attr::LATENCY_TIME_IN_QUEUE, attr::LATENCY_E2E].map(|key| seconds(engine, key).unwrap());
        assert!(
            0.0 < queue && queue < e2e && e2e < asked["e2e"].as_f64().unwrap() + 0.1,
            "{queue} {e2e} {asked}"
        );
        told += 1;
    }
    assert!(told >= 10, "{told}");
    for name in
        ["vllm_iter_count", "num_prompt_tokens_iter", "num_generation_tokens_iter", "num_preemption_iter"]
    {
        assert!(replayed.metric(name) > 0.0, "{name}");
    }
}
