//! The descriptor and connection tables.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd, atomic_xsub};

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns};
use enginetap_common::config::OWED_NS;
use enginetap_common::loss::Loss;
use enginetap_common::record::Kind;
use enginetap_common::watch::{Answer, Conn, FdKey, KERNEL_CONN, NO_CONN, Owed, Slot, slot};

use crate::emit::{Head, event, lost};
use crate::maps::{self, CONNS, FDS, LAST_ID, OWED, WATCHED};

/// The ordering of the counters. They need none among each other, but for a relaxed addition LLVM (22) leaves the old value
/// out. The intrinsics, since the target's `core` has no atomic types that add: it promises no more than the oldest
/// instruction set.
const ORDER: AtomicOrdering = AtomicOrdering::AcqRel;

/// The current process, if it is watched.
#[inline(always)]
pub fn watched() -> Option<u32> {
    let pid = current();
    if !may_be_watched(pid) {
        return None;
    }
    WATCHED.get_ptr(pid)?;
    Some(pid)
}

/// Whether a process may be watched; false for nearly every other.
#[inline(always)]
pub fn may_be_watched(pid: u32) -> bool {
    // SAFETY: a global.
    unsafe { maps::read(maps::bucket(pid)) != 0 }
}

/// Watches a process.
#[inline(always)]
pub fn watch(pid: u32) -> Answer {
    match WATCHED.insert(pid, 1, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            // SAFETY: a global, aligned.
            unsafe { atomic_xadd::<u32, u32, ORDER>(maps::bucket(pid), 1) };
            Answer::Done
        }
        Err(_) if WATCHED.get_ptr(pid).is_some() => Answer::Known,
        Err(_) => Answer::Full,
    }
}

/// Watches a process no more. Only who really took it out counts it down.
#[inline(always)]
pub fn unwatch(pid: u32) -> Answer {
    if WATCHED.remove(pid).is_err() {
        return Answer::Unknown;
    }
    // SAFETY: a global, aligned.
    unsafe { atomic_xsub::<u32, u32, ORDER>(maps::bucket(pid), 1) };
    Answer::Done
}

