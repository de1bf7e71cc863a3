//! `docs/TELEMETRY.md`, written from the table.

use std::fmt::Write as _;

use super::evidence::{Evidence, Row, evidence};
use super::{
    AttributeDef, AttributeGroup, Dialect, DimensionGroup, EventDef, MetricDef, SpanDef, StageGroup,
    collection, gpu, metric, own, sglang, vllm,
};

const HEAD: &str = "\
# Telemetry

<!-- Generated from agent/core/src/model/registry. Do not edit: change the table, then run
     `cargo xtask docs`. -->

Every span, attribute, event, metric and dimension that enginetap emits. *Level* is the lowest collection level at
which a name appears (vLLM: 0 the request, 1 its stages too, 2 an event an iteration too; SGLang: 0 to 4). *When* is
the condition under which it is reported; a name without one is reported whenever its value was seen. A value that
was not seen is left out, never guessed.
";

/// The whole document.
#[must_use]
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    conventions(&mut out);
    section(&mut out, "vLLM", vllm::SPANS, vllm::ATTRIBUTES, vllm::EVENTS);
    section(&mut out, "SGLang", sglang::SPANS, sglang::ATTRIBUTES, sglang::EVENTS);
    stages(&mut out, sglang::STAGES);
    logs(&mut out);
    metrics(&mut out);
    own_names(&mut out);
    switches(&mut out);
    seen(&mut out);
    out
}

/// A table: its header cells and its rows.
fn table(out: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    row(out, &head.iter().map(ToString::to_string).collect::<Vec<_>>());
    row(out, &vec!["---".to_owned(); head.len()]);
    for cells in rows {
        row(out, &cells);
    }
    out.push('\n');
}

fn row(out: &mut String, cells: &[String]) {
    out.push('|');
    for cell in cells {
        out.push(' ');
        out.push_str(&cell.replace('|', "\\|"));
        out.push_str(if cell.is_empty() { "|" } else { " |" });
    }
    out.push('\n');
}

/// Writing to a string cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.push('\n');
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn or_empty(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

fn engines(list: &[Dialect]) -> String {
    list.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ")
}

fn conventions(out: &mut String) {
    line(out, format_args!("\n## Conventions\n"));
    let rows = collection::CONVENTIONS.iter().map(|(key, value)| vec![code(key), (*value).to_owned()]);
    table(out, &["rule", "value"], rows);
    line(out, format_args!("Names that mean the same:\n"));
    table(
        out,
        &["meaning", "names"],
        collection::ALIASES.iter().map(|alias| {
            let names = alias.names.iter().map(|(place, name)| format!("{place}: {name}"));
            vec![alias.meaning.to_owned(), names.collect::<Vec<_>>().join("; ")]
        }),
    );
}

fn section(
    out: &mut String,
    engine: &str,
    spans: &[SpanDef],
    groups: &[&AttributeGroup],
    events: &[EventDef],
) {
    line(out, format_args!("## {engine}: spans\n"));
    table(out, &["span", "engine", "level", "layer", "parent", "when"], spans.iter().map(span_row));
    for group in groups {
        attribute_group(out, group);
    }
    line(out, format_args!("## {engine}: events\n"));
    for event in events {
        event_section(out, event);
    }
}

fn span_row(span: &SpanDef) -> Vec<String> {
    let SpanDef { name, engines: by, level, layer, parent, when } = span;
    vec![
        code(name),
        engines(by),
        level.to_string(),
        layer.name().to_owned(),
        or_empty(*parent),
        (*when).to_owned(),
    ]
}

fn attribute_group(out: &mut String, group: &AttributeGroup) {
    let AttributeGroup { on, note, attributes } = group;
    line(out, format_args!("### Attributes: {on}\n"));
    if let Some(note) = note {
        line(out, format_args!("{note}.\n"));
    }
    attribute_table(out, attributes);
}

fn attribute_table(out: &mut String, attributes: &[AttributeDef]) {
    let rows = attributes.iter().map(|attribute| {
        let AttributeDef { key, ty, unit, when, doc } = attribute;
        vec![code(key), ty.name().to_owned(), or_empty(*unit), (*doc).to_owned(), or_empty(*when)]
    });
    table(out, &["attribute", "type", "unit", "what", "when"], rows);
}

fn event_section(out: &mut String, event: &EventDef) {
    let EventDef { names, engines: by, on, level, doc, attributes, limit } = event;
    let names = names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", ");
    line(out, format_args!("### {names}\n"));
    line(out, format_args!("On {on}, {}, level {level}: {doc}.", engines(by)));
    if let Some(limit) = limit {
        line(out, format_args!("Limit: {limit}."));
    }
    out.push('\n');
    if !attributes.is_empty() {
        attribute_table(out, attributes);
    }
}

fn stages(out: &mut String, groups: &[StageGroup]) {
    line(out, format_args!("## SGLang: stage spans\n"));
    for StageGroup { group, stages } in groups {
        line(out, format_args!("### {group}\n"));
        let rows = stages.iter().map(|stage| {
            let super::StageDef { name, level, process, parent, when, attributes, doc } = stage;
            let attributes = attributes.iter().map(|key| code(key)).collect::<Vec<_>>().join(", ");
            vec![
                code(name),
                level.to_string(),
                (*process).to_owned(),
                or_empty(*parent),
                (*doc).to_owned(),
                attributes,
                or_empty(*when),
            ]
        });
        table(out, &["stage", "level", "process", "inside", "what", "attributes", "when"], rows);
    }
}

