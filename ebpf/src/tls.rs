//! The plain text of TLS: what passes through `SSL_read` and `SSL_write`.
//!
//! Probes at the functions' first instruction keep the arguments; probes at their `ret` instructions know what came of
//! the call. Both are plain breakpoints: there is no return probe, which replaces the return address on the target's
//! stack and on some kernels can end the target.
//!
//! A server's `SSL` objects often have no socket (asyncio and uvloop move the records themselves), so the object itself
//! stands for the connection.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::{bpf_get_attach_cookie, bpf_get_current_pid_tgid};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use core::intrinsics::{AtomicOrdering, atomic_xadd, atomic_xsub};
use enginetap_common::config::TLS_SCRATCHES;
use enginetap_common::loss::Loss;
use enginetap_common::record::{Call, Kind};
use enginetap_common::watch::{Slot, TlsKey, Verdict, slot};

use crate::emit::{Head, event, lost};
use crate::maps::{CONNS, Scratch, Syscall, TLS, TLS_CALLS, TLS_WORK, Work};
use crate::stream::{Flow, user};
use crate::{conns, regs};

/// Which call it is: a thread, and where its stack was when it began. Calls within calls have other stacks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    thread: u64,
    stack: u64,
}

/// A call that has begun.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pending {
    /// The `SSL` object.
    ssl: u64,
    /// Where the plain text is, or will be.
    buffer: u64,
    /// Where the length moved will be; only the `_ex` forms have it.
    moved: u64,
    /// A [`Call`].
    call: u64,
}

/// The entry of `SSL_read`, `SSL_read_ex`, `SSL_write` or `SSL_write_ex`: the cookie says which.
#[uprobe]
pub fn tls_entered(ctx: ProbeContext) -> u32 {
    enter(&ctx);
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext) -> Option<()> {
    let pid = conns::watched()?;
    let regs = regs::function(ctx.as_ptr())?;
    let [ssl, buffer, _, moved] = regs.args;
    if let Some(slot) = TLS.get_ptr(TlsKey { pid: u64::from(pid), ssl }) {
        // SAFETY: a live value of the table.
        if unsafe { (*slot).flags } & slot::IGNORED != 0 {
            return None;
        }
    }
    // SAFETY: a helper without preconditions on the context of a probe.
    let call = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let _ = TLS_CALLS.insert(frame(regs.stack), Pending { ssl, buffer, moved, call }, u64::from(BPF_ANY));
    Some(())
}

/// The call of this thread whose stack was there.
#[inline(always)]
pub fn frame(stack: u64) -> Frame {
    // SAFETY: a helper without preconditions.
    Frame { thread: unsafe { bpf_get_current_pid_tgid() }, stack }
}

/// A `ret` of one of them.
#[uprobe]
pub fn tls_returned(ctx: ProbeContext) -> u32 {
    leave(&ctx);
    0
}

#[inline(always)]
fn leave(ctx: &ProbeContext) -> Option<()> {
    let pid = conns::watched()?;
    let regs = regs::function(ctx.as_ptr())?;
    let frame = frame(regs.stack);
    // SAFETY: copied at once.
    let pending = unsafe { *TLS_CALLS.get_ptr(frame)? };
    let _ = TLS_CALLS.remove(frame);
    let total = moved(&pending, regs.result as i32)?;
    let key = TlsKey { pid: u64::from(pid), ssl: pending.ssl };
    let conn = conn_of(key)?;
    let received = pending.call == Call::SslRead as u64 || pending.call == Call::SslReadEx as u64;
    let kind = if received { Kind::Rx } else { Kind::Tx };
    let Some(scratch) = take() else {
        let conn = CONNS.get_ptr_mut(conn)?;
        // SAFETY: a live value of the table. The next record's offset shows the gap.
        unsafe { conns::advance(conn, kind, u64::from(total)) };
        lost(Loss::Busy, 1);
        return None;
    };
    // SAFETY: taken; written field by field, since this CPU's memory is no reference's to own.
    let work = unsafe { &raw mut (*scratch).work };
    write_out(work, &pending, conn, total, kind);
    give_back(scratch);
    Some(())
}