/// The current process (tgid).
#[inline(always)]
pub fn current() -> u32 {
    // SAFETY: a helper without preconditions.
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

/// A connection id that was never used.
#[inline(always)]
pub fn fresh_id() -> Option<u64> {
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
    if put(key, Slot { conn, flags: 0 }, BPF_ANY) {
        return Some(conn);
    }
    lost(Loss::ConnsFull, 1);
    None
}

/// Enters a connection of which nothing is known yet.
#[inline(always)]
pub fn enter(conn: u64) -> bool {
    CONNS.insert(conn, Conn { rx: 0, tx: 0, verdict: 0, refs: 1 }, u64::from(BPF_NOEXIST)).is_ok()
}

/// Enters `key` as the first descriptor of a new connection.
#[inline(always)]
fn put(key: FdKey, slot: Slot, flags: u32) -> bool {
    if !enter(slot.conn) {
        return false;
    }
    let entered = FDS.insert(key, slot, u64::from(flags)).is_ok();
    if !entered {
        let _ = CONNS.remove(slot.conn);
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
pub fn adopt(key: FdKey, slot: Slot) -> Result<(), i32> {
    // The place of one that was closed is free.
    let flags = if FDS.get_ptr(key).is_some() { BPF_ANY } else { BPF_NOEXIST };
    if CONNS.get_ptr(slot.conn).is_some() {
        return share(key, slot, flags);
    }
    if put(key, slot, flags) { Ok(()) } else { Err(0) }
}

/// What stands under a descriptor.
#[inline(always)]
pub fn slot(key: FdKey) -> Option<Slot> {
    // SAFETY: copied at once.
    let slot = unsafe { *FDS.get_ptr(key)? };
    (slot.conn != NO_CONN).then_some(slot)
}

/// Whether a descriptor is one whose number counts, whatever file it stands for.
#[inline(always)]
pub fn is_kept(key: FdKey) -> bool {
    slot(key).is_some_and(|slot| slot.flags & slot::KEPT != 0)
}

/// Takes a connection from its descriptor; of several that try, one does. Its place is emptied, not removed: by the time
/// of a removal the number may stand for another connection, and the table would not tell.
#[inline(always)]
fn take(key: FdKey, conn: u64) -> bool {
    let Some(place) = FDS.get_ptr_mut(key) else { return false };
    // SAFETY: a live value of the table, aligned.
    let (before, _) = unsafe {
        atomic_cxchg::<u64, ORDER, { AtomicOrdering::Acquire }>(&raw mut (*place).conn, conn, NO_CONN)
    };
    before == conn
}

/// One descriptor fewer stands for a connection; it goes with the last.
#[inline(always)]
fn leave(conn: u64) {
    let Some(value) = CONNS.get_ptr_mut(conn) else { return };
    // SAFETY: a live value of the table, aligned.
    let refs = unsafe { atomic_xsub::<u32, u32, ORDER>(&raw mut (*value).refs, 1) };
    if refs <= 1 {
        let _ = CONNS.remove(conn);
    }
}

/// Takes a descriptor out of the tables; whether it stood for a connection.
#[inline(always)]
pub fn forget(key: FdKey) -> bool {
    let taken = slot(key).filter(|slot| take(key, slot.conn));
    let _ = FDS.remove(key);
    if let Some(slot) = taken {
        leave(slot.conn);
    }
    taken.is_some()
}

/// Ends a connection's descriptor and tells of it; false when another did.
#[inline(always)]
fn end(key: FdKey, conn: u64, call: u32) -> bool {
    if !take(key, conn) {
        return false;
    }
    leave(conn);
    event(Head::new(Kind::Close, call, conn, key.fd, 0), false);
    true
}

/// What stands under a descriptor, unless it stays there whatever is closed.
#[inline(always)]
fn closable(key: FdKey) -> Option<Slot> {
    slot(key).filter(|slot| slot.flags & slot::KEPT == 0)
}

/// A `dup2` or `dup3` has closed what was under this number, if anything was.
#[inline(always)]
pub fn replace(key: FdKey, call: u32) {
    if let Some(slot) = closable(key) {
        end(key, slot.conn, call);
    }
}

/// A call has given a number out anew: the `close` that freed it, by another thread, has not returned yet, and when it does
/// it must not be taken for the new descriptor's.
///
/// The debt is noted before the connection is ended, and struck when that `close` did so in between: whichever comes
/// first, exactly one of the two tells of it.
#[inline(always)]
pub fn displace(key: FdKey, call: u32) {
    let Some(slot) = closable(key) else { return };
    owe(key);
    if !end(key, slot.conn, call) {
        was_owed(key);
    }
}

/// A `close` has returned; whether it ended a connection. What stands there is looked at before what is owed: a connection
/// that came since then is another one, and [`end`] lets it be.
#[inline(always)]
pub fn close(key: FdKey, call: u32) -> bool {
    let slot = closable(key);
    if was_owed(key) {
        return false;
    }
    let Some(slot) = slot else { return false };
    let ended = end(key, slot.conn, call);
    if !ended {
        // Displaced in between: this is the close that is owed for it.
        was_owed(key);
    }
    ended
}

#[inline(always)]
fn owe(key: FdKey) {
    // SAFETY: a helper without preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if OWED.get_ptr(key).is_none() {
        let _ = OWED.insert(key, Owed { since: now, count: 0 }, u64::from(BPF_NOEXIST));
    }
    let Some(owed) = OWED.get_ptr_mut(key) else { return };
    // SAFETY: a live value of the table, aligned.
    unsafe {
        if now.wrapping_sub((*owed).since) >= OWED_NS {
            (*owed).count = 0;
        }
        (*owed).since = now;
        atomic_xadd::<u64, u64, ORDER>(&raw mut (*owed).count, 1);
    }
}

/// Whether a `close` that returns now is one that was owed.
#[inline(always)]
fn was_owed(key: FdKey) -> bool {
    let Some(owed) = OWED.get_ptr_mut(key) else { return false };
    // SAFETY: a live value of the table, aligned; and a helper without preconditions.
    unsafe {
        if (*owed).count == 0 || bpf_ktime_get_ns().wrapping_sub((*owed).since) >= OWED_NS {
            return false;
        }
        // Another may have taken the last one meanwhile: then it is given back.
        let before = atomic_xsub::<u64, u64, ORDER>(&raw mut (*owed).count, 1) as i64;
        if before <= 0 {
            atomic_xadd::<u64, u64, ORDER>(&raw mut (*owed).count, 1);
        }
        before > 0
    }
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
