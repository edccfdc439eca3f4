//! Values that many agents share, each stored once under a number.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

use crate::hash::QuickHash;

/// Numbers for values. The number of a value that was removed is given to another one.
#[derive(Debug)]
pub struct Interner<T> {
    /// The numbers of the values, by the values' hashes.
    ids: HashTable<u32>,
    /// By number.
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    hash: u64,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            ids: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The value's number. `guess`: a number in use that may be the value's, so that no search is
    /// needed.
    pub fn intern(&mut self, value: T, guess: Option<u32>) -> u32 {
        let hash = hash(&value);
        let is_it = |id: &u32| {
            let entry = self.entries.get(*id as usize);
            entry.is_some_and(|entry| entry.hash == hash && entry.value == value)
        };
        let known = guess
            .filter(is_it)
            .or_else(|| self.ids.find(hash, is_it).copied());
        if let Some(id) = known {
            return id;
        }
        let entry = Entry { value, hash };
        let reused = self.free.pop();
        let id =
            if let Some((id, place)) = reused.and_then(|id| Some((id, self.entries.get_mut(id as usize)?))) {
                *place = entry;
                id
            } else {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            };
        let entries = &self.entries;
        let hash_of = |id: &u32| entries.get(*id as usize).map_or(0, |entry| entry.hash);
        self.ids.insert_unique(hash, id, hash_of);
        id
    }

    /// Removes the values whose number is not used.
    pub fn retain(&mut self, mut used: impl FnMut(u32) -> bool) {
        let free = &mut self.free;
        self.ids.retain(|id| {
            let used = used(*id);
            if !used {
                free.push(*id);
            }
            used
        });
    }

    /// The value with this number.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.entries.get(id as usize).map(|entry| &entry.value)
    }

    /// The value's number, if it has one.
    pub fn find(&self, value: &T) -> Option<u32> {
        let is_it = |id: &u32| self.get(*id) == Some(value);
        self.ids.find(hash(value), is_it).copied()
    }

    /// The values with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.ids.iter().filter_map(|id| Some((self.get(*id)?, *id)))
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Every number is below this one.
    pub fn bound(&self) -> usize {
        self.entries.len()
    }
}

fn hash(value: &impl Hash) -> u64 {
    QuickHash::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_number() {
        let mut interner = Interner::default();
        let ids: Vec<_> = (0..5000).map(|n| interner.intern(n.to_string(), None)).collect();
        for (n, id) in ids.iter().enumerate() {
            for guess in [None, Some(*id), Some(0), Some(9999)] {
                assert_eq!(interner.intern(n.to_string(), guess), *id);
            }
            assert_eq!(interner.find(&n.to_string()), Some(*id));
            assert_eq!(interner.get(*id), Some(&n.to_string()));
        }
        assert_eq!(interner.find(&"other".to_owned()), None);
        assert_eq!(interner.iter().count(), 5000);
    }

    #[test]
    fn numbers_of_removed_values_are_used_again() {
        let mut interner = Interner::default();
        let kept = interner.intern("kept".to_owned(), None);
        for n in 0..1000 {
            let id = interner.intern(n.to_string(), None);
            assert_eq!(interner.get(id), Some(&n.to_string()));
            interner.retain(|id| id == kept);
            assert_eq!(interner.find(&n.to_string()), None);
        }
        assert_eq!(interner.bound(), 2);
        let left: Vec<_> = interner.iter().collect();
        assert_eq!(left, [(&"kept".to_owned(), kept)]);
    }
}