/// How much the call moved; `None` for nothing.
#[inline(always)]
fn moved(pending: &Pending, result: i32) -> Option<u32> {
    if result <= 0 {
        return None;
    }
    let plain = pending.call == Call::SslRead as u64 || pending.call == Call::SslWrite as u64;
    let total = if plain { result as u64 } else { user::<u64>(pending.moved)? };
    // No buffer is longer; what says so is no length.
    (total != 0 && total <= u64::from(u32::MAX)).then_some(total as u32)
}

/// The connection of an object, a new one where it has none; `None` when it is of no interest.
#[inline(always)]
fn conn_of(key: TlsKey) -> Option<u64> {
    let Some(slot) = TLS.get_ptr_mut(key) else { return open(key) };
    // SAFETY: copied at once.
    let conn = unsafe { (*slot).conn };
    let Some(known) = CONNS.get_ptr(conn) else { return open(key) };
    // SAFETY: a live value of the table.
    if Verdict::from_u32(unsafe { (*known).verdict }) == Verdict::Ignore {
        // SAFETY: a live value of the table.
        unsafe { (*slot).flags = slot::IGNORED };
        return None;
    }
    Some(conn)
}

#[inline(always)]
fn open(key: TlsKey) -> Option<u64> {
    let conn = conns::fresh_id()?;
    if conns::enter(conn) {
        if TLS.insert(key, Slot { conn, flags: 0 }, u64::from(BPF_ANY)).is_ok() {
            return Some(conn);
        }
        let _ = CONNS.remove(conn);
    }
    lost(Loss::ConnsFull, 1);
    None
}

#[inline(always)]
fn write_out(work: *mut Work, pending: &Pending, conn: u64, total: u32, kind: Kind) -> Option<()> {
    let call = Syscall {
        number: pending.call as u32,
        message: 0,
        ret: i64::from(total),
        // No descriptor.
        args: [u64::MAX, pending.buffer, 0, 0],
        conn,
    };
    // SAFETY: memory that was taken.
    unsafe { (*work).call = call };
    Flow::begin_as(work, total, kind)?.buffer(pending.buffer);
    Some(())
}

const ORDER: AtomicOrdering = AtomicOrdering::AcqRel;

/// Takes a free scratch of this CPU: a program stays on its CPU.
#[inline(always)]
fn take() -> Option<*mut Scratch> {
    for index in 0..TLS_SCRATCHES {
        let scratch = TLS_WORK.get_ptr_mut(index)?;
        // SAFETY: an aligned field of a value that lives as long as the map.
        let before = unsafe { atomic_xadd::<u64, u64, ORDER>(&raw mut (*scratch).users, 1) };
        if before == 0 {
            return Some(scratch);
        }
        give_back(scratch);
    }
    None
}

#[inline(always)]
fn give_back(scratch: *mut Scratch) {
    // SAFETY: as in `take`.
    unsafe { atomic_xsub::<u64, u64, ORDER>(&raw mut (*scratch).users, 1) };
}

/// The entry of `SSL_free`: the object's address may come again, for another connection.
#[uprobe]
pub fn tls_freed(ctx: ProbeContext) -> u32 {
    free(&ctx);
    0
}

#[inline(always)]
fn free(ctx: &ProbeContext) -> Option<()> {
    let pid = conns::watched()?;
    let [ssl, ..] = regs::function(ctx.as_ptr())?.args;
    let conn = release(TlsKey { pid: u64::from(pid), ssl })?;
    event(Head::new(Kind::Close, Call::SslFree as u32, conn, -1, 0), false);
    Some(())
}

/// Takes a TLS connection out of the tables; its id.
#[inline(always)]
pub fn release(key: TlsKey) -> Option<u64> {
    // SAFETY: copied at once.
    let Slot { conn, .. } = unsafe { *TLS.get_ptr(key)? };
    TLS.remove(key).ok()?;
    let _ = CONNS.remove(conn);
    Some(conn)
}
