//! The agent's commands. They run in the kernel so that only the kernel writes the tables: a value written whole
//! from user space would undo what a call has counted meanwhile.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use enginetap_common::config::LOCATE_BYTES;
use enginetap_common::watch::{Answer, Command, FdKey, Slot, TlsKey, slot};

use crate::maps::{self, CONNS};
use crate::{conns, regs, tls};

const JUDGE: u64 = Command::Judge as u64;
const ADOPT: u64 = Command::Adopt as u64;
const FORGET: u64 = Command::Forget as u64;
const KEEP: u64 = Command::Keep as u64;
const WATCH: u64 = Command::Watch as u64;
const UNWATCH: u64 = Command::Unwatch as u64;
const LOCATE: u64 = Command::Locate as u64;
const FORGET_TLS: u64 = Command::ForgetTls as u64;

/// Runs one command; never attached.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/control")]
pub extern "C" fn control(ctx: *mut c_void) -> u32 {
    let ctx = RawTracePointContext::new(ctx);
    let [command, a, b, c] = [ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(2), ctx.arg::<u64>(3)];
    let answer = match command {
        JUDGE => judge(a, b as u32),
        ADOPT | KEEP => {
            let flags = if command == KEEP { slot::KEPT } else { 0 };
            adopt(Slot { conn: a, flags }, FdKey { pid: b as u32, fd: c as i32 })
        }
        FORGET => forget(FdKey { pid: a as u32, fd: b as i32 }),
        WATCH => conns::watch(a as u32),
        UNWATCH => conns::unwatch(a as u32),
        LOCATE => locate(a),
        FORGET_TLS => forget_tls(TlsKey { pid: a, ssl: b }),
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
fn adopt(slot: Slot, key: FdKey) -> Answer {
    if conns::slot(key).is_some() {
        return Answer::Known;
    }
    if conns::adopt(key, slot).is_ok() {
        return Answer::Done;
    }
    // Lost a race against a call that made it known, or no room.
    if conns::slot(key).is_some() { Answer::Known } else { Answer::Full }
}

#[inline(always)]
fn forget(key: FdKey) -> Answer {
    if conns::forget(key) { Answer::Done } else { Answer::Unknown }
}

#[inline(always)]
fn forget_tls(key: TlsKey) -> Answer {
    if tls::release(key).is_some() { Answer::Done } else { Answer::Unknown }
}

/// `struct task_struct` (`include/linux/sched.h`) has `pid_t pid; pid_t tgid;` side by side, at an offset that each kernel's
/// configuration decides: both are known of the thread that asks, so there is nothing else to be told by.
#[inline(always)]
fn locate(from: u64) -> Answer {
    // SAFETY: helpers without preconditions.
    let (task, ids) = unsafe { (bpf_get_current_task(), bpf_get_current_pid_tgid()) };
    for step in 0..u64::from(LOCATE_BYTES / 4) {
        let offset = from + step * 4;
        if regs::kernel::<u64>(task + offset) == Some(ids) {
            // SAFETY: a global.
            unsafe { *maps::task_pid() = offset as u32 };
            return Answer::Done;
        }
    }
    Answer::Unknown
}
