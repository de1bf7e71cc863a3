use std::collections::HashSet;

use super::*;
use crate::ids::{SpanId, TraceId};
use crate::model::metric::{Number, Point};
use crate::model::span::{Attribute, Event, Span, Status, Value};
use crate::time::WallTime;

/// Every attribute row: of spans and events, the contract's and our own.
fn all_attributes() -> impl Iterator<Item = &'static AttributeDef> {
    let groups = attributes().chain(own::ATTRIBUTES.iter().copied()).flat_map(|group| group.attributes);
    groups.chain(events().chain(own::EVENTS).flat_map(|event| event.attributes))
}

fn set(names: impl IntoIterator<Item = &'static str>) -> HashSet<&'static str> {
    names.into_iter().collect()
}

#[test]
fn every_attribute_key_stands_in_a_table_and_every_row_has_a_key() {
    assert_eq!(set(attr::ALL.iter().copied()), set(all_attributes().map(|attribute| attribute.key)));
}

#[test]
fn every_span_name_stands_in_a_table() {
    let stages = sglang::STAGES.iter().flat_map(|group| group.stages).map(|stage| stage.name);
    assert_eq!(set(span::ALL.iter().copied()), set(spans().map(|span| span.name).chain(stages)));
}

#[test]
fn every_event_and_dimension_name_stands_in_a_table() {
    let names = events().chain(own::EVENTS).flat_map(|event| event.names.iter().copied());
    assert_eq!(set(event::ALL.iter().copied()), set(names));
    let keys = dimensions()
        .chain(own::DIMENSIONS)
        .chain(gpu::DIMENSIONS)
        .flat_map(|group| group.dimensions)
        .map(|d| d.key);
    assert_eq!(set(dim::ALL.iter().copied()), set(keys));
}

#[test]
fn no_metric_name_stands_twice() {
    let all: Vec<_> = metric::ALL.iter().copied().chain(beyond()).map(|metric| metric.name).collect();
    assert_eq!(set(all.iter().copied()).len(), all.len());
}

#[test]
fn no_group_names_an_attribute_twice() {
    for group in attributes().chain(own::ATTRIBUTES.iter().copied()) {
        let keys = set(group.attributes.iter().map(|attribute| attribute.key));
        assert_eq!(keys.len(), group.attributes.len(), "{}", group.on);
    }
}

#[test]
fn an_entry_span_is_named_by_operation_and_model() {
    assert_eq!(span::entry("chat", Some("m")), "chat m");
    assert_eq!(span::entry("chat", None), "chat");
}

fn a_span(name: &'static str) -> Span {
    Span {
        trace: TraceId(1),
        id: SpanId(1),
        parent: None,
        trace_state: None,
        name: name.into(),
        start: WallTime(1),
        end: WallTime(2),
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        links: Vec::new(),
        status: Status::Unset,
    }
}

#[test]
fn a_span_as_the_table_has_it_passes_the_check() {
    let mut entry = a_span("chat some/model");
    entry.set(attr::INPUT_MESSAGES, "[]");
    entry.set(attr::HTTP_STATUS, 200_i64);
    entry.set(attr::PARTIAL, true);
    let mut engine = a_span(span::LLM_REQUEST);
    engine.set(attr::LATENCY_E2E, 5_i64);
    let ids = Attribute { key: attr::TOKEN_IDS.into(), value: Value::Ints(vec![1]) };
    engine.events.push(Event { name: event::DECODE.into(), at: WallTime(1), attributes: vec![ids] });
    let mut transfer = a_span(span::KV_TRANSFER);
    transfer.set(attr::KV_TRANSFER_FAILED, false);
    for span in [entry, engine, transfer] {
        assert_eq!(check::span(&span, Dialect::VllmV1), [""; 0]);
    }
}

#[test]
fn what_the_table_does_not_have_fails_the_check() {
    let mut entry = a_span("chat");
    entry.set(attr::INPUT_MESSAGES, "not json");
    entry.set(attr::REQUEST_PREEMPTION_COUNT, 1_i64);
    entry.set(attr::REQUEST_TEMPERATURE, 1_i64);
    entry.end = WallTime(0);
    entry.events.push(Event { name: event::DECODE.into(), at: WallTime(1), attributes: Vec::new() });
    assert_eq!(check::span(&entry, Dialect::VllmV1).len(), 5);
    assert_eq!(check::span(&a_span("decode_loop"), Dialect::VllmV1).len(), 1);
    assert_eq!(check::span(&a_span(span::WAIT), Dialect::VllmV0).len(), 1);
}

#[test]
fn a_points_dimensions_are_checked() {
    let mut point = Point {
        server: None,
        metric: &metric::PROMPT_TOKENS,
        dimensions: vec![(dim::ENGINE_INDEX, "0".to_owned())],
        value: Number::Int(1),
        start: WallTime(1),
        at: WallTime(2),
    };
    assert_eq!(check::point(&point, Dialect::VllmV1), [""; 0]);
    assert_eq!(check::point(&point, Dialect::Sglang).len(), 1);
    point.dimensions.extend([(dim::ENGINE_INDEX, "0".to_owned()), ("odd", String::new())]);
    assert_eq!(check::point(&point, Dialect::VllmV1).len(), 2);
}
