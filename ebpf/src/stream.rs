//! Bytes that moved on a connection: from the process's buffers onto the ring, piece by piece.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use enginetap_common::config::{MAX_BUFFERS, MAX_MESSAGES};
use enginetap_common::loss::Loss;
use enginetap_common::record::{Call, HEADER_LEN, Kind, MAX_PIECES, PIECE_LEN, flags};
use enginetap_common::watch::{FdKey, Verdict, slot};

use crate::conns;
use crate::emit::{Head, Ring, lost, negative, with_flags};
use crate::maps::{CONNS, FDS, JUMP, WORK, Work, config};

const MSG_OOB: u64 = 0x1;
const MSG_PEEK: u64 = 0x2;
const MSG_TRUNC: u64 = 0x20;
const MSG_ERRQUEUE: u64 = 0x2000;

/// Most messages of one call whose lengths are read when they are too many to be looked at: the kernel's bound.
const UIO_MAXIOV: u64 = 1024;

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    base: u64,
    len: u64,
}

/// `struct msghdr`, as far as needed.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    name: u64,
    name_len: u64,
    buffers: u64,
    count: u64,
}

/// Bytes of `struct mmsghdr`, and where in it the length of the message stands.
const MESSAGE_STRIDE: u64 = 64;
const MESSAGE_LEN: u64 = 56;

/// Pieces and buffers together of one message among many: such messages are small.
const MESSAGE_STEPS: u32 = 32;

/// Bytes of a [`Buffer`].
const BUFFER_STRIDE: u64 = 16;

/// One call being written out.
pub struct Flow {
    ring: Ring,
    work: *mut Work,
}

/// Reads or writes a field of [`Progress`], for the verifier an unknown number each time.
macro_rules! progress {
    ($flow:expr, $field:ident) => {
        // SAFETY: this CPU's own memory.
        unsafe { ptr::read_volatile(&raw const (*$flow.work).progress.$field) }
    };
    ($flow:expr, $field:ident = $value:expr) => {{
        let value = $value;
        // SAFETY: this CPU's own memory.
        unsafe { ptr::write_volatile(&raw mut (*$flow.work).progress.$field, value) }
    }};
}

impl Flow {
    /// Takes the connection's next offset for a call of `total` bytes and fills in the head; `None` when the
    /// connection is of no interest.
    #[inline(always)]
    fn begin(work: *mut Work, total: u32) -> Option<Self> {
        // SAFETY: this CPU's own memory.
        let receives = unsafe { (*work).call.number } <= Call::Recvmmsg as u32;
        Self::begin_as(work, total, if receives { Kind::Rx } else { Kind::Tx })
    }

    /// The same, in a direction that the call's number alone does not tell.
    #[inline(always)]
    pub fn begin_as(work: *mut Work, total: u32, kind: Kind) -> Option<Self> {
        // SAFETY: this CPU's own memory, here and below.
        let call = unsafe { (*work).call };
        let conn = CONNS.get_ptr_mut(call.conn)?;
        let key = FdKey { pid: conns::current(), fd: call.args[0] as i32 };
        // SAFETY: a live value of the table.
        let verdict = Verdict::from_u32(unsafe { (*conn).verdict });
        if verdict == Verdict::Ignore {
            if let Some(place) = FDS.get_ptr_mut(key) {
                // SAFETY: a live value of the table. Unless the number stands for another one by now.
                unsafe {
                    if (*place).conn == call.conn {
                        (*place).flags |= slot::IGNORED;
                    }
                }
            }
            return None;
        }
        // SAFETY: a live value of the table.
        let offset = unsafe { conns::advance(conn, kind, u64::from(total)) };
        let head = Head { offset, total, ..Head::new(kind, call.number, call.conn, key.fd, 0) };
        // SAFETY: `cap` is a field of the configuration.
        let cap = unsafe {
            (*work).head = head;
            config!(cap)
        };
        let payload = verdict != Verdict::Times;
        let copy = if !payload {
            0
        } else if total < cap {
            total
        } else {
            cap
        };
        lost(Loss::OverCap, u64::from(payload && total > cap));
        let flow = Self { ring: Ring::here()?, work };
        progress!(flow, copy = u64::from(copy));
        progress!(flow, at = 0);
        progress!(flow, missed = 0);
        Some(flow)
    }

    /// Writes the next record: `n` bytes, at most [`PIECE_LEN`], read from `from`. False when they could not be read.
    #[inline(always)]
    fn piece(&self, n: u64, from: u64) -> bool {
        // Tells the verifier what is true already.
        let n = n & (2 * PIECE_LEN as u64 - 1);
        if n > PIECE_LEN as u64 {
            return false;
        }
        // SAFETY: at most the length of the payload buffer; the helper checks the source.
        let failed = unsafe {
            let payload = (&raw mut (*self.work).payload).cast::<c_void>();
            bpf_probe_read_user(payload, n as u32, ptr::without_provenance(from as usize))
        };
        if failed != 0 {
            return false;
        }
        let end = progress!(self, at) + n;
        let last = 1 - negative(end.wrapping_sub(progress!(self, copy)));
        self.put(n, last * u64::from(flags::LAST));
        progress!(self, at = end);
        true
    }

