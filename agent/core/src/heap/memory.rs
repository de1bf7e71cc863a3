//! The memory of a process, as something that can be read.

/// An address in the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr(pub u64);

/// The first page is never mapped; user space ends here on x86-64 and on arm64 with 48-bit addresses.
const LOWEST: u64 = 0x1000;
const HIGHEST: u64 = 1 << 48;

impl Addr {
    /// This address and `offset` bytes on. Wraps: what comes of a torn pointer is checked by [`Addr::plausible`].
    #[must_use]
    pub fn plus(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    /// This address and `offset` bytes back.
    #[must_use]
    pub fn minus(self, offset: u64) -> Self {
        Self(self.0.wrapping_sub(offset))
    }

    /// Whether memory of a process can lie there, `len` bytes long.
    #[must_use]
    pub fn plausible(self, len: usize) -> bool {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.0 >= LOWEST && self.0.checked_add(len).is_some_and(|end| end <= HIGHEST)
    }
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub at: Addr,
    /// Its length in bytes.
    pub len: usize,
}

/// Why a process cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// There is no such process any more.
    Ended,
    /// This process may not read that one's memory.
    Forbidden,
    /// The kernel does not offer the call.
    Unsupported,
}

/// Memory that can be read. Behind it: a process, or a recording of one.
pub trait Memory {
    /// Reads pieces in their order. `into` is as long as all of them together and is filled one after another;
    /// `read[i]` is set to whether piece `i` could be read whole.
    ///
    /// # Errors
    /// When the process cannot be read at all; then what stands in `into` and `read` means nothing.
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone>;
}

impl<M: Memory + ?Sized> Memory for &mut M {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        (**self).read(pieces, into, read)
    }
}

impl<M: Memory + ?Sized> Memory for Box<M> {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        (**self).read(pieces, into, read)
    }
}
