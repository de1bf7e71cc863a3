//! Samples of Python stacks: what the program `sampled` is told of a thread, and what it says of it.

/// Most frames of a stack that are kept: the innermost ones.
pub const MAX_FRAMES: usize = 128;
/// Most threads sampled at once.
pub const MAX_THREADS: u32 = 4096;
/// Most processes sampled at once.
pub const MAX_SAMPLED: u32 = 256;
/// Bytes of the ring of samples while there is profiling: half a minute of a hundred samples a second unread.
pub const SAMPLES_BYTES: u32 = 4 << 20;
/// [`Walk::cframe`] of a version without it.
pub const NO_CFRAME: u64 = u64::MAX;

/// How the frames of a thread are walked: addresses and offsets of its interpreter (`enginetap_core::heap::layout`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Address of the pointer to the newest frame, or to the C frame that knows it.
    pub newest: u64,
    /// Offset of the newest frame in the C frame; [`NO_CFRAME`] where there is none.
    pub cframe: u64,
    /// Offset of the caller's frame in a frame.
    pub previous: u64,
    /// Offset of the code in a frame.
    pub code: u64,
}

/// One sample: a thread that ran when a CPU's clock struck.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many of `codes` are there.
    pub frames: u32,
    /// Bits of [`bits`].
    pub bits: u32,
    /// Addresses of code objects, the innermost first; what lies behind `frames` means nothing.
    pub codes: [u64; MAX_FRAMES],
}

/// What may be said of a sample.
pub mod bits {
    /// The thread is one of Python's.
    pub const PYTHON: u32 = 1;
    /// There are more frames.
    pub const CUT: u32 = 2;
    /// A frame could not be read: its page was not in memory, or what was read is no frame.
    pub const BROKEN: u32 = 4;
}

impl Sample {
    /// A sample of these bytes; `None` where they are too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (pid, tid, frames, bits) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let mut codes = [0; MAX_FRAMES];
        for (code, bytes) in codes.iter_mut().zip(bytes.get(16..)?.chunks_exact(8)) {
            *code = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(Self { pid, tid, frames, bits, codes })
    }

    /// The code objects, the innermost first.
    #[must_use]
    pub fn stack(&self) -> &[u64] {
        let frames = usize::try_from(self.frames).unwrap_or(MAX_FRAMES);
        &self.codes[..frames.min(MAX_FRAMES)]
    }
}

const _: () = assert!(size_of::<Sample>() == 16 + 8 * MAX_FRAMES);
const _: () = assert!(size_of::<Walk>() == 32);