    /// Writes a record of the `n` bytes in the payload buffer.
    #[inline(always)]
    fn put(&self, n: u64, bits: u64) {
        let at = progress!(self, at) as u32;
        // SAFETY: this CPU's own memory; head and payload lie one behind the other.
        let missed = unsafe {
            let head = &raw mut (*self.work).head;
            (*head).at = at;
            (*head).len = n as u32;
            (*head).tail = with_flags(ptr::read_volatile(&raw const (*head).tail), bits);
            self.ring.put(head.cast(), HEADER_LEN as u64 + n, 0)
        };
        progress!(self, missed = progress!(self, missed) + missed);
    }

    /// Writes a record without payload that closes the call.
    #[inline(always)]
    fn close(self, bits: u8) {
        self.put(0, u64::from(bits | flags::LAST));
        lost(Loss::RingFull, progress!(self, missed));
    }

    /// Writes out one buffer.
    #[inline(always)]
    pub fn buffer(self, base: u64) {
        // Counted in 64 bits: up to 5.15 the verifier forgets a counter of 32 that is put by on the stack.
        for _ in 0..u64::from(MAX_PIECES) {
            let (at, copy) = (progress!(self, at), progress!(self, copy));
            if at >= copy {
                break;
            }
            if !self.piece(smaller(copy - at, PIECE_LEN as u64), base + at) {
                return self.fault();
            }
        }
        self.end();
    }

    /// Writes out a list of buffers, each in its own pieces: in at most `STEPS` pieces and buffers together.
    #[inline(always)]
    fn buffers<const STEPS: u32>(self, list: u64, count: u64) {
        progress!(self, list = list);
        progress!(self, count = count);
        progress!(self, next = 0);
        progress!(self, left = 0);
        // 64 bits: see `buffer`.
        for _ in 0..u64::from(STEPS) {
            let (at, copy, left) = (progress!(self, at), progress!(self, copy), progress!(self, left));
            if at >= copy {
                break;
            }
            if left == 0 {
                let next = progress!(self, next);
                if next >= progress!(self, count) || next >= u64::from(MAX_BUFFERS) {
                    break;
                }
                let Some(buffer) = user::<Buffer>(progress!(self, list) + next * BUFFER_STRIDE) else {
                    return self.fault();
                };
                progress!(self, base = buffer.base);
                progress!(self, left = buffer.len);
                progress!(self, next = next + 1);
                continue;
            }
            let base = progress!(self, base);
            let n = smaller(smaller(left, copy - at), PIECE_LEN as u64);
            if !self.piece(n, base) {
                return self.fault();
            }
            progress!(self, base = base + n);
            progress!(self, left = left - n);
        }
        lost(Loss::OverBuffers, u64::from(progress!(self, at) < progress!(self, copy)));
        self.end();
    }

    /// What is left of the call could not be read: a gap.
    #[inline(always)]
    fn fault(self) {
        lost(Loss::Fault, 1);
        self.close(flags::FAULT);
    }

    /// Closes the call where the last record did not.
    #[inline(always)]
    fn end(self) {
        let (at, copy) = (progress!(self, at), progress!(self, copy));
        if at < copy || copy == 0 {
            return self.close(0);
        }
        lost(Loss::RingFull, progress!(self, missed));
    }
}

#[inline(always)]
fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// Reads a value from the process's memory.
#[inline(always)]
pub fn user<T: Copy>(at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source and writes the whole value, also when it fails (zeroes).
    unsafe {
        let source = ptr::without_provenance(at as usize);
        let failed = bpf_probe_read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, source);
        (failed == 0).then(|| value.assume_init())
    }
}

/// Whether the flags of a receive say that it takes nothing from the stream.
#[inline(always)]
fn takes_nothing(receives: bool, bits: u64) -> bool {
    receives && bits & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB) != 0
}

/// read, write, recvfrom, sendto: one buffer.
#[raw_tracepoint]
pub fn bytes(_: RawTracePointContext) -> i32 {
    one_buffer();
    0
}

#[inline(always)]
fn one_buffer() -> Option<()> {
    let work = WORK.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*work).call };
    let [_, base, asked, bits] = call.args;
    let from_socket = call.number == Call::Recvfrom as u32;
    // A read of no bytes returns 0 too, and is no end of the stream.
    if takes_nothing(from_socket, bits) || (call.ret == 0 && asked == 0) {
        return None;
    }
    let flow = Flow::begin(work, call.ret as u32)?;
    if from_socket && bits & MSG_TRUNC != 0 {
        // On a TCP socket the bytes were thrown away, not copied out.
        flow.close(flags::NO_PAYLOAD);
    } else {
        flow.buffer(base);
    }
    Some(())
}

