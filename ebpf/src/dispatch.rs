//! The two programs that run at every system call of the machine: they must be cheap for everybody else.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use core::ffi::c_void;
use enginetap_common::record::Call;
use enginetap_common::watch::FdKey;

use crate::maps::{FDS, JUMP, Syscall, WORK, call_of, config};
use crate::{conns, regs};

/// Every return from a system call.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn sys_exit(ctx: RawTracePointContext) -> i32 {
    dispatch(&ctx);
    0
}

#[inline(always)]
fn dispatch(ctx: &RawTracePointContext) -> Option<()> {
    let pid = conns::watched()?;
    let regs = regs::read(ctx.arg::<*const c_void>(0))?;
    let number = u32::from(call_of(regs.number));
    if number == 0 {
        return None;
    }
    let ret = ctx.arg::<u64>(1) as i64;
    let mut conn = 0;
    if moves_bytes(number) {
        conn = find(FdKey { pid, fd: regs.args[0] as i32 }, number, ret)?;
    }
    let work = WORK.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory.
    unsafe { (*work).call = Syscall { number, message: 0, ret, args: regs.args, conn } };
    // SAFETY: the programs there are of this type and take this context.
    unsafe { JUMP.tail_call(ctx, number) };
    None
}

/// Whether the call moves bytes on the descriptor that is its first argument.
#[inline(always)]
fn moves_bytes(number: u32) -> bool {
    number <= Call::Sendfile as u32
}

/// The connection of a descriptor, unless it is ignored or the call moved nothing. A call that only sockets have
/// makes an unknown descriptor a connection; `read` and `write` do not: it may be a file.
#[inline(always)]
fn find(key: FdKey, number: u32, ret: i64) -> Option<u64> {
    let receives = number <= Call::Recvmmsg as u32;
    if ret < 0 || (ret == 0 && !receives) {
        return None;
    }
    if let Some(slot) = FDS.get_ptr(key) {
        // SAFETY: copied at once.
        let slot = unsafe { *slot };
        return (slot.ignored == 0).then_some(slot.conn);
    }
    let socket_call = number == Call::Recvfrom as u32
        || number == Call::Recvmsg as u32
        || number == Call::Recvmmsg as u32
        || number == Call::Sendto as u32
        || number == Call::Sendmsg as u32
        || number == Call::Sendmmsg as u32;
    if socket_call && ret > 0 { conns::open(key) } else { None }
}

/// Every entry into a system call; all but `close` go at once.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn sys_enter(ctx: RawTracePointContext) -> i32 {
    // SAFETY: a field of the configuration.
    if ctx.arg::<u64>(1) == u64::from(unsafe { config!(close) }) {
        closing(&ctx);
    }
    0
}

#[inline(always)]
fn closing(ctx: &RawTracePointContext) -> Option<()> {
    let pid = conns::watched()?;
    let regs = regs::read(ctx.arg::<*const c_void>(0))?;
    let key = FdKey { pid, fd: regs.args[0] as i32 };
    if conns::close(key, Call::Close as u32) {
        debug!(ctx, "process {} closed descriptor {} of a connection", pid, key.fd);
    }
    Some(())
}
