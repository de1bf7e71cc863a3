//! Tables of keys: of dicts, and of the attributes of instances.

use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, word};

/// A table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its first entry.
    pub first: Addr,
    /// Bytes of an entry.
    pub stride: u64,
    /// Where an entry has its key; the value stands behind it.
    pub key: u64,
    /// Entries, those of deleted keys too. Entries are only added: while it is the same, so are the keys before.
    pub count: u64,
}

impl Table {
    /// Where an entry's key stands.
    pub fn key_at(&self, index: u64) -> Addr {
        self.first.plus(self.stride.wrapping_mul(index)).plus(self.key)
    }

    /// Bytes of so many per entry.
    pub fn bytes(&self, each: u64) -> usize {
        usize::try_from(self.count.saturating_mul(each)).unwrap_or(usize::MAX)
    }

    /// Where entries' keys and values stand in the bytes of all entries.
    pub fn offsets(&self) -> impl Iterator<Item = (usize, usize)> {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let (stride, key) = (self.stride, self.key);
        (0..self.count).map(move |index| (at(index * stride + key), at(index * stride + key + 8)))
    }
}

impl<M: Memory> Heap<M> {
    /// The tables of keys objects.
    pub(super) fn tables(&mut self, keys: &[Ref]) -> Vec<Result<(Table, SeenId), Refusal>> {
        let len = self.table_head();
        let wants: Vec<Want> = keys.iter().map(|keys| Want::new(keys.addr, len, keys.seen)).collect();
        // A keys object begins with the number of dicts that use it.
        let heads = self.gather_counted(&wants);
        let table = |(keys, seen): (&Ref, Result<SeenId, Refusal>)| {
            let seen = seen?;
            Ok((self.table(keys.addr, self.seen.bytes(seen))?, seen))
        };
        keys.iter().zip(heads).map(table).collect()
    }

    /// The table of a keys object, not noted.
    pub(super) fn peek_table(&mut self, keys: Addr) -> Result<Table, Refusal> {
        let head = self.peek(keys, self.table_head())?;
        self.table(keys, &head)
    }

    /// Bytes of a keys object up to the last field that tells its table.
    fn table_head(&self) -> usize {
        let fields =
            [Field::KeysSize, Field::KeysIndexBytes, Field::KeysKind].map(|field| self.offset(field) + 1);
        let last = fields.into_iter().max().unwrap_or(0);
        last.max(self.offset(Field::KeysSize) + 8).max(self.offset(Field::KeysEntries) + 8)
    }

    /// The table of a keys object, from its head: index bytes and kind, or its size; how many entries.
    fn table(&self, keys: Addr, head: &[u8]) -> Result<Table, Refusal> {
        let (index, general) = if self.layout.logged_keys {
            let byte = |field| head.get(self.offset(field));
            match (byte(Field::KeysIndexBytes), byte(Field::KeysKind)) {
                (Some(log2 @ 0..=32), Some(kind @ 0..=2)) => (1 << log2, *kind == 0),
                _ => return Err(Refusal::Absurd),
            }
        } else {
            (index_bytes(word(head, self.offset(Field::KeysSize)))?, true)
        };
        let first = keys.plus(self.layout.at(Field::KeysIndices)).plus(index);
        let (stride, key) = if general { (24, 8) } else { (16, 0) };
        Ok(Table { first, stride, key, count: word(head, self.offset(Field::KeysEntries)) })
    }

    /// From a dict's pointer to its keys to its pointer to its values.
    pub(super) fn split_values(&self) -> usize {
        self.offset(Field::DictValues).wrapping_sub(self.offset(Field::DictKeys))
    }

    /// The array of values of a dict that shares its keys; `None` where the values stand beside the keys.
    pub(super) fn split_array(&self, values: Addr) -> Option<Addr> {
        (values.0 != 0).then(|| values.plus(self.layout.at(Field::ValuesValues)))
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
