//! The shared maps' keys and values: which processes are watched, which descriptors are connections,
//! and what is wanted of each.

/// Key of the descriptor table: one file descriptor of one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdKey {
    /// Process id (tgid, initial namespace).
    pub pid: u32,
    /// File descriptor.
    pub fd: i32,
}

/// What user space wants of a connection. Kept in the connection table; read at every call.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Not decided yet: payload is copied.
    Pending = 0,
    /// Payload is wanted, both directions.
    Payload = 1,
    /// Only times and lengths are wanted: headers without payload.
    Times = 2,
    /// Of no interest: one map look-up and out.
    Ignore = 3,
}

impl Verdict {
    /// The verdict of this number; anything unknown is [`Verdict::Pending`], the safe reading.
    #[must_use]
    pub fn from_u32(number: u32) -> Self {
        match number {
            1 => Self::Payload,
            2 => Self::Times,
            3 => Self::Ignore,
            _ => Self::Pending,
        }
    }
}

/// Value of the connection table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conn {
    /// Bytes received since the connection was first seen.
    pub rx: u64,
    /// Bytes sent since the connection was first seen.
    pub tx: u64,
    /// A [`Verdict`].
    pub verdict: u32,
    /// Zero.
    pub reserved: u32,
}
