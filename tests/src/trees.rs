//! Request trees of SGLang, ours and those that it traced itself, in one form to compare.

use std::collections::BTreeMap;

use enginetap_core::ids::SpanId;
use enginetap_core::model::registry::attr;
use enginetap_core::model::span::{self, Trace};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value as Json;

use crate::engine::text;

/// A stage span.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage {
    /// When it began, nanoseconds since the epoch.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its name.
    pub name: String,
}

/// A request span and the stages below it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The span above the request span; empty where there is none.
    pub parent: String,
    root: Json,
    stages: Vec<Stage>,
}

impl Tree {
    /// The request span; null where SGLang made it.
    #[must_use]
    pub fn root(&self) -> &Json {
        &self.root
    }

    /// How many stages of each name.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for stage in &self.stages {
            *counts.entry(stage.name.as_str()).or_default() += 1;
        }
        counts
    }

    /// The stages of a name, by time.
    #[must_use]
    pub fn stages(&self, name: &str) -> Vec<&Stage> {
        self.stages.iter().filter(|stage| stage.name == name).collect()
    }

    /// How many prefills there were: those after a return to the queue are chunks only, where they were chunked.
    #[must_use]
    pub fn prefills(&self) -> usize {
        self.stages("prefill_forward").len().max(1)
    }

    /// All stages, by name and time.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, Vec<&Stage>> {
        let mut by_name = BTreeMap::<String, Vec<&Stage>>::new();
        for stage in &self.stages {
            by_name.entry(stage.name.clone()).or_default().push(stage);
        }
        by_name
    }
}

/// A span in either form.
struct Plain {
    id: String,
    parent: String,
    stage: Stage,
    rid: Option<String>,
    json: Json,
}

/// The trees of spans as OTLP JSON writes them, by rid.
#[must_use]
pub fn seen(spans: &[Json]) -> BTreeMap<String, Tree> {
    let word = |span: &Json, key: &str| span[key].as_str().unwrap_or_default().to_owned();
    let time = |span: &Json, key: &str| word(span, key).parse().unwrap_or_default();
    let plain = |span: &Json| Plain {
        id: word(span, "spanId"),
        parent: word(span, "parentSpanId"),
        stage: Stage {
            start: time(span, "startTimeUnixNano"),
            end: time(span, "endTimeUnixNano"),
            name: word(span, "name"),
        },
        rid: text(span, "rid").map(String::from),
        json: span.clone(),
    };
    trees(spans.iter().map(plain).collect())
}

/// The trees of spans that SGLang exported, by rid.
#[must_use]
pub fn native(spans: &[Span]) -> BTreeMap<String, Tree> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let plain = |span: &Span| Plain {
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        stage: Stage {
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
            name: span.name.clone(),
        },
        rid: attribute(span, "rid"),
        json: Json::Null,
    };
    trees(spans.iter().map(plain).collect())
}

/// The trees of traces as the pipeline gives them, by rid.
#[must_use]
pub fn made(traces: &[Trace]) -> BTreeMap<String, Tree> {
    let id = |id: SpanId| id.to_string();
    let plain = |span: &span::Span| Plain {
        id: id(span.id),
        parent: span.parent.map(id).unwrap_or_default(),
        stage: Stage { start: span.start.0, end: span.end.0, name: span.name.to_string() },
        rid: match span.attribute(attr::RID) {
            Some(span::Value::Str(rid)) => Some(rid.to_string()),
            _ => None,
        },
        json: Json::Null,
    };
    trees(traces.iter().flat_map(|trace| &trace.spans).map(plain).collect())
}

/// How far two moments may be apart to be called near.
const NEAR_NS: u64 = 1_000_000;

/// What became of SGLang's own stages of one name.
#[derive(Debug, Default)]
pub struct Compared {
    /// Requests that have as many of them as SGLang says.
    pub as_many: usize,
    /// Requests that do not.
    pub other: usize,
    /// How far apart begins are, and ends, in nanoseconds.
    apart: [Vec<u64>; 2],
    /// Those that do not, each with ours and SGLang's.
    differing: Vec<String>,
}

impl Compared {
    fn of(&mut self, rid: &str, ours: &[&Stage], theirs: &[&Stage]) {
        if ours.len() != theirs.len() {
            self.other += 1;
            let begun = theirs.first().map_or(0, |stage| stage.start);
            let told = |stages: &[&Stage]| {
                let micros = |at: u64| at.wrapping_sub(begun).cast_signed() / 1_000;
                let spans = stages.iter().take(8).map(|stage| (micros(stage.start), micros(stage.end)));
                format!("{} {:?}", stages.len(), spans.collect::<Vec<_>>())
            };
            self.differing.push(format!("{rid}: {} for {} (us)", told(ours), told(theirs)));
            return;
        }
        self.as_many += 1;
        for (ours, theirs) in ours.iter().zip(theirs) {
            let ends = [ours.start.abs_diff(theirs.start), ours.end.abs_diff(theirs.end)];
            self.apart.iter_mut().zip(ends).for_each(|(apart, ns)| apart.push(ns));
        }
    }

