//! Texts.

use std::sync::Arc;

use super::layout::{Field, Layout};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::word;

/// Most code points of a text.
const LIMIT: u64 = 1 << 19;
/// The bits of a string's state that say that it is interned: it stays where it is.
const INTERNED: u32 = 3;
/// Bytes of a string up to behind its state.
const HEAD: usize = 40;

/// Where a text's characters lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub at: Place,
    /// Code points.
    len: u64,
    /// Bytes a code point.
    width: u64,
    interned: bool,
}

/// Where bytes lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// There.
    At(Addr),
    /// Where the word there points.
    Behind(Addr),
}

impl Text {
    /// From the first bytes of an object.
    pub fn read(layout: &Layout, object: Addr, head: &[u8]) -> Result<Self, Refusal> {
        let place = |field| usize::try_from(layout.at(field)).unwrap_or(usize::MAX);
        let len = word(head, place(Field::StrLength));
        let state = head.get(place(Field::StrState)..).and_then(|rest| rest.first_chunk::<4>());
        let state = u32::from_le_bytes(*state.ok_or(Refusal::Absurd)?);
        let (width, compact, ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1, state >> 6 & 1);
        if len > LIMIT || !matches!(width, 1 | 2 | 4) {
            return Err(Refusal::Absurd);
        }
        let at = |field| object.plus(layout.at(field));
        let at = match (compact, ascii) {
            (0, _) => Place::Behind(at(Field::StrAny)),
            (_, 0) => Place::At(at(Field::StrCompactData)),
            (_, _) => Place::At(at(Field::StrAsciiData)),
        };
        Ok(Self { at, len, width, interned: state & INTERNED != 0 })
    }

    /// How many bytes its characters have.
    pub fn bytes(self) -> usize {
        usize::try_from(self.len * self.width).unwrap_or(usize::MAX)
    }

    /// The text of its characters' bytes.
    pub fn decode(self, bytes: &[u8]) -> Result<String, Refusal> {
        let code = |chunk: &[u8]| chunk.iter().rev().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
        let width = usize::try_from(self.width).unwrap_or(1);
        bytes.chunks(width).map(|chunk| char::from_u32(code(chunk)).ok_or(Refusal::Absurd)).collect()
    }
}

impl<M: Memory> Heap<M> {
    /// The text of a string, not noted, many at once. Interned ones are kept by their address.
    pub(super) fn peek_names(&mut self, strings: &[Addr]) -> Vec<Result<Arc<str>, Refusal>> {
        let unknown: Vec<Addr> = strings.iter().filter(|at| !self.names.contains_key(at)).copied().collect();
        let mut read: Vec<Result<Arc<str>, Refusal>> = self.read_names(&unknown);
        read.reverse();
        let mut known = |at: &Addr| match self.names.get(at) {
            Some(name) if !unknown.contains(at) => Ok(Arc::clone(name)),
            Some(_) | None => read.pop().unwrap_or(Err(Refusal::Unreadable)),
        };
        strings.iter().map(&mut known).collect()
    }

    /// The text of one string, not noted.
    pub(super) fn peek_name(&mut self, string: Addr) -> Result<Arc<str>, Refusal> {
        self.peek_names(&[string]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    fn read_names(&mut self, strings: &[Addr]) -> Vec<Result<Arc<str>, Refusal>> {
        let heads = self.peek_many(&strings.iter().map(|string| (*string, HEAD)).collect::<Vec<_>>());
        let texts: Vec<Result<Text, Refusal>> = strings
            .iter()
            .zip(heads)
            .map(|(string, head)| Text::read(&self.layout, *string, &head?))
            .collect();
        let mut wants = Vec::with_capacity(texts.len());
        for text in &texts {
            wants.push(match text.as_ref().map(|text| (text.at, text.bytes())) {
                Ok((Place::At(at), len)) => (at, len),
                Ok((Place::Behind(at), len)) => (self.peek_addr(at).unwrap_or_default(), len),
                Err(_) => (Addr(0), 0),
            });
        }
        let data = self.peek_many(&wants);
        let mut names = Vec::with_capacity(strings.len());
        for ((string, text), data) in strings.iter().zip(texts).zip(data) {
            names.push(text.and_then(|text| {
                let name: Arc<str> = text.decode(&data?)?.into();
                if text.interned {
                    self.keep_name(*string, &name);
                }
                Ok(name)
            }));
        }
        names
    }
}
