//! Processes that come, change their program, and go.
//!
//! Raw tracepoints: taking one away again takes no grace period, where a tracepoint's perf event takes up to 100 ms.

use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use enginetap_common::record::Kind;

use crate::emit::{Head, event};
use crate::{conns, maps, regs};

/// A watched process made a process or a thread.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn forked(ctx: RawTracePointContext) -> i32 {
    fork(&ctx);
    0
}

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, `include/trace/events/sched.h`.
#[inline(always)]
fn fork(ctx: &RawTracePointContext) -> Option<()> {
    conns::watched()?;
    // SAFETY: a global.
    let place = unsafe { maps::read(maps::task_pid()) };
    let child = regs::kernel::<u32>(ctx.arg::<u64>(1) + u64::from(place))?;
    event(Head::new(Kind::Fork, 0, 0, -1, child), true);
    Some(())
}

/// A watched process replaced its program.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn executed(_: RawTracePointContext) -> i32 {
    if conns::watched().is_some() {
        event(Head::new(Kind::Exec, 0, 0, -1, 0), true);
    }
    0
}

/// A thread of a watched process ended; told when the process ended with it. `TP_PROTO(struct task_struct *p, bool group_dead)`
/// since 6.16; an older kernel refuses to attach a program that asks for a second argument.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn exited(ctx: RawTracePointContext) -> i32 {
    if ctx.arg::<u64>(1) as u8 != 0 {
        end();
    }
    0
}

/// The same on a kernel that does not tell whether the process ended too: the end of its main thread stands for it.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn exited_untold(_: RawTracePointContext) -> i32 {
    // SAFETY: a helper without preconditions.
    if unsafe { bpf_get_current_pid_tgid() } as u32 == conns::current() {
        end();
    }
    0
}

#[inline(always)]
fn end() {
    if let Some(pid) = conns::watched() {
        conns::unwatch(pid);
        event(Head::new(Kind::Exit, 0, 0, -1, 0), true);
    }
}