fn logs(out: &mut String) {
    line(out, format_args!("## Log events\n"));
    let rows =
        collection::LOGS.iter().map(|log| vec![code(log.name), engines(log.engines), log.when.to_owned()]);
    table(out, &["event", "engine", "when"], rows);
}

fn metrics(out: &mut String) {
    line(out, format_args!("## Metrics\n"));
    line(out, format_args!("Counters are cumulative monotonic sums.\n"));
    metric_table(out, metric::ALL);
    for (engine, note) in metric::NOTES {
        line(out, format_args!("{}: {note}.\n", engine.name()));
    }
    dimension_tables(out, vllm::DIMENSIONS);
    dimension_tables(out, sglang::DIMENSIONS);
}

fn metric_table(out: &mut String, metrics: &[&MetricDef]) {
    let rows = metrics.iter().map(|metric| {
        let MetricDef { name, kind, unit, engines: by, when, doc } = metric;
        let (kind, unit) = (kind.name().to_owned(), (*unit).to_owned());
        vec![code(name), kind, unit, engines(by), (*doc).to_owned(), or_empty(*when)]
    });
    table(out, &["metric", "kind", "unit", "engine", "what", "when"], rows);
}

fn dimension_tables(out: &mut String, groups: &[DimensionGroup]) {
    for DimensionGroup { on, dimensions } in groups {
        line(out, format_args!("### Dimensions: {on}\n"));
        let rows = dimensions.iter().map(|dimension| vec![code(dimension.key), dimension.doc.to_owned()]);
        table(out, &["dimension", "what"], rows);
    }
}

fn own_event(out: &mut String, event: &EventDef) {
    let EventDef { names, engines: _, on, level, doc, attributes, limit } = event;
    let names = names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", ");
    line(out, format_args!("### Events: {names}\n"));
    line(out, format_args!("On {on}, level {level}: {doc}."));
    line(out, format_args!("Limit: {}.\n", limit.unwrap_or("none")));
    attribute_table(out, attributes);
}

fn own_names(out: &mut String) {
    line(out, format_args!("## Beyond the contract\n"));
    line(out, format_args!("What enginetap adds of its own.\n"));
    for group in own::ATTRIBUTES {
        attribute_group(out, group);
    }
    own::EVENTS.iter().for_each(|event| own_event(out, event));
    line(out, format_args!("### Log events\n"));
    let rows = own::LOGS.iter().map(|(name, when)| vec![code(name), (*when).to_owned()]);
    table(out, &["event", "when"], rows);
    line(out, format_args!("### Metrics of the agent itself\n"));
    metric_table(out, own::ALL);
    dimension_tables(out, own::DIMENSIONS);
    line(out, format_args!("### Metrics of GPUs\n"));
    line(
        out,
        format_args!(
            "Read by NVML, once a second; names are those of OpenTelemetry's hardware conventions where those have\n\
             one. For Prometheus dots are underscores (`hw_gpu_utilization`). What a GPU does not tell has no point.\n"
        ),
    );
    metric_table(out, gpu::ALL);
    dimension_tables(out, gpu::DIMENSIONS);
}

const SEEN: &str = "\
A *capture* is what entered the pipeline while a real engine of that version served requests (`tests/captures`); the test `evidence` replays each and
looks for the row. A test by name that has a version is of messages or objects of that version's classes, made by hand; one without shows what no
engine has a part in. What the settings were seen to do on real engines is in [OPERATIONS.md](OPERATIONS.md#the-contracts-settings-and-their-tests).
Rows that are not made say why.
";

/// Where each row of the contract was seen.
fn seen(out: &mut String) {
    line(out, format_args!("\n## Where each row was seen\n"));
    line(out, format_args!("{SEEN}"));
    let rows = evidence().map(|Evidence { row, version, by }| {
        let Row { kind, on, name, engine } = row;
        let shown = match (by.strip_prefix("replay "), by.strip_prefix("none: ")) {
            (Some(capture), _) => format!("capture `{capture}`"),
            (None, Some(reason)) => format!("not made: {reason}"),
            (None, None) => {
                by.rsplit_once("::").map_or_else(String::new, |(file, test)| format!("`{test}` ({file})"))
            }
        };
        vec![kind.to_owned(), code(name), on.to_owned(), engine.to_owned(), version.to_owned(), shown]
    });
    table(out, &["kind", "row", "of", "engine", "version", "shown by"], rows);
}

fn switches(out: &mut String) {
    line(out, format_args!("## Collection settings\n"));
    let rows = crate::settings::switch::all().map(|switch| {
        let super::SwitchDef { switch: _, kind, key, env, default, doc, outside } = switch;
        let name = |name: &Option<&str>| name.map(code).unwrap_or_default();
        vec![name(key), name(env), kind.wanted(), code(default), or_empty(doc.or(*outside))]
    });
    table(out, &["setting", "environment variable", "value", "default", "what"], rows);
    line(
        out,
        format_args!(
            "Settings of `apsara.*` belong to the engine's own logging; enginetap never enters the engine, so the\n\
             row says what it does from outside instead, and that is what they switch here."
        ),
    );
}
