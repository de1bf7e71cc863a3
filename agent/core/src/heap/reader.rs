//! Reading: pieces in, what they held out, within bounds, noted for the check at the end.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Field, Layout};
use super::memory::{Addr, Gone, Memory, Piece};
use super::places::Hint;
use super::seen::{Begins, Ref, Seen, SeenId, Verdicts, word};
use super::types::Type;
use crate::loss::{Loss, Losses};

/// Pieces handed to [`Memory::read`] at once.
const BATCH: usize = 512;
/// Most bytes of one piece.
const PIECE_LIMIT: usize = 1 << 20;
/// Most bytes of one reading.
const BYTES_LIMIT: usize = 16 << 20;
/// Most names kept by address.
const NAMES_LIMIT: usize = 1 << 15;
/// Most types kept by address.
const TYPES_LIMIT: usize = 1 << 12;

/// Why a read is not to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The address is not mapped, or not to its whole length.
    #[error("memory that is not mapped")]
    Unreadable,
    /// It changed while it was read.
    #[error("an object that changed while it was read")]
    Torn,
    /// A length, type, kind or time that cannot be.
    #[error("a value that cannot be")]
    Absurd,
    /// The reading had its share of pieces.
    #[error("more to read than a reading may take")]
    Budget,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Unreadable, Self::Torn, Self::Absurd, Self::Budget];

    /// What it is counted as.
    #[must_use]
    pub fn loss(self) -> Loss {
        match self {
            Self::Unreadable => Loss::HeapUnreadable,
            Self::Torn => Loss::HeapTorn,
            Self::Absurd => Loss::HeapAbsurd,
            Self::Budget => Loss::HeapBudget,
        }
    }
}

/// How many reads were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Counts `n` more.
    pub fn add(&mut self, reason: Refusal, n: u64) {
        let count = &mut self.0[reason as usize];
        *count = count.saturating_add(n);
    }

    /// The count of one reason.
    #[must_use]
    pub fn get(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// As losses, those of `before` left out.
    #[must_use]
    pub fn losses(&self, before: &Self) -> Losses {
        let mut losses = Losses::default();
        for reason in Refusal::ALL {
            losses.add(reason.loss(), self.get(reason).saturating_sub(before.get(reason)));
        }
        losses
    }
}

/// What reading cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Calls of [`Memory::read`].
    pub calls: u64,
    /// Pieces read.
    pub pieces: u64,
}

/// A piece wanted, and the piece that led to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub at: Addr,
    pub len: usize,
    pub from: SeenId,
}

impl Want {
    pub fn new(at: Addr, len: usize, from: SeenId) -> Self {
        Self { at, len, from }
    }
}

/// The objects of one interpreter.
///
/// Used in readings: [`Heap::begin`], any number of look-ups, [`Heap::verify`].
#[derive(Debug)]
pub struct Heap<M> {
    memory: M,
    pub(super) layout: Layout,
    /// Address of `_PyRuntime`.
    pub(super) runtime: Addr,
    pub(super) types: HashMap<Addr, Arc<Type>>,
    /// `None`, as the check found it: there is one for good.
    pub(super) none: Option<(Addr, Arc<Type>)>,
    /// Interned strings by address: those stay where they are.
    pub(super) names: HashMap<Addr, Arc<str>>,
    pub(super) hints: HashMap<(Addr, &'static str), Hint>,
    pub(super) seen: Seen,
    refused: Refusals,
    cost: Cost,
    /// Pieces this reading may still take.
    left: usize,
    gone: Option<Gone>,
}

impl<M: Memory> Heap<M> {
    /// The objects of the interpreter whose `_PyRuntime` lies there. Nothing is read yet; whether the layout fits is
    /// for [`Heap::check`] to say.
    #[must_use]
    pub fn new(memory: M, layout: Layout, runtime: Addr) -> Self {
        Self {
            memory,
            layout,
            runtime,
            types: HashMap::new(),
            none: None,
            names: HashMap::new(),
            hints: HashMap::new(),
            seen: Seen::default(),
            refused: Refusals::default(),
            cost: Cost::default(),
            left: 0,
            gone: None,
        }
    }

