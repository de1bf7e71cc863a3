//! A real SGLang 0.5.23 that traced itself, recorded from outside (`tests/captures/README.md`) and replayed: its own spans
//! are the truth that ours are held to. What a live run can only hold to with room for a busy machine, a replay holds to
//! exactly as it was reached.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::io::Read as _;

use enginetap_core::settings::{Settings, SglangLevel};
use enginetap_tests::captures::Capture;
use enginetap_tests::replayed::Replayed;
use enginetap_tests::trees::{compare, made, seen};
use serde_json::Value as Json;

/// Spans that SGLang exported meanwhile.
const SPANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/captures/sglang/traced.spans.jsonl.gz");

/// Stages; of how many percent of the requests there are as many as SGLang says; how many percent of their begins and of
/// their ends are within a millisecond.
const STAGES: &[(&str, usize, [usize; 2])] = &[
    ("tokenize", 100, [100, 100]),
    ("api_server_dispatch", 100, [100, 100]),
    ("request_process", 100, [100, 100]),
    ("prefill_waiting", 100, [100, 100]),
    ("prefill_forward", 98, [100, 100]),
    ("chunked_prefill", 100, [100, 100]),
    ("decode_waiting", 100, [100, 81]),
    ("decode_forward", 100, [90, 86]),
    ("decode_loop", 97, [96, 95]),
];

fn spans() -> Vec<Json> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(SPANS).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_stages_are_those_that_sglang_traced_itself() {
    let settings = Settings { sglang_level: SglangLevel::new(3).unwrap(), ..Settings::default() };
    let replayed = Replayed::of(&Capture::read("sglang/traced").unwrap(), settings).unwrap();
    let (mut by_name, unseen) = compare(&made(&replayed.traces), &seen(&spans()));
    // The server's own warm-up, before the agent came.
    assert_eq!(unseen.len(), 1, "{unseen:?}");
    for (name, compared) in &mut by_name {
        compared.tell(name);
    }
    for (name, counts, moments) in STAGES {
        let compared = &by_name[*name];
        assert!(compared.counts() >= *counts, "{name}: {} of 100 requests", compared.counts());
        let near = compared.near();
        assert!(near.iter().zip(moments).all(|(near, least)| near >= least), "{name}: {near:?} of 100 near");
    }
}
