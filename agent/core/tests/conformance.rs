//! Holds the registry against the contract, row by row and both ways: a name missing on either side, or another
//! type, unit, kind, engine, level, parent or condition, fails.
#![allow(clippy::unwrap_used, reason = "a test; the lint only sees `#[test]` functions as such")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use enginetap_core::model::registry::{self, AttributeDef, Dialect, collection, metric, sglang};
use toml::{Table, Value};

const SPEC: &str = include_str!("../../../tests/spec/telemetry.toml");

fn spec() -> Table {
    SPEC.parse().unwrap()
}

/// The tables of a `[[name]]` list.
fn rows(name: &str) -> Vec<Table> {
    let list = spec().remove(name).unwrap_or_else(|| panic!("the contract has no [[{name}]]"));
    list.try_into().unwrap()
}

/// The inline tables of a list field.
fn inner(row: &Table, field: &str) -> Vec<Table> {
    row.get(field).map_or_else(Vec::new, |list| list.clone().try_into().unwrap())
}

fn text(row: &Table, field: &str) -> String {
    optional(row, field).unwrap_or_else(|| panic!("no {field} in {row:?}"))
}

fn optional(row: &Table, field: &str) -> Option<String> {
    row.get(field).map(|value| value.as_str().unwrap().to_owned())
}

fn level(row: &Table) -> u8 {
    u8::try_from(row["level"].as_integer().unwrap()).unwrap()
}

fn texts(row: &Table, field: &str) -> Vec<String> {
    row.get(field).map_or_else(Vec::new, |list| list.clone().try_into().unwrap())
}

