//! A map that keeps the insertion order of its keys.

use std::hash::Hash;
use std::sync::Arc;

use super::PersistentMap;

/// Values by key, iterated in the insertion order of the keys. Every operation is logarithmic or
/// better; clones are cheap and share unchanged entries.
#[derive(Clone, Debug)]
pub struct Ordered<K, V> {
    positions: PersistentMap<K, u64>,
    values: imbl::OrdMap<u64, Arc<(K, V)>>,
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self {
            positions: PersistentMap::default(),
            values: imbl::OrdMap::default(),
            next: 0,
        }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Ordered<K, V> {
    /// The same values in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.values.len() == other.values.len()
            && self
                .values
                .values()
                .zip(other.values.values())
                .all(|(one, another)| Arc::ptr_eq(one, another) || one == another)
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Ordered<K, V> {
    /// Sets a value and returns the previous one, whose position it takes.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        self.positions.insert(key.clone(), self.next);
        self.values.insert(self.next, Arc::new((key, value)));
        self.next += 1;
        None
    }

    /// Removes a value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let position = self.positions.remove(key)?;
        let entry = self.values.remove(&position)?;
        Some(Arc::try_unwrap(entry).map_or_else(|shared| shared.1.clone(), |(_, value)| value))
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(self.positions.get(key)?).map(|entry| &entry.1)
    }

    /// The stored key that equals `key`.
    pub fn key(&self, key: &K) -> Option<&K> {
        self.values.get(self.positions.get(key)?).map(|entry| &entry.0)
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.values.get_mut(self.positions.get(key)?)?;
        Some(&mut Arc::make_mut(entry).1)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.values().map(|entry| (&entry.0, &entry.1))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Ordered;

    #[test]
    fn ordered_iterates_in_insertion_order() {
        let mut map = Ordered::default();
        for (key, value) in [("c", 1), ("a", 2), ("b", 3)] {
            assert_eq!(map.insert(key, value), None);
        }
        assert_eq!(map.insert("a", 4), Some(2));
        assert_eq!(map.remove(&"c"), Some(1));
        assert_eq!(map.remove(&"c"), None);
        map.insert("c", 5);
        assert_eq!(
            map.iter().collect::<Vec<_>>(),
            [(&"a", &4), (&"b", &3), (&"c", &5)]
        );
        assert_eq!((map.get(&"b"), map.get(&"x"), map.len()), (Some(&3), None, 3));
    }
}
