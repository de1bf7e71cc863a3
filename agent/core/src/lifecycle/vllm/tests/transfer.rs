//! Pulls of remote KV caches: whose they are, and those that fail or never end.

use super::*;

/// A request that takes over a KV cache, handed over at 104 ms.
fn consumer(lifecycle: &mut Lifecycle, id: &str) {
    let remote = Some(format!("remote-{id}"));
    let transfer = KvTransfer { do_remote_prefill: true, remote_request_id: remote, ..KvTransfer::default() };
    add(lifecycle, id, id, Sampling { kv_transfer: Some(transfer), ..sampling(false) });
}

/// A step without outputs, as an engine makes them while it waits for a KV cache.
fn idle(lifecycle: &mut Lifecycle, at: u64, fetching: u64, transfers: Option<TransferStats>) {
    say(lifecycle, at, SchedulerStats { fetching, transfers, ..SchedulerStats::default() }, Vec::new());
}

fn say(lifecycle: &mut Lifecycle, at: u64, stats: SchedulerStats, outputs: Vec<EngineOutput>) {
    let step = EngineStep { timestamp: Some(sec(at)), outputs, stats: Some(stats), ..EngineStep::default() };
    lifecycle.engine(PID, EngineSignal::Step { at: ms(at + 1), step: Box::new(step) });
}

fn took(millis: &[u64]) -> Option<TransferStats> {
    let durations = millis.iter().map(|&millis| sec(millis).0).collect();
    Some(TransferStats { durations, ..TransferStats::default() })
}

/// The only output of a request that was queued at 105 ms.
fn last(id: &str, scheduled: u64, external: u64) -> EngineOutput {
    let event = |kind, at| EngineEvent { kind, at: sec(at) };
    let events = vec![event(EngineEventKind::Queued, 105), event(EngineEventKind::Scheduled, scheduled)];
    let cached = Some(CachedTokens { total: external, external, computed: None });
    EngineOutput { events, cached, finish: Some(Finish::Length), ..output(id, &[1]) }
}

/// What is said of each request, by its id.
fn traces(lifecycle: &mut Lifecycle) -> Vec<(String, Trace)> {
    lifecycle.tick(ms(10_000));
    let mut traces: Vec<_> = lifecycle
        .traces()
        .into_iter()
        .map(|trace| match span(&trace, "llm_request").attribute(attr::REQUEST_ID) {
            Some(Value::Str(id)) => (id.to_string(), trace),
            other => panic!("{other:?}"),
        })
        .collect();
    traces.sort_by(|a, b| a.0.cmp(&b.0));
    traces
}

/// Length of the pull in milliseconds, whether it failed, and what of it is an estimate.
fn pull(trace: &Trace) -> (i64, bool, usize) {
    let span = span(trace, "kv_transfer");
    let estimated = match span.attribute(attr::ESTIMATED) {
        Some(Value::Strs(edges)) => edges.len(),
        Some(_) | None => 0,
    };
    let took = int(super::span(trace, "llm_request"), attr::LATENCY_TIME_IN_KV_TRANSFER) / 1_000_000;
    (took, span.attribute(attr::KV_TRANSFER_FAILED) == Some(&Value::from(true)), estimated)
}

#[test]
fn each_request_has_the_pull_that_ended_before_it_was_scheduled() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    consumer(&mut lifecycle, "b");
    idle(&mut lifecycle, 110, 2, None);
    // The one that was handed over last comes first.
    idle(&mut lifecycle, 120, 1, took(&[7]));
    say(&mut lifecycle, 130, SchedulerStats::default(), vec![last("b", 121, 9)]);
    idle(&mut lifecycle, 140, 0, took(&[30]));
    say(&mut lifecycle, 150, SchedulerStats::default(), vec![last("a", 141, 9)]);
    let traces = traces(&mut lifecycle);
    assert_eq!((pull(&traces[0].1), pull(&traces[1].1)), ((30, false, 0), (7, false, 0)));
    let wait = span(&traces[0].1, "wait");
    assert_eq!(span(&traces[0].1, "kv_transfer").parent, Some(wait.id));
}

#[test]
fn pulls_that_were_reported_together_may_be_each_others_and_say_so() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    consumer(&mut lifecycle, "b");
    idle(&mut lifecycle, 120, 0, took(&[7, 9]));
    say(&mut lifecycle, 130, SchedulerStats::default(), vec![last("a", 121, 9), last("b", 121, 9)]);
    let traces = traces(&mut lifecycle);
    assert_eq!((pull(&traces[0].1).2, pull(&traces[1].1).2), (2, 2), "both edges of both");
}

#[test]
fn the_parts_of_tensor_parallel_workers_are_one_pull_as_long_as_the_longest() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    idle(&mut lifecycle, 120, 0, took(&[7, 9]));
    say(&mut lifecycle, 130, SchedulerStats::default(), vec![last("a", 121, 9)]);
    assert_eq!(pull(&traces(&mut lifecycle)[0].1), (9, false, 0));
}

#[test]
fn a_request_that_computes_what_could_not_be_pulled_had_a_failed_pull() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    idle(&mut lifecycle, 110, 1, None);
    idle(&mut lifecycle, 120, 0, Some(TransferStats { failed: 1, ..TransferStats::default() }));
    say(&mut lifecycle, 130, SchedulerStats::default(), vec![last("a", 121, 0)]);
    assert_eq!(pull(&traces(&mut lifecycle)[0].1), (10, true, 2));
}

#[test]
fn a_request_that_finds_all_in_its_own_cache_has_no_pull() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    say(&mut lifecycle, 130, SchedulerStats::default(), vec![last("a", 106, 0)]);
    let traces = traces(&mut lifecycle);
    assert!(traces[0].1.spans.iter().all(|span| span.name != "kv_transfer"), "{traces:#?}");
}

#[test]
fn a_pull_that_never_ended_lasts_until_the_client_left() {
    let mut lifecycle = lifecycle(Settings::default());
    consumer(&mut lifecycle, "a");
    idle(&mut lifecycle, 110, 1, None);
    idle(&mut lifecycle, 140, 1, None);
    lifecycle.engine(PID, EngineSignal::Aborted { at: ms(150), ids: vec!["a".into()] });
    let traces = traces(&mut lifecycle);
    // No connector said that it failed; both edges are derived, the wait's too.
    assert_eq!(pull(&traces[0].1), (40, false, 2));
    let wait = span(&traces[0].1, "wait");
    assert_eq!(wait.end.since(wait.start), Nanos::from_millis(46));
    assert!(wait.attribute(attr::ESTIMATED).is_some());
}

#[test]
fn what_only_lets_the_other_nodes_cache_go_is_no_request() {
    let mut lifecycle = lifecycle(Settings::default());
    let request = EngineRequest { id: "a".into(), off: true, ..EngineRequest::default() };
    lifecycle.engine(PID, EngineSignal::Added { at: ms(104), request: Box::new(request) });
    assert_eq!(lifecycle.open(), 0);
}
