//! The shared maps' keys and values: which processes are watched, which descriptors are connections,
//! and what is wanted of each. User space reads these maps; only the kernel programs write them, at the agent's
//! [`Command`]s, so that no counter is ever overwritten by a stale copy.

/// Set in the id of every connection the kernel programs first saw; ids given by user space must not have it.
pub const KERNEL_CONN: u64 = 1 << 63;

/// In the descriptor table: the descriptor was closed, and its place is free.
pub const NO_CONN: u64 = 0;

/// Key of the descriptor table: one file descriptor of one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdKey {
    /// Process id (tgid, initial namespace).
    pub pid: u32,
    /// File descriptor.
    pub fd: i32,
}

/// Key of the table of TLS connections: one `SSL` object of one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlsKey {
    /// Process id (tgid, initial namespace).
    pub pid: u64,
    /// Address of the object.
    pub ssl: u64,
}

/// Value of the descriptor table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The connection's id, key of the connection table, or [`NO_CONN`].
    pub conn: u64,
    /// Bits of [`slot`].
    pub flags: u64,
}

/// Bits of [`Slot::flags`].
pub mod slot {
    /// The connection was found to be ignored: then this look-up is the only one.
    pub const IGNORED: u64 = 1;
    /// It is the number that counts, not the file behind it: a `close`, or another file under that number (`dup2`), changes
    /// nothing. Only what is written counts.
    pub const KEPT: u64 = 2;
}

/// Value of the table of closes that are owed: a descriptor's number was given out anew while the `close` that freed it, made
/// by another thread, has yet to return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// When the last of them was found out, nanoseconds of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// How many.
    pub count: u64,
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
    /// Of no interest: one map look-up and out. For good: the stream's offsets are no longer counted.
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
    /// Descriptors, over all processes, that stand for it in the descriptor table; it goes with the last one.
    pub refs: u32,
}

/// What the agent asks of the program `control`, which it runs by `BPF_PROG_TEST_RUN`. The arguments are the
/// fake tracepoint's: the command, then the ones named here.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `(conn, verdict)`: changes what is wanted of a connection.
    Judge = 1,
    /// `(conn, pid, fd)`: puts an existing descriptor into the tables. Changes nothing where it is there already.
    Adopt = 2,
    /// `(pid, fd)`: takes a descriptor out of the tables.
    Forget = 3,
    /// `(conn, pid, fd)`: as `Adopt`, but the number stays known whatever file it stands for ([`slot::KEPT`]).
    Keep = 4,
    /// `(pid)`: watches a process.
    Watch = 5,
    /// `(pid)`: watches it no more.
    Unwatch = 6,
    /// `(offset)`: looks for the ids of the calling thread in [`crate::config::LOCATE_BYTES`] of its `struct task_struct`, from that
    /// offset on, and keeps the place where it found them.
    Locate = 7,
    /// `(pid, ssl)`: takes a TLS connection out of the tables.
    ForgetTls = 8,
}

/// What `control` answers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done = 0,
    /// The descriptor or process is known already.
    Known = 1,
    /// No such connection, descriptor, process or place.
    Unknown = 2,
    /// The table is full.
    Full = 3,
    /// No such command: agent and kernel programs of different builds.
    BadCommand = 4,
}

impl Answer {
    /// The answer of this number; anything unknown is [`Answer::BadCommand`].
    #[must_use]
    pub fn from_u32(number: u32) -> Self {
        match number {
            0 => Self::Done,
            1 => Self::Known,
            2 => Self::Unknown,
            3 => Self::Full,
            _ => Self::BadCommand,
        }
    }
}
