//! A map that remembers in which order its keys came.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, iterated in the order in which the keys were first put. Every operation is logarithmic or better.
#[derive(Clone, Debug)]
pub struct Ordered<K, V> {
    places: HashMap<K, u64>,
    values: BTreeMap<u64, (K, V)>,
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            values: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Ordered<K, V> {
    /// The same values in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.values.values().eq(other.values.values())
    }
}

impl<K: Clone + Eq + Hash, V> Ordered<K, V> {
    /// Puts a value; one that is there already keeps its place and is returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some((_, old)) = self.places.get(&key).and_then(|place| self.values.get_mut(place)) {
            return Some(std::mem::replace(old, value));
        }
        self.places.insert(key.clone(), self.next);
        self.values.insert(self.next, (key, value));
        self.next += 1;
        None
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.values.remove(&place).map(|(_, value)| value)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(self.places.get(key)?).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(self.places.get(key)?).map(|(_, value)| value)
    }

    /// All of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.values().map(|(key, value)| (key, value))
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
