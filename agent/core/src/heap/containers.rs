//! Lists, tuples, sets, deques.

use super::heads::{Extent, Head};
use super::kind::Kind;
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};

/// Most items of a container.
const ITEMS_LIMIT: u64 = 1 << 17;
/// Most slots of a set's table.
const SLOTS_LIMIT: u64 = 1 << 17;
/// References in a block of a deque.
const BLOCK: u64 = 64;
/// Most blocks of a deque.
const BLOCKS_LIMIT: u64 = ITEMS_LIMIT / BLOCK + 2;

impl<M: Memory> Heap<M> {
    /// The references in lists, tuples, sets and deques, in their order. Two calls for all lists and tuples together.
    ///
    /// A container that changes between this and the verdicts is refused whole.
    pub fn items(&mut self, containers: &[Ref]) -> Vec<Result<Vec<Ref>, Refusal>> {
        let heads = self.heads(containers, Extent::Fields);
        let wholes = heads.into_iter().map(|head| head.and_then(|head| self.whole(&head))).collect();
        self.read_wholes(wholes)
    }

    fn read_wholes(&mut self, wholes: Vec<Result<Whole, Refusal>>) -> Vec<Result<Vec<Ref>, Refusal>> {
        let wants: Vec<Want> = wholes.iter().filter_map(|whole| whole.as_ref().ok()?.want()).collect();
        let mut seen = self.gather(&wants).into_iter();
        let longer: Vec<(SeenId, usize)> =
            wholes.iter().filter_map(|whole| whole.as_ref().ok()?.longer()).collect();
        let mut longer = self.lengthen(&longer).into_iter();
        let mut out = Vec::with_capacity(wholes.len());
        for whole in wholes {
            out.push(match whole {
                Ok(Whole::Array(_)) => {
                    seen.next().unwrap_or(Err(Refusal::Unreadable)).map(|seen| self.pointers(seen, 0))
                }
                Ok(Whole::Inside { seen, offset, len: _ }) => {
                    longer.next().unwrap_or(Err(Refusal::Unreadable)).map(|()| self.pointers(seen, offset))
                }
                Ok(Whole::Items(items)) => Ok(items),
                Err(reason) => Err(reason),
            });
        }
        out
    }