    /// Of a hundred requests, how many have as many.
    #[must_use]
    pub fn counts(&self) -> usize {
        self.as_many * 100 / (self.as_many + self.other).max(1)
    }

    /// Of a hundred begins, and of a hundred ends, how many are within a millisecond.
    #[must_use]
    pub fn near(&self) -> [usize; 2] {
        let near = |apart: &Vec<u64>| apart.iter().filter(|apart| **apart <= NEAR_NS).count();
        [0, 1].map(|end| near(&self.apart[end]) * 100 / self.apart[end].len().max(1))
    }

    /// Prints it.
    pub fn tell(&mut self, name: &str) {
        let Self { as_many, other, apart, differing } = self;
        println!("{name}: {as_many} requests as SGLang, {other} not");
        differing.iter().for_each(|request| println!("    {request}"));
        for (which, apart) in ["begins", "ends"].into_iter().zip(apart) {
            apart.sort_unstable();
            let at = |percent: usize| apart.get(apart.len() * percent / 100).map_or(0, |ns| ns / 1_000);
            let near = apart.iter().filter(|apart| **apart <= NEAR_NS).count();
            let (all, half, most) = (apart.len(), at(50), at(90));
            println!("    {near} of {all} {which} within 1 ms, apart p50 {half} us, p90 {most} us");
        }
    }
}

/// SGLang's own stages beside ours, by name; and the requests of its that we did not see.
#[must_use]
pub fn compare(
    ours: &BTreeMap<String, Tree>,
    theirs: &BTreeMap<String, Tree>,
) -> (BTreeMap<String, Compared>, Vec<String>) {
    let mut by_name = BTreeMap::<String, Compared>::new();
    let mut unseen = Vec::new();
    // A request that is refused before it is sent to the scheduler has a span of SGLang's, and no stage.
    for (rid, theirs) in theirs.iter().filter(|(_, tree)| !tree.stages("request_process").is_empty()) {
        let Some(ours) = ours.get(rid) else {
            unseen.push(format!("{rid} {:?}", theirs.counts()));
            continue;
        };
        for (name, theirs) in theirs.by_name() {
            by_name.entry(name.clone()).or_default().of(rid, &ours.stages(&name), &theirs);
        }
    }
    (by_name, unseen)
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    if let Value::StringValue(text) = found.value.as_ref()?.value.as_ref()? {
        Some(text.clone())
    } else {
        None
    }
}

fn trees(spans: Vec<Plain>) -> BTreeMap<String, Tree> {
    let above: BTreeMap<&str, &Plain> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let mut trees = BTreeMap::<String, Tree>::new();
    for span in &spans {
        let Some(root) = root_of(span, &above) else { continue };
        let Some(rid) = root.rid.clone() else { continue };
        let tree = trees.entry(rid).or_default();
        if span.id == root.id {
            tree.parent.clone_from(&root.parent);
            tree.root = root.json.clone();
        } else if !is_thread(&span.stage.name) {
            tree.stages.push(span.stage.clone());
        }
    }
    trees.values_mut().for_each(|tree| tree.stages.sort());
    trees
}

/// The request span that a span is or stands below.
fn root_of<'a>(span: &'a Plain, above: &BTreeMap<&str, &'a Plain>) -> Option<&'a Plain> {
    let mut here = span;
    for _ in 0..8 {
        if is_request(&here.stage.name) {
            return Some(here);
        }
        here = above.get(here.parent.as_str())?;
    }
    None
}

/// `Req 829bb694`, ` Req 829bb694`, `prefill Req 829bb694`.
fn is_request(name: &str) -> bool {
    name.rsplit_once(' ').is_some_and(|(head, _)| head == "Req" || head.ends_with(" Req"))
}

/// `Scheduler [TP 0] (host:8hex | pid:N)`.
fn is_thread(name: &str) -> bool {
    name.contains("(host:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: &str, name: &str, start: u64) -> Json {
        serde_json::json!({
            "spanId": id, "parentSpanId": parent, "name": name, "startTimeUnixNano": start.to_string(),
            "endTimeUnixNano": (start + 5).to_string(),
            "attributes": [{"key": "rid", "value": {"stringValue": "r1"}}],
        })
    }

    #[test]
    fn stages_are_gathered_below_their_request_whatever_the_order() {
        let spans = [
            span("d", "c", "decode_loop", 7),
            span("e", "c", "decode_loop", 3),
            span("b", "a", "Scheduler (host:00000000 | pid:7)", 1),
            span("c", "b", "decode_forward", 2),
            span("a", "x", "Req 829bb694", 0),
            span("z", "", "chat tiny", 0),
        ];
        let trees = seen(&spans);
        let tree = &trees["r1"];
        assert_eq!((trees.len(), tree.parent.as_str()), (1, "x"));
        assert_eq!(tree.counts(), BTreeMap::from([("decode_forward", 1), ("decode_loop", 2)]));
        assert_eq!(tree.stages("decode_loop").iter().map(|stage| stage.start).collect::<Vec<_>>(), [3, 7]);
    }
}
