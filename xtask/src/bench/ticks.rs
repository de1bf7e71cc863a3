//! How far a load had come at each moment: what `load.py --ticks` writes, a line every tenth of a second.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A moment of CLOCK_MONOTONIC, in seconds: the load generator's clock.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
pub struct Moment(f64);

impl Moment {
    /// The present.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        #[allow(clippy::cast_precision_loss, reason = "uptimes are far below 2^53 seconds")]
        Self(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }

    /// So many milliseconds later.
    pub fn plus_ms(self, milliseconds: f64) -> Self {
        Self(self.0 + milliseconds / 1000.0)
    }
}

/// What a load had got by a moment.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Tick {
    at: Moment,
    /// Events of streams that carried output: a token each, as the engines stream.
    tokens: f64,
    /// Requests that had ended.
    requests: f64,
}

/// What a load got in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// How long the stretch was.
    pub seconds: f64,
    /// Output tokens that arrived.
    pub tokens: f64,
    /// Requests that ended.
    pub requests: f64,
}

impl Progress {
    /// Output tokens a second.
    pub fn speed(&self) -> f64 {
        self.tokens / self.seconds
    }
}

/// All of a load.
#[derive(Debug)]
pub struct Ticks(Vec<Tick>);

impl Ticks {
    /// Reads what the load generator wrote. A last line that was cut is left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the load generator wrote no ticks to {}", file.display()))?;
        Ok(Self(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()))
    }

    /// What arrived between two moments; `None` where they are not within the load.
    pub fn between(&self, from: Moment, to: Moment) -> Option<Progress> {
        let (first, last) = (self.at(from)?, self.at(to)?);
        Some(Progress {
            seconds: to.0 - from.0,
            tokens: last.tokens - first.tokens,
            requests: last.requests - first.requests,
        })
    }

    /// How far it was at a moment, between two ticks by the straight line.
    fn at(&self, moment: Moment) -> Option<Tick> {
        let next = self.0.iter().position(|tick| tick.at >= moment)?;
        let (before, after) = (self.0.get(next.checked_sub(1)?)?, self.0.get(next)?);
        let part = (moment.0 - before.at.0) / (after.at.0 - before.at.0);
        let between = |from: f64, to: f64| from + part * (to - from);
        Some(Tick {
            at: moment,
            tokens: between(before.tokens, after.tokens),
            requests: between(before.requests, after.requests),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks() -> Ticks {
        let tick = |at, tokens, requests| Tick { at: Moment(at), tokens, requests };
        Ticks(vec![tick(10.0, 100.0, 1.0), tick(11.0, 200.0, 2.0), tick(13.0, 400.0, 6.0)])
    }

    #[test]
    fn progress_is_taken_between_ticks() {
        let progress = ticks().between(Moment(10.5), Moment(12.0)).unwrap();
        assert_eq!(progress, Progress { seconds: 1.5, tokens: 150.0, requests: 2.5 });
        assert!((progress.speed() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn moments_outside_the_load_have_no_progress() {
        assert_eq!(ticks().between(Moment(9.0), Moment(12.0)), None);
        assert_eq!(ticks().between(Moment(11.0), Moment(14.0)), None);
    }
}
