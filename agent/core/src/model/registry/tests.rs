use std::collections::HashSet;

use super::*;

/// Every attribute row: of spans and events, the contract's and our own.
fn all_attributes() -> impl Iterator<Item = &'static AttributeDef> {
    let groups = attributes().chain(own::ATTRIBUTES.iter().copied()).flat_map(|group| group.attributes);
    groups.chain(events().flat_map(|event| event.attributes))
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
    let names = events().flat_map(|event| event.names.iter().copied());
    assert_eq!(set(event::ALL.iter().copied()), set(names));
    let keys = dimensions().chain(own::DIMENSIONS).flat_map(|group| group.dimensions).map(|d| d.key);
    assert_eq!(set(dim::ALL.iter().copied()), set(keys));
}

#[test]
fn no_metric_name_stands_twice() {
    let all: Vec<_> = metric::ALL.iter().chain(own::ALL).map(|metric| metric.name).collect();
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
