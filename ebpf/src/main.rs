//! The kernel programs of enginetap: what they hook, and nothing of what it means.
//!
//! ```text
//! sys_exit ── watched process? ── call of interest? ── connection? ──tail call──> bytes | vector | messages | unseen
//!                                                                                  opened | duplicated | renumbered | closed
//! sched_process_{fork,exec,exit} ── watched process?
//! forward: a function of a watched process
//! an interpreter's collector ── gc_entered: moment kept ── gc_returned: how long it took
//! SSL_{read,write}{,_ex} ── entered: arguments kept ── returned: plain text; SSL_free ── freed
//! a tick of a CPU's clock ── sampled: the Python frames of the thread that runs
//! control: the agent's own commands, run by BPF_PROG_TEST_RUN
//! ```
//!
//! Calls are seen when they *return*: only then is the length known that was really moved, and their arguments still
//! stand in the saved registers, so nothing needs to be kept between entry and exit, and nothing runs at the entry: half
//! the cost for the whole machine. When a `close` returns, another thread may already have got the same descriptor
//! number: then it owes nothing to the new one (`conns::displace`).
//!
//! Each hook family is its own small program behind a tail call, so that the verifier is quick.
#![no_std]
#![no_main]
#![allow(internal_features, reason = "atomic addition has no other name on this target")]
#![feature(core_intrinsics)]

mod conns;
mod control;
mod dispatch;
mod emit;
mod gc;
mod maps;
mod marks;
mod opened;
mod regs;
mod sample;
mod sched;
mod stream;
mod tls;

/// The helpers used here are for GPL programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
