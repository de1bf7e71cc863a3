//! Descriptors that come and go: accept, connect, dup, those that are no connections, close.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use enginetap_common::record::{Call, Kind};
use enginetap_common::watch::{FdKey, slot};

use crate::conns;
use crate::emit::{Head, event};
use crate::maps::{Syscall, WORK};

const EBADF: i64 = 9;
const EINPROGRESS: i64 = 115;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

/// The call in hand, and the process that made it.
#[inline(always)]
fn in_hand() -> Option<(u32, Syscall)> {
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*WORK.get_ptr(0)?).call };
    Some((conns::current(), call))
}

/// accept, accept4, connect.
#[raw_tracepoint]
pub fn opened(ctx: RawTracePointContext) -> i32 {
    open(&ctx);
    0
}

#[inline(always)]
fn open(ctx: &RawTracePointContext) -> Option<()> {
    let (pid, call) = in_hand()?;
    let argument = call.args[0] as i32;
    if call.number == Call::Connect as u32 {
        let under_way = call.ret == 0 || call.ret == -EINPROGRESS;
        let key = FdKey { pid, fd: argument };
        if !under_way || conns::slot(key).is_some() {
            return None;
        }
        let conn = conns::open(key)?;
        debug!(ctx, "process {} opened connection {:x} on descriptor {}", pid, conn, key.fd);
        event(Head::new(Kind::Connect, call.number, conn, key.fd, 0), false);
    } else if call.ret >= 0 {
        let key = FdKey { pid, fd: call.ret as i32 };
        if conns::is_kept(key) {
            return None;
        }
        conns::displace(key, call.number);
        let conn = conns::open(key)?;
        debug!(ctx, "process {} accepted connection {:x} on descriptor {}", pid, conn, key.fd);
        event(Head::new(Kind::Accept, call.number, conn, key.fd, argument as u32), false);
    }
    Some(())
}

/// dup, dup2, dup3, fcntl.
#[raw_tracepoint]
pub fn duplicated(_: RawTracePointContext) -> i32 {
    duplicate();
    0
}

#[inline(always)]
fn duplicate() -> Option<()> {
    let (pid, call) = in_hand()?;
    let is_dup =
        call.number != Call::Fcntl as u32 || call.args[1] == F_DUPFD || call.args[1] == F_DUPFD_CLOEXEC;
    let (from, to) = (FdKey { pid, fd: call.args[0] as i32 }, FdKey { pid, fd: call.ret as i32 });
    if !is_dup || call.ret < 0 || from.fd == to.fd || conns::is_kept(to) {
        return None;
    }
    // A dup2 or dup3 closes what was there itself.
    if call.number == Call::Dup2 as u32 || call.number == Call::Dup3 as u32 {
        conns::replace(to, call.number);
    } else {
        conns::displace(to, call.number);
    }
    let slot = conns::slot(from)?;
    if slot.flags & slot::KEPT != 0 {
        return None;
    }
    conns::share(to, slot, BPF_ANY).ok()?;
    event(Head::new(Kind::Dup, call.number, slot.conn, from.fd, to.fd as u32), false);
    Some(())
}

/// A call that made a descriptor which is no connection: what was known under that number has gone unseen
/// (`close_range`, an exec).
#[raw_tracepoint]
pub fn renumbered(_: RawTracePointContext) -> i32 {
    renumber();
    0
}

#[inline(always)]
fn renumber() -> Option<()> {
    let (pid, call) = in_hand()?;
    if call.ret >= 0 {
        conns::displace(FdKey { pid, fd: call.ret as i32 }, Call::Close as u32);
    }
    Some(())
}

/// close. Seen when it returns, as all calls: by then another thread may have got the same number, whose call may have
/// returned before ([`conns::displace`]).
#[raw_tracepoint]
pub fn closed(ctx: RawTracePointContext) -> i32 {
    closing(&ctx);
    0
}

#[inline(always)]
fn closing(ctx: &RawTracePointContext) -> Option<()> {
    let (pid, call) = in_hand()?;
    let key = FdKey { pid, fd: call.args[0] as i32 };
    // Whatever else it returns, the descriptor is gone.
    if call.ret != -EBADF && conns::close(key, call.number) {
        debug!(ctx, "process {} closed descriptor {} of a connection", pid, key.fd);
    }
    Some(())
}
