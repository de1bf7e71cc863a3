//! Why requests were slow: injected faults on a real vLLM (recorded once), and captures of real servers.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its capture has failed")]

use enginetap_core::model::registry::attr;
use enginetap_core::model::span::Value;
use enginetap_core::settings::Settings;
use enginetap_core::why::account::Part;
use enginetap_core::why::cause::Cause;
use enginetap_core::why::verdict::Verdict;
use enginetap_tests::captures::{Capture, named};
use enginetap_tests::replayed::{Replayed, int};

/// The captures of `scenarios/why.py`.
const FAULTS: [&str; 6] = ["healthy", "giant", "many", "kv", "slow", "leaver"];

fn replayed(name: &str) -> Replayed {
    Replayed::of(&Capture::read(name).unwrap(), Settings::default()).unwrap()
}

fn of<'a>(replayed: &'a Replayed, id: &str) -> &'a Verdict {
    replayed.verdicts.iter().find(|verdict| verdict.is_called(id)).unwrap_or_else(|| panic!("no {id}"))
}

/// Of a capture: each request that the scenario expects something of, what it expects, and what was named first.
fn named_causes(fault: &str) -> Vec<(String, Option<String>, Option<&'static str>)> {
    let name = format!("why-{fault}");
    let replayed = replayed(&name);
    let scenario = Capture::read(&name).unwrap().scenario().unwrap();
    let expecting = scenario.iter().filter(|line| line.get("cause").is_some());
    expecting
        .map(|line| {
            let verdict = of(&replayed, line["id"].as_str().unwrap());
            let first = verdict.causes.first().map(|blame| blame.cause.name());
            (line["label"].to_string(), line["cause"].as_str().map(str::to_owned), first)
        })
        .collect()
}

