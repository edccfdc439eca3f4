//! A list without doubles.

use std::collections::HashSet;
use std::hash::Hash;

/// Beyond this many values searching is left to an index; nearly all names have fewer.
const FEW: usize = 16;

/// Values in the order they came, each once.
#[derive(Debug)]
pub(super) struct Distinct<T> {
    values: Vec<T>,
    index: Option<HashSet<T>>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            index: None,
        }
    }
}

impl<T: Clone + Eq + Hash> Distinct<T> {
    /// Whether the value was new.
    pub(super) fn insert(&mut self, value: T) -> bool {
        let new = match &mut self.index {
            Some(index) => index.insert(value.clone()),
            None => !self.values.contains(&value),
        };
        if new {
            self.values.push(value);
            if self.values.len() > FEW && self.index.is_none() {
                self.index = Some(self.values.iter().cloned().collect());
            }
        }
        new
    }

    pub(super) fn into_vec(self) -> Vec<T> {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::Distinct;

    #[test]
    fn holds_each_value_once_in_order() {
        let mut distinct = Distinct::default();
        let news = (0..100).chain(0..101).filter(|n| distinct.insert(*n)).count();
        assert_eq!(news, 101);
        assert_eq!(distinct.into_vec(), (0..=100).collect::<Vec<_>>());
    }
}
