//! Dicts.

use super::heads::Head;
use super::kind::Kind;
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::{Ref, word};
use super::tables::Table;

/// Most entries of a dict.
const ENTRIES_LIMIT: u64 = 1 << 17;

/// An entry of a dict that was not noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its number in the table.
    pub index: u64,
    pub key: Addr,
    pub value: Addr,
}

impl<M: Memory> Heap<M> {
    /// Keys and values of a dict, in its order.
    ///
    /// # Errors
    /// When it is refused: its table says another number of entries than it holds, too.
    pub fn entries(&mut self, dict: Ref) -> Result<Vec<(Ref, Ref)>, Refusal> {
        let head = self.head_of(dict, Kind::Dict)?;
        self.entries_in(&head)
    }

    /// As [`Heap::entries`], of a dict whose head was read.
    pub(super) fn entries_in(&mut self, head: &Head) -> Result<Vec<(Ref, Ref)>, Refusal> {
        let keys = Ref { addr: self.field_of(head.seen, Field::DictKeys), seen: head.seen };
        let array = self.split_array(self.field_of(head.seen, Field::DictValues));
        let (table, seen) = self.tables(&[keys]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let used = self.word_of(head.seen, Field::DictUsed);
        plausible(used, &table)?;
        // The keys object whole: with the number of dicts that use it.
        let first = usize::try_from(table.first.0.wrapping_sub(keys.addr.0)).unwrap_or(usize::MAX);
        let end = first.saturating_add(table.bytes(table.stride));
        self.lengthen(&[(seen, end)]).pop().unwrap_or(Err(Refusal::Unreadable))?;
        let values = array.map(|array| self.gather_one(array, table.bytes(8), seen)).transpose()?;
        let entry = |(index, (key, value)): (usize, _)| {
            let value = values
                .map_or_else(|| self.pointer(seen, first + value), |values| self.pointer(values, 8 * index));
            (self.pointer(seen, first + key), value)
        };
        let live: Vec<(Ref, Ref)> = (0..)
            .zip(table.offsets())
            .map(entry)
            .filter(|(key, value)| key.addr.0 != 0 && value.addr.0 != 0)
            .collect();
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

    /// Entries of a dict that hardly ever changes, not noted: what is read twice and alike is taken.
    pub(super) fn peek_dict(&mut self, dict: Addr) -> Result<Vec<Entry>, Refusal> {
        let first = self.peek_dict_once(dict)?;
        if self.peek_dict_once(dict)? == first { Ok(first) } else { Err(Refusal::Torn) }
    }

    fn peek_dict_once(&mut self, dict: Addr) -> Result<Vec<Entry>, Refusal> {
        let used = self.field(dict, Field::DictUsed)?.0;
        let (keys, values) = (self.field(dict, Field::DictKeys)?, self.field(dict, Field::DictValues)?);
        let table = self.peek_table(keys)?;
        plausible(used, &table)?;
        let entries = self.peek(table.first, table.bytes(table.stride))?;
        let values = self.split_array(values).map(|array| self.peek(array, table.bytes(8))).transpose()?;
        let entry = |(index, (key, value))| {
            let split = |values: &Vec<u8>| word(values, usize::try_from(8 * index).unwrap_or(usize::MAX));
            let value = values.as_ref().map_or_else(|| word(&entries, value), split);
            Entry { index, key: Addr(word(&entries, key)), value: Addr(value) }
        };
        let live: Vec<Entry> = (0..)
            .zip(table.offsets())
            .map(entry)
            .filter(|entry| entry.key.0 != 0 && entry.value.0 != 0)
            .collect();
        if u64::try_from(live.len()) == Ok(used) { Ok(live) } else { Err(Refusal::Torn) }
    }
}

fn plausible(used: u64, table: &Table) -> Result<(), Refusal> {
    if table.count > ENTRIES_LIMIT || used > table.count { Err(Refusal::Absurd) } else { Ok(()) }
}
