//! A session: where records come from at one end, the pipeline in the middle, the sinks at the other.

mod capture;
mod feed;
mod follow;
mod gc;
pub(crate) mod haste;
mod live;
mod marks;
mod objects;
mod own;
mod replay;
mod shared;
mod steer;
mod tls;
mod v0;
mod verdicts;

pub use capture::CaptureFile;
pub use feed::Feed;
pub use follow::Follow;
pub use live::{Live, Plan};
pub use own::Figures;
pub use replay::{Replayed, replay};
pub use verdicts::{Pick, Verdicts};

use enginetap_core::time::{Clock, MonoTime, WallTime};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Both clocks, read one after the other.
#[must_use]
pub fn clock() -> Clock {
    // The wall clock between two readings of the other: off by half of what the readings take at most.
    let before = nanos(clock_gettime(ClockId::Monotonic));
    let wall = nanos(clock_gettime(ClockId::Realtime));
    let after = nanos(clock_gettime(ClockId::Monotonic));
    Clock { mono: MonoTime(before + (after - before) / 2), wall: WallTime(wall) }
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
