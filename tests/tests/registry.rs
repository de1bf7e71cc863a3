//! Whatever comes out of real captures stands in the registry: names, types, levels; and the traces hang together.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::{BTreeSet, HashSet};

use enginetap_core::ids::SpanId;
use enginetap_core::model::registry::{Dialect, check, spans};
use enginetap_core::model::span::Trace;
use enginetap_core::settings::{Settings, VllmLevel};
use enginetap_tests::captures::{Capture, named};
use enginetap_tests::replayed::Replayed;

const LEVELS: [VllmLevel; 3] = [VllmLevel::Request, VllmLevel::Stages, VllmLevel::Iterations];

/// Every capture at every level.
fn each(mut see: impl FnMut(&Capture, VllmLevel, &Replayed)) {
    for capture in named("").unwrap() {
        for level in LEVELS {
            let settings = Settings { vllm_level: level, ..Settings::default() };
            see(&capture, level, &Replayed::of(&capture, settings).unwrap());
        }
    }
}

#[test]
fn every_span_and_point_of_every_capture_is_as_the_registry_says() {
    let mut wrong = BTreeSet::new();
    let mut seen = 0;
    each(|capture, _, replayed| {
        let spans = replayed.traces.iter().flat_map(|trace| &trace.spans);
        let of_spans = spans.inspect(|_| seen += 1).flat_map(|span| check::span(span, Dialect::VllmV1));
        let of_points = replayed.points.iter().flat_map(|point| check::point(point, Dialect::VllmV1));
        wrong.extend(of_spans.chain(of_points).map(|what| format!("{}: {what}", capture.name)));
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 1_000, "{seen} spans are too few to say so");
}

#[test]
fn no_span_or_event_appears_below_its_level() {
    each(|capture, level, replayed| {
        for span in replayed.traces.iter().flat_map(|trace| &trace.spans) {
            let def = spans().find(|def| def.name == span.name);
            assert!(def.is_none_or(|def| def.level <= level as u8), "{}: {}", capture.name, span.name);
            let events = span.events.len() + usize::try_from(span.dropped_events).unwrap();
            assert!(events == 0 || level == VllmLevel::Iterations, "{}: events", capture.name);
        }
    });
}

/// What is wrong with the shape of a trace.
fn shape(trace: &Trace) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before: HashSet<SpanId> = HashSet::new();
    for (nth, span) in trace.spans.iter().enumerate() {
        let rooted = span.parent.is_some_and(|parent| before.contains(&parent));
        if nth > 0 && !rooted {
            wrong.push(format!("{}: its parent does not stand before it", span.name));
        }
        if trace.spans.first().is_some_and(|root| root.trace != span.trace) {
            wrong.push(format!("{}: another trace's", span.name));
        }
        if !before.insert(span.id) || span.id == SpanId(0) {
            wrong.push(format!("{}: its id is not its own", span.name));
        }
        if span.events.windows(2).any(|pair| matches!(pair, [a, b] if b.at < a.at)) {
            wrong.push(format!("{}: events out of order", span.name));
        }
    }
    wrong
}

#[test]
fn every_trace_is_one_tree() {
    let mut wrong = BTreeSet::new();
    each(|capture, _, replayed| {
        let of_traces = replayed.traces.iter().flat_map(shape);
        wrong.extend(of_traces.map(|what| format!("{}: {what}", capture.name)));
        let roots: HashSet<_> =
            replayed.traces.iter().filter_map(|trace| trace.spans.first()).map(|s| s.id).collect();
        assert_eq!(roots.len(), replayed.traces.len(), "{}: a root id stands twice", capture.name);
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}
