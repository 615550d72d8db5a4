//! Rows found by key once and by number ever after.
//!
//! Everything the tracker knows of (addresses, locations, nodes, services, …) refers to everything else by a 4-byte
//! [`Id`], so that a hundred thousand addresses stay small, and no key is hashed or compared twice for one change.

use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slab::Slab;

/// The number of a row of a `Table<_, V>`, from 1; good until that row is removed, then used again.
pub(crate) struct Id<V>(NonZeroU32, PhantomData<fn() -> V>);

impl<V> Id<V> {
    fn of(row: usize) -> Self {
        // Four billion rows would need hundreds of gigabytes: memory runs out before the number does.
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(row).unwrap_or(u32::MAX)), PhantomData)
    }

    fn row(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A table of `V`s, each with a key.
///
/// Hashing is seeded with a constant: the order of the hash index is never looked at, and equal histories must give
/// equal numbers.
#[derive(Clone)]
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
            .map(|&row| Id::of(row as usize))
    }

    /// The row of `key`, made with a default value if there is none.
    pub(crate) fn intern(&mut self, key: &K) -> Id<V> {
        if let Some(id) = self.id(key) {
            return id;
        }
        let Self { rows, index, hasher } = self;
        if rows.len() == rows.capacity() {
            // An eighth more rather than double: at a hundred thousand rows the slack would be most of the memory.
            rows.reserve_exact(rows.len() / 8 + 4);
        }
        let id = Id::of(rows.insert((key.clone(), V::default())));
        index.insert_unique(hasher.hash_one(key), id.row() as u32, |&row| {
            hasher.hash_one(&rows[row as usize].0)
        });
        id
    }

    /// Removes a row; its number may be given to another.
    pub(crate) fn remove(&mut self, id: Id<V>) -> V {
        let (key, value) = self.rows.remove(id.row());
        if let Ok(entry) = self.index.find_entry(self.hasher.hash_one(&key), |&row| row as usize == id.row())
        {
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
        self.rows.iter().map(|(row, (key, value))| (Id::of(row), key, value))
    }

    /// All rows, likewise.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = (K, V)> {
        self.rows.into_iter().map(|(_, row)| row)
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

/// A set of rows, sorted: half as large as a tree, and as fast for the few hundred that a node has pods.
pub(crate) struct IdSet<V>(Vec<Id<V>>);

impl<V> IdSet<V> {
    pub(crate) fn insert(&mut self, id: Id<V>) {
        if let Err(at) = self.0.binary_search(&id) {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(self.0.len() / 4 + 4);
            }
            self.0.insert(at, id);
        }
    }

    pub(crate) fn remove(&mut self, id: Id<V>) {
        if let Ok(at) = self.0.binary_search(&id) {
            self.0.remove(at);
            if self.0.len() < self.0.capacity() / 4 {
                self.0.shrink_to(self.0.len() * 2);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Id<V>> {
        self.0.iter().copied()
    }
}

impl<V> Clone for IdSet<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Default for IdSet<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> fmt::Debug for IdSet<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
impl<V> Hash for Id<V> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
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
            table.iter().map(|(_, key, value)| (*key, *value)).collect::<Vec<_>>(),
            [("c", 0), ("b", 2)]
        );
    }
}
