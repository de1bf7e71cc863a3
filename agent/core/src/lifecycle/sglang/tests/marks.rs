//! Steps and chunks that are counted off the forwards a probe marked.

use super::*;
use crate::capture::record::Mark;

/// A request that is not streamed: six tokens, of which only the first and the last are told, and whose forwards are
/// marked.
fn marked(overlap: bool, marks: &[u64]) -> Trace {
    let mut lifecycle =
        lifecycle_of(Settings::default(), SglangLaunch { overlap, ..SglangLaunch::default() });
    request(&mut lifecycle, 0, ask(false));
    dispatch(&mut lifecycle, 103, handed("a", false));
    for &at in marks {
        lifecycle.mark(SCHEDULER, Mark::Forward, ms(at));
    }
    lifecycle.snapshot(snapshot(SCHEDULER, 125, vec![state("a", times(), 1)]));
    outputs(&mut lifecycle, 149, last("a", 4, "stop"));
    delta(&mut lifecycle, 0, 153, says("a", 0, "x"));
    end(&mut lifecycle, 0, 155, true);
    lifecycle.tick(ms(1_000));
    the_trace(&mut lifecycle)
}

fn loops(trace: &Trace) -> Vec<(WallTime, WallTime)> {
    let loops = trace.spans.iter().filter(|span| span.name == "decode_loop");
    loops.map(|span| (span.start, span.end)).collect()
}

#[test]
fn steps_that_no_message_tells_are_put_together_from_marked_forwards() {
    // Prefill at 111, its result at 120, then a step each, worked in right before the next begins.
    let trace = marked(false, &[111, 121, 131, 141]);
    assert_eq!(loops(&trace), [(wall(121), wall(131)), (wall(131), wall(141)), (wall(141), wall(149))]);
    let waiting = span(&trace, "decode_waiting");
    assert_eq!((waiting.start, waiting.end), (wall(120), wall(121)));
}

#[test]
fn with_overlap_the_first_step_is_planned_before_the_prefill_is_over() {
    // Each forward begins before the result of the one before is worked in: 115 is the first step's.
    let trace = marked(true, &[111, 115, 121, 131, 141]);
    assert_eq!(loops(&trace), [(wall(121), wall(131)), (wall(131), wall(141)), (wall(141), wall(149))]);
    assert!(!names(&trace).contains(&"decode_waiting"));
    assert_eq!(span(&trace, "decode_forward").start, wall(120));
}

#[test]
fn where_other_forwards_came_between_no_step_is_made_up() {
    let trace = marked(false, &[111, 121, 126, 131, 141]);
    assert!(loops(&trace).is_empty());
}

fn mark(lifecycle: &mut Lifecycle, at: u64) {
    lifecycle.mark(SCHEDULER, Mark::Forward, ms(at));
}

/// The line that a scheduler writes after each prefill.
fn prefilled(lifecycle: &mut Lifecycle, at: u64) {
    let load = SglangLoad::of(LoadSource::PrefillLine);
    lifecycle.sglang(SCHEDULER, SglangSignal::Load { at: ms(at), load });
}

fn planning_ahead() -> Lifecycle {
    lifecycle_of(Settings::default(), SglangLaunch { overlap: true, ..SglangLaunch::default() })
}

/// Where a request stood whose prefill went from 110 to `prefilled`.
fn until(prefilled: u64) -> ReqTimes {
    ReqTimes { prefill_finished: sec(prefilled), last_prefill_finished: sec(prefilled), ..times() }
}

