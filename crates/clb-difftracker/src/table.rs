//! Rows found by key once and by number ever after.
//!
//! Everything the tracker knows of (addresses, locations, nodes, services, …) refers to everything else by a 4-byte
//! [`Id`], so that a hundred thousand addresses stay small, and no key is hashed or compared twice for one change.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slab::Slab;

/// The number of a row of a `Table<_, V>`; good until that row is removed, then used again.
pub(crate) struct Id<V>(u32, PhantomData<fn() -> V>);

impl<V> Id<V> {
    fn row(self) -> usize {
        self.0 as usize
    }
}

/// A table of `V`s, each with a key.
///
/// Hashing is seeded with a constant: the order of the hash index is never looked at, and equal histories must give
/// equal numbers.
pub(crate) struct Table<K, V> {
    rows: Slab<(K, V)>,
    index: HashTable<u32>,
    hasher: FixedState,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: Slab::new(), index: HashTable::new(), hasher: FixedState::default() }
    }
}

impl<K: Eq + Hash + Clone, V: Default> Table<K, V> {
    /// The row of `key`, if there is one.
    pub(crate) fn id(&self, key: &K) -> Option<Id<V>> {
        self.index
            .find(self.hasher.hash_one(key), |&row| self.rows[row as usize].0 == *key)
            .map(|&row| Id(row, PhantomData))
    }

    /// The row of `key`, made with a default value if there is none.
    pub(crate) fn intern(&mut self, key: &K) -> Id<V> {
        if let Some(id) = self.id(key) {
            return id;
        }
        let Self { rows, index, hasher } = self;
        if rows.len() == rows.capacity() {
            // A quarter more rather than double: at a hundred thousand rows the slack would be most of the memory.
            rows.reserve_exact(rows.len() / 4 + 4);
        }
        // Four billion rows would need hundreds of gigabytes; memory runs out before the number does.
        let row = rows.insert((key.clone(), V::default())) as u32;
        index.insert_unique(hasher.hash_one(key), row, |&row| hasher.hash_one(&rows[row as usize].0));
        Id(row, PhantomData)
    }

    /// Removes a row; its number may be given to another.
    pub(crate) fn remove(&mut self, id: Id<V>) -> V {
        let (key, value) = self.rows.remove(id.row());
        if let Ok(entry) = self.index.find_entry(self.hasher.hash_one(&key), |&row| row == id.0) {
            entry.remove();
        }
        value
    }

    /// The key of a row.
    pub(crate) fn key(&self, id: Id<V>) -> &K {
        &self.rows[id.row()].0
    }

    /// A row, unless it was removed.
    pub(crate) fn get(&self, id: Id<V>) -> Option<&V> {
        self.rows.get(id.row()).map(|(_, value)| value)
    }

    /// All rows, in an order that depends only on the history of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<V>, &K, &V)> {
        self.rows.iter().map(|(row, (key, value))| (Id(row as u32, PhantomData), key, value))
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

impl<K, V> Index<Id<V>> for Table<K, V> {
    type Output = V;

    fn index(&self, id: Id<V>) -> &V {
        &self.rows[id.row()].1
    }
}

impl<K, V> IndexMut<Id<V>> for Table<K, V> {
    fn index_mut(&mut self, id: Id<V>) -> &mut V {
        &mut self.rows[id.row()].1
    }
}

// Derived, these would ask the same of `V`.
impl<V> Clone for Id<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Id<V> {}
impl<V> PartialEq for Id<V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<V> Eq for Id<V> {}
impl<V> PartialOrd for Id<V> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<V> Ord for Id<V> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<V> fmt::Debug for Id<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_row_is_not_found_and_its_number_is_used_again() {
        let mut table: Table<&str, u8> = Table::default();
        let (a, b) = (table.intern(&"a"), table.intern(&"b"));
        table[b] = 2;
        table.remove(a);
        assert_eq!((table.id(&"a"), table.id(&"b"), table.len()), (None, Some(b), 1));
        let c = table.intern(&"c");
        assert_eq!((c, table[c], table.key(c)), (a, 0, &"c"));
        assert_eq!(
            table.iter().map(|(_, key, value)| (*key, *value)).collect::<alloc::vec::Vec<_>>(),
            [("c", 0), ("b", 2)]
        );
    }
}