fn engines(list: &[Dialect]) -> Vec<String> {
    list.iter().map(|engine| engine.name().to_owned()).collect()
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// Fails naming every row that stands on one side only.
fn same<T: Ord + Debug>(
    what: &str,
    contract: impl IntoIterator<Item = T>,
    table: impl IntoIterator<Item = T>,
) {
    let (contract, table) = (unique(what, contract), unique(what, table));
    let missing: Vec<_> = contract.difference(&table).collect();
    let extra: Vec<_> = table.difference(&contract).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{what}: only in the contract: {missing:#?}; only in the registry: {extra:#?}"
    );
}

fn unique<T: Ord + Debug>(what: &str, rows: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    for row in rows {
        let said = format!("{row:?}");
        assert!(set.insert(row), "{what}: a row stands twice: {said}");
    }
    assert!(!set.is_empty(), "{what}: no rows");
    set
}

/// On, key, type, unit, condition, text.
type AttributeRow = (String, String, String, Option<String>, Option<String>, String);

fn contract_attribute(on: &str, row: &Table) -> AttributeRow {
    let doc = optional(row, "d").unwrap_or_default();
    (on.to_owned(), text(row, "n"), text(row, "t"), optional(row, "u"), optional(row, "when"), doc)
}

fn table_attribute(on: &str, attribute: &AttributeDef) -> AttributeRow {
    let AttributeDef { key, ty, unit, when, doc } = *attribute;
    (on.to_owned(), key.to_owned(), ty.name().to_owned(), owned(unit), owned(when), doc.to_owned())
}

#[test]
fn spans_are_the_contracts() {
    let contract = rows("span").into_iter().map(|row| {
        let (engine, parent) = (texts(&row, "engine"), optional(&row, "parent"));
        (text(&row, "name"), engine, level(&row), text(&row, "layer"), parent, text(&row, "when"))
    });
    let table = registry::spans().map(|span| {
        let (engine, layer) = (engines(span.engines), span.layer.name().to_owned());
        (span.name.to_owned(), engine, span.level, layer, owned(span.parent), span.when.to_owned())
    });
    same("spans", contract, table);
}

#[test]
fn attributes_are_the_contracts() {
    let contract = rows("attribute").into_iter().flat_map(|group| {
        let on = text(&group, "on");
        inner(&group, "names").into_iter().map(move |row| contract_attribute(&on, &row)).collect::<Vec<_>>()
    });
    let table = registry::attributes()
        .flat_map(|group| group.attributes.iter().map(|attribute| table_attribute(group.on, attribute)));
    same("attributes", contract, table);
    same(
        "attribute groups",
        rows("attribute").iter().map(|group| (text(group, "on"), optional(group, "note"))),
        registry::attributes().map(|group| (group.on.to_owned(), owned(group.note))),
    );
}

#[test]
fn events_are_the_contracts() {
    let contract = rows("event").into_iter().map(|row| {
        let on = text(&row, "on");
        let attributes: Vec<_> =
            inner(&row, "attributes").iter().map(|row| contract_attribute(&on, row)).collect();
        let limit = optional(&row, "limit");
        (texts(&row, "names"), texts(&row, "engine"), on, level(&row), attributes, limit, text(&row, "d"))
    });
    let table = registry::events().map(|event| {
        let names = event.names.iter().map(ToString::to_string).collect();
        let attributes = event.attributes.iter().map(|row| table_attribute(event.on, row)).collect();
        let (limit, doc) = (owned(event.limit), event.doc.to_owned());
        (names, engines(event.engines), event.on.to_owned(), event.level, attributes, limit, doc)
    });
    same("events", contract, table);
}

#[test]
fn stages_are_the_contracts() {
    let contract = rows("stage").into_iter().flat_map(|group| {
        let on = text(&group, "group");
        let stages = inner(&group, "names").into_iter();
        stages
            .map(move |row| {
                let (parent, when) = (optional(&row, "parent"), optional(&row, "when"));
                let (attributes, process) = (texts(&row, "attributes"), text(&row, "process"));
                (on.clone(), text(&row, "n"), level(&row), process, parent, when, attributes, text(&row, "d"))
            })
            .collect::<Vec<_>>()
    });
    let table = sglang::STAGES.iter().flat_map(|group| {
        group.stages.iter().map(|stage| {
            let attributes: Vec<_> = stage.attributes.iter().map(ToString::to_string).collect();
            let (on, name, process) =
                (group.group.to_owned(), stage.name.to_owned(), stage.process.to_owned());
            let (parent, when) = (owned(stage.parent), owned(stage.when));
            (on, name, stage.level, process, parent, when, attributes, stage.doc.to_owned())
        })
    });
    same("stages", contract, table);
}

/// The contract's metrics: a name may stand in several groups, once an engine.
fn contract_metrics() -> BTreeMap<String, (String, String, Option<String>, BTreeSet<String>)> {
    let mut metrics = BTreeMap::new();
    for group in rows("metric") {
        for row in inner(&group, "names") {
            let said = (text(&row, "k"), text(&row, "u"), optional(&row, "when"));
            let entry = metrics
                .entry(text(&row, "n"))
                .or_insert_with(|| (said.0.clone(), said.1.clone(), said.2.clone(), BTreeSet::new()));
            assert_eq!((&entry.0, &entry.1, &entry.2), (&said.0, &said.1, &said.2), "{row:?}");
            entry.3.extend(texts(&group, "engine"));
        }
    }
    metrics
}

#[test]
fn metrics_are_the_contracts() {
    let table = metric::ALL.iter().map(|metric| {
        let said = (metric.kind.name().to_owned(), metric.unit.to_owned(), owned(metric.when));
        (metric.name.to_owned(), (said.0, said.1, said.2, engines(metric.engines).into_iter().collect()))
    });
    same("metrics", contract_metrics(), table);
}

#[test]
fn dimensions_are_the_contracts() {
    let contract = rows("dimension").into_iter().flat_map(|group| {
        let on = text(&group, "on");
        let names = inner(&group, "names").into_iter();
        names.map(move |row| (on.clone(), text(&row, "n"), text(&row, "d"))).collect::<Vec<_>>()
    });
    let table = registry::dimensions().flat_map(|group| {
        let on = group.on;
        group.dimensions.iter().map(move |row| (on.to_owned(), row.key.to_owned(), row.doc.to_owned()))
    });
    same("dimensions", contract, table);
}

#[test]
fn logs_are_the_contracts() {
    same(
        "logs",
        rows("log").iter().map(|row| (text(row, "name"), texts(row, "engine"), text(row, "when"))),
        collection::LOGS.iter().map(|log| (log.name.to_owned(), engines(log.engines), log.when.to_owned())),
    );
}

#[test]
fn switches_are_the_contracts() {
    let contract = rows("switch").into_iter().map(|row| {
        let names = (optional(&row, "key"), optional(&row, "env"));
        (names, text(&row, "default"), optional(&row, "d"), optional(&row, "outside"))
    });
    let table = collection::SWITCHES.iter().map(|switch| {
        let names = (owned(switch.key), owned(switch.env));
        (names, switch.default.to_owned(), owned(switch.doc), owned(switch.outside))
    });
    same("switches", contract, table);
}

/// A row without a test has not been seen, and a test that is gone shows nothing.
#[test]
fn every_row_has_a_test_that_showed_it() {
    same("rows that were seen", rows_of_evidence(), registry::evidence::rows());
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for evidence in registry::evidence::evidence() {
        let by = evidence.by;
        if let Some(capture) = evidence.capture() {
            assert!(tests.join(format!("tests/captures/{capture}.cap.gz")).is_file(), "there is no {by}");
            continue;
        }
        if by.strip_prefix("none: ").is_some_and(|reason| !reason.is_empty()) {
            continue;
        }
        let (file, test) =
            by.split_once("::").unwrap_or_else(|| panic!("{by} is neither a capture nor a test"));
        let source =
            std::fs::read_to_string(tests.join(file)).unwrap_or_else(|_| panic!("there is no {file}"));
        assert!(source.contains(&format!("fn {test}(")), "there is no {by}");
    }
}

fn rows_of_evidence() -> Vec<registry::evidence::Row> {
    registry::evidence::evidence()
        .filter(|evidence| !evidence.by.is_empty())
        .map(|evidence| evidence.row)
        .collect()
}

#[test]
fn conventions_and_aliases_are_the_contracts() {
    let spec = spec();
    let conventions = spec["conventions"].as_table().unwrap().iter();
    same(
        "conventions",
        conventions.map(|(key, value)| (key.clone(), joined(value))),
        collection::CONVENTIONS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    let contract = rows("alias").into_iter().map(|mut row| {
        let meaning = row.remove("meaning").unwrap().as_str().unwrap().to_owned();
        let names = row.iter().map(|(place, name)| (place.clone(), name.as_str().unwrap().to_owned()));
        (meaning, names.collect::<BTreeSet<_>>())
    });
    let table = collection::ALIASES.iter().map(|alias| {
        let names = alias.names.iter().map(|(place, name)| ((*place).to_owned(), (*name).to_owned()));
        (alias.meaning.to_owned(), names.collect())
    });
    same("aliases", contract, table);
}

/// A text, or a list of texts as one.
fn joined(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.clone().try_into::<Vec<String>>().unwrap().join(", "),
    }
}

#[test]
fn the_contract_has_no_kind_of_row_that_this_test_does_not_know() {
    let known = [
        "alias",
        "attribute",
        "conventions",
        "dimension",
        "event",
        "log",
        "metric",
        "span",
        "stage",
        "switch",
    ];
    same("kinds of rows", spec().keys().cloned(), known.map(str::to_owned));
}
