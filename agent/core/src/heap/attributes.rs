//! Attributes of objects, in every layout instances have.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Field, Managed};
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId};
use super::types::Type;

/// Entries of a table of attributes; more is not looked through.
const ENTRIES_LIMIT: u64 = 1 << 16;
/// Most places of attributes kept.
const HINTS_LIMIT: usize = 1 << 14;
/// Looks at which an attribute was not there, after which it is not looked for each time.
const ABSENT: u8 = 3;

/// Where an attribute stands in the tables of a type's instances. Checked each time it is used: the entry must hold the
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// At this place, under this key.
    At { index: u64, key: Addr },
    /// Not there this many times: on the class, or nowhere. Counts on and wraps, so that it is looked for again now
    /// and then.
    Elsewhere { class: Option<Addr>, times: u8 },
}

/// A table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The keys object.
    pub keys: Addr,
    /// Its first entry.
    pub first: Addr,
    /// Bytes of an entry.
    pub stride: u64,
    /// Where an entry has its key; the value stands behind it.
    pub key: u64,
}

impl Table {
    fn key_at(&self, index: u64) -> Addr {
        self.first.plus(self.stride.wrapping_mul(index)).plus(self.key)
    }
}

/// Where an instance's values stand.
#[derive(Clone, Copy, Debug)]
struct Values {
    table: Table,
    /// The array of values, where they do not stand beside the keys.
    array: Option<Addr>,
    seen: SeenId,
}

/// An object whose attributes are asked for.
struct Store {
    of_type: Arc<Type>,
    /// The piece with its type.
    typed: SeenId,
    /// Where its own attributes stand, if it has any.
    values: Option<Values>,
}

/// Where one attribute stands.
enum Cell {
    /// A reference, alone.
    Slot { at: Addr, from: SeenId },
    /// A reference with its key.
    Keyed { key_at: Addr, key: Addr, at: Addr, from: SeenId },
    /// Found already: on the class.
    Class(Ref),
    /// There is no such attribute.
    Absent,
}

impl<M: Memory> Heap<M> {
    /// One attribute of an object; `None` where it has none of that name.
    ///
    /// # Errors
    /// When it is refused.
    pub fn attribute(&mut self, object: Ref, name: &'static str) -> Result<Option<Ref>, Refusal> {
        self.attributes(&[(object, name)]).pop().unwrap_or(Err(Refusal::Unreadable))
    }