    /// The references in one container.
    ///
    /// # Errors
    /// When it is refused, or holds none by its kind.
    pub fn items_of(&mut self, container: Ref) -> Result<Vec<Ref>, Refusal> {
        self.items(&[container]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    /// As [`Heap::items_of`], of a container whose head was read.
    pub(super) fn items_in(&mut self, head: &Head) -> Result<Vec<Ref>, Refusal> {
        let whole = self.whole(head);
        self.read_wholes(vec![whole]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    /// How many items objects hold: `len()` of lists, tuples, arrays, deques, sets and dicts; `None` for others.
    pub fn lengths(&mut self, containers: &[Ref]) -> Vec<Result<Option<(u64, SeenId)>, Refusal>> {
        let heads = self.heads(containers, Extent::Fields);
        let length = |head: Result<Head, Refusal>| {
            let Head { addr: _, of_type, seen } = head?;
            let Some(field) = of_type.kind.length() else { return Ok(None) };
            let len = self.word_of(seen, field);
            if len > ITEMS_LIMIT { Err(Refusal::Absurd) } else { Ok(Some((len, seen))) }
        };
        heads.into_iter().map(length).collect()
    }

    /// Where a container's references are, or they themselves.
    fn whole(&mut self, head: &Head) -> Result<Whole, Refusal> {
        match head.of_type.kind {
            Kind::List => {
                let at = self.field_of(head.seen, Field::ListItems);
                Ok(Whole::Array(Want::new(at, self.run(head)?, head.seen)))
            }
            Kind::Tuple => {
                let offset = self.offset(Field::TupleItems);
                Ok(Whole::Inside { seen: head.seen, offset, len: self.run(head)? })
            }
            Kind::Set => self.set(head).map(Whole::Items),
            Kind::Deque => self.deque(head).map(Whole::Items),
            // A list that is not made yet is None: it holds nothing.
            Kind::None => Ok(Whole::Items(Vec::new())),
            Kind::Bool
            | Kind::Int
            | Kind::Float
            | Kind::Str
            | Kind::Bytes
            | Kind::Dict
            | Kind::Array
            | Kind::Enum
            | Kind::Cell
            | Kind::Code
            | Kind::Type
            | Kind::Other => Err(Refusal::Absurd),
        }
    }

    /// Bytes of as many references as the container says.
    fn run(&self, head: &Head) -> Result<usize, Refusal> {
        let len = self.word_of(head.seen, Field::ObSize);
        if len > ITEMS_LIMIT {
            Err(Refusal::Absurd)
        } else {
            usize::try_from(8 * len).map_err(|_| Refusal::Absurd)
        }
    }

    fn set(&mut self, head: &Head) -> Result<Vec<Ref>, Refusal> {
        let word = |field| self.word_of(head.seen, field);
        let (used, slots) = (word(Field::SetUsed), word(Field::SetMask).wrapping_add(1));
        if !slots.is_power_of_two() || slots > SLOTS_LIMIT || used > slots {
            return Err(Refusal::Absurd);
        }
        let len = usize::try_from(16 * slots).unwrap_or(usize::MAX);
        let seen = self.gather_one(Addr(word(Field::SetTable)), len, head.seen)?;
        let slots = (0..len).step_by(16).map(|at| (self.pointer(seen, at), self.seen.word(seen, at + 8)));
        // A removed key's place is marked by the hash -1.
        let live = slots.filter(|(key, hash)| key.addr.0 != 0 && *hash != u64::MAX).map(|(key, _)| key);
        let live: Vec<Ref> = live.collect();
        if u64::try_from(live.len()) == Ok(used) { Ok(live) } else { Err(Refusal::Torn) }
    }

    fn deque(&mut self, head: &Head) -> Result<Vec<Ref>, Refusal> {
        let word = |field| self.word_of(head.seen, field);
        let (mut rest, mut first) = (word(Field::ObSize), word(Field::DequeLeftIndex));
        if rest > ITEMS_LIMIT || first > BLOCK {
            return Err(Refusal::Absurd);
        }
        // A deque that is just being added to has its new length already, or its new end.
        let last = first.wrapping_add(rest).wrapping_sub(1) % BLOCK;
        if rest > 0 && last != word(Field::DequeRightIndex) {
            return Err(Refusal::Torn);
        }
        let right = self.layout.at(Field::BlockRight);
        let mut block = Ref { addr: Addr(word(Field::DequeLeft)), seen: head.seen };
        let mut items = Vec::new();
        for _ in 0..BLOCKS_LIMIT {
            if rest == 0 {
                return Ok(items);
            }
            let take = rest.min(BLOCK - first);
            let at = block.addr.plus(self.layout.at(Field::BlockData)).plus(8 * first);
            let seen = self.gather_one(at, usize::try_from(8 * take).unwrap_or(usize::MAX), block.seen)?;
            items.extend(self.pointers(seen, 0));
            (rest, first) = (rest - take, 0);
            if rest > 0 {
                let link = self.gather_one(block.addr.plus(right), 8, seen)?;
                block = self.pointer(link, 0);
            }
        }
        Err(Refusal::Absurd)
    }

    /// The references in a piece, from an offset on.
    fn pointers(&self, seen: SeenId, from: usize) -> Vec<Ref> {
        let len = self.seen.bytes(seen).len();
        (from..len).step_by(8).map(|at| self.pointer(seen, at)).collect()
    }
}

/// A container, as far as it is known.
enum Whole {
    /// The array of its references is to be read.
    Array(Want),
    /// Its references stand in itself.
    Inside {
        seen: SeenId,
        offset: usize,
        len: usize,
    },
    Items(Vec<Ref>),
}

impl Whole {
    fn want(&self) -> Option<Want> {
        match self {
            Self::Array(want) => Some(*want),
            Self::Inside { .. } | Self::Items(_) => None,
        }
    }

    /// The piece that must be longer, and how long.
    fn longer(&self) -> Option<(SeenId, usize)> {
        match self {
            Self::Inside { seen, offset, len } => Some((*seen, offset + len)),
            Self::Array(_) | Self::Items(_) => None,
        }
    }
}
