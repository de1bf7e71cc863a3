//! How long an interpreter collects garbage: breakpoints at the first instruction of its collector and at its `ret`s. Only
//! long collections make a record. The probes are one process's each, so nobody needs to be asked whether it is watched.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use enginetap_common::config::GC_LEAST;
use enginetap_common::record::{Kind, mark};

use crate::emit::{Head, event};
use crate::maps::GC_CALLS;
use crate::regs;
use crate::tls::frame;

/// A collection that has begun.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Collection {
    /// When, in nanoseconds.
    at: u64,
    /// The generation, as it was told.
    generation: u64,
}

/// The collector's entry: `gc_collect_main(tstate, generation, ...)`.
#[uprobe]
pub fn gc_entered(ctx: ProbeContext) -> u32 {
    enter(&ctx);
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext) -> Option<()> {
    let regs = regs::function(ctx.as_ptr())?;
    let [_, generation, _, _] = regs.args;
    // SAFETY: a helper without preconditions.
    let at = unsafe { bpf_ktime_get_ns() };
    let _ = GC_CALLS.insert(frame(regs.stack), Collection { at, generation }, u64::from(BPF_ANY));
    Some(())
}

/// A `ret` of it.
#[uprobe]
pub fn gc_returned(ctx: ProbeContext) -> u32 {
    leave(&ctx);
    0
}

#[inline(always)]
fn leave(ctx: &ProbeContext) -> Option<()> {
    let regs = regs::function(ctx.as_ptr())?;
    let frame = frame(regs.stack);
    // SAFETY: copied at once.
    let begun = unsafe { *GC_CALLS.get_ptr(frame)? };
    let _ = GC_CALLS.remove(frame);
    let mut head = Head::new(Kind::Mark, 0, 0, begun.generation as i32, mark::COLLECTED);
    head.offset = head.time.wrapping_sub(begun.at);
    if head.offset >= GC_LEAST {
        event(head, false);
    }
    Some(())
}
