//! The wall clock is set while requests run.

use super::*;

const HOUR: u64 = 3_600_000_000_000;

/// A trace of a request from 100 to 146 ms, in whose middle the wall clock is set by `step`.
fn stepped(step: impl Fn(u64) -> u64) -> Trace {
    let mut lifecycle = lifecycle(Settings::default());
    request(&mut lifecycle, 0, ask(false));
    add(&mut lifecycle, "chatcmpl-x-0a0a0a0a", "chatcmpl-x", sampling(false));
    let wall = EPOCH + ms(120).0;
    lifecycle.clock(Clock { mono: ms(120), wall: WallTime(step(wall)) });
    run(&mut lifecycle, "chatcmpl-x-0a0a0a0a");
    delta(&mut lifecycle, 0, 145, body("chatcmpl-x"));
    end(&mut lifecycle, 0, 146, true);
    one(&mut lifecycle)
}

#[test]
fn a_clock_that_is_set_changes_no_length_of_a_span_and_none_ends_before_it_begins() {
    for step in [|wall: u64| wall + HOUR, |wall: u64| wall.saturating_sub(HOUR / 60)] {
        let trace = stepped(step);
        assert_eq!(trace.spans[0].end.since(trace.spans[0].start), Nanos::from_millis(46));
        assert!(trace.spans.iter().all(|span| span.end >= span.start), "{trace:#?}");
    }
}
