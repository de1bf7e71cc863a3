//! Places of attributes in tables, as they were found before, and how they are looked for.

use std::sync::Arc;

use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::word;
use super::stores::{Store, Values};
use super::tables::Table;
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
    /// At this place of the instance's table.
    Own(Place),
    /// In a dict of the class or of a base, as long as the instance has none of its own.
    Class(ClassPlace),
    /// Nowhere, this many times. Counts on and wraps, so that it is looked for again now and then.
    Absent(u8),
}

/// A place in a table: an entry's number, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub index: u64,
    pub key: Addr,
}

/// A place in the dict of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassPlace {
    pub dict: Addr,
    pub place: Place,
}

impl<M: Memory> Heap<M> {
    /// Where instances of a type have an attribute: as it was found before, else by looking for it.
    pub(super) fn hint(&mut self, store: &Store, name: &'static str) -> Result<Hint, Refusal> {
        let of = (store.of_type.addr, name);
        let hint = match self.hints.get(&of).copied() {
            Some(hint @ Hint::Own(_)) => return Ok(hint),
            Some(Hint::Absent(times)) if times >= ABSENT => Hint::Absent(times.wrapping_add(1)),
            // Another instance may have one of its own.
            Some(Hint::Class(class)) => self.own(store, name)?.unwrap_or(Hint::Class(class)),
            Some(Hint::Absent(times)) => self.look(store, name, times)?,
            None => self.look(store, name, 0)?,
        };
        // Types come and go.
        if self.hints.len() >= HINTS_LIMIT {
            self.hints.clear();
        }
        self.hints.insert(of, hint);
        Ok(hint)
    }

    fn look(&mut self, store: &Store, name: &str, times: u8) -> Result<Hint, Refusal> {
        if let Some(own) = self.own(store, name)? {
            return Ok(own);
        }
        let class = self.class_place(&store.of_type, name)?;
        Ok(class.map_or(Hint::Absent(times + 1), Hint::Class))
    }

    /// Where an instance has an attribute of its own. The keys are not noted: with the table's head, which is, stays how
    /// many there are, and so they themselves.
    fn own(&mut self, store: &Store, name: &str) -> Result<Option<Hint>, Refusal> {
        let Some(Values { table, .. }) = &store.values else { return Ok(None) };
        let used = self.names_of(table)?;
        let mut named = used.into_iter().filter(|(_, found)| found.as_deref() == Ok(name));
        Ok(named.next().map(|(place, _)| Hint::Own(place)))
    }

    /// The names in a table, in order; those of deleted entries left out.
    pub(super) fn names_of(&mut self, table: &Table) -> Result<Vec<Named>, Refusal> {
        if table.count > ENTRIES_LIMIT {
            return Err(Refusal::Absurd);
        }
        let bytes = self.peek(table.first, table.bytes(table.stride))?;
        let places =
            (0..).zip(table.offsets()).map(|(index, (key, _))| Place { index, key: Addr(word(&bytes, key)) });
        let used: Vec<Place> = places.filter(|place| place.key.0 != 0).collect();
        let names = self.peek_names(&used.iter().map(|place| place.key).collect::<Vec<_>>());
        Ok(used.into_iter().zip(names).collect())
    }

    fn class_place(&mut self, of_type: &Type, name: &str) -> Result<Option<ClassPlace>, Refusal> {
        for dict in &of_type.dicts {
            let entries = self.peek_dict(*dict)?;
            let names = self.peek_names(&entries.iter().map(|entry| entry.key).collect::<Vec<_>>());
            let mut named = entries.into_iter().zip(names).filter(|(_, found)| found.as_deref() == Ok(name));
            if let Some((entry, _)) = named.next() {
                let place = Place { index: entry.index, key: entry.key };
                return Ok(Some(ClassPlace { dict: *dict, place }));
            }
        }
        Ok(None)
    }
}

/// An entry's place and the name in it.
pub(super) type Named = (Place, Result<Arc<str>, Refusal>);
