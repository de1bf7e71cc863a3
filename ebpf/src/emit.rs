//! The only writer of the rings, and of the loss counters.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_output,
    bpf_ringbuf_query,
};
use enginetap_common::loss::Loss;
use enginetap_common::record::{HEADER_LEN, Header, Kind, flags};

use crate::maps::{LOSSES, RINGS, config};

/// Bytes that the ring keeps before each record.
const RING_HEADER: u64 = 8;

const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;
const FORCE_WAKEUP: u64 = BPF_RB_FORCE_WAKEUP as u64;

/// 1 for a negative number, else 0, without a branch.
#[inline(always)]
pub fn negative(number: u64) -> u64 {
    number >> 63
}

/// This CPU's ring.
#[derive(Clone, Copy)]
pub struct Ring(*mut c_void);

impl Ring {
    /// This CPU's ring; `None` before the agent has put one there.
    #[inline(always)]
    pub fn here() -> Option<Self> {
        // SAFETY: the helper has no preconditions; `rings` is a field of the configuration.
        let index = unsafe { bpf_get_smp_processor_id().checked_rem(config!(rings))? };
        RINGS.get(index).map(|ring| Self(ptr::from_ref(ring).cast_mut().cast()))
    }

    /// Puts one record of `len` bytes on the ring; 1 when there was no room, else 0: to be summed and counted once.
    ///
    /// The reader is woken only when the ring passes the wake-up mark, or at once when `urgent` is 1: it comes
    /// by itself every few milliseconds, and a wake-up costs more than the record.
    ///
    /// # Safety
    /// `record` points to `len` readable bytes.
    #[inline(always)]
    pub unsafe fn put(self, record: *const c_void, len: u64, urgent: u64) -> u64 {
        // SAFETY: `self.0` is a ring by construction; the record is the caller's promise.
        unsafe {
            // No branches: the verifier would walk each of them in every turn of a loop around this.
            let before = bpf_ringbuf_query(self.0, u64::from(BPF_RB_AVAIL_DATA));
            let after = before + RING_HEADER + len;
            let wake_at = u64::from(config!(wake_at));
            let passes =
                (negative(before.wrapping_sub(wake_at)) & !negative(after.wrapping_sub(wake_at))) | urgent;
            let flags = NO_WAKEUP + (FORCE_WAKEUP - NO_WAKEUP) * passes;
            negative(bpf_ringbuf_output(self.0, record.cast_mut(), len, flags) as u64)
        }
    }
}

/// Adds `n` to a loss counter.
#[inline(always)]
pub fn lost(reason: Loss, n: u64) {
    if n == 0 {
        return;
    }
    if let Some(counter) = LOSSES.get_ptr_mut(reason as u32) {
        // SAFETY: this CPU's own counter.
        unsafe { *counter += n };
    }
}

/// A [`Header`] in whole words: the kernel's programs have no `memset` for its five odd bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Head {
    /// [`Header::time`].
    pub time: u64,
    /// [`Header::conn`].
    pub conn: u64,
    /// [`Header::offset`].
    pub offset: u64,
    /// [`Header::spent`].
    pub spent: u32,
    /// [`Header::pid`].
    pub pid: u32,
    /// [`Header::tid`].
    pub tid: u32,
    /// [`Header::fd`].
    pub fd: i32,
    /// [`Header::total`].
    pub total: u32,
    /// [`Header::at`].
    pub at: u32,
    /// [`Header::len`].
    pub len: u32,
    /// [`Header::aux`].
    pub aux: u32,
    /// [`Header::kind`], [`Header::call`], [`Header::flags`] and zeroes, little-endian.
    pub tail: u64,
}

const _: () = assert!(size_of::<Head>() == HEADER_LEN);
const _: () = assert!(offset_of!(Head, fd) == offset_of!(Header, fd));
const _: () = assert!(offset_of!(Head, aux) == offset_of!(Header, aux));
const _: () = assert!(offset_of!(Head, tail) == offset_of!(Header, kind));
const _: () = assert!(offset_of!(Header, kind) + 1 == offset_of!(Header, call));
const _: () = assert!(offset_of!(Header, call) + 1 == offset_of!(Header, flags));

impl Head {
    /// The head of a record about a descriptor, with time, process and thread.
    #[inline(always)]
    pub fn new(kind: Kind, call: u32, conn: u64, fd: i32, aux: u32) -> Self {
        // SAFETY: helpers without preconditions.
        let (id, time) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
        let (pid, tid) = ((id >> 32) as u32, id as u32);
        let tail = with_flags(kind as u64 | u64::from(call & 0xff) << 8, u64::from(flags::LAST));
        Self { time, conn, offset: 0, spent: 0, pid, tid, fd, total: 0, at: 0, len: 0, aux, tail }
    }
}

/// The last word of a [`Head`], with other flags.
#[inline(always)]
pub fn with_flags(tail: u64, bits: u64) -> u64 {
    (tail & 0xffff) | bits << 16
}

/// Writes a record that is a head only.
#[inline(always)]
pub fn event(head: Head, urgent: bool) {
    let Some(ring) = Ring::here() else { return };
    // SAFETY: a head on the stack.
    let missed = unsafe { ring.put((&raw const head).cast(), HEADER_LEN as u64, u64::from(urgent)) };
    lost(Loss::RingFull, missed);
}
