//! The agent's commands. They run in the kernel so that only the kernel writes the tables: a value written whole
//! from user space would undo what a call has counted meanwhile.

use core::ffi::c_void;

use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use enginetap_common::watch::{Answer, Command, FdKey};

use crate::conns;
use crate::maps::{CONNS, FDS};

const JUDGE: u64 = Command::Judge as u64;
const ADOPT: u64 = Command::Adopt as u64;
const FORGET: u64 = Command::Forget as u64;

/// Runs one command; never attached.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/control")]
pub extern "C" fn control(ctx: *mut c_void) -> u32 {
    let ctx = RawTracePointContext::new(ctx);
    let [command, a, b, c] = [ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(2), ctx.arg::<u64>(3)];
    let answer = match command {
        JUDGE => judge(a, b as u32),
        ADOPT => adopt(a, FdKey { pid: b as u32, fd: c as i32 }),
        FORGET => forget(FdKey { pid: a as u32, fd: b as i32 }),
        _ => Answer::BadCommand,
    };
    debug!(&ctx, "command {} of {:x}, {}, {}: answer {}", command, a, b, c, answer as u32);
    answer as u32
}

#[inline(always)]
fn judge(conn: u64, verdict: u32) -> Answer {
    let Some(conn) = CONNS.get_ptr_mut(conn) else { return Answer::Unknown };
    // SAFETY: a live value of the table.
    unsafe { (*conn).verdict = verdict };
    Answer::Done
}

#[inline(always)]
fn adopt(conn: u64, key: FdKey) -> Answer {
    if FDS.get_ptr(key).is_some() {
        return Answer::Known;
    }
    if conns::adopt(key, conn).is_ok() {
        return Answer::Done;
    }
    // Lost a race against a call that made it known, or no room.
    if FDS.get_ptr(key).is_some() { Answer::Known } else { Answer::Full }
}

#[inline(always)]
fn forget(key: FdKey) -> Answer {
    if conns::release(key).is_some() { Answer::Done } else { Answer::Unknown }
}
