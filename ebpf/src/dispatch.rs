//! The one program that runs at every system call of the machine: it must be cheap for everybody else.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use core::ffi::c_void;
use enginetap_common::record::Call;
use enginetap_common::watch::{FdKey, slot};

use crate::maps::{JUMP, Syscall, WORK, call_of};
use crate::{conns, regs};

/// Every return from a system call. Those of processes that are not watched go at the first load.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn sys_exit(ctx: RawTracePointContext) -> i32 {
    let pid = conns::current();
    if conns::may_be_watched(pid) {
        dispatch(&ctx, pid);
    }
    0
}

/// Most calls of a watched process wait, or yield: they go at the second load. A descriptor that is known is a watched
/// process's, so only what is not known yet asks the table of processes.
#[inline(always)]
fn dispatch(ctx: &RawTracePointContext, pid: u32) -> Option<()> {
    let regs = regs::read(ctx.arg::<*const c_void>(0))?;
    let number = u32::from(call_of(regs.number));
    if number == 0 {
        return None;
    }
    let ret = ctx.arg::<u64>(1) as i64;
    let conn = if moves_bytes(number) {
        find(FdKey { pid, fd: regs.args[0] as i32 }, number, ret)?
    } else {
        conns::watched()?;
        0
    };
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
    if let Some(slot) = conns::slot(key) {
        let bars = if receives { slot::IGNORED | slot::KEPT } else { slot::IGNORED };
        return (slot.flags & bars == 0).then_some(slot.conn);
    }
    let socket_call = number == Call::Recvfrom as u32
        || number == Call::Recvmsg as u32
        || number == Call::Recvmmsg as u32
        || number == Call::Sendto as u32
        || number == Call::Sendmsg as u32
        || number == Call::Sendmmsg as u32;
    if !socket_call || ret == 0 {
        return None;
    }
    conns::watched()?;
    conns::open(key)
}