#[test]
fn each_injected_fault_is_named_first_and_healthy_requests_are_not_blamed() {
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for fault in FAULTS {
        for (label, injected, named) in named_causes(fault) {
            looked_at += 1;
            if injected.as_deref() != named {
                wrong.push(format!("{fault}: {label}: injected {injected:?}, named {named:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(looked_at, 9 + 5 + 2 + 5 + 1 + 2);
}

#[test]
fn the_times_are_those_that_the_client_measured() {
    for fault in ["healthy", "giant", "many", "kv"] {
        let name = format!("why-{fault}");
        let replayed = replayed(&name);
        for line in Capture::read(&name).unwrap().scenario().unwrap() {
            let verdict = of(&replayed, line["id"].as_str().unwrap());
            let measured = line["e2e"].as_f64().unwrap();
            let own = verdict.e2e.seconds().0;
            // The client was a Python with other threads beside, so it saw each event late; never early.
            assert!(own <= measured + 0.001 && measured - own < 0.4, "{fault} {line}: {own}");
        }
    }
}

#[test]
fn who_lengthened_the_steps_is_named_and_by_how_much() {
    let replayed = replayed("why-giant");
    let scenario = Capture::read("why-giant").unwrap().scenario().unwrap();
    let giant = scenario.iter().find(|line| line["label"] == "giant").unwrap()["id"].as_str().unwrap();
    for line in scenario.iter().filter(|line| line.get("cause").is_some()) {
        let verdict = of(&replayed, line["id"].as_str().unwrap());
        let because = verdict.because();
        assert!(because.contains(&format!("{giant}, prompt of 1192 tokens")), "{because}");
    }
    // Five chunks of at most 256 tokens: five of its steps were longer than the others.
    let decoding = scenario.iter().find(|line| line["label"] == "decoding-0").unwrap();
    let verdict = of(&replayed, decoding["id"].as_str().unwrap());
    assert!(verdict.because().contains("prompt of 1192 tokens, 5 steps"), "{}", verdict.because());
}

#[test]
fn the_parts_of_every_request_of_every_capture_are_its_whole() {
    let mut looked_at = 0;
    for capture in named("").unwrap().into_iter().chain(named("sglang/").unwrap()) {
        let replayed = Replayed::of(&capture, Settings::default()).unwrap();
        for verdict in &replayed.verdicts {
            let parts: u64 = verdict.parts.iter().map(|slice| slice.took.0).sum();
            assert_eq!(parts, verdict.e2e.0, "{} {}", capture.name, verdict.id());
            looked_at += 1;
        }
    }
    assert!(looked_at > 700, "{looked_at} requests");
}

#[test]
fn queue_and_prefill_are_the_engines_own_figures() {
    let mut looked_at = 0;
    for name in ["why-kv", "why-giant", "vllm-0.32.0", "crowd", "chunks"] {
        let replayed = replayed(name);
        for span in replayed.spans("llm_request") {
            let Some(Value::Str(id)) = span.attribute(attr::REQUEST_ID) else { panic!("no id") };
            let verdict = of(&replayed, id);
            let took = |part| {
                verdict.parts.iter().filter(|slice| slice.part == part).map(|slice| slice.took.0).sum::<u64>()
            };
            let figures = [
                (Part::Queue, attr::LATENCY_TIME_IN_QUEUE),
                (Part::Prefill, attr::LATENCY_TIME_IN_MODEL_PREFILL),
            ];
            for (part, key) in
                figures.into_iter().filter(|_| verdict.size.candidates == 1 && !verdict.partial)
            {
                let Some(own) = int(span, key) else { continue };
                let difference = i64::try_from(took(part)).unwrap() - own;
                assert!(difference.abs() <= 1_000, "{name} {id} {part:?}: {} against {own} ns", took(part));
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 150, "{looked_at} figures");
}

#[test]
fn every_trace_carries_its_verdict() {
    for name in ["why-kv", "sglang/metrics", "vllm-0.32.0"] {
        let replayed = replayed(name);
        let counted = replayed.metric("enginetap_requests_explained");
        assert_eq!(counted, replayed.verdicts.len() as f64);
        for verdict in &replayed.verdicts {
            let on = |trace: &&enginetap_core::model::span::Trace| {
                trace.spans[0].attribute(attr::WHY) == Some(&Value::Str(verdict.sentence()))
            };
            assert!(replayed.traces.iter().any(|trace| on(&trace)), "{name} {}", verdict.id());
        }
    }
    let kv = replayed("why-kv");
    let held = kv.points.iter().filter(|point| point.metric.name == "enginetap_requests_held_up");
    let full = held.filter(|point| point.dimensions == [("cause", "kv_full".to_owned())]);
    let requests =
        kv.verdicts.iter().filter(|verdict| verdict.causes.iter().any(|blame| blame.cause == Cause::KvFull));
    assert_eq!(full.map(|point| point.value.as_f64()).sum::<f64>(), requests.count() as f64);
}

/// Each was checked by hand against the capture's spans, what the engine's statistics in it say, and what the client saw.
#[test]
fn golden_sentences() {
    let mut wrong = Vec::new();
    for (name, label, golden) in GOLDEN {
        let scenario = Capture::read(name).unwrap().scenario().unwrap_or_default();
        let line = scenario.iter().find(|line| line["label"] == label);
        let id = line.map_or(label, |line| line["id"].as_str().unwrap());
        let sentence = of(&replayed(name), id).sentence();
        if sentence != golden {
            wrong.push(format!("{name} {label}: {sentence}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Capture, label of the request in its scenario (or its id), sentence.
const GOLDEN: [(&str, &str, &str); 9] = [
    (
        "why-kv",
        "crowded-7",
        "TTFT 3.23 s = 3.13 queue (KV cache 100 % full, 4 ahead, 3 running, 6 waiting) + 0.088 prefill (183 tokens, sharing steps with 2 decodes) + 0.019 the rest; \
         e2e 4.99 s = 3.23 to the first token + 1.07 decode (99 tokens, 98 steps, 12 ms each, sharing steps with 2 decodes) + 0.68 preempted (once); \
         3.81 s since the KV cache was full: it waited for room, or was preempted (KV cache 100 % full, 4 ahead, 3 running, 6 waiting) [certain]",
    ),
    (
        "why-giant",
        "decoding-0",
        "TTFT 0.11 s = 0.014 API server before dispatch + 0.081 prefill (10 tokens) + 0.009 engine to API server + 0.009 detokenize and send; \
         e2e 6.64 s = 0.11 to the first token + 3.61 decode (49 tokens, 49 steps, 74 ms each, sharing steps with 5 decodes) + 2.91 lengthened steps (5 steps, the longest 1305 ms); \
         2.89 s since another request's long prompt was prefilled in its steps or ahead of it (cmpl-a0a313972c7932a0, prompt of 1192 tokens, 5 steps) [likely]",
    ),
    (
        "why-giant",
        "arriving-0",
        "TTFT 3.28 s = 0.92 handing over to the scheduler + 2.01 queue (KV cache 1 % full, 4 running, 2 waiting) + 0.31 prefill (15 tokens, sharing steps with 3 decodes) + 0.043 the rest; \
         e2e 3.62 s = 3.28 to the first token + 0.33 decode (9 tokens, 9 steps, 44 ms each, sharing steps with 5 decodes) + 0.008 detokenize and send; \
         3.17 s since another request's long prompt was prefilled in its steps or ahead of it (cmpl-a0a313972c7932a0, prompt of 1192 tokens, KV cache 1 % full, 4 running, 2 waiting) [likely]",
    ),
    (
        "why-many",
        "beside-0",
        "TTFT 0.076 s = 0.007 API server before dispatch + 0.001 handing over to the scheduler + 0.064 prefill (10 tokens) + 0.002 detokenize and send; \
         e2e 2.55 s = 0.076 to the first token + 1.88 decode (159 tokens, 159 steps, 11 ms each, sharing steps with 9 decodes) + 0.59 lengthened steps (62 steps, the longest 66 ms); \
         0.45 s since a request with many candidates (n) or with logprobs lengthened its steps (cmpl-81c2aef81803bbdc, n=8, logprobs, 59 steps) [likely]; \
         0.055 s since the prompts of many new requests were prefilled in its steps (cmpl-81c2aef81803bbdc, prompt of 36 tokens, logprobs, 1 step) [likely]",
    ),
    (
        "why-slow",
        "slow",
        "TTFT 0.099 s = 0.002 API server before dispatch + 0.084 prefill (42 tokens) + 0.011 detokenize and send + 0.001 the rest; \
         e2e 3.42 s = 0.099 to the first token + 1.71 decode (479 tokens, 119 steps, 13 ms each, sharing steps with 1 decode) + 0.74 lengthened steps (9 steps, the longest 260 ms) + 0.87 detokenize and send; \
         0.87 s since the client read its response slowly: the engine was done long before [likely]; \
         0.47 s since steps took long and nothing that was seen explains why \
         (7 steps, the longest 121 ms) [possible]; \
         0.26 s since the prompts of many new requests were prefilled in its steps (cmpl-b3efa929ae7847a3, prompt of 42 tokens, 2 steps) [likely]",
    ),
    (
        "why-leaver",
        "leaver",
        "TTFT 0.037 s = 0.002 API server before dispatch + 0.033 prefill (53 tokens) + 0.002 the rest; \
         e2e 1.54 s = 0.037 to the first token + 1.49 decode (125 tokens, 125 steps, 12 ms each, sharing steps with 1 decode) + 0.014 the rest; \
         after 1.54 s the client closed the connection before the response was complete (it left during: decode, 126 tokens)",
    ),
    (
        "why-healthy",
        "healthy-2-0",
        "TTFT 0.035 s = 0.002 API server before dispatch + 0.031 prefill (43 tokens) + 0.002 the rest; \
         e2e 0.56 s = 0.035 to the first token + 0.52 decode (59 tokens, 59 steps, 8.7 ms each) + 0.004 the rest; \
         nothing held it up",
    ),
    (
        "sglang/no-overlap",
        "c74b497cbb284525bce6877d99c2f632",
        "TTFT 0.81 s = 0.050 API server before dispatch + 0.42 queue (KV cache 5 % full, 5 ahead, 3 running, 4 waiting) + 0.33 prefill (453 tokens, 6 chunks, beside 4 decodes); \
         e2e 2.35 s = 0.81 to the first token + 0.31 decode (23 tokens, 15 steps, 13 ms each, sharing steps with 4 decodes) + 0.24 lengthened steps (1 step, the longest 254 ms) + 0.99 preempted (once); \
         0.99 s since it was sent back to the queue though the KV cache had room (once, KV cache 15 % full) [certain]; \
         0.42 s since the prompts of many new requests were prefilled in its steps (KV cache 5 % full, 5 ahead, 3 running, 4 waiting) [possible]; \
         0.24 s since another request's long prompt was prefilled in its steps or ahead of it (99625ab0782e494d964ac50cab983338, prompt of 466 tokens, 1 step) [likely]",
    ),
    (
        "sglang/metrics",
        "4bd2fc95ae5e491cab47044587019850",
        "TTFT 2.33 s = 0.039 API server before dispatch + 0.13 handing over to the scheduler + 2.02 queue (KV cache 13 % full, 3 ahead, 4 running, 5 waiting) + 0.14 prefill (55 tokens, beside 3 decodes); \
         e2e 5.75 s = 2.33 to the first token + 1.19 decode (23 tokens, 19 steps, 55 ms each, sharing steps with 4 decodes) + 1.08 lengthened steps (5 steps, the longest 631 ms) + 1.16 preempted (once); \
         2.14 s since as many requests ran as the scheduler allows, though the KV cache had room (KV cache 13 % full, 3 ahead, 4 running, 5 waiting) [likely]; \
         1.16 s since it was sent back to the queue though the KV cache had room (once, KV cache 23 % full) [certain]; \
         0.63 s since another request's long prompt was prefilled in its steps or ahead of it (80afc3cb74f74d28af3433aa51f49503, prompt of 484 tokens, 5 steps) [likely]",
    ),
];
