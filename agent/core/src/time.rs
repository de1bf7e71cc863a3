//! Clocks. Two of them, never mixed: [`MonoTime`] (`CLOCK_MONOTONIC`, the kernel's and the engines') and
//! [`WallTime`] (Unix time, what spans carry). [`Clock`] converts.

use serde::{Deserialize, Serialize};

const NANOS: f64 = 1e9;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonoTime(pub u64);

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// A moment as an engine writes it: seconds of `CLOCK_MONOTONIC` as a double (Python's `time.monotonic()`).
///
/// Kept as the double, since sums of differences are to equal the engine's own bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineTime(pub f64);

/// A moment as an engine writes it: Unix seconds as a double (Python's `time.time()`).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochTime(pub f64);

/// A length of time in seconds as a double, as engines compute it.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// Nanoseconds of a non-negative double of seconds; negative and NaN give 0.
fn nanos_of(seconds: f64) -> u64 {
    // A float cast saturates: no wrap, no panic.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating by definition")]
    let nanos = (seconds * NANOS).round() as u64;
    nanos
}

impl MonoTime {
    /// Time since `earlier`; zero when that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same moment as engines write it.
    #[must_use]
    pub fn engine(self) -> EngineTime {
        #[allow(clippy::cast_precision_loss, reason = "2^53 ns of uptime are 104 days; beyond, a few ns")]
        EngineTime(self.0 as f64 / NANOS)
    }

    /// This moment plus a length of time.
    #[must_use]
    pub fn plus(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl WallTime {
    /// Time since `earlier`; zero when that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Nanos {
    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// From whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// As seconds.
    #[must_use]
    pub fn seconds(self) -> Seconds {
        #[allow(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
        Seconds(self.0 as f64 / NANOS)
    }
}

impl EngineTime {
    /// The same moment in nanoseconds.
    #[must_use]
    pub fn mono(self) -> MonoTime {
        MonoTime(nanos_of(self.0))
    }

    /// Seconds since `earlier`, computed as the engine computes it: one subtraction of doubles.
    #[must_use]
    pub fn since(self, earlier: Self) -> Seconds {
        Seconds(self.0 - earlier.0)
    }
}

impl EpochTime {
    /// A moment as engines write it.
    #[must_use]
    pub fn of(at: WallTime) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "as Python's time.time(): a few hundred nanoseconds")]
        Self(at.0 as f64 / NANOS)
    }

    /// The same moment in nanoseconds.
    #[must_use]
    pub fn wall(self) -> WallTime {
        WallTime(nanos_of(self.0))
    }

    /// Seconds since `earlier`, computed as the engine computes it: one subtraction of doubles.
    #[must_use]
    pub fn since(self, earlier: Self) -> Seconds {
        Seconds(self.0 - earlier.0)
    }
}

impl Seconds {
    /// In nanoseconds, rounded; negative gives 0.
    #[must_use]
    pub fn nanos(self) -> Nanos {
        Nanos(nanos_of(self.0))
    }
}

/// One reading of both clocks at once: the bridge from [`MonoTime`] to [`WallTime`].
///
/// Read again from time to time, since the wall clock is slewed and stepped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The monotonic reading.
    pub mono: MonoTime,
    /// The wall reading at the same moment.
    pub wall: WallTime,
}

impl Clock {
    /// The wall time of a monotonic moment.
    #[must_use]
    pub fn wall(self, at: MonoTime) -> WallTime {
        if at >= self.mono {
            WallTime(self.wall.0.saturating_add(at.0 - self.mono.0))
        } else {
            WallTime(self.wall.0.saturating_sub(self.mono.0 - at.0))
        }
    }

    /// The monotonic time of a wall moment.
    #[must_use]
    pub fn mono(self, at: WallTime) -> MonoTime {
        if at >= self.wall {
            MonoTime(self.mono.0.saturating_add(at.0 - self.wall.0))
        } else {
            MonoTime(self.mono.0.saturating_sub(self.wall.0 - at.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_converts_both_ways() {
        let clock = Clock { mono: MonoTime(1_000), wall: WallTime(5_000) };
        assert_eq!(clock.wall(MonoTime(1_500)), WallTime(5_500));
        assert_eq!(clock.wall(MonoTime(400)), WallTime(4_400));
        assert_eq!(clock.mono(WallTime(4_400)), MonoTime(400));
    }

    #[test]
    fn engine_seconds_become_exact_nanoseconds() {
        assert_eq!(EngineTime(1270.380931916).mono(), MonoTime(1_270_380_931_916));
        assert_eq!(Seconds(-1.0).nanos(), Nanos(0));
        assert_eq!(Seconds(f64::NAN).nanos(), Nanos(0));
    }
}