    /// Begins a reading of at most `pieces` pieces. What the one before saw is forgotten.
    pub fn begin(&mut self, pieces: usize) {
        self.seen.clear();
        self.left = pieces;
    }

    /// The layout read by.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many reads were refused since the start.
    #[must_use]
    pub fn refused(&self) -> Refusals {
        self.refused
    }

    /// What reading cost since the start.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Why the process cannot be read any more, if it cannot.
    #[must_use]
    pub fn gone(&self) -> Option<Gone> {
        self.gone
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, reason: Refusal, n: u64) {
        self.refused.add(reason, n);
    }

    /// Forgets what was kept of types, names and places: after a sign that one of them is wrong.
    pub fn forget(&mut self) {
        self.types.clear();
        self.names.clear();
        self.hints.clear();
    }

    /// Reads again all that this reading saw, each piece between two looks at what led to it; which of it is to be
    /// believed. Costs about twice as many pieces as were read.
    pub fn verify(&mut self) -> Verdicts {
        let tour = self.seen.tour();
        let mut now = vec![0; tour.pieces.iter().map(|piece| piece.len).sum()];
        let mut read = vec![false; tour.pieces.len()];
        self.fetch(&tour.pieces, &mut now, &mut read);
        let verdicts = self.seen.compare(&tour, &now, &read);
        self.refuse(Refusal::Torn, verdicts.changed);
        verdicts
    }

    /// Reads pieces and notes them; for each what was noted, or why not.
    pub(super) fn gather(&mut self, wants: &[Want]) -> Vec<Result<SeenId, Refusal>> {
        self.note(wants, Begins::Plain)
    }

    /// As [`Heap::gather`], of what begins with a number of references: what is not in use is refused.
    pub(super) fn gather_counted(&mut self, wants: &[Want]) -> Vec<Result<SeenId, Refusal>> {
        let mut noted = self.note(wants, Begins::Counted);
        for noted in &mut noted {
            if noted.is_ok_and(|seen| !self.seen.in_use(seen)) {
                self.refuse(Refusal::Torn, 1);
                *noted = Err(Refusal::Torn);
            }
        }
        noted
    }

    /// Reads objects again, so many bytes of each from where their pieces begin: what they hold is then read in one with
    /// the number of references, so that it is of an object in use.
    pub(super) fn lengthen(&mut self, wants: &[(SeenId, usize)]) -> Vec<Result<(), Refusal>> {
        let longer: Vec<(Addr, usize)> =
            wants.iter().map(|(seen, len)| (self.seen.place(*seen).at, *len)).collect();
        let read = self.peek_many(&longer);
        let mut out = Vec::with_capacity(wants.len());
        for ((seen, _), read) in wants.iter().zip(read) {
            out.push(read.and_then(|bytes| {
                if self.seen.lengthen(*seen, &bytes) {
                    return Ok(());
                }
                self.refuse(Refusal::Torn, 1);
                Err(Refusal::Torn)
            }));
        }
        out
    }

    fn note(&mut self, wants: &[Want], begins: Begins) -> Vec<Result<SeenId, Refusal>> {
        let (pieces, bytes, read) = self.raw(wants);
        let mut out = Vec::with_capacity(wants.len());
        let mut start = 0;
        for ((want, piece), read) in wants.iter().zip(&pieces).zip(&read) {
            let end = start + piece.len;
            let held = bytes.get(start..end).unwrap_or_default();
            out.push(read.map(|()| self.seen.push(*piece, want.from, begins, held)));
            start = end;
        }
        out
    }

