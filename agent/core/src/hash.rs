//! Hash tables for what is looked up with every record.
//!
//! The standard library's hash is made to withstand an attacker who watches the answers, and costs more than the
//! look-up it is for. This one is a few instructions, and seeded anew for each table: a client that picks its ids (in
//! `X-Request-Id`, say) cannot foresee which collide, and learns nothing of it from us. Every table is bounded besides.

use foldhash::fast::RandomState;

/// A hash map.
pub type Map<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A hash set.
pub type Set<K> = std::collections::HashSet<K, RandomState>;

/// Keys of a table in one order, whatever the table's: a capture gives the same each time it is replayed.
#[must_use]
pub fn in_order<T: Ord>(ids: impl Iterator<Item = T>) -> Vec<T> {
    let mut ids: Vec<T> = ids.collect();
    ids.sort_unstable();
    ids
}
