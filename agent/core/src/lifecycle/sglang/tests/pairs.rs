//! A prefill node and a decode node: what SGLang's own class holds and traces of a request
//! (`tests/oracle/sglang_pairs.py`), made again from what it held.

use std::collections::BTreeMap;

use super::*;
use crate::heap::sglang::plan::set_time;

const PAIRS: &str = include_str!("pairs.txt");
/// Nanoseconds of a double are cut.
const ROUNDING: u64 = 1_000;

/// What one node told of a request.
#[derive(Debug, Default)]
struct Told {
    /// Attribute and moment, in order.
    set: Vec<(String, EngineTime)>,
    /// Name, begin and end.
    stages: Vec<(String, u64, u64)>,
}

/// By version and node.
fn told() -> BTreeMap<(&'static str, &'static str), Told> {
    let mut told: BTreeMap<_, Told> = BTreeMap::new();
    for line in PAIRS.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let of = told.entry((words[0], words[1])).or_default();
        match words[2] {
            "set" => of.set.push((words[3].to_owned(), EngineTime(words[4].parse().unwrap()))),
            "stage" => {
                of.stages.push((words[3].to_owned(), words[4].parse().unwrap(), words[5].parse().unwrap()));
            }
            other => panic!("{other}"),
        }
    }
    told
}

/// The trace of a request of a node, its objects read after each moment that it wrote.
fn trace(node: Disaggregation, told: &Told) -> Trace {
    let mut lifecycle = pair(node);
    dispatch(&mut lifecycle, 1003, SglangRequest { bootstrap_room: Some(42), ..handed("a", true) });
    let (mut times, mut tokens) = (ReqTimes::default(), 0);
    for (name, at) in &told.set {
        set_time(&mut times, name, *at);
        let gives = ["prefill_finished_time", "decode_prebuilt_finish_time", "last_decode_finish_time"];
        tokens += u64::from(gives.contains(&name.as_str()));
        let at = at.mono();
        lifecycle.snapshot(Snapshot { at, ..snapshot(SCHEDULER, 0, vec![state("a", times, tokens)]) });
    }
    outputs(&mut lifecycle, 1035, last("a", tokens, "stop"));
    lifecycle.tick(ms(60_000));
    the_trace(&mut lifecycle)
}

#[test]
fn each_node_of_a_pair_has_the_stages_that_sglang_traces_there() {
    let all = told();
    assert!(all.len() >= 8, "{:?}", all.keys());
    for ((version, node), told) in all {
        let of = if node == "prefill" { Disaggregation::Prefill } else { Disaggregation::Decode };
        let trace = trace(of, &told);
        let thread = trace.spans.iter().position(|span| span.name.contains("Scheduler [")).unwrap();
        let ours = &trace.spans[thread + 1..];
        let near = |ours: WallTime, theirs: u64| ours.0.abs_diff(theirs) <= ROUNDING;
        for (name, start, end) in &told.stages {
            let same = |span: &&Span| span.name == *name && near(span.start, *start) && near(span.end, *end);
            let found = ours.iter().filter(same).count();
            assert_eq!(found, 1, "{version} {node}: {name} from {start} to {end} in {ours:#?}");
        }
        assert_eq!(ours.len(), told.stages.len(), "{version} {node}: {:?}", names(&trace));
        let request = span(&trace, &format!("{node} Req a"));
        assert_eq!(text(request, "bootstrap_room"), Some("0x2a"));
    }
}
