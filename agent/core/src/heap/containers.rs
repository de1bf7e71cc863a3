//! Lists, tuples, dicts, sets, deques, arrays.

use std::sync::Arc;

use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, word};
use super::types::{Kind, Type};
use super::value::Value;

/// Most items of a container.
const ITEMS_LIMIT: u64 = 1 << 17;
/// Most slots of a set's table.
const SLOTS_LIMIT: u64 = 1 << 17;
/// References in a block of a deque.
const BLOCK: u64 = 64;
/// Most blocks of a deque.
const BLOCKS_LIMIT: u64 = ITEMS_LIMIT / BLOCK + 2;

impl<M: Memory> Heap<M> {
    /// The references in lists, tuples, sets and deques, in their order. Three calls for all lists and tuples together.
    ///
    /// A container that changes between this and the verdicts is refused whole.
    pub fn items(&mut self, containers: &[Ref]) -> Vec<Result<Vec<Ref>, Refusal>> {
        let typed = self.types_of(containers);
        let mut wants = Vec::with_capacity(containers.len());
        let mut parts = Vec::with_capacity(containers.len());
        for (container, typed) in containers.iter().zip(typed) {
            parts.push(typed.and_then(|(of_type, seen)| self.part(*container, &of_type, seen, &mut wants)));
        }
        let mut heads = self.gather(&wants).into_iter();
        let mut next = || heads.next().unwrap_or(Err(Refusal::Unreadable));
        let mut arrays = Vec::with_capacity(containers.len());
        for (container, part) in containers.iter().zip(parts) {
            arrays.push(match part {
                Ok(Part::Head(kind)) => {
                    next().and_then(|head| self.array_of(*container, kind, head)).map(Whole::Array)
                }
                Ok(Part::Own(kind, seen)) => self.own(*container, kind, seen).map(Whole::Items),
                Err(reason) => Err(reason),
            });
        }
        let wants: Vec<Want> = arrays.iter().filter_map(|whole| whole.as_ref().ok()?.want()).collect();
        let mut seen = self.gather(&wants).into_iter();
        let mut next = || seen.next().unwrap_or(Err(Refusal::Unreadable));
        let mut out = Vec::with_capacity(containers.len());
        for whole in arrays {
            out.push(match whole {
                Ok(Whole::Array(_)) => next().map(|seen| self.pointers(seen)),
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

    /// How many items objects hold: `len()` of lists, tuples, arrays, deques, sets and dicts; `None` for others.
    pub fn lengths(&mut self, containers: &[Ref]) -> Vec<Result<Option<(u64, SeenId)>, Refusal>> {
        let typed = self.types_of(containers);
        let mut wants = Vec::new();
        let mut out = Vec::with_capacity(containers.len());
        for (number, (container, typed)) in containers.iter().zip(typed).enumerate() {
            out.push(typed.map(|(of_type, seen)| {
                let field = length_field(of_type.kind)?;
                wants.push((number, Want::new(container.addr.plus(self.layout.at(field)), 8, seen)));
                None
            }));
        }
        let seen = self.gather(&wants.iter().map(|(_, want)| *want).collect::<Vec<_>>());
        for ((number, _), seen) in wants.into_iter().zip(seen) {
            out[number] = seen.and_then(|seen| {
                let len = self.seen.word(seen, 0);
                if len > ITEMS_LIMIT { Err(Refusal::Absurd) } else { Ok(Some((len, seen))) }
            });
        }
        out
    }

    /// Keys and values of a dict, in its order.
    ///
    /// # Errors
    /// When it is refused: its table says another number of entries than it holds, too.
    pub fn entries(&mut self, dict: Ref) -> Result<Vec<(Ref, Ref)>, Refusal> {
        let (of_type, typed) = self.types_of(&[dict]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        if of_type.kind != Kind::Dict {
            return Err(Refusal::Absurd);
        }
        let at = |field| dict.addr.plus(self.layout.at(field));
        let (used, keys) = (at(Field::DictUsed), at(Field::DictKeys));
        let used = self.gather_one(used, 8, typed)?;
        let head = self.gather_one(keys, 16, used)?;
        let array = self.split_array(self.pointer(head, self.split_values()).addr);
        let keys = self.pointer(head, 0);
        let (table, seen) = self.table_heads(&[keys]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let count = self.gather_one(keys.addr.plus(self.layout.at(Field::KeysEntries)), 8, seen)?;
        let (used, entries) = (self.seen.word(used, 0), self.seen.word(count, 0));
        if entries > ITEMS_LIMIT || used > entries {
            return Err(Refusal::Absurd);
        }
        let bytes = |each: u64| usize::try_from(entries * each).unwrap_or(usize::MAX);
        let seen = self.gather_one(table.first, bytes(table.stride), count)?;
        let values = match array {
            Some(array) => Some(self.gather_one(array, bytes(8), seen)?),
            None => None,
        };
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let entry = |index: u64| {
            let key = index * table.stride + table.key;
            let value = values.map_or_else(
                || self.pointer(seen, at(key + 8)),
                |values| self.pointer(values, at(index * 8)),
            );
            (self.pointer(seen, at(key)), value)
        };
        let live: Vec<(Ref, Ref)> =
            (0..entries).map(entry).filter(|(key, value)| key.addr.0 != 0 && value.addr.0 != 0).collect();
        if u64::try_from(live.len()) == Ok(used) { Ok(live) } else { Err(Refusal::Torn) }
    }

    /// The entry of a dict under a text; `None` where it has none.
    ///
    /// # Errors
    /// When the dict is refused.
    pub fn entry(&mut self, dict: Ref, name: &str) -> Result<Option<Ref>, Refusal> {
        let entries = self.entries(dict)?;
        let keys: Vec<Ref> = entries.iter().map(|(key, _)| *key).collect();
        let keys = self.scalars(&keys);
        let mut named = entries.into_iter().zip(keys);
        Ok(named
            .find(|(_, key)| key.as_ref().is_ok_and(|key| key.value.text() == Some(name)))
            .map(|((_, value), _)| value))
    }

    /// Keys and values of a dict that hardly ever changes, not noted: what is read twice and alike is taken.
    pub(super) fn peek_dict(&mut self, dict: Addr) -> Result<Vec<(Addr, Addr)>, Refusal> {
        let first = self.peek_dict_once(dict)?;
        if self.peek_dict_once(dict)? == first { Ok(first) } else { Err(Refusal::Torn) }
    }

    fn peek_dict_once(&mut self, dict: Addr) -> Result<Vec<(Addr, Addr)>, Refusal> {
        let used = self.field(dict, Field::DictUsed)?.0;
        let (keys, values) = (self.field(dict, Field::DictKeys)?, self.field(dict, Field::DictValues)?);
        let (table, _) = self.table_heads(&[Ref::root(keys)]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let count = self.field(keys, Field::KeysEntries)?.0;
        if count > ITEMS_LIMIT || used > count {
            return Err(Refusal::Absurd);
        }
        let len = |each: u64| usize::try_from(count * each).unwrap_or(usize::MAX);
        let bytes = self.peek(table.first, len(table.stride))?;
        let split = match self.split_array(values) {
            Some(array) => Some(self.peek(array, len(8))?),
            None => None,
        };
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let entry = |index: u64| {
            let key = index * table.stride + table.key;
            let value =
                split.as_ref().map_or_else(|| word(&bytes, at(key + 8)), |split| word(split, at(index * 8)));
            (Addr(word(&bytes, at(key))), Addr(value))
        };
        let live: Vec<(Addr, Addr)> =
            (0..count).map(entry).filter(|(key, value)| key.0 != 0 && value.0 != 0).collect();
        if u64::try_from(live.len()) == Ok(used) { Ok(live) } else { Err(Refusal::Torn) }
    }

    /// The numbers of an `array.array`.
    ///
    /// # Errors
    /// When it is refused, or its type code is none of numbers.
    pub fn array(&mut self, array: Ref) -> Result<Vec<Value>, Refusal> {
        let (_, typed) = self.types_of(&[array]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let at = |field| array.addr.plus(self.layout.at(field));
        let (size, items, descr) = (at(Field::ObSize), at(Field::ArrayItems), at(Field::ArrayDescr));
        let size = self.gather_one(size, 8, typed)?;
        let items = self.gather_one(items, 8, size)?;
        let descr = self.gather_one(descr, 8, items)?;
        let code = self.gather_one(self.pointer(descr, 0).addr, 1, descr)?;
        let number =
            self.seen.bytes(code).first().and_then(|code| Number::of(*code)).ok_or(Refusal::Absurd)?;
        let len = self.seen.word(size, 0);
        if len > ITEMS_LIMIT {
            return Err(Refusal::Absurd);
        }
        let len = usize::try_from(len).map_err(|_| Refusal::Absurd)? * number.width();
        let data = self.gather_one(self.pointer(items, 0).addr, len, code)?;
        Ok(self.seen.bytes(data).chunks_exact(number.width()).map(|chunk| number.read(chunk)).collect())
    }

    /// What is to be read first of a container: the piece with its length, or all of it in its own way.
    fn part(
        &self,
        container: Ref,
        of_type: &Arc<Type>,
        seen: SeenId,
        wants: &mut Vec<Want>,
    ) -> Result<Part, Refusal> {
        let at = container.addr.plus(self.layout.at(Field::ObSize));
        match of_type.kind {
            Kind::List => wants.push(Want::new(at, 16, seen)),
            Kind::Tuple => wants.push(Want::new(at, 8, seen)),
            Kind::Set | Kind::Deque | Kind::None => return Ok(Part::Own(of_type.kind, seen)),
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
            | Kind::Other => return Err(Refusal::Absurd),
        }
        Ok(Part::Head(of_type.kind))
    }

    /// The array of a list's or a tuple's references.
    fn array_of(&self, container: Ref, kind: Kind, head: SeenId) -> Result<Want, Refusal> {
        let len = self.seen.word(head, 0);
        if len > ITEMS_LIMIT {
            return Err(Refusal::Absurd);
        }
        let behind = self.layout.at(Field::ListItems).wrapping_sub(self.layout.at(Field::ObSize));
        let at = if kind == Kind::List {
            self.pointer(head, usize::try_from(behind).unwrap_or(usize::MAX)).addr
        } else {
            container.addr.plus(self.layout.at(Field::TupleItems))
        };
        Ok(Want::new(at, usize::try_from(8 * len).unwrap_or(usize::MAX), head))
    }

    fn own(&mut self, container: Ref, kind: Kind, seen: SeenId) -> Result<Vec<Ref>, Refusal> {
        // A list that is not made yet is None: it holds nothing.
        if kind == Kind::None {
            return Ok(Vec::new());
        }
        if kind == Kind::Set { self.set(container, seen) } else { self.deque(container, seen) }
    }

    fn set(&mut self, set: Ref, typed: SeenId) -> Result<Vec<Ref>, Refusal> {
        let at = |field| set.addr.plus(self.layout.at(field));
        let (used, mask, table) = (at(Field::SetUsed), at(Field::SetMask), at(Field::SetTable));
        let used = self.gather_one(used, 8, typed)?;
        let mask = self.gather_one(mask, 8, used)?;
        let table = self.gather_one(table, 8, mask)?;
        let (used, slots) = (self.seen.word(used, 0), self.seen.word(mask, 0).wrapping_add(1));
        if !slots.is_power_of_two() || slots > SLOTS_LIMIT || used > slots {
            return Err(Refusal::Absurd);
        }
        let len = usize::try_from(16 * slots).unwrap_or(usize::MAX);
        let seen = self.gather_one(self.pointer(table, 0).addr, len, table)?;
        let slots = (0..len).step_by(16).map(|at| (self.pointer(seen, at), self.seen.word(seen, at + 8)));
        // A removed key's place is marked by the hash -1.
        let live = slots.filter(|(key, hash)| key.addr.0 != 0 && *hash != u64::MAX).map(|(key, _)| key);
        let live: Vec<Ref> = live.collect();
        if u64::try_from(live.len()) == Ok(used) { Ok(live) } else { Err(Refusal::Torn) }
    }

    fn deque(&mut self, deque: Ref, typed: SeenId) -> Result<Vec<Ref>, Refusal> {
        let at = |field| deque.addr.plus(self.layout.at(field));
        let (size, left, index) = (at(Field::ObSize), at(Field::DequeLeft), at(Field::DequeLeftIndex));
        let size = self.gather_one(size, 8, typed)?;
        let left = self.gather_one(left, 8, size)?;
        let index = self.gather_one(index, 8, left)?;
        let (mut rest, mut first) = (self.seen.word(size, 0), self.seen.word(index, 0));
        if rest > ITEMS_LIMIT || first > BLOCK {
            return Err(Refusal::Absurd);
        }
        let right = self.layout.at(Field::BlockRight);
        let mut block = Ref { addr: self.pointer(left, 0).addr, seen: index };
        let mut items = Vec::new();
        for _ in 0..BLOCKS_LIMIT {
            if rest == 0 {
                return Ok(items);
            }
            let take = rest.min(BLOCK - first);
            let at = block.addr.plus(self.layout.at(Field::BlockData)).plus(8 * first);
            let seen = self.gather_one(at, usize::try_from(8 * take).unwrap_or(usize::MAX), block.seen)?;
            items.extend(self.pointers(seen));
            (rest, first) = (rest - take, 0);
            if rest > 0 {
                let link = self.gather_one(block.addr.plus(right), 8, seen)?;
                block = self.pointer(link, 0);
            }
        }
        Err(Refusal::Absurd)
    }

    /// The references of an array that was read.
    fn pointers(&self, seen: SeenId) -> Vec<Ref> {
        let len = self.seen.bytes(seen).len();
        (0..len).step_by(8).map(|at| self.pointer(seen, at)).collect()
    }
}

/// What is read first of a container.
enum Part {
    /// Its length, and where its items are.
    Head(Kind),
    /// Everything, in its own way.
    Own(Kind, SeenId),
}

/// A container, as far as it is known.
enum Whole {
    /// The array of its references is to be read.
    Array(Want),
    Items(Vec<Ref>),
}

impl Whole {
    fn want(&self) -> Option<Want> {
        match self {
            Self::Array(want) => Some(*want),
            Self::Items(_) => None,
        }
    }
}

/// Where an object keeps its length.
fn length_field(kind: Kind) -> Option<Field> {
    match kind {
        Kind::List | Kind::Tuple | Kind::Deque | Kind::Array | Kind::Bytes => Some(Field::ObSize),
        Kind::Dict => Some(Field::DictUsed),
        Kind::Set => Some(Field::SetUsed),
        Kind::Str => Some(Field::StrLength),
        Kind::None
        | Kind::Bool
        | Kind::Int
        | Kind::Float
        | Kind::Enum
        | Kind::Cell
        | Kind::Code
        | Kind::Type
        | Kind::Other => None,
    }
}

/// A type code of `array.array`.
#[derive(Clone, Copy)]
enum Number {
    Signed(usize),
    Unsigned(usize),
    Float,
    Double,
}

impl Number {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            b'b' => Self::Signed(1),
            b'h' => Self::Signed(2),
            b'i' => Self::Signed(4),
            b'l' | b'q' => Self::Signed(8),
            b'B' => Self::Unsigned(1),
            b'H' => Self::Unsigned(2),
            b'I' => Self::Unsigned(4),
            b'L' | b'Q' => Self::Unsigned(8),
            b'f' => Self::Float,
            b'd' => Self::Double,
            _ => return None,
        })
    }

    fn width(self) -> usize {
        match self {
            Self::Signed(width) | Self::Unsigned(width) => width,
            Self::Float => 4,
            Self::Double => 8,
        }
    }

    fn read(self, chunk: &[u8]) -> Value {
        let raw = chunk.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        match self {
            Self::Unsigned(_) => Value::Int(raw.into()),
            Self::Signed(width) => {
                let unused = 64 - 8 * u32::try_from(width).unwrap_or(8);
                Value::Int((raw << unused).cast_signed().wrapping_shr(unused).into())
            }
            Self::Float => {
                let bits = chunk.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                Value::Float(f32::from_bits(bits).into())
            }
            Self::Double => Value::Float(f64::from_bits(raw)),
        }
    }
}