#[test]
fn a_prefill_of_others_is_no_step_where_the_scheduler_reports_it() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    mark(&mut lifecycle, 111);
    // Another request's prefill came between, so it waited.
    mark(&mut lifecycle, 116);
    lifecycle.snapshot(snapshot(SCHEDULER, 120, vec![state("a", until(119), 1)]));
    prefilled(&mut lifecycle, 120);
    mark(&mut lifecycle, 122);
    prefilled(&mut lifecycle, 126);
    for at in [128, 134] {
        mark(&mut lifecycle, at);
    }
    outputs(&mut lifecycle, 138, last("a", 3, "length"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let waiting = span(&trace, "decode_waiting");
    assert_eq!((waiting.start, waiting.end), (wall(119), wall(122)));
    assert_eq!(loops(&trace), [(wall(122), wall(134)), (wall(134), wall(138))]);
}

#[test]
fn a_step_ends_as_that_of_another_request_of_its_batch() {
    let mut lifecycle = planning_ahead();
    for rid in ["a", "b"] {
        dispatch(&mut lifecycle, 103, handed(rid, false));
    }
    for at in [111, 115, 121, 131, 141] {
        mark(&mut lifecycle, at);
    }
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    let read = ReqTimes { last_decode_finished: sec(128), ..times() };
    lifecycle.snapshot(snapshot(SCHEDULER, 132, vec![state("b", read, 2)]));
    outputs(&mut lifecycle, 149, last("a", 4, "stop"));
    outputs(&mut lifecycle, 149, last("b", 4, "stop"));
    lifecycle.tick(ms(60_000));
    for trace in lifecycle.traces() {
        let first = loops(&trace).into_iter().next();
        assert_eq!(first, Some((wall(121), wall(128))), "{:?}", trace.spans);
    }
}

#[test]
fn chunks_that_nobody_read_are_counted_off_the_forwards() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    mark(&mut lifecycle, 50);
    // Three chunks, each reported once the next has begun; the last with the first step.
    mark(&mut lifecycle, 111);
    mark(&mut lifecycle, 114);
    prefilled(&mut lifecycle, 116);
    mark(&mut lifecycle, 117);
    prefilled(&mut lifecycle, 119);
    mark(&mut lifecycle, 120);
    lifecycle.snapshot(snapshot(SCHEDULER, 123, vec![state("a", until(122), 1)]));
    prefilled(&mut lifecycle, 123);
    outputs(&mut lifecycle, 130, last("a", 2, "length"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let chunks = trace.spans.iter().filter(|span| span.name == "chunked_prefill");
    let chunks: Vec<(WallTime, WallTime)> = chunks.map(|span| (span.start, span.end)).collect();
    assert_eq!(chunks, [(wall(110), wall(116)), (wall(116), wall(119)), (wall(119), wall(122))]);
    let said: Vec<Option<&Value>> = trace
        .spans
        .iter()
        .filter(|span| span.name == "chunked_prefill")
        .map(|span| span.attribute("enginetap.estimated"))
        .collect();
    let ends = |ends: &[&str]| Value::Strs(ends.iter().map(|end| (*end).to_owned()).collect());
    let (end, both, start) = (ends(&["end"]), ends(&["start", "end"]), ends(&["start"]));
    assert_eq!(said, [Some(&end), Some(&both), Some(&start)]);
}

#[test]
fn a_step_read_with_the_count_of_the_one_after_it_gets_its_own_number() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    for at in [111, 115, 121, 131, 141] {
        mark(&mut lifecycle, at);
    }
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    // The first step's end, read with the second step's tokens.
    let read = ReqTimes { last_decode_finished: sec(128), ..times() };
    lifecycle.snapshot(snapshot(SCHEDULER, 132, vec![state("a", read, 3)]));
    outputs(&mut lifecycle, 149, last("a", 4, "stop"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let ends: Vec<WallTime> = loops(&trace).into_iter().map(|(_, end)| end).collect();
    assert_eq!(ends, [wall(128), wall(141), wall(149)]);
}

#[test]
fn the_plan_of_a_first_step_is_not_taken_for_its_end() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    for at in [111, 126, 136] {
        mark(&mut lifecycle, at);
    }
    // With tracing on, the plan stands where the ends of steps are written.
    let planned = ReqTimes { last_decode_finished: sec(125), last_scheduled: sec(125), ..times() };
    lifecycle.snapshot(snapshot(SCHEDULER, 127, vec![state("a", planned, 1)]));
    let later = ReqTimes { last_scheduled: sec(135), ..planned };
    lifecycle.snapshot(snapshot(SCHEDULER, 137, vec![state("a", later, 2)]));
    outputs(&mut lifecycle, 145, last("a", 3, "length"));
    lifecycle.tick(ms(60_000));
    let ends: Vec<WallTime> = loops(&the_trace(&mut lifecycle)).into_iter().map(|(_, end)| end).collect();
    assert!(!ends.contains(&wall(125)), "{ends:?}");
}

#[test]
fn a_last_step_read_before_its_token_was_added_gets_its_number_when_it_is_read_again() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    for at in [111, 115, 121, 131] {
        mark(&mut lifecycle, at);
    }
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    // No forward follows the last one, so its result is worked in at once.
    let read = ReqTimes { last_decode_finished: sec(140), ..times() };
    lifecycle.snapshot(snapshot(SCHEDULER, 140, vec![state("a", read, 3)]));
    let kept = ReqState { place: Place::Kept, ..state("a", read, 4) };
    lifecycle.snapshot(snapshot(SCHEDULER, 141, vec![kept]));
    outputs(&mut lifecycle, 142, last("a", 4, "length"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let ends: Vec<WallTime> = loops(&trace).into_iter().map(|(_, end)| end).collect();
    assert_eq!((ends.len(), ends.last()), (3, Some(&wall(140))), "{ends:?}");
}

#[test]
fn what_a_kept_batch_tells_of_a_request_that_ended_is_exact() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    outputs(&mut lifecycle, 142, last("a", 4, "stop"));
    let ended = ReqTimes { last_decode_finished: sec(140), completed: sec(141), ..times() };
    let kept = ReqState { place: Place::Kept, ..state("a", ended, 4) };
    lifecycle.snapshot(snapshot(SCHEDULER, 145, vec![kept]));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    assert_eq!(span(&trace, "decode_forward").end, wall(141));
}

#[test]
fn a_kept_request_that_nobody_knows_was_over_before_the_agent_came() {
    let mut lifecycle = planning_ahead();
    let ended = ReqTimes { completed: sec(121), ..times() };
    let kept = ReqState { place: Place::Kept, ..state("a", ended, 4) };
    lifecycle.snapshot(snapshot(SCHEDULER, 145, vec![kept]));
    lifecycle.tick(ms(60_000));
    assert!(lifecycle.traces().is_empty());
}

/// A forward that began at `at` and was launched before, with one request in its batch.
fn launched(lifecycle: &mut Lifecycle, at: u64, before: u64) {
    let batch = Some(BatchState { mode: ForwardMode::Decode, size: 1, forward_count: None });
    lifecycle.snapshot(Snapshot {
        mark: Some(ms(at)),
        batch,
        members: vec!["a".to_owned()],
        launched: sec(before),
        ..snapshot(SCHEDULER, at + 1, Vec::new())
    });
}

#[test]
fn waiting_to_be_decoded_ends_when_the_batch_was_launched() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    mark(&mut lifecycle, 111);
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    mark(&mut lifecycle, 128);
    launched(&mut lifecycle, 128, 125);
    outputs(&mut lifecycle, 140, last("a", 2, "length"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let waiting = span(&trace, "decode_waiting");
    assert_eq!((waiting.start, waiting.end), (wall(120), wall(125)));
    // The plan was a moment earlier.
    assert!(waiting.attribute("enginetap.estimated").is_some());
}

#[test]
fn a_forward_that_was_not_read_was_launched_as_long_before_its_begin_as_others() {
    let mut lifecycle = planning_ahead();
    dispatch(&mut lifecycle, 103, handed("a", false));
    mark(&mut lifecycle, 60);
    launched(&mut lifecycle, 60, 58);
    mark(&mut lifecycle, 111);
    lifecycle.snapshot(snapshot(SCHEDULER, 122, vec![state("a", times(), 1)]));
    mark(&mut lifecycle, 128);
    outputs(&mut lifecycle, 140, last("a", 2, "length"));
    lifecycle.tick(ms(60_000));
    let trace = the_trace(&mut lifecycle);
    let waiting = span(&trace, "decode_waiting");
    assert_eq!((waiting.start, waiting.end), (wall(120), wall(126)));
    let estimated = Value::Strs(vec!["end".to_owned()]);
    assert_eq!(waiting.attribute("enginetap.estimated"), Some(&estimated));
}

#[test]
fn collections_and_waits_of_its_processes_are_pauses_of_the_server() {
    use crate::capture::fact::Waits;
    use crate::time::Nanos;
    let mut lifecycle = lifecycle_of(Settings::default(), SglangLaunch::default());
    let took = Nanos::from_millis(50);
    lifecycle.mark(SCHEDULER, Mark::Collected { took, generation: 2 }, ms(200));
    let waits = |pid, waited, throttled| Waits {
        pid,
        from: ms(100),
        to: ms(200),
        waited: Nanos::from_millis(waited),
        throttled: Nanos::from_millis(throttled),
        faults: 2,
    };
    lifecycle.waits(&waits(SCHEDULER, 80, 30));
    // A quota that was used up on many CPUs took no more than was waited.
    lifecycle.waits(&waits(SCHEDULER, 10, 90));
    lifecycle.waits(&waits(Pid(99_999), 80, 0));
    let points = lifecycle.points(ms(300));
    let seconds = |pause: &str| {
        let wanted = [("pause", pause.to_owned()), ("side", "engine".to_owned())];
        let mut found = points.iter().filter(|point| {
            point.metric.name == "enginetap_pause_seconds"
                && wanted.iter().all(|dim| point.dimensions.contains(dim))
        });
        found.next().map(|point| point.value.as_f64())
    };
    assert_eq!(
        (seconds("gc"), seconds("run_queue"), seconds("cgroup")),
        (Some(0.05), Some(0.05), Some(0.04))
    );
    let faults = points.iter().find(|point| point.metric.name == "enginetap_major_faults");
    assert_eq!(faults.map(|point| point.value.as_f64()), Some(4.0));
}