    /// Reads one piece and notes it.
    pub(super) fn gather_one(&mut self, at: Addr, len: usize, from: SeenId) -> Result<SeenId, Refusal> {
        self.gather(&[Want::new(at, len, from)]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    /// Reads pieces without noting them: for what is checked in another way.
    pub(super) fn peek(&mut self, at: Addr, len: usize) -> Result<Vec<u8>, Refusal> {
        let (_, bytes, read) = self.raw(&[Want::new(at, len, SeenId::ROOT)]);
        read.into_iter().next().unwrap_or(Err(Refusal::Unreadable)).map(|()| bytes)
    }

    /// As [`Heap::peek`], many at once.
    pub(super) fn peek_many(&mut self, wants: &[(Addr, usize)]) -> Vec<Result<Vec<u8>, Refusal>> {
        let wants: Vec<Want> = wants.iter().map(|(at, len)| Want::new(*at, *len, SeenId::ROOT)).collect();
        let (pieces, bytes, read) = self.raw(&wants);
        let mut rest = bytes.as_slice();
        let mut out = Vec::with_capacity(wants.len());
        for (piece, read) in pieces.iter().zip(read) {
            let (part, behind) = rest.split_at(piece.len);
            rest = behind;
            out.push(read.map(|()| part.to_vec()));
        }
        out
    }

    /// A word, not noted.
    pub(super) fn peek_word(&mut self, at: Addr) -> Result<u64, Refusal> {
        Ok(word(&self.peek(at, 8)?, 0))
    }

    /// A pointer, not noted.
    pub(super) fn peek_addr(&mut self, at: Addr) -> Result<Addr, Refusal> {
        self.peek_word(at).map(Addr)
    }

    /// A pointer in a field of an object, not noted.
    pub(super) fn field(&mut self, object: Addr, field: Field) -> Result<Addr, Refusal> {
        self.peek_addr(object.plus(self.layout.at(field)))
    }

    /// The pieces wanted (of no length where they are refused), their bytes, and why some are refused.
    fn raw(&mut self, wants: &[Want]) -> (Vec<Piece>, Vec<u8>, Vec<Result<(), Refusal>>) {
        let mut read: Vec<Result<(), Refusal>> = wants.iter().map(|want| self.admit(want)).collect();
        let len = |(want, admitted): (&Want, &Result<(), Refusal>)| admitted.map_or(0, |()| want.len);
        let pieces: Vec<Piece> =
            wants.iter().zip(&read).map(|pair| Piece { at: pair.0.at, len: len(pair) }).collect();
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.len).sum()];
        let mut done = vec![false; pieces.len()];
        self.fetch(&pieces, &mut bytes, &mut done);
        for (read, done) in read.iter_mut().zip(&done) {
            if read.is_ok() && !done {
                *read = Err(Refusal::Unreadable);
            }
        }
        let failed: Vec<Refusal> = read.iter().filter_map(|read| read.err()).collect();
        failed.into_iter().for_each(|reason| self.refuse(reason, 1));
        (pieces, bytes, read)
    }

    /// Whether a piece may be read.
    fn admit(&mut self, want: &Want) -> Result<(), Refusal> {
        if want.len == 0 {
            return Ok(());
        }
        if want.len > PIECE_LIMIT || !want.at.plausible(want.len) {
            return Err(Refusal::Absurd);
        }
        if self.left == 0 || self.seen.len() > BYTES_LIMIT {
            return Err(Refusal::Budget);
        }
        self.left -= 1;
        Ok(())
    }

    fn fetch(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) {
        let mut rest = into;
        for (pieces, read) in pieces.chunks(BATCH).zip(read.chunks_mut(BATCH)) {
            let (part, behind) = rest.split_at_mut(pieces.iter().map(|piece| piece.len).sum());
            rest = behind;
            if self.gone.is_some() {
                continue;
            }
            self.cost.calls += 1;
            self.cost.pieces += u64::try_from(pieces.len()).unwrap_or(0);
            if let Err(gone) = self.memory.read(pieces, part, read) {
                self.gone = Some(gone);
                read.fill(false);
            }
        }
    }

    /// Keeps the name of an interned string.
    pub(super) fn keep_name(&mut self, at: Addr, name: &Arc<str>) {
        if self.names.len() < NAMES_LIMIT {
            self.names.insert(at, Arc::clone(name));
        }
    }

    /// Keeps a type.
    pub(super) fn keep_type(&mut self, found: &Arc<Type>) {
        if self.types.len() < TYPES_LIMIT {
            self.types.insert(found.addr, Arc::clone(found));
        }
    }

    /// What a piece held at an offset, as an address with the piece it stood in.
    pub(super) fn pointer(&self, seen: SeenId, offset: usize) -> Ref {
        Ref { addr: Addr(self.seen.word(seen, offset)), seen }
    }
}
