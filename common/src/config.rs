//! What the agent tells the kernel programs at load time, as read-only globals.

/// Payload bytes copied of one call unless configured otherwise: a 1 MiB request is seen whole.
pub const DEFAULT_CAP: u32 = 1024 * 1024;

/// Most processes watched at once.
pub const MAX_WATCHED: u32 = 4096;

/// Most connections known at once.
pub const MAX_CONNS: u32 = 65_536;

/// Most calls in flight at once, over all watched threads.
pub const MAX_CALLS: u32 = 16_384;

/// Most buffers looked at in one vectored call.
pub const MAX_BUFFERS: u32 = 64;
