//! Whether the agent works: its session hands over a reading of all metrics every second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A session that was silent for longer than this hangs.
const SILENCE: Duration = Duration::from_secs(15);

/// The session's heartbeat.
#[derive(Debug)]
pub(super) struct Health {
    since: Instant,
    /// Milliseconds after `since`, plus 1; 0: none yet.
    beat: AtomicU64,
}

impl Health {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, beat: AtomicU64::new(0) }
    }

    /// The session moved.
    pub(super) fn beat(&self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_millis();
        self.beat.store(u64::try_from(passed).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    /// Whether the kernel programs are attached and the session gives figures.
    pub(super) fn ready(&self, now: Instant) -> Result<(), String> {
        match self.silence(now) {
            Some(_) => self.alive(now),
            None => Err("not attached yet".to_owned()),
        }
    }

    /// Whether the session moves; true while it starts.
    pub(super) fn alive(&self, now: Instant) -> Result<(), String> {
        match self.silence(now) {
            Some(silence) if silence > SILENCE => {
                Err(format!("the session has not moved for {} s", silence.as_secs()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn silence(&self, now: Instant) -> Option<Duration> {
        let beat = self.beat.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_duration_since(self.since + Duration::from_millis(beat)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_ready_from_its_first_beat_and_neither_when_it_hangs() {
        let since = Instant::now();
        let after = |seconds| since + Duration::from_secs(seconds);
        let health = Health::new(since);
        assert!(health.alive(after(100)).is_ok() && health.ready(after(100)).is_err());
        health.beat(after(100));
        assert!(health.alive(after(115)).is_ok() && health.ready(after(115)).is_ok());
        let error = health.alive(after(121)).unwrap_err();
        assert_eq!(error, "the session has not moved for 21 s");
        assert!(health.ready(after(121)).is_err());
        health.beat(after(122));
        assert!(health.ready(after(122)).is_ok());
    }
}
