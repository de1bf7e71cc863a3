//! Python's pickle, read without executing anything: classes are names, what would be called is kept as data.
//!
//! Mirrors the opcodes of CPython's `Lib/pickletools.py`, protocols 0 to 5 (3.14).
//!
//! A [`Reader`] turns bytes into flat arrays of [`Value`]s that point into each other and into the bytes, and keeps
//! the arrays' memory for the next message. Nothing recurses, nothing shared is copied: neither deep nesting nor
//! a value that holds the one before twice, thirty times over, costs more than its bytes. A pickle that was cut, or is
//! none from some byte on, gives what came before: open containers are closed with what they got.

mod array;
mod fold;
mod machine;
mod opcode;
mod store;
mod text;
mod view;

pub use array::{Integers, IntegersIter};
pub use view::{Class, Instance, Items, Made, Object, Pairs, Pickle};

use machine::Machine;
use store::Store;

/// A part of the pickle's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    at: u32,
    len: u32,
}

/// A value. What it holds is found through the [`Pickle`] it came from; numbers are at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value {
    /// `None`.
    #[default]
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An `int` of 64 bits.
    Int(i64),
    /// A larger `int`: two's complement, little-endian.
    Long(Place),
    /// A larger `int`, in decimal digits (protocol 0).
    Digits(Place),
    /// A `float`.
    Float(f64),
    /// A `str`, in UTF-8. Nobody checked; lone surrogates have three bytes.
    Text(Place),
    /// A `str` with the escapes of protocol 0's `UNICODE`.
    Escaped(Place),
    /// A `str` of Python 2, with the escapes of a literal (protocol 0's `STRING`).
    Quoted(Place),
    /// `bytes`.
    Bytes(Place),
    /// A `bytearray`.
    ByteArray(Place),
    /// The next buffer that travels outside the pickle (protocol 5), by its number.
    Buffer(u32),
    /// A `tuple`: a part of the items.
    Tuple(Place),
    /// A `frozenset`: a part of the items.
    FrozenSet(Place),
    /// A `list`, by its number.
    List(u32),
    /// A `dict`, by its number.
    Dict(u32),
    /// A `set`, by its number.
    Set(u32),
    /// A class or function, by its number.
    Global(u32),
    /// A class of the extension registry, by its code.
    Extension(u32),
    /// What a call or a constructor would give, by its number.
    Object(u32),
}

/// How a pickle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its `STOP`, this many bytes from its begin.
    Whole(usize),
    /// Without: bytes are missing.
    Cut,
    /// At a byte that no pickle can have there, so far from its begin.
    Invalid(usize),
    /// At a limit.
    Limit,
}

/// Most of what one pickle may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes looked at.
    pub bytes: usize,
    /// Values, of 16 bytes each.
    pub values: usize,
    /// Values that can be referred to.
    pub memo: usize,
    /// Marks open at once: how deep tuples and filled containers are nested.
    pub depth: usize,
}

impl Default for Limits {
    /// Room for a prompt of a million tokens that is a list of numbers.
    fn default() -> Self {
        Self { bytes: 64 << 20, values: 2 << 20, memo: 1 << 20, depth: 1 << 16 }
    }
}

/// Values of which the memory is kept from one pickle to the next: 1 MiB.
const KEPT: usize = 64 * 1024;

/// Reads pickles, one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    limits: Limits,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    store: Store,
}

impl Reader {
    /// A reader with limits of its own.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Reads the pickle in front. It always gives something to look at: see [`Pickle::end`].
    pub fn read<'r>(&'r mut self, bytes: &'r [u8]) -> Pickle<'r> {
        self.clear();
        // Offsets have 32 bits.
        let limit = self.limits.bytes.min(u32::MAX as usize);
        let seen = bytes.get(..limit).unwrap_or(bytes);
        let Self { limits, stack, marks, memo, store } = self;
        let mut machine = Machine::new(seen, *limits, stack, marks, memo, store);
        let mut end = machine.run();
        let root = match end {
            End::Whole(_) => machine.top(),
            End::Cut | End::Invalid(_) | End::Limit => machine.fold(),
        };
        if end == End::Cut && seen.len() < bytes.len() {
            end = End::Limit;
        }
        Pickle::new(seen, store, root, end)
    }

    fn clear(&mut self) {
        let Self { limits: _, stack, marks, memo, store } = self;
        stack.clear();
        stack.shrink_to(KEPT);
        marks.clear();
        marks.shrink_to(KEPT);
        memo.clear();
        memo.shrink_to(KEPT);
        store.clear(KEPT);
    }
}

#[cfg(test)]
mod tests;
