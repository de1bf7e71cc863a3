//! What a reading saw: every piece of memory, with the piece that led to it.

use super::memory::{Addr, Piece};

/// A piece that was read, by its number in the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeenId(u32);

impl SeenId {
    /// What leads to the first pieces: nothing that could change.
    pub const ROOT: Self = Self(u32::MAX);
}

/// A reference to an object, and the piece in which it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    /// The object.
    pub addr: Addr,
    /// Where the reference was seen.
    pub seen: SeenId,
}

impl Ref {
    /// An object known from elsewhere.
    #[must_use]
    pub fn root(addr: Addr) -> Self {
        Self { addr, seen: SeenId::ROOT }
    }
}

/// The pieces of one reading.
#[derive(Debug, Default)]
pub struct Seen {
    pieces: Vec<Piece>,
    parents: Vec<SeenId>,
    /// Where each piece's bytes begin.
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Seen {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.parents.clear();
        self.starts.clear();
        self.bytes.clear();
    }

    /// Notes a piece and what it held.
    pub(super) fn push(&mut self, piece: Piece, parent: SeenId, bytes: &[u8]) -> SeenId {
        let id = SeenId(u32::try_from(self.pieces.len()).unwrap_or(u32::MAX));
        self.pieces.push(piece);
        self.parents.push(parent);
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        id
    }

    /// Bytes of all pieces.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The pieces, in the order in which they were read: each one behind what led to it.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What a piece held.
    #[must_use]
    pub fn bytes(&self, id: SeenId) -> &[u8] {
        let Some(number) = self.number(id) else { return &[] };
        let start = self.starts[number];
        self.bytes.get(start..start + self.pieces[number].len).unwrap_or_default()
    }

    /// The word at an offset of a piece; 0 where it is shorter.
    #[must_use]
    pub fn word(&self, id: SeenId, offset: usize) -> u64 {
        word(self.bytes(id), offset)
    }

    /// Compares the pieces with what they hold now: `read` says which could be read again.
    pub(super) fn compare(&self, now: &[u8], read: &[bool]) -> Verdicts {
        let mut good = Vec::with_capacity(self.pieces.len());
        let mut changed = 0;
        for (number, piece) in self.pieces.iter().enumerate() {
            let at = self.starts[number]..self.starts[number] + piece.len;
            let same = read.get(number) == Some(&true) && now.get(at.clone()) == self.bytes.get(at);
            changed += u64::from(!same);
            let parent = self.parents[number];
            let led =
                parent == SeenId::ROOT || self.number(parent).is_some_and(|led| good.get(led) == Some(&true));
            good.push(same && led);
        }
        Verdicts { good, changed }
    }

    fn number(&self, id: SeenId) -> Option<usize> {
        let number = usize::try_from(id.0).ok()?;
        (number < self.pieces.len()).then_some(number)
    }
}

/// Which pieces of a reading were unchanged when they were read again, with all that led to them.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    good: Vec<bool>,
    /// Pieces that had changed.
    pub changed: u64,
}

impl Verdicts {
    /// Whether every piece was unchanged.
    #[must_use]
    pub fn all_good(&self) -> bool {
        self.changed == 0
    }

    /// Whether what this piece says is to be believed.
    #[must_use]
    pub fn good(&self, id: SeenId) -> bool {
        id == SeenId::ROOT || usize::try_from(id.0).is_ok_and(|number| self.good.get(number) == Some(&true))
    }
}

/// The little-endian word at an offset; 0 where there is none.
pub(super) fn word(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u64, len: usize) -> Piece {
        Piece { at: Addr(at), len }
    }

    #[test]
    fn a_piece_counts_only_with_all_that_led_to_it() {
        let mut seen = Seen::default();
        let list = seen.push(piece(0x1000, 2), SeenId::ROOT, b"ab");
        let item = seen.push(piece(0x2000, 1), list, b"c");
        let other = seen.push(piece(0x3000, 1), SeenId::ROOT, b"d");
        let same = seen.compare(b"abcd", &[true; 3]);
        assert!(same.good(list) && same.good(item) && same.good(other) && same.changed == 0);
        let moved = seen.compare(b"xbcd", &[true; 3]);
        assert!(!moved.good(list) && !moved.good(item) && moved.good(other));
        assert_eq!(moved.changed, 1);
        let unmapped = seen.compare(b"abcd", &[true, false, true]);
        assert!(unmapped.good(list) && !unmapped.good(item));
    }
}
