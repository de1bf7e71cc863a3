//! Samples of Python stacks: at each tick of a CPU's clock, of the thread that runs there. The thread stands still
//! meanwhile, so its frames are whole.

use core::mem::MaybeUninit;
use core::ptr;

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_probe_read_user};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use enginetap_common::loss::Loss;
use enginetap_common::sample::{MAX_FRAMES, NO_CFRAME, Sample, Walk, bits};

use crate::emit::lost;
use crate::maps::{SAMPLED, SAMPLES, THREADS};

/// A tick of a CPU's clock.
#[perf_event]
pub fn sampled(_: PerfEventContext) -> u32 {
    sample();
    0
}

#[inline(always)]
fn sample() -> Option<()> {
    // SAFETY: a helper without preconditions.
    let id = unsafe { bpf_get_current_pid_tgid() };
    let (pid, tid) = ((id >> 32) as u32, id as u32);
    SAMPLED.get_ptr(pid)?;
    let Some(mut entry) = SAMPLES.reserve(0) else {
        lost(Loss::RingFull, 1);
        return None;
    };
    let sample = entry.as_mut_ptr();
    // SAFETY: the ring's room is a whole sample; the address of a field, written before it is read by anyone.
    unsafe {
        (*sample).pid = pid;
        (*sample).tid = tid;
        (*sample).frames = 0;
        (*sample).bits = 0;
    }
    if let Some(walk) = THREADS.get_ptr(tid) {
        // SAFETY: copied at once; the values of the table are not taken away, only replaced.
        stack(unsafe { *walk }, sample);
    }
    entry.submit(0);
    Some(())
}

#[inline(always)]
fn stack(walk: Walk, sample: *mut Sample) {
    let mut said = bits::PYTHON;
    let mut frames = 0;
    let mut frame = newest(walk);
    if frame.is_none() {
        said |= bits::BROKEN;
    }
    for at in 0..MAX_FRAMES {
        let Some(here) = frame else { break };
        if here == 0 {
            break;
        }
        let (Some(code), previous) = (user(here.wrapping_add(walk.code)), user(here.wrapping_add(walk.previous)))
        else {
            said |= bits::BROKEN;
            break;
        };
        // SAFETY: inside the sample, by the loop's bound.
        unsafe { (*sample).codes[at] = code };
        frames = at as u32 + 1;
        frame = previous;
        if previous.is_none() {
            said |= bits::BROKEN;
        }
    }
    if frames == MAX_FRAMES as u32 && frame != Some(0) {
        said |= bits::CUT;
    }
    // SAFETY: fields of the sample.
    unsafe {
        (*sample).frames = frames;
        (*sample).bits = said;
    }
}

#[inline(always)]
fn newest(walk: Walk) -> Option<u64> {
    let newest = user(walk.newest)?;
    if walk.cframe == NO_CFRAME || newest == 0 { Some(newest) } else { user(newest.wrapping_add(walk.cframe)) }
}

/// A word of the process's memory.
#[inline(always)]
fn user(at: u64) -> Option<u64> {
    let mut word = MaybeUninit::<u64>::uninit();
    // SAFETY: the helper checks the source and writes the whole word, also when it fails (zeroes).
    unsafe {
        let source = ptr::without_provenance(at as usize);
        let failed = bpf_probe_read_user(word.as_mut_ptr().cast(), size_of::<u64>() as u32, source);
        (failed == 0).then(|| word.assume_init())
    }
}
