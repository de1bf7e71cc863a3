//! The kernel programs of enginetap: what they hook, and nothing of what it means.
//!
//! ```text
//! sys_exit ── watched process? ── call of interest? ── connection? ──tail call──> bytes | vector | messages
//!                                                                                  unseen | opened | duplicated | renumbered
//! sys_enter ─ close? ── watched process? ── connection? ── closed
//! sched_process_{fork,exec,exit} ── watched process?
//! control: the agent's own commands, run by BPF_PROG_TEST_RUN
//! ```
//!
//! Socket calls are seen when they *return*: only then is the length known that was really moved, and their
//! arguments still stand in the saved registers, so nothing needs to be kept between entry and exit. Only `close`
//! is seen at its entry, since afterwards another thread may already have got the same descriptor number.
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
mod maps;
mod opened;
mod regs;
mod sched;
mod stream;

/// The helpers used here are for GPL programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
