//! The descriptor and connection tables.

use core::intrinsics::{AtomicOrdering, atomic_xadd, atomic_xsub};

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id};
use enginetap_common::loss::Loss;
use enginetap_common::record::Kind;
use enginetap_common::watch::{Conn, FdKey, KERNEL_CONN, Slot};

use crate::emit::{Head, event, lost};
use crate::maps::{CONNS, FDS, LAST_ID, WATCHED};

/// The ordering of the counters. They need none among each other, but for a relaxed addition LLVM (22) leaves the old value
/// out. The intrinsics, since the target's `core` has no atomic types that add: it promises no more than the oldest
/// instruction set.
const ORDER: AtomicOrdering = AtomicOrdering::AcqRel;

/// The current process, if it is watched.
#[inline(always)]
pub fn watched() -> Option<u32> {
    let pid = current();
    WATCHED.get_ptr(pid)?;
    Some(pid)
}

/// The current process (tgid).
#[inline(always)]
pub fn current() -> u32 {
    // SAFETY: a helper without preconditions.
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

/// A connection id that was never used.
#[inline(always)]
fn fresh_id() -> Option<u64> {
    let last = LAST_ID.get_ptr_mut(0)?;
    // SAFETY: this CPU's own counter; 2^40 connections a CPU.
    unsafe {
        *last += 1;
        Some(KERNEL_CONN | (u64::from(bpf_get_smp_processor_id()) << 40) | *last)
    }
}

/// Makes a new connection of a descriptor that has none.
#[inline(always)]
pub fn open(key: FdKey) -> Option<u64> {
    let conn = fresh_id()?;
    if put(key, conn, BPF_ANY) {
        return Some(conn);
    }
    lost(Loss::ConnsFull, 1);
    None
}

/// Enters `key` as the first descriptor of a new connection.
#[inline(always)]
fn put(key: FdKey, conn: u64, flags: u32) -> bool {
    let value = Conn { rx: 0, tx: 0, verdict: 0, refs: 1 };
    if CONNS.insert(conn, value, u64::from(BPF_NOEXIST)).is_err() {
        return false;
    }
    let entered = FDS.insert(key, Slot { conn, ignored: 0 }, u64::from(flags)).is_ok();
    if !entered {
        let _ = CONNS.remove(conn);
    }
    entered
}

/// Enters `key` as a further descriptor of a connection.
#[inline(always)]
pub fn share(key: FdKey, slot: Slot, flags: u32) -> Result<(), i32> {
    FDS.insert(key, slot, u64::from(flags))?;
    if let Some(conn) = CONNS.get_ptr_mut(slot.conn) {
        // SAFETY: a live value of the table, aligned.
        unsafe { atomic_xadd::<u32, u32, ORDER>(&raw mut (*conn).refs, 1) };
    }
    Ok(())
}

/// Enters a descriptor under a connection id that user space gave.
#[inline(always)]
pub fn adopt(key: FdKey, conn: u64) -> Result<(), i32> {
    if CONNS.get_ptr(conn).is_some() {
        return share(key, Slot { conn, ignored: 0 }, BPF_NOEXIST);
    }
    if put(key, conn, BPF_NOEXIST) { Ok(()) } else { Err(0) }
}

/// Takes a descriptor out of the tables, its connection too when it was the last; the connection it stood for.
#[inline(always)]
pub fn release(key: FdKey) -> Option<u64> {
    // SAFETY: copied at once.
    let Slot { conn, .. } = unsafe { *FDS.get_ptr(key)? };
    FDS.remove(key).ok()?;
    let value = CONNS.get_ptr_mut(conn)?;
    // SAFETY: a live value of the table, aligned.
    let refs = unsafe { atomic_xsub::<u32, u32, ORDER>(&raw mut (*value).refs, 1) };
    if refs <= 1 {
        let _ = CONNS.remove(conn);
    }
    Some(conn)
}

/// The same, and tells of it; whether there was anything to tell.
#[inline(always)]
pub fn close(key: FdKey, call: u32) -> bool {
    let Some(conn) = release(key) else { return false };
    event(Head::new(Kind::Close, call, conn, key.fd, 0), false);
    true
}

/// Moves one direction of a stream on by `n`; the offset before.
///
/// # Safety
/// `conn` is a live value of the table.
#[inline(always)]
pub unsafe fn advance(conn: *mut Conn, kind: Kind, n: u64) -> u64 {
    // SAFETY: aligned fields of a live value.
    let counter = unsafe {
        match kind {
            Kind::Rx => &raw mut (*conn).rx,
            _ => &raw mut (*conn).tx,
        }
    };
    // SAFETY: the same.
    unsafe { atomic_xadd::<u64, u64, ORDER>(counter, n) }
}
