//! Where each row of the contract was seen: a table beside the registry (`evidence.tsv`), a line a row, and what of a span, a point
//! or a log line is a row.

use super::{Dialect, Layer, attributes, check, collection, dimensions, events, metric, sglang, spans};
use crate::model::log::Log;
use crate::model::metric::Point;
use crate::model::span::Span;

/// The table: kind, what it is on, name, engine, version, and what showed it; tabs between.
const TABLE: &str = include_str!("evidence.tsv");

/// A row of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// What it is: `span`, `attribute`, `event`, `event attribute`, `stage`, `metric`, `dimension`, `log` or `setting`.
    pub kind: &'static str,
    /// What it is on, as the contract says; empty where it stands alone.
    pub on: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The engine it was seen on; empty where `on` says it.
    pub engine: &'static str,
}

/// Who showed a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// The row.
    pub row: Row,
    /// The engine's version; empty where none is needed.
    pub version: &'static str,
    /// `replay CAPTURE`, `FILE::TEST`, or `none: REASON` of a row that is not made.
    pub by: &'static str,
}

impl Evidence {
    /// The capture that shows it, where it is one.
    #[must_use]
    pub fn capture(&self) -> Option<&'static str> {
        self.by.strip_prefix("replay ")
    }
}

/// Every line of the table that is whole.
pub fn evidence() -> impl Iterator<Item = Evidence> {
    TABLE.lines().filter_map(|line| {
        let mut cells = line.split('\t');
        let mut cell = || cells.next();
        let row = Row { kind: cell()?, on: cell()?, name: cell()?, engine: cell()? };
        Some(Evidence { row, version: cell()?, by: cell()? })
    })
}

const fn row(kind: &'static str, on: &'static str, name: &'static str, engine: &'static str) -> Row {
    Row { kind, on, name, engine }
}

/// Every row of the contract that something can show.
#[must_use]
pub fn rows() -> Vec<Row> {
    let each = |kind, name, engines: &'static [Dialect]| {
        engines.iter().map(move |engine| row(kind, "", name, engine.name()))
    };
    let mut rows: Vec<Row> = spans().flat_map(|span| each("span", span.name, span.engines)).collect();
    rows.extend(attributes().flat_map(|group| {
        group.attributes.iter().map(|attribute| row("attribute", group.on, attribute.key, ""))
    }));
    rows.extend(
        events()
            .flat_map(|event| event.names.iter().flat_map(move |name| each("event", name, event.engines))),
    );
    rows.extend(events().flat_map(|event| {
        let on = event.names.first().copied().unwrap_or_default();
        event.attributes.iter().map(move |attribute| row("event attribute", on, attribute.key, ""))
    }));
    let stages = sglang::STAGES.iter().flat_map(|group| group.stages);
    rows.extend(stages.map(|stage| row("stage", "", stage.name, Dialect::Sglang.name())));
    rows.extend(metric::ALL.iter().flat_map(|metric| each("metric", metric.name, metric.engines)));
    rows.extend(
        dimensions()
            .flat_map(|group| group.dimensions.iter().map(|it| row("dimension", group.on, it.key, ""))),
    );
    rows.extend(collection::LOGS.iter().flat_map(|log| each("log", log.name, log.engines)));
    let settings = collection::SWITCHES.iter().filter_map(|switch| switch.key.or(switch.env));
    rows.extend(settings.map(|setting| row("setting", "", setting, "")));
    rows
}

/// The rows that a span shows.
#[must_use]
pub fn of_span(span: &Span, engine: Dialect) -> Vec<Row> {
    let mut rows: Vec<Row> = name_of(span, engine).into_iter().collect();
    for group in check::groups(&span.name, engine).into_iter().flatten() {
        let shown = group
            .attributes
            .iter()
            .filter(|def| span.attributes.iter().any(|attribute| check::is_of(def.key, &attribute.key)));
        rows.extend(shown.map(|def| row("attribute", group.on, def.key, "")));
    }
    for event in &span.events {
        let Some(def) = events().find(|def| def.names.contains(&event.name.as_ref())) else { continue };
        let named = def.names.iter().find(|name| **name == event.name);
        rows.extend(named.map(|name| row("event", "", name, engine.name())));
        let on = def.names.first().copied().unwrap_or_default();
        let shown = def.attributes.iter().filter(|def| event.attributes.iter().any(|it| it.key == def.key));
        rows.extend(shown.map(|def| row("event attribute", on, def.key, "")));
    }
    rows
}

fn name_of(span: &Span, engine: Dialect) -> Option<Row> {
    let stage = || sglang::STAGES.iter().flat_map(|group| group.stages).find(|stage| stage.name == span.name);
    let layer = check::of_sglang(&span.name).filter(|_| engine == Dialect::Sglang);
    if layer == Some(Layer::Stage) {
        return stage().map(|stage| row("stage", "", stage.name, engine.name()));
    }
    let fits = |name: &str, of: Layer| match layer {
        Some(layer) => layer == of,
        None => check::is_named(name, &span.name),
    };
    let def = spans().find(|def| def.engines.contains(&engine) && fits(def.name, def.layer))?;
    Some(row("span", "", def.name, engine.name()))
}

/// The rows that a point shows.
#[must_use]
pub fn of_point(point: &Point, engine: Dialect) -> Vec<Row> {
    let mut rows = vec![row("metric", "", point.metric.name, engine.name())];
    let usage = point.metric == &metric::USAGE_TOKENS;
    for group in dimensions() {
        let fits = match engine {
            Dialect::VllmV0 | Dialect::VllmV1 => {
                group.on.starts_with("vLLM") && group.on.contains("API-layer") == usage
            }
            Dialect::Sglang => group.on.starts_with("SGLang"),
        };
        let shown = group
            .dimensions
            .iter()
            .filter(|it| fits && point.dimensions.iter().any(|(key, _)| *key == it.key));
        rows.extend(shown.map(|it| row("dimension", group.on, it.key, "")));
    }
    rows
}

/// The rows that a log line shows.
#[must_use]
pub fn of_log(log: &Log, engine: Dialect) -> Vec<Row> {
    let def = collection::LOGS.iter().find(|def| Some(def.name) == log.event);
    def.map(|def| row("log", "", def.name, engine.name())).into_iter().collect()
}
