//! Processes that come, change their program, and go.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use core::mem::MaybeUninit;
use enginetap_common::record::Kind;

use crate::conns;
use crate::emit::{Head, event};
use crate::maps::{WATCHED, config};

/// A watched process made a process or a thread.
#[tracepoint(category = "sched", name = "sched_process_fork")]
pub fn forked(ctx: TracePointContext) -> u32 {
    fork(&ctx);
    0
}

#[inline(always)]
fn fork(ctx: &TracePointContext) -> Option<()> {
    conns::watched()?;
    // SAFETY: a field of the configuration.
    let child = field::<u32>(ctx, unsafe { config!(fork_child) })?;
    event(Head::new(Kind::Fork, 0, 0, -1, child), true);
    Some(())
}

/// A watched process replaced its program.
#[tracepoint(category = "sched", name = "sched_process_exec")]
pub fn executed(_: TracePointContext) -> u32 {
    if conns::watched().is_some() {
        event(Head::new(Kind::Exec, 0, 0, -1, 0), true);
    }
    0
}

/// A thread of a watched process ended; told when the process ended with it.
#[tracepoint(category = "sched", name = "sched_process_exit")]
pub fn exited(ctx: TracePointContext) -> u32 {
    exit(&ctx);
    0
}

#[inline(always)]
fn exit(ctx: &TracePointContext) -> Option<()> {
    let pid = conns::watched()?;
    if !process_ended(ctx, pid)? {
        return None;
    }
    let _ = WATCHED.remove(pid);
    event(Head::new(Kind::Exit, 0, 0, -1, 0), true);
    Some(())
}

#[inline(always)]
fn process_ended(ctx: &TracePointContext, pid: u32) -> Option<bool> {
    // SAFETY: a field of the configuration.
    let offset = unsafe { config!(exit_dead) };
    if offset != 0 {
        return field::<u8>(ctx, offset).map(|dead| dead != 0);
    }
    // SAFETY: a helper without preconditions.
    Some(unsafe { bpf_get_current_pid_tgid() } as u32 == pid)
}

/// Reads a field of the tracepoint's record.
#[inline(always)]
fn field<T: Copy>(ctx: &TracePointContext, offset: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source and writes the whole value, also when it fails (zeroes).
    unsafe {
        let source = ctx.as_ptr().byte_add(offset as usize);
        let failed = bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, source);
        (failed == 0).then(|| value.assume_init())
    }
}
