//! Prefill on one vLLM, decode on another, replayed: each node's sums against its own `/metrics`, what the contract says of their
//! spans, and how the two halves of a request are found.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::BTreeMap;

use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{Span, Status, Trace, Value};
use enginetap_core::settings::Settings;
use enginetap_tests::captures::{Capture, VLLM_TOTALS};
use enginetap_tests::replayed::{Replayed, int};

/// Whole servers from their start; the others were joined as they ran.
const WHOLE: [&str; 6] = [
    "pd-nixl-decode",
    "pd-nixl-prefill",
    "pd-nixl-tcp-decode",
    "pd-nixl-tcp-prefill",
    "pd-storage-decode",
    "pd-storage-prefill",
];
const JOINED: [&str; 2] = ["pd/nixl-decode", "pd/nixl-prefill"];

fn replay(name: &str) -> Replayed {
    Replayed::of(&Capture::read(name).unwrap(), Settings::default()).unwrap()
}

#[test]
fn the_sums_of_both_nodes_equal_the_servers_own() {
    let mut wrong = Vec::new();
    for name in WHOLE.into_iter().chain(JOINED) {
        let capture = Capture::read(name).unwrap();
        let counted = if name.contains('/') { capture.counted() } else { capture.metrics() };
        let (ours, counted) = (replay(name), counted.unwrap());
        for (our, their) in VLLM_TOTALS {
            let (a, b) = (ours.metric(our), counted.sum(their).unwrap());
            // The difference of two pages has lost the last bits.
            if a != b && (WHOLE.contains(&name) || (a - b).abs() > 1e-9 * b.abs().max(1.0)) {
                wrong.push(format!("{name}: {our} is {a:?}, the server says {b:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The engine span and its children by name.
fn engine(trace: &Trace) -> Option<(&Span, BTreeMap<&str, &Span>)> {
    let engine = trace.spans.iter().find(|span| span.name == "llm_request")?;
    let under =
        trace.spans.iter().filter(|span| span.id != engine.id && span.attribute(attr::PD_ROLE).is_some());
    Some((engine, under.map(|span| (span.name.as_ref(), span)).collect()))
}

fn role(span: &Span) -> Option<&Value> {
    span.attribute(attr::PD_ROLE)
}

fn ns(span: &Span) -> i64 {
    i64::try_from(span.end.since(span.start).0).unwrap()
}

/// Those of a role that ended well.
fn served(replayed: &Replayed, of: &str) -> Vec<(Span, BTreeMap<String, Span>)> {
    let of = Value::from(of);
    let engines = replayed.traces.iter().filter_map(engine);
    let well = engines.filter(|(span, _)| role(span) == Some(&of) && span.status == Status::Unset);
    let owned = |children: BTreeMap<&str, &Span>| {
        children.into_iter().map(|(name, span)| (name.to_owned(), span.clone())).collect()
    };
    well.map(|(span, children)| (span.clone(), owned(children))).collect()
}

#[test]
fn a_decode_node_has_a_pull_inside_the_wait_and_no_prefill() {
    for (name, requests) in [("pd/nixl-decode", 12), ("pd-nixl-decode", 7), ("pd-nixl-tcp-decode", 7)] {
        let served = served(&replay(name), "consumer");
        assert_eq!(served.len(), requests, "{name}");
        for (engine, children) in served {
            let names: Vec<&str> = children.keys().map(String::as_str).collect();
            let one_token = int(&engine, attr::USAGE_COMPLETION_TOKENS) == Some(1);
            let expected: &[&str] =
                if one_token { &["kv_transfer", "wait"] } else { &["decode", "kv_transfer", "wait"] };
            assert_eq!(names, expected, "{name} {engine:#?}");
            let (wait, pull) = (&children["wait"], &children["kv_transfer"]);
            assert_eq!((pull.parent, wait.parent), (Some(wait.id), Some(engine.id)));
            assert!(wait.start <= pull.start && pull.end <= wait.end, "{wait:#?} {pull:#?}");
            assert!(children.values().all(|span| role(span) == Some(&Value::from("consumer"))));
            assert_eq!(pull.attribute(attr::KV_TRANSFER_DIRECTION), Some(&Value::from("recv")));
            assert_eq!(pull.attribute(attr::KV_TRANSFER_FAILED), Some(&Value::from(false)));
            assert!(int(pull, attr::KV_TRANSFER_CACHED_TOKENS).unwrap() > 0, "{pull:#?}");
            let took = int(&engine, attr::LATENCY_TIME_IN_KV_TRANSFER).unwrap();
            assert!((took - ns(pull)).abs() <= 1, "{took} {pull:#?}");
            assert!((int(&engine, attr::LATENCY_TIME_IN_QUEUE).unwrap() - ns(wait)).abs() <= 1);
            assert_eq!(int(&engine, attr::LATENCY_TIME_IN_MODEL_PREFILL), Some(0));
            assert_eq!(int(&engine, attr::LATENCY_TIME_IN_MODEL_DECODE) == Some(0), one_token);
        }
    }
}

#[test]
fn a_prefill_node_has_no_decode_and_nothing_pulled() {
    for (name, requests) in [("pd/nixl-prefill", 12), ("pd-nixl-prefill", 7), ("pd-nixl-tcp-prefill", 7)] {
        let served = served(&replay(name), "producer");
        assert_eq!(served.len(), requests, "{name}");
        for (engine, children) in served {
            let names: Vec<&str> = children.keys().map(String::as_str).collect();
            assert_eq!(names, ["prefill", "wait"], "{name} {engine:#?}");
            assert!(int(&engine, attr::LATENCY_TIME_IN_MODEL_PREFILL).unwrap() > 0);
            assert_eq!(int(&engine, attr::LATENCY_TIME_IN_MODEL_DECODE), Some(0));
            assert_eq!(engine.attribute(attr::LATENCY_TIME_IN_KV_TRANSFER), None);
        }
    }
}

/// What the connectors pulled, all together, is what the server's own histogram has.
#[test]
fn the_pulls_lengths_add_up_to_the_servers_own() {
    for name in ["pd/nixl-decode", "pd-nixl-decode", "pd-nixl-tcp-decode"] {
        let capture = Capture::read(name).unwrap();
        let counted = if name.contains('/') { capture.counted() } else { capture.metrics() }.unwrap();
        let replayed = replay(name);
        let pulls = served(&replayed, "consumer").into_iter();
        let ours: i64 =
            pulls.map(|(engine, _)| int(&engine, attr::LATENCY_TIME_IN_KV_TRANSFER).unwrap()).sum();
        let theirs = counted.sum("vllm:nixl_xfer_time_seconds_sum").unwrap();
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a few requests")]
        let ours = ours as f64 / 1e9;
        assert!((ours - theirs).abs() < 1e-6, "{name}: {ours} s, the server says {theirs} s");
        let external: i64 = replayed
            .spans("kv_transfer")
            .map(|span| int(span, attr::KV_TRANSFER_CACHED_TOKENS).unwrap())
            .sum();
        let theirs = counted.sum("vllm:external_prefix_cache_hits_total").unwrap();
        assert_eq!(external.to_string(), format!("{theirs:.0}"), "{name}");
    }
}

#[test]
fn the_two_halves_are_found_by_the_transfers_request_id() {
    let halves = [("pd/nixl-prefill", "pd/nixl-decode"), ("pd-nixl-prefill", "pd-nixl-decode")];
    for (prefill, decode) in halves {
        let prefill = replay(prefill);
        for (engine, _) in served(&replay(decode), "consumer") {
            let wanted = engine.attribute(attr::REMOTE_REQUEST_ID);
            let half = prefill.spans("llm_request").find(|half| half.attribute(attr::REQUEST_ID) == wanted);
            let half = half.unwrap_or_else(|| panic!("{wanted:?} is not on the prefill node"));
            assert_eq!(role(half), Some(&Value::from("producer")));
            let tokens = |span| int(span, attr::USAGE_PROMPT_TOKENS);
            assert_eq!(tokens(half), tokens(&engine), "{half:#?} {engine:#?}");
        }
    }
}

#[test]
fn a_pull_whose_other_end_was_killed_is_a_failed_one() {
    let replayed = replay("pd/prefill-killed");
    let failed: Vec<&Trace> =
        replayed.traces.iter().filter(|trace| int(&trace.spans[0], attr::HTTP_STATUS) == Some(500)).collect();
    assert_eq!(failed.len(), 2);
    for trace in failed {
        let (engine, children) = engine(trace).unwrap();
        assert!(matches!(engine.status, Status::Error(_)), "{engine:#?}");
        let (wait, pull) = (children["wait"], children["kv_transfer"]);
        assert_eq!((children.len(), pull.parent), (2, Some(wait.id)), "{children:#?}");
        assert_eq!(pull.attribute(attr::KV_TRANSFER_FAILED), Some(&Value::from(true)));
        // No connector says when: it is told by the engine's state and by its giving the request up.
        let edges = vec!["start".to_owned(), "end".to_owned()];
        assert_eq!(pull.attribute(attr::ESTIMATED), Some(&Value::from(edges)));
        assert_eq!(wait.attribute(attr::ESTIMATED), Some(&Value::from(vec!["end".to_owned()])));
    }
    // vLLM itself takes such a request's missing moments for zeros: its sums of times are off by the machine's uptime.
    let counted = Capture::read("pd/prefill-killed").unwrap().counted().unwrap();
    assert!(counted.sum("vllm:request_queue_time_seconds_sum").unwrap() < -1_000.0);
    for (our, their) in VLLM_TOTALS.iter().filter(|(our, _)| !our.ends_with("seconds")) {
        assert_eq!(Some(replayed.metric(our)), counted.sum(their), "{our}");
    }
    // What the frontend hands over to have the other node's memory let go is no request.
    assert_eq!(replayed.traces.len(), 4, "{:#?}", replayed.traces.len());
}
