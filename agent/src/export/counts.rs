//! What the sinks could not deliver, counted by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use enginetap_core::loss::{Loss, Losses};

/// Counters that every sink shares. Spans and points are counted, not batches.
#[derive(Debug, Default)]
pub struct Counts {
    delivered: AtomicU64,
    queue_full: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Handed over to their receiver.
    pub fn delivered(&self, n: u64) {
        self.delivered.fetch_add(n, Ordering::Relaxed);
    }

    /// Dropped, since the queue of a sink was full.
    pub fn queue_full(&self, n: u64) {
        self.queue_full.fetch_add(n, Ordering::Relaxed);
    }

    /// Dropped after the retries, refused by the receiver, or unwritable.
    pub fn failed(&self, n: u64) {
        self.failed.fetch_add(n, Ordering::Relaxed);
    }

    /// How many were delivered, all sinks together.
    #[must_use]
    pub fn total_delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// The losses so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(Loss::QueueFull, self.queue_full.load(Ordering::Relaxed));
        losses.add(Loss::ExportFailed, self.failed.load(Ordering::Relaxed));
        losses
    }
}

/// A length as a count.
pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
