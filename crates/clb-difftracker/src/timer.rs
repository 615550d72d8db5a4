//! Deadlines with reasons.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::ids::Timestamp;

/// Deadlines, at most one per key.
#[derive(Clone)]
pub(crate) struct Timers<K> {
    due: BTreeSet<(Timestamp, K)>,
    by_key: BTreeMap<K, Timestamp>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets the deadline of `key`, in place of one it may have.
    pub(crate) fn set(&mut self, key: K, at: Timestamp) {
        self.clear(key);
        self.by_key.insert(key, at);
        self.due.insert((at, key));
    }

    /// Forgets the deadline of `key`.
    pub(crate) fn clear(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.due.remove(&(at, key));
        }
    }

    /// The deadline of `key`, if it has one.
    pub(crate) fn get(&self, key: K) -> Option<Timestamp> {
        self.by_key.get(&key).copied()
    }

    /// The keys that have a deadline, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.due.iter().map(|(_, key)| *key)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<(Timestamp, K)> {
        self.due.first().copied()
    }

    /// Takes the earliest deadline if it has come.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Option<K> {
        let (_, key) = self.next().filter(|(at, _)| *at <= now)?;
        self.clear(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_deadline_and_the_earliest_expires_first() {
        let at = Timestamp::from_millis;
        let mut timers = Timers::default();
        timers.set('a', at(5));
        timers.set('b', at(3));
        timers.set('a', at(2));
        assert_eq!((timers.next(), timers.get('a')), (Some((at(2), 'a')), Some(at(2))));
        assert_eq!(
            [timers.expire(at(4)), timers.expire(at(4)), timers.expire(at(4))],
            [Some('a'), Some('b'), None]
        );
    }
}