/// readv, writev, recvmsg, sendmsg: a list of buffers.
#[raw_tracepoint]
pub fn vector(_: RawTracePointContext) -> i32 {
    list_of_buffers();
    0
}

#[inline(always)]
fn list_of_buffers() -> Option<()> {
    let work = WORK.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*work).call };
    let [_, second, third, _] = call.args;
    let plain = call.number == Call::Readv as u32 || call.number == Call::Writev as u32;
    if !plain && takes_nothing(call.number == Call::Recvmsg as u32, third) {
        return None;
    }
    let (list, count) = if plain {
        (second, third)
    } else {
        // What cannot be read is a list of no buffers: its bytes are a gap.
        user::<Message>(second).map_or((0, 0), |message| (message.buffers, message.count))
    };
    Flow::begin(work, call.ret as u32)?.buffers::<{ MAX_PIECES + MAX_BUFFERS }>(list, count);
    Some(())
}

/// recvmmsg, sendmmsg: several messages, each like a call of its own; one a run of this program, which ends
/// in a tail call to itself.
#[raw_tracepoint]
pub fn messages(ctx: RawTracePointContext) -> i32 {
    one_message(&ctx);
    0
}

#[inline(always)]
fn one_message(ctx: &RawTracePointContext) -> Option<()> {
    let work = WORK.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*work).call };
    let [_, list, _, bits] = call.args;
    if takes_nothing(call.number == Call::Recvmmsg as u32, bits) || u64::from(call.message) >= call.ret as u64
    {
        return None;
    }
    if call.message >= MAX_MESSAGES {
        return rest(work, list);
    }
    let at = list + u64::from(call.message) * MESSAGE_STRIDE;
    let total = user::<u32>(at + MESSAGE_LEN)?;
    let message = user::<Message>(at)?;
    if let Some(flow) = Flow::begin(work, total) {
        flow.buffers::<MESSAGE_STEPS>(message.buffers, message.count);
    }
    // SAFETY: this CPU's own memory; the program there is this one.
    unsafe {
        (*work).call.message += 1;
        JUMP.tail_call(ctx, call.number);
    }
    Some(())
}

/// The messages that are too many: one gap as long as all of them.
#[inline(always)]
fn rest(work: *mut Work, list: u64) -> Option<()> {
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*work).call };
    // SAFETY: this CPU's own memory, here and below.
    let total = unsafe { &raw mut (*work).progress.at };
    // SAFETY: as above; as all of `Progress`, unknown to the verifier each time.
    unsafe { ptr::write_volatile(total, 0) };
    // 64 bits: see `Flow::buffer`.
    for i in u64::from(MAX_MESSAGES)..UIO_MAXIOV {
        if i >= call.ret as u64 {
            break;
        }
        let length = user::<u32>(list + i * MESSAGE_STRIDE + MESSAGE_LEN)?;
        // SAFETY: as above.
        unsafe { ptr::write_volatile(total, ptr::read_volatile(total) + u64::from(length)) };
    }
    lost(Loss::OverBuffers, 1);
    // SAFETY: as above.
    Flow::begin(work, unsafe { ptr::read_volatile(total) } as u32)?.close(0);
    Some(())
}

/// sendfile, splice: bytes that user space never held.
#[raw_tracepoint]
pub fn unseen(_: RawTracePointContext) -> i32 {
    gaps();
    0
}

#[inline(always)]
fn gaps() -> Option<()> {
    let work = WORK.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory, copied at once.
    let call = unsafe { (*work).call };
    if call.number == Call::Sendfile as u32 {
        return gap(work, call.ret as u32, Kind::Tx);
    }
    if call.ret > 0 {
        splice_end(work, call.args[0], call.ret as u32, Kind::Rx);
        splice_end(work, call.args[2], call.ret as u32, Kind::Tx);
    }
    Some(())
}

/// One end of a splice, if it is a connection.
#[inline(always)]
fn splice_end(work: *mut Work, fd: u64, total: u32, kind: Kind) -> Option<()> {
    let key = FdKey { pid: conns::current(), fd: fd as i32 };
    let slot = conns::slot(key)?;
    if slot.flags != 0 {
        return None;
    }
    // SAFETY: this CPU's own memory.
    unsafe {
        (*work).call.conn = slot.conn;
        (*work).call.args[0] = fd;
    }
    gap(work, total, kind)
}

#[inline(always)]
fn gap(work: *mut Work, total: u32, kind: Kind) -> Option<()> {
    Flow::begin_as(work, total, kind)?.close(flags::NO_PAYLOAD);
    Some(())
}
