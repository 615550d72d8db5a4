//! Things that wait, by age.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::table::Id;

/// Rows in order of the numbers under which they began to wait.
///
/// Numbers are given one after the other, so those that wait lie close together. They are kept by the page: a full
/// difference of a hundred thousand addresses then is a tree of two thousand pages, which stays in the caches.
pub(crate) struct Queue<V> {
    /// By their numbers; no page is empty.
    pages: BTreeMap<u64, Box<Page<V>>>,
    len: usize,
}

struct Page<V> {
    len: usize,
    rows: [Option<Id<V>>; PAGE],
}

/// Numbers on a page: four cache lines of them.
const PAGE: usize = 64;

/// The page of a number, and its place there.
fn place(number: u64) -> (u64, usize) {
    let page = PAGE as u64;
    (number / page, (number % page) as usize)
}

impl<V> Queue<V> {
    /// Adds a row; its number must not be taken by another.
    pub(crate) fn insert(&mut self, number: u64, row: Id<V>) {
        let (page, at) = place(number);
        let page = self.pages.entry(page).or_insert_with(|| Box::new(Page { len: 0, rows: [None; PAGE] }));
        let was_taken = page.rows[at].replace(row).is_some();
        page.len += usize::from(!was_taken);
        self.len += usize::from(!was_taken);
    }

    /// Removes what waits under a number, if anything does.
    pub(crate) fn remove(&mut self, number: u64) {
        let (number, at) = place(number);
        let Some(page) = self.pages.get_mut(&number) else { return };
        if page.rows[at].take().is_some() {
            self.len -= 1;
            page.len -= 1;
            if page.len == 0 {
                self.pages.remove(&number);
            }
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of them, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Id<V>> {
        self.pages.values().flat_map(|page| page.rows.iter().copied().flatten())
    }

    /// The number of the oldest.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let (number, page) = self.pages.first_key_value()?;
        let at = page.rows.iter().position(Option::is_some)?;
        Some(number * PAGE as u64 + at as u64)
    }
}

impl<V> Default for Queue<V> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

// Derived, this would ask the same of `V`.
impl<V> Clone for Queue<V> {
    fn clone(&self) -> Self {
        let copy = |page: &Page<V>| Page { len: page.len, rows: page.rows };
        Self {
            pages: self.pages.iter().map(|(number, page)| (*number, Box::new(copy(page)))).collect(),
            len: self.len,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::table::Table;

    #[test]
    fn what_waits_is_in_order_of_its_numbers_whatever_comes_and_goes() {
        let mut table: Table<u64, ()> = Table::default();
        let mut queue = Queue::default();
        let mut expected = BTreeMap::new();
        // Numbers near and far, some twice, in no order; most are removed again.
        for step in 0..3_000u64 {
            let number = step * 7_919 % 1_009 * (1 + step % 3 * 100);
            if step % 5 < 3 {
                let row = table.intern(&number);
                queue.insert(number, row);
                expected.insert(number, row);
            } else {
                queue.remove(number);
                expected.remove(&number);
            }
            assert_eq!((queue.len(), queue.oldest()), (expected.len(), expected.keys().next().copied()));
        }
        assert!(queue.iter().eq(expected.values().copied()) && queue.len() > 100);
        assert!(queue.clone().iter().eq(queue.iter()));
        expected.keys().collect::<Vec<_>>().into_iter().for_each(|number| queue.remove(*number));
        assert_eq!((queue.len(), queue.oldest(), queue.pages.len()), (0, None, 0));
    }
}
