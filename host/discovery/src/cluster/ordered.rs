//! A map that remembers in which order its keys came.

use std::hash::Hash;
use std::sync::Arc;

use crate::map::Map;

/// Values by key, iterated in the order in which the keys were first put. Every operation is logarithmic or better; a clone
/// costs nothing and shares what neither side changes.
#[derive(Clone, Debug)]
pub struct Ordered<K, V> {
    places: Map<K, u64>,
    values: imbl::OrdMap<u64, Arc<(K, V)>>,
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self {
            places: Map::default(),
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
    /// Puts a value; one that is there already keeps its place and is returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        self.places.insert(key.clone(), self.next);
        self.values.insert(self.next, Arc::new((key, value)));
        self.next += 1;
        None
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        let entry = self.values.remove(&place)?;
        Some(Arc::try_unwrap(entry).map_or_else(|shared| shared.1.clone(), |(_, value)| value))
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(self.places.get(key)?).map(|entry| &entry.1)
    }

    /// A key as it was first put.
    pub fn key(&self, key: &K) -> Option<&K> {
        self.values.get(self.places.get(key)?).map(|entry| &entry.0)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.values.get_mut(self.places.get(key)?)?;
        Some(&mut Arc::make_mut(entry).1)
    }

    /// All of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.values().map(|entry| (&entry.0, &entry.1))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Ordered;

    #[test]
    fn keeps_the_order_of_first_coming() {
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