    /// Attributes of objects, each `None` where the object has none of that name. About six calls, whatever their number.
    pub fn attributes(&mut self, wants: &[(Ref, &'static str)]) -> Vec<Result<Option<Ref>, Refusal>> {
        let mut numbers: HashMap<Addr, usize> = HashMap::new();
        let mut objects = Vec::new();
        for (object, _) in wants {
            numbers.entry(object.addr).or_insert_with(|| {
                objects.push(*object);
                objects.len() - 1
            });
        }
        let stores = self.stores(&objects);
        let store = |object: &Ref| numbers.get(&object.addr).and_then(|number| stores.get(*number));
        let mut cells = Vec::with_capacity(wants.len());
        for (object, name) in wants {
            cells.push(match store(object) {
                Some(Ok(store)) => self.cell(*object, store, name),
                Some(Err(reason)) => Err(*reason),
                None => Err(Refusal::Unreadable),
            });
        }
        let found = self.read_cells(&cells);
        let mut out = Vec::with_capacity(wants.len());
        for ((object, name), found) in wants.iter().zip(found) {
            out.push(match (found, store(object)) {
                (Ok(Found::OtherKey), Some(Ok(store))) => self.again(*object, store, name),
                (Ok(Found::OtherKey), _) => Err(Refusal::Torn),
                (Ok(Found::Value(value)), _) => Ok(value),
                (Err(reason), _) => Err(reason),
            });
        }
        out
    }

    /// Every attribute an object has of its own, by name.
    ///
    /// # Errors
    /// When its table is refused.
    pub fn attributes_of(&mut self, object: Ref) -> Result<Vec<(Arc<str>, Ref)>, Refusal> {
        let store = self.stores(&[object]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let mut found = Vec::new();
        for (name, offset) in &store.of_type.slots {
            let seen = self.gather_one(object.addr.plus(*offset), 8, store.typed)?;
            found.push((Arc::clone(name), self.pointer(seen, 0)));
        }
        if let Some(values) = store.values {
            let keys = self.keys(&values.table)?;
            let used: Vec<(u64, Addr)> = (0..).zip(keys).filter(|(_, key)| key.0 != 0).collect();
            let names = self.peek_names(&used.iter().map(|(_, key)| *key).collect::<Vec<_>>());
            for ((index, _), name) in used.into_iter().zip(names) {
                let seen = self.gather_one(values.value_at(index), 8, values.seen)?;
                found.push((name?, self.pointer(seen, 0)));
            }
        }
        found.retain(|(_, value)| value.addr.0 != 0);
        Ok(found)
    }

    /// Looks an attribute up again whose hint led to another key.
    fn again(&mut self, object: Ref, store: &Store, name: &'static str) -> Result<Option<Ref>, Refusal> {
        self.hints.remove(&(store.of_type.addr, name));
        let cell = self.cell(object, store, name);
        match self.read_cells(&[cell]).pop().unwrap_or(Err(Refusal::Unreadable))? {
            Found::Value(value) => Ok(value),
            Found::OtherKey => Err(Refusal::Torn),
        }
    }

    fn cell(&mut self, object: Ref, store: &Store, name: &'static str) -> Result<Cell, Refusal> {
        if let Some(offset) = store.of_type.slots.get(name) {
            return Ok(Cell::Slot { at: object.addr.plus(*offset), from: store.typed });
        }
        Ok(match (self.hint(store, name)?, &store.values) {
            (Hint::At { index, key }, Some(values)) => {
                let at = values.value_at(index);
                Cell::Keyed { key_at: values.table.key_at(index), key, at, from: values.seen }
            }
            (Hint::At { .. }, None) => Cell::Absent,
            (Hint::Elsewhere { class, times: _ }, _) => {
                class.map_or(Cell::Absent, |addr| Cell::Class(Ref { addr, seen: store.typed }))
            }
        })
    }

    /// Where instances of a type have an attribute: as it was found before, else by looking for it.
    fn hint(&mut self, store: &Store, name: &'static str) -> Result<Hint, Refusal> {
        let place = (store.of_type.addr, name);
        let known = self.hints.get(&place).copied();
        let times = match known {
            Some(hint @ Hint::At { .. }) => return Ok(hint),
            Some(Hint::Elsewhere { class: _, times }) => times,
            None => 0,
        };
        let hint = match known {
            Some(Hint::Elsewhere { class, times }) if times >= ABSENT => {
                Hint::Elsewhere { class, times: times.wrapping_add(1) }
            }
            Some(_) | None => self.look(store, name, times)?,
        };
        // Types come and go.
        if self.hints.len() >= HINTS_LIMIT {
            self.hints.clear();
        }
        self.hints.insert(place, hint);
        Ok(hint)
    }

    fn look(&mut self, store: &Store, name: &str, times: u8) -> Result<Hint, Refusal> {
        let own = match &store.values {
            Some(values) => self.learn(values, name)?,
            None => None,
        };
        Ok(match own {
            Some((index, key)) => Hint::At { index, key },
            None => Hint::Elsewhere { class: self.class_attribute(&store.of_type, name)?, times: times + 1 },
        })
    }

    fn learn(&mut self, values: &Values, name: &str) -> Result<Option<(u64, Addr)>, Refusal> {
        let keys = self.keys(&values.table)?;
        let used: Vec<(u64, Addr)> = (0..).zip(keys).filter(|(_, key)| key.0 != 0).collect();
        let names = self.peek_names(&used.iter().map(|(_, key)| *key).collect::<Vec<_>>());
        let mut named = used.into_iter().zip(names);
        Ok(named.find(|(_, found)| found.as_deref() == Ok(name)).map(|(place, _)| place))
    }

    /// The keys of a table, in order; a deleted one is 0.
    fn keys(&mut self, table: &Table) -> Result<Vec<Addr>, Refusal> {
        let count = self.peek_word(table.keys.plus(self.layout.at(Field::KeysEntries)))?;
        if count > ENTRIES_LIMIT {
            return Err(Refusal::Absurd);
        }
        let len = usize::try_from(count * table.stride).unwrap_or(usize::MAX);
        let bytes = self.peek(table.first, len)?;
        let key = |index: u64| usize::try_from(index * table.stride + table.key).unwrap_or(usize::MAX);
        Ok((0..count).map(|index| Addr(super::seen::word(&bytes, key(index)))).collect())
    }

    fn class_attribute(&mut self, of_type: &Type, name: &str) -> Result<Option<Addr>, Refusal> {
        for dict in &of_type.dicts {
            let entries = self.peek_dict(*dict)?;
            let names = self.peek_names(&entries.iter().map(|(key, _)| *key).collect::<Vec<_>>());
            let mut named = entries.into_iter().zip(names);
            if let Some(((_, value), _)) = named.find(|(_, found)| found.as_deref() == Ok(name)) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Reads cells; those of one table that stand near each other in one piece.
    fn read_cells(&mut self, cells: &[Result<Cell, Refusal>]) -> Vec<Result<Found, Refusal>> {
        let mut spots: Vec<Spot> = Vec::with_capacity(cells.len());
        for (number, cell) in cells.iter().enumerate() {
            match cell {
                Ok(Cell::Slot { at, from }) => spots.push(Spot { at: *at, len: 8, from: *from, number }),
                Ok(Cell::Keyed { key_at, at, from, .. }) if *at == key_at.plus(8) => {
                    spots.push(Spot { at: *key_at, len: 16, from: *from, number });
                }
                Ok(Cell::Keyed { key_at, at, from, .. }) => {
                    spots.push(Spot { at: *key_at, len: 8, from: *from, number });
                    spots.push(Spot { at: *at, len: 8, from: *from, number });
                }
                Ok(Cell::Class(_) | Cell::Absent) | Err(_) => {}
            }
        }
        let (wants, places) = merged(&mut spots);
        let seen = self.gather(&wants);
        let mut words: Vec<[Option<Result<Ref, Refusal>>; 2]> = vec![[None, None]; cells.len()];
        for (spot, (piece, offset)) in spots.iter().zip(places) {
            for at in (0..spot.len).step_by(8) {
                let word = seen.get(piece).copied().unwrap_or(Err(Refusal::Unreadable));
                let word = word.map(|seen| self.pointer(seen, offset + at));
                // The key's word is read first; of a slot there is one word only.
                let of_value =
                    spot.len == 8 && !cells[spot.number].as_ref().is_ok_and(|cell| cell.key_is_at(spot.at));
                words[spot.number][usize::from(at == 8 || of_value)] = Some(word);
            }
        }
        cells
            .iter()
            .zip(words)
            .map(|(cell, words)| found(cell.as_ref().map_err(|reason| *reason)?, words))
            .collect()
    }

    /// Where the attributes of objects stand.
    fn stores(&mut self, objects: &[Ref]) -> Vec<Result<Store, Refusal>> {
        let typed = self.types_of(objects);
        let mut wants = Vec::new();
        let mut roots = Vec::with_capacity(objects.len());
        for (object, typed) in objects.iter().zip(typed) {
            roots.push(typed.and_then(|(of_type, typed)| {
                let root = self.root(*object, &of_type, typed)?;
                wants.extend(root.wants(typed));
                Ok((of_type, typed, root))
            }));
        }
        let mut seen = self.gather(&wants).into_iter();
        let mut next = || seen.next().unwrap_or(Err(Refusal::Unreadable));
        let mut held = Vec::with_capacity(objects.len());
        for root in roots {
            held.push(root.and_then(|(of_type, typed, root)| {
                let found = self.held(&root, &mut next)?;
                Ok((of_type, typed, found))
            }));
        }
        self.tables(held)
    }

    /// From what holds the attributes to the table of their keys.
    fn tables(&mut self, held: Vec<Result<Rooted, Refusal>>) -> Vec<Result<Store, Refusal>> {
        let cached = self.layout.at(Field::TypeCachedKeys);
        let (dict, split) = (self.layout.at(Field::DictKeys), self.split_values());
        let wants: Vec<Want> = held
            .iter()
            .filter_map(|held| match held {
                Ok((of_type, _, Held::Values { seen, .. })) => {
                    Some(Want::new(of_type.addr.plus(cached), 8, *seen))
                }
                Ok((_, _, Held::Dict(found))) => Some(Want::new(found.addr.plus(dict), 16, found.seen)),
                Ok((_, _, Held::Nothing)) | Err(_) => None,
            })
            .collect();
        let mut keys = self.gather(&wants).into_iter();
        let mut next = || keys.next().unwrap_or(Err(Refusal::Unreadable));
        let mut found = Vec::with_capacity(held.len());
        for held in held {
            found.push(held.and_then(|(of_type, typed, held)| {
                let values = match held {
                    Held::Nothing => None,
                    Held::Values { array, .. } => Some((self.pointer(next()?, 0), Some(array))),
                    Held::Dict(_) => {
                        let seen = next()?;
                        Some((self.pointer(seen, 0), self.split_array(self.pointer(seen, split).addr)))
                    }
                };
                Ok((of_type, typed, values))
            }));
        }
        let keys: Vec<Ref> =
            found.iter().filter_map(|found| found.as_ref().ok()?.2.map(|(keys, _)| keys)).collect();
        let mut tables = self.table_heads(&keys).into_iter();
        let mut next = || tables.next().unwrap_or(Err(Refusal::Unreadable));
        found
            .into_iter()
            .map(|found| {
                let (of_type, typed, values) = found?;
                let values = match values {
                    None => None,
                    Some((_, array)) => {
                        let (table, seen) = next()?;
                        Some(Values { table, array, seen })
                    }
                };
                Ok(Store { of_type, typed, values })
            })
            .collect()
    }

    /// From a dict's pointer to its keys to its pointer to its values.
    pub(super) fn split_values(&self) -> usize {
        let layout = &self.layout;
        usize::try_from(layout.at(Field::DictValues).wrapping_sub(layout.at(Field::DictKeys)))
            .unwrap_or(usize::MAX)
    }

    /// The array of values of a dict that shares its keys; `None` where the values stand beside the keys.
    pub(super) fn split_array(&self, values: Addr) -> Option<Addr> {
        (values.0 != 0).then(|| values.plus(self.layout.at(Field::ValuesValues)))
    }

    /// The tables of keys objects.
    pub(super) fn table_heads(&mut self, keys: &[Ref]) -> Vec<Result<(Table, SeenId), Refusal>> {
        let (field, len) = if self.layout.logged_keys {
            (Field::KeysIndexBytes, self.kind_place() + 1)
        } else {
            (Field::KeysSize, 8)
        };
        let offset = self.layout.at(field);
        let wants: Vec<Want> =
            keys.iter().map(|keys| Want::new(keys.addr.plus(offset), len, keys.seen)).collect();
        let heads = self.gather(&wants);
        let table = |(keys, seen): (&Ref, Result<SeenId, Refusal>)| {
            let seen = seen?;
            Ok((self.table(keys.addr, self.seen.bytes(seen))?, seen))
        };
        keys.iter().zip(heads).map(table).collect()
    }

    /// From the byte with a table's index bytes to the one with its kind.
    fn kind_place(&self) -> usize {
        let layout = &self.layout;
        usize::try_from(layout.at(Field::KeysKind).wrapping_sub(layout.at(Field::KeysIndexBytes)) & 63)
            .unwrap_or(0)
    }

    /// The table of a keys object, from its head: index bytes and kind, or its size.
    fn table(&self, keys: Addr, head: &[u8]) -> Result<Table, Refusal> {
        let (index, general) = if self.layout.logged_keys {
            match (head.first(), head.get(self.kind_place())) {
                (Some(log2 @ 0..=32), Some(kind @ 0..=2)) => (1 << log2, *kind == 0),
                _ => return Err(Refusal::Absurd),
            }
        } else {
            (index_bytes(super::seen::word(head, 0))?, true)
        };
        let first = keys.plus(self.layout.at(Field::KeysIndices)).plus(index);
        let (stride, key) = if general { (24, 8) } else { (16, 0) };
        Ok(Table { keys, first, stride, key })
    }

    /// What is to be read to find an instance's attributes.
    fn root(&mut self, object: Ref, of_type: &Type, typed: SeenId) -> Result<Root, Refusal> {
        let addr = object.addr;
        if of_type.managed() {
            return Ok(match self.layout.managed {
                Managed::None => Root::None,
                Managed::Pair => Root::Pair(addr.minus(32)),
                Managed::Tagged => Root::Tagged(addr.minus(24)),
                Managed::Inline if of_type.inline_values() => {
                    let values = addr.plus(of_type.basic_size);
                    Root::Inline {
                        valid: values.plus(self.layout.at(Field::ValuesValid)),
                        array: values.plus(self.layout.at(Field::ValuesValues)),
                        dict: addr.minus(24),
                    }
                }
                Managed::Inline => Root::Dict(addr.minus(24)),
            });
        }
        Ok(match of_type.dict_offset {
            0 => Root::None,
            offset @ 1.. => Root::Dict(addr.plus(offset.unsigned_abs())),
            offset => {
                let seen = self.gather_one(addr.plus(self.layout.at(Field::ObSize)), 8, typed)?;
                let items = self.seen.word(seen, 0).cast_signed().unsigned_abs();
                let size = of_type.basic_size.wrapping_add(items.wrapping_mul(of_type.item_size));
                Root::Dict(addr.plus(size.wrapping_add(7) & !7).minus(offset.unsigned_abs()))
            }
        })
    }

    fn held(&self, root: &Root, next: &mut impl FnMut() -> Result<SeenId, Refusal>) -> Result<Held, Refusal> {
        let dict = |found: Ref| if found.addr.0 == 0 { Held::Nothing } else { Held::Dict(found) };
        Ok(match root {
            Root::None => Held::Nothing,
            Root::Dict(_) => dict(self.pointer(next()?, 0)),
            Root::Pair(_) => {
                let seen = next()?;
                match self.pointer(seen, 0).addr {
                    Addr(0) => dict(self.pointer(seen, 8)),
                    array => Held::Values { array, seen },
                }
            }
            Root::Tagged(_) => {
                let found = self.pointer(next()?, 0);
                if found.addr.0 & 1 == 1 {
                    Held::Values { array: found.addr.plus(1), seen: found.seen }
                } else {
                    dict(found)
                }
            }
            Root::Inline { array, .. } => {
                let (valid, of_dict) = (next()?, next()?);
                if self.seen.bytes(valid).first().is_some_and(|valid| *valid != 0) {
                    Held::Values { array: *array, seen: valid }
                } else {
                    dict(self.pointer(of_dict, 0))
                }
            }
        })
    }
}

/// Bytes of the indices of a table of this size.
fn index_bytes(size: u64) -> Result<u64, Refusal> {
    if !size.is_power_of_two() || size > 1 << 32 {
        return Err(Refusal::Absurd);
    }
    let width = if size <= 0xff {
        1
    } else if size <= 0xffff {
        2
    } else {
        4
    };
    Ok(size * width)
}

impl Values {
    fn value_at(&self, index: u64) -> Addr {
        match self.array {
            Some(array) => array.plus(8_u64.wrapping_mul(index)),
            None => self.table.key_at(index).plus(8),
        }
    }
}

/// What is to be read of a cell.
struct Spot {
    at: Addr,
    len: usize,
    from: SeenId,
    number: usize,
}

/// Bytes between two spots that are read along rather than apart: a piece costs as much as some hundred bytes.
const BETWEEN: u64 = 256;

/// Puts spots in order and makes pieces of them: for each spot the number of its piece, and its place in it.
fn merged(spots: &mut [Spot]) -> (Vec<Want>, Vec<(usize, usize)>) {
    spots.sort_by_key(|spot| (spot.from, spot.at));
    let mut wants: Vec<Want> = Vec::new();
    let mut places = Vec::with_capacity(spots.len());
    for spot in spots {
        let near = wants.last().and_then(|last| {
            let offset = spot.at.0.wrapping_sub(last.at.0);
            let end = u64::try_from(last.len).ok()?;
            (last.from == spot.from && offset < end.checked_add(BETWEEN)?).then_some(offset)
        });
        match (near.and_then(|offset| usize::try_from(offset).ok()), wants.last_mut()) {
            (Some(offset), Some(last)) => {
                last.len = last.len.max(offset + spot.len);
                places.push((wants.len() - 1, offset));
            }
            (Some(_) | None, _) => {
                wants.push(Want::new(spot.at, spot.len, spot.from));
                places.push((wants.len() - 1, 0));
            }
        }
    }
    (wants, places)
}

/// The value of a cell from its words: the key's and the value's.
fn found(cell: &Cell, [key_word, value_word]: [Option<Result<Ref, Refusal>>; 2]) -> Result<Found, Refusal> {
    let value = || {
        let found = value_word.unwrap_or(Err(Refusal::Unreadable))?;
        Ok(Found::Value((found.addr.0 != 0).then_some(found)))
    };
    match cell {
        Cell::Slot { .. } => value(),
        Cell::Keyed { key, .. } => {
            if key_word.unwrap_or(Err(Refusal::Unreadable))?.addr != *key {
                return Ok(Found::OtherKey);
            }
            value()
        }
        Cell::Class(found) => Ok(Found::Value(Some(*found))),
        Cell::Absent => Ok(Found::Value(None)),
    }
}

impl Cell {
    fn key_is_at(&self, place: Addr) -> bool {
        match self {
            Self::Keyed { key_at, .. } => *key_at == place,
            Self::Slot { .. } | Self::Class(_) | Self::Absent => false,
        }
    }
}

/// What reading a cell gave.
enum Found {
    Value(Option<Ref>),
    /// The hint led to an entry of another key.
    OtherKey,
}

/// Where an instance says where its attributes are.
enum Root {
    None,
    /// A pointer to a dict.
    Dict(Addr),
    /// A pointer to values and one to a dict.
    Pair(Addr),
    /// A pointer to a dict, or to values less one.
    Tagged(Addr),
    /// Values behind the object, and a pointer to a dict.
    Inline {
        valid: Addr,
        array: Addr,
        dict: Addr,
    },
}

impl Root {
    fn wants(&self, from: SeenId) -> Vec<Want> {
        match self {
            Self::None => Vec::new(),
            Self::Dict(at) | Self::Tagged(at) => vec![Want::new(*at, 8, from)],
            Self::Pair(at) => vec![Want::new(*at, 16, from)],
            Self::Inline { valid, array: _, dict } => {
                vec![Want::new(*valid, 1, from), Want::new(*dict, 8, from)]
            }
        }
    }
}

/// An object's type, the piece with it, and what holds its attributes.
type Rooted = (Arc<Type>, SeenId, Held);

/// What holds an instance's attributes.
enum Held {
    Nothing,
    /// An array of values; the keys are the type's.
    Values {
        array: Addr,
        seen: SeenId,
    },
    /// A dict.
    Dict(Ref),
}
