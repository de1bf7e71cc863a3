//! Why the agent lost something: one counter a reason, exported beside the kernel's own
//! ([`enginetap_common::loss::Loss`]).

/// A reason for which the agent, not the kernel, lost or left out something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Loss {
    /// A record that does not parse: unknown kind, cut header, length out of bounds.
    BadRecord,
    /// Stream bytes that never arrived: over the cap, lost on the ring, or moved unseen. Counted in bytes.
    GapBytes,
    /// A decoder lost its place and had to find the next frame boundary.
    Resync,
    /// A message whose shape nobody knows.
    UnknownMessage,
    /// A message that was cut by a gap; what came before the cut was used.
    CutMessage,
    /// A body or message over its size limit, cut there.
    OverSize,
    /// A connection dropped from the tables since there were too many.
    ConnEvicted,
    /// A request given up since nothing more came for too long, or since there were too many.
    RequestExpired,
    /// Engine outputs for a request nobody saw the start of, and that could not be told.
    OrphanOutput,
    /// A decode step that happened and of which no source told when: it has no span.
    StepUnseen,
    /// A read of an engine's objects refused: memory that is not mapped, as a pointer that changed leads to.
    HeapUnreadable,
    /// A read of an engine's objects refused: it was another one when it was read again.
    HeapTorn,
    /// A read of an engine's objects refused: a length, type or time that cannot be.
    HeapAbsurd,
    /// Engine objects left unread: more of them than a reading, or a second, may take.
    HeapBudget,
    /// A log line handed on before it was clear which span it belongs to, since too many waited.
    LineUnplaced,
    /// Spans not sent, since the settings want a share of the traces only. No fault.
    Sampled,
    /// Spans and log lines not sent, since their server makes more of them than the settings let through.
    RateLimited,
    /// A span or metric batch dropped: the exporter's queue was full.
    QueueFull,
    /// A batch dropped after its retries: the receiver refused it or could not be reached.
    ExportFailed,
}

impl Loss {
    /// Every reason.
    pub const ALL: [Self; 19] = [
        Self::BadRecord,
        Self::GapBytes,
        Self::Resync,
        Self::UnknownMessage,
        Self::CutMessage,
        Self::OverSize,
        Self::ConnEvicted,
        Self::RequestExpired,
        Self::OrphanOutput,
        Self::StepUnseen,
        Self::HeapUnreadable,
        Self::HeapTorn,
        Self::HeapAbsurd,
        Self::HeapBudget,
        Self::LineUnplaced,
        Self::Sampled,
        Self::RateLimited,
        Self::QueueFull,
        Self::ExportFailed,
    ];

    /// The reason's name, as exported.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadRecord => "bad_record",
            Self::GapBytes => "gap_bytes",
            Self::Resync => "resync",
            Self::UnknownMessage => "unknown_message",
            Self::CutMessage => "cut_message",
            Self::OverSize => "over_size",
            Self::ConnEvicted => "conn_evicted",
            Self::RequestExpired => "request_expired",
            Self::OrphanOutput => "orphan_output",
            Self::StepUnseen => "step_unseen",
            Self::HeapUnreadable => "heap_unreadable",
            Self::HeapTorn => "heap_torn",
            Self::HeapAbsurd => "heap_absurd",
            Self::HeapBudget => "heap_budget",
            Self::LineUnplaced => "line_unplaced",
            Self::Sampled => "sampled",
            Self::RateLimited => "rate_limited",
            Self::QueueFull => "queue_full",
            Self::ExportFailed => "export_failed",
        }
    }
}

/// Counters by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; Loss::ALL.len()]);

impl Losses {
    /// Counts `n` more for `reason`.
    pub fn add(&mut self, reason: Loss, n: u64) {
        let count = &mut self.0[reason as usize];
        *count = count.saturating_add(n);
    }

    /// The count of one reason.
    #[must_use]
    pub fn get(&self, reason: Loss) -> u64 {
        self.0[reason as usize]
    }

    /// Adds another set of counters to this one.
    pub fn merge(&mut self, other: &Self) {
        for reason in Loss::ALL {
            self.add(reason, other.get(reason));
        }
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }
}
