//! Why the kernel side lost something. Counted per CPU in the kernel, exported by the agent.

/// A reason, and the index of its counter in the loss map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The ring had no room for a record.
    RingFull = 0,
    /// The kernel skipped a program since it was already running on that CPU. Counted by the kernel itself.
    Skipped = 1,
    /// The table of descriptors or connections was full: a connection is not seen.
    ConnsFull = 2,
    /// A buffer of the process could not be read (swapped out or unmapped).
    Fault = 3,
    /// A call moved more bytes than the cap: the rest is a gap. Counted in calls.
    OverCap = 4,
    /// A vectored call had more buffers than are looked at: the rest is a gap. Counted in calls.
    OverBuffers = 5,
    /// Too many threads were interrupted in the midst of a program on one CPU: a call of a TLS library is a gap.
    /// Counted in calls.
    Busy = 6,
}

impl Loss {
    /// Every reason, in the order of its index.
    pub const ALL: [Self; 7] = [
        Self::RingFull,
        Self::Skipped,
        Self::ConnsFull,
        Self::Fault,
        Self::OverCap,
        Self::OverBuffers,
        Self::Busy,
    ];

    /// The reason's name, as exported.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::Skipped => "skipped",
            Self::ConnsFull => "conns_full",
            Self::Fault => "fault",
            Self::OverCap => "over_cap",
            Self::OverBuffers => "over_buffers",
            Self::Busy => "busy",
        }
    }
}
