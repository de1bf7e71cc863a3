//! Clocks of a recording, which holds one clock where a capture needs two. Both are estimates, unless the engine
//! tells how far apart they are.
//!
//! Wall clock: every request carries its `arrival_time` by the wall clock, read after the client's bytes came and
//! before the request was sent on. So wall minus monotonic time is at least `arrival - sent` for every request,
//! and at most `arrival - read`. The middle of the tightest such bounds is taken: what is left of error is about
//! half the time the quickest request took to be tokenized.
//!
//! Monotonic clock, where the recording has times of day: every step's report carries the engine's monotonic time
//! at its end, and leaves later. The earliest clock that makes no report leave before its step is taken.

use super::evidence::{Arrival, Evidence, Step};
use super::line::Recording;
use crate::time::{Clock, MonoTime, WallTime};

/// Wall time assumed where no request tells it: one day after the epoch.
const UNKNOWN: i128 = 86_400_000_000_000;

/// Puts the calls onto the monotonic clock, and gives both clocks at the first of them.
pub(super) fn set(recording: &mut Recording, evidence: &Evidence) -> Clock {
    let shift = if recording.time_of_day { shift(&evidence.steps) } else { 0 };
    for call in &mut recording.calls {
        call.time = MonoTime(moved(call.time.0, shift));
    }
    let first = recording.calls.first().map(|call| call.time).unwrap_or_default();
    let told = evidence.epoch_offset.map(|offset| i128::from(offset.nanos().0));
    let wall = told.or_else(|| Some(wall_offset(&evidence.arrivals)? - shift)).unwrap_or(UNKNOWN);
    Clock { mono: first, wall: WallTime(moved(first.0, wall)) }
}

/// What to add to the calls' times of day.
fn shift(steps: &[Step]) -> i128 {
    let lead = |step: &Step| i128::from(step.ended.mono().0) - i128::from(step.moved.0);
    steps.iter().map(lead).max().unwrap_or(0)
}

/// What to add to the calls' times, as they were recorded, for the wall clock.
fn wall_offset(arrivals: &[Arrival]) -> Option<i128> {
    let since = |arrival: &Arrival, at: MonoTime| i128::from(arrival.arrival.wall().0) - i128::from(at.0);
    let least = arrivals.iter().map(|arrival| since(arrival, arrival.sent)).max()?;
    let reads = arrivals.iter().filter_map(|arrival| Some(since(arrival, arrival.read?)));
    // With several requests under way a read may be another one's: then it gives no bound.
    let most = reads.filter(|most| *most >= least).min().unwrap_or(least);
    Some(least + (most - least) / 2)
}

fn moved(time: u64, by: i128) -> u64 {
    let time = (i128::from(time) + by).clamp(0, i128::from(u64::MAX));
    u64::try_from(time).unwrap_or_default()
}
