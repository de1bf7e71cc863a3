//! What the agent tells the kernel programs at load time, as one read-only global, and the bounds both sides
//! keep to.

/// Payload bytes copied of one call unless configured otherwise: a 1 MiB request is seen whole.
pub const DEFAULT_CAP: u32 = 1024 * 1024;

/// Most processes watched at once.
pub const MAX_WATCHED: u32 = 4096;

/// Buckets of the filter that every system call of the machine goes through: the lowest bits of a process id. A power
/// of two.
pub const FILTER_BUCKETS: usize = 8192;

/// Most descriptors remembered whose `close` has yet to return although their number was given out anew.
pub const MAX_OWED: u32 = 1024;

/// How long such a `close` is waited for, nanoseconds: from the moment the number is free to the return of the call, in which
/// its thread may wait for a core.
pub const OWED_NS: u64 = 5_000_000_000;

/// Bytes of the kernel's `struct task_struct` that one [`crate::watch::Command::Locate`] looks at.
pub const LOCATE_BYTES: u32 = 256;

/// Bytes of a `struct task_struct` that are worth looking at: it has some 10 KiB, without the registers at its end.
pub const TASK_BYTES: u32 = 16 * 1024;

/// Most connections known at once, and most descriptors of connections.
pub const MAX_CONNS: u32 = 65_536;

/// Most TLS connections known at once.
pub const MAX_TLS: u32 = 16_384;

/// Most calls of a TLS library under way at once: one a thread.
pub const MAX_TLS_CALLS: u32 = 4096;

/// Most garbage collections under way at once: one a thread.
pub const MAX_GC_CALLS: u32 = 1024;

/// Collections that took less, in nanoseconds, make no record.
pub const GC_LEAST: u64 = 1_000_000;

/// Threads of one CPU that may be in the midst of a program on a TLS library at once: where the kernel lets a program
/// be interrupted.
pub const TLS_SCRATCHES: u32 = 2;

/// Most buffers looked at in one vectored call.
pub const MAX_BUFFERS: u32 = 64;

/// Most messages looked at in one `sendmmsg` or `recvmmsg`: each is one tail call, and the kernel allows 33.
pub const MAX_MESSAGES: u32 = 30;

/// Most rings.
pub const MAX_RINGS: u32 = 64;

/// System call numbers the dispatch table has room for.
pub const MAX_SYSCALLS: usize = 512;

/// In the dispatch table, beside the numbers of [`crate::record::Call`]: a call that makes a descriptor which
/// is no connection. Whatever was known under that number is stale.
pub const NEW_FD: u8 = 40;

/// Entries of the jump table: more than any number in the dispatch table.
pub const JUMPS: u32 = 48;

/// The machine the programs run on: decides where the arguments of a system call lie in `struct pt_regs`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64 = 0,
    /// 64-bit ARM.
    Aarch64 = 1,
}

/// The read-only global `CONFIG` of the kernel programs. One object serves every machine and kernel, since what
/// differs is told here; the verifier sees constants and drops the branches not taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most payload bytes copied of one call.
    pub cap: u32,
    /// Rings in use; CPU n writes to ring `n % rings`. Not zero.
    pub rings: u32,
    /// Bytes waiting in a ring at which its reader is woken.
    pub wake_at: u32,
    /// A [`Machine`].
    pub machine: u32,
    /// By system call number: a [`crate::record::Call`], [`NEW_FD`], or 0 for a call of no interest.
    pub calls: [u8; MAX_SYSCALLS],
}

impl Config {
    /// A configuration under which no call is of interest.
    pub const EMPTY: Self = Self {
        cap: DEFAULT_CAP,
        rings: 1,
        wake_at: 0,
        machine: Machine::X86_64 as u32,
        calls: [0; MAX_SYSCALLS],
    };
}
