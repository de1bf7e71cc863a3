//! What the table of evidence names shows what the table says: each capture is replayed, at every level and both ways of content.
//! `BLESS=1` writes the rows that captures show anew; the others are kept.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::OnceLock;

use enginetap_core::capture::fact::{Engine, Fact};
use enginetap_core::ids::ServerId;
use enginetap_core::model::registry::Dialect;
use enginetap_core::model::registry::evidence::{Evidence, Row, evidence, of_log, of_point, of_span, rows};
use enginetap_core::settings::{Settings, SglangLevel, Strategy, VllmLevel};
use enginetap_tests::captures::{Capture, Input, named};
use enginetap_tests::replayed::Replayed;

/// A server in a capture.
struct Served {
    dialect: Dialect,
    version: String,
}

/// What captures show: row, capture, version.
type Shown = BTreeSet<(Row, String, String)>;

fn shown() -> &'static Shown {
    static SHOWN: OnceLock<Shown> = OnceLock::new();
    SHOWN.get_or_init(|| {
        let folders = ["", "pd/", "sglang/", "vllm-v0/"];
        folders
            .into_iter()
            .flat_map(|folder| named(folder).unwrap())
            .flat_map(|capture| of(&capture))
            .collect()
    })
}

fn servers(inputs: &[Input]) -> BTreeMap<ServerId, Served> {
    let mut servers = BTreeMap::new();
    for input in inputs {
        let Input::Fact(fact) = input else { continue };
        if let Fact::Server(server) = fact.as_ref() {
            let dialect = match (server.engine, server.v0) {
                (Engine::Sglang, _) => Dialect::Sglang,
                (Engine::Vllm, true) => Dialect::VllmV0,
                (Engine::Vllm, false) => Dialect::VllmV1,
            };
            let version = server.version.clone().unwrap_or_default();
            let version = version.split('+').next().unwrap_or_default().to_owned();
            servers.insert(server.id, Served { dialect, version });
        }
    }
    servers
}

fn of(capture: &Capture) -> Shown {
    let inputs = capture.inputs().unwrap();
    let servers = servers(&inputs);
    let mut shown = Shown::new();
    for content_strategy in [Strategy::SpanAttributes, Strategy::Event] {
        let settings = Settings {
            vllm_level: VllmLevel::Iterations,
            sglang_level: SglangLevel::MAX,
            content_strategy,
            ..Settings::default()
        };
        let replayed = Replayed::through(inputs.clone(), settings);
        let mut show = |server: ServerId, rows: &dyn Fn(Dialect) -> Vec<Row>| {
            if let Some(Served { dialect, version }) = servers.get(&server) {
                shown.extend(
                    rows(*dialect).into_iter().map(|row| (row, capture.name.clone(), version.clone())),
                );
            }
        };
        for trace in &replayed.traces {
            for span in &trace.spans {
                show(trace.server, &|dialect| of_span(span, dialect));
            }
            for log in &trace.logs {
                show(trace.server, &|dialect| of_log(log, dialect));
            }
        }
        for point in &replayed.points {
            if let Some(server) = point.server {
                show(server, &|dialect| of_point(point, dialect));
            }
        }
    }
    shown
}

/// The newest version that shows a row.
fn newest(row: Row) -> Option<(&'static str, &'static str)> {
    let of_row = shown().iter().filter(|(shown, _, version)| *shown == row && !version.is_empty());
    // A version that nobody listed is no version.
    let real = of_row.filter(|(_, _, version)| version != "0.99.0");
    let number =
        |version: &str| version.split('.').map(|part| part.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>();
    real.max_by_key(|(_, _, version)| number(version))
        .map(|(_, capture, version)| (version.as_str(), capture.as_str()))
}

#[test]
fn each_capture_shows_the_rows_that_it_is_named_for() {
    if std::env::var_os("BLESS").is_some() {
        bless();
    }
    let mut wrong = Vec::new();
    for Evidence { row, version, by } in evidence() {
        let Some(capture) = by.strip_prefix("replay ") else { continue };
        if !shown().contains(&(row, capture.to_owned(), version.to_owned())) {
            wrong.push(format!("{row:?} is not shown by {capture} of {version}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the table: rows that a test shows by name stay, the others get the newest capture that shows them.
fn bless() {
    let kept: BTreeMap<Row, Evidence> =
        evidence().filter(|it| it.capture().is_none() && !it.by.is_empty()).map(|it| (it.row, it)).collect();
    let mut text = String::new();
    for row in rows() {
        let Row { kind, on, name, engine } = row;
        let (version, by) = match (kept.get(&row), newest(row)) {
            (Some(kept), _) => (kept.version, kept.by.to_owned()),
            (None, Some((version, capture))) => (version, format!("replay {capture}")),
            (None, None) => ("", String::new()),
        };
        writeln!(text, "{kind}\t{on}\t{name}\t{engine}\t{version}\t{by}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/core/src/model/registry/evidence.tsv");
    std::fs::write(path, text).unwrap();
}
