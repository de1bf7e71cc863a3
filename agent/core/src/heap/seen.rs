//! What a reading saw: every piece of memory, with the piece that led to it.

mod tour;

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
    noted: Vec<Noted>,
    bytes: Vec<u8>,
}

/// A piece that was read.
#[derive(Clone, Copy, Debug)]
struct Noted {
    piece: Piece,
    parent: SeenId,
    /// Where its bytes begin.
    start: usize,
    begins: Begins,
}

/// How a piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// Like any other bytes.
    Plain,
    /// With the number of references to it: that changes all the time, and tells whether there is such an object at all.
    Counted,
}

/// Bytes of a number of references.
const COUNT: usize = 8;
/// A number of references in use stands in its lowest 48 bits: above are flags from 3.14 on, before that nothing.
const COUNT_BITS: u64 = (1 << 48) - 1;
/// More references than anything has. Immortal objects have up to 1 << 32; addresses, which stand here in what was freed
/// into a list of free places, are higher.
const MOST: u64 = 1 << 34;

/// Whether a number of references says that the object is in use. A freed one has none, or an address in its place: of
/// the next free place (`obmalloc.c`, `malloc`, `pycore_freelist.h`).
fn in_use(word: u64) -> bool {
    match word & COUNT_BITS {
        // The keys of all empty dicts, from 3.14 on (`_Py_DICT_IMMORTAL_INITIAL_REFCNT`).
        0 => word != 0,
        count => count < MOST,
    }
}

impl Begins {
    /// Whether a piece that held `before` is the same with what it holds now.
    fn same(self, before: &[u8], now: &[u8]) -> bool {
        match self {
            Self::Plain => before == now,
            Self::Counted => before.get(COUNT..) == now.get(COUNT..) && in_use(word(now, 0)),
        }
    }
}

impl Seen {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.noted.clear();
        self.bytes.clear();
    }

    /// Notes a piece and what it held.
    pub(super) fn push(&mut self, piece: Piece, parent: SeenId, begins: Begins, bytes: &[u8]) -> SeenId {
        let id = SeenId(u32::try_from(self.noted.len()).unwrap_or(u32::MAX));
        self.noted.push(Noted { piece, parent, start: self.bytes.len(), begins });
        self.bytes.extend_from_slice(bytes);
        id
    }

    /// Leaves of a piece its first `len` bytes: nothing rests upon the others.
    pub(super) fn trim(&mut self, id: SeenId, len: usize) {
        if let Some(noted) = self.number(id).and_then(|number| self.noted.get_mut(number)) {
            noted.piece.len = noted.piece.len.min(len);
        }
    }

    /// Puts a longer piece, read again where a shorter one began, in its place; whether the beginning is the same.
    pub(super) fn lengthen(&mut self, id: SeenId, bytes: &[u8]) -> bool {
        let Some(number) = self.number(id) else { return false };
        let Noted { piece, begins, .. } = self.noted[number];
        let len = piece.len.min(bytes.len());
        let before = self.held(&self.noted[number]).get(..len).unwrap_or_default();
        let same = begins.same(before, bytes.get(..len).unwrap_or_default());
        let noted = &mut self.noted[number];
        (noted.start, noted.piece.len) = (self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        same
    }

    /// A piece: where it lies.
    pub(super) fn place(&self, id: SeenId) -> Piece {
        self.number(id).map_or(Piece { at: Addr(0), len: 0 }, |number| self.noted[number].piece)
    }

    /// Bytes of all pieces.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What a piece held.
    #[must_use]
    pub fn bytes(&self, id: SeenId) -> &[u8] {
        self.number(id).map_or(&[], |number| self.held(&self.noted[number]))
    }

    fn held(&self, noted: &Noted) -> &[u8] {
        self.bytes.get(noted.start..noted.start + noted.piece.len).unwrap_or_default()
    }

    /// The word at an offset of a piece; 0 where it is shorter.
    #[must_use]
    pub fn word(&self, id: SeenId, offset: usize) -> u64 {
        word(self.bytes(id), offset)
    }

    /// Whether what begins with a number of references is in use.
    pub(super) fn in_use(&self, id: SeenId) -> bool {
        in_use(self.word(id, 0))
    }

    /// The pieces in the order in which they are to be read again.
    pub(super) fn tour(&self) -> Tour {
        let parents: Vec<Option<usize>> = self.noted.iter().map(|noted| self.number(noted.parent)).collect();
        let lens: Vec<usize> = self.noted.iter().map(|noted| noted.piece.len).collect();
        let order = tour::order(&parents, &lens);
        let pieces = order.iter().map(|number| self.noted[*number].piece).collect();
        Tour { order, pieces }
    }

    /// Compares the pieces with what they held on a tour: `now`, `read` say which could be read.
    pub(super) fn compare(&self, tour: &Tour, now: &[u8], read: &[bool]) -> Verdicts {
        let mut same = vec![true; self.noted.len()];
        let mut rest = now;
        for (at, (number, piece)) in tour.order.iter().zip(&tour.pieces).enumerate() {
            let (part, behind) = rest.split_at_checked(piece.len).unwrap_or_default();
            rest = behind;
            let noted = &self.noted[*number];
            same[*number] &= read.get(at) == Some(&true) && noted.begins.same(self.held(noted), part);
        }
        let changed = same.iter().filter(|same| !**same).count();
        let mut good: Vec<bool> = Vec::with_capacity(same.len());
        for (noted, same) in self.noted.iter().zip(same) {
            let led = noted.parent == SeenId::ROOT
                || self.number(noted.parent).is_some_and(|led| good.get(led) == Some(&true));
            good.push(same && led);
        }
        Verdicts { good, changed: u64::try_from(changed).unwrap_or(u64::MAX) }
    }

    fn number(&self, id: SeenId) -> Option<usize> {
        let number = usize::try_from(id.0).ok()?;
        (number < self.noted.len()).then_some(number)
    }
}

/// An order in which pieces are read again; most of those that led to others stand in it several times.
#[derive(Debug)]
pub(super) struct Tour {
    order: Vec<usize>,
    /// The pieces in that order.
    pub pieces: Vec<Piece>,
}

/// Which pieces of a reading were unchanged each time they were read again, with all that led to them.
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

    fn compared(seen: &Seen, now: &[u8], read: &[bool]) -> Verdicts {
        seen.compare(&seen.tour(), now, read)
    }

    #[test]
    fn a_piece_counts_only_with_all_that_led_to_it() {
        let mut seen = Seen::default();
        let list = seen.push(piece(0x1000, 2), SeenId::ROOT, Begins::Plain, b"ab");
        let item = seen.push(piece(0x2000, 1), list, Begins::Plain, b"c");
        let other = seen.push(piece(0x3000, 1), SeenId::ROOT, Begins::Plain, b"d");
        // The list is looked at again behind its item.
        let same = compared(&seen, b"abcabd", &[true; 4]);
        assert!(same.good(list) && same.good(item) && same.good(other) && same.changed == 0);
        for moved in [b"xbcabd", b"abcxbd"] {
            let moved = compared(&seen, moved, &[true; 4]);
            assert!(!moved.good(list) && !moved.good(item) && moved.good(other));
            assert_eq!(moved.changed, 1);
        }
        let unmapped = compared(&seen, b"abcabd", &[true, false, true, true]);
        assert!(unmapped.good(list) && !unmapped.good(item));
        let ended = compared(&seen, b"", &[]);
        assert!(!ended.good(list) && !ended.good(other) && ended.changed == 3);
    }

    #[test]
    fn of_a_number_of_references_only_that_there_are_some_counts() {
        let of = |count: u64| [count.to_le_bytes().as_slice(), b"rest"].concat();
        let mut seen = Seen::default();
        let object = seen.push(piece(0x1000, 12), SeenId::ROOT, Begins::Counted, &of(3));
        for (count, is) in [
            (1, true),
            (4, true),
            // Immortal: 3.12 and 3.13; one more; 3.14, with the flag of what is not allocated.
            (0xffff_ffff, true),
            (0x1_0000_0000, true),
            (0x0008_0000_c000_0000, true),
            (0x5000_0000_0000_0000, true),
            // Freed: the last free place, one with the next one's address, one filled by a debugging allocator.
            (0, false),
            (0x7f3a_4c21_0030, false),
            (0xdddd_dddd_dddd_dddd, false),
        ] {
            assert_eq!(compared(&seen, &of(count), &[true]).good(object), is, "{count:x}");
        }
        assert!(!compared(&seen, &[of(3)[..8].to_vec(), b"othe".to_vec()].concat(), &[true]).good(object));
    }

    #[test]
    fn a_longer_piece_takes_the_place_of_a_shorter_one_that_it_begins_with() {
        let object = |count: u64, rest: &[u8]| [count.to_le_bytes().as_slice(), rest].concat();
        let mut seen = Seen::default();
        let one = seen.push(piece(0x1000, 9), SeenId::ROOT, Begins::Counted, &object(1, b"a"));
        assert!(seen.lengthen(one, &object(2, b"abc")));
        assert_eq!((seen.place(one), seen.bytes(one)), (piece(0x1000, 11), object(2, b"abc").as_slice()));
        assert!(!seen.lengthen(one, &object(2, b"xbcd")), "another object");
        assert!(!seen.lengthen(one, &object(0, b"xbcd")), "freed");
    }

    #[test]
    fn nothing_rests_upon_what_was_cut_off() {
        let mut seen = Seen::default();
        let one = seen.push(piece(0x1000, 3), SeenId::ROOT, Begins::Plain, b"abc");
        let two = seen.push(piece(0x2000, 1), one, Begins::Plain, b"d");
        seen.trim(one, 2);
        assert_eq!((seen.bytes(one), seen.bytes(two)), (&b"ab"[..], &b"d"[..]));
        assert!(compared(&seen, b"abdab", &[true; 3]).all_good());
    }
}
