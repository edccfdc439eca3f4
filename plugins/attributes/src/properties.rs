//! The properties of one agent, and searches for the same field of many agents.

use std::cell::Cell;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::fields::Property;

/// The properties of an agent that constraints use.
#[derive(Debug, Default)]
pub struct AgentProperties {
    /// The index of the agent's fields in [`FieldLists`].
    fields: usize,
    /// The value of each field, by the value's number.
    values: Vec<usize>,
}

/// The lists of fields that agents have, by the fields' numbers. Each list is stored once, because most
/// agents have the same attributes in the same order. A list may contain an attribute more than once.
#[derive(Debug, Default)]
pub struct FieldLists(IndexSet<Vec<usize>, FxBuildHasher>);

impl FieldLists {
    /// The number of lists.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no lists.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, list: usize) -> &[usize] {
        self.0.get_index(list).map_or(&[], Vec::as_slice)
    }

    /// The properties of an agent, in its order. An attribute may occur more than once.
    pub fn properties<'a>(&'a self, agent: &'a AgentProperties) -> impl Iterator<Item = Property> + 'a {
        let fields = self.get(agent.fields).iter();
        let property = |(&field, &value)| Property { field, value };
        fields.zip(&agent.values).map(property)
    }

    /// Replaces an agent's properties. `property` returns the numbers of a value's field and of the
    /// value, given a property that may be the same: the one that the agent, or `guesses` if the
    /// agent has none, has at this position.
    pub fn replace<Value>(
        &mut self,
        agent: &mut AgentProperties,
        guesses: &AgentProperties,
        values: impl Iterator<Item = Value>,
        mut property: impl FnMut(Value, Option<Property>) -> Property,
    ) {
        let is_new = agent.values.is_empty();
        if is_new {
            agent.fields = guesses.fields;
            agent.values.reserve_exact(values.size_hint().0);
        }
        let guessed_fields = self.get(agent.fields);
        // The fields, as soon as they differ from the guessed ones.
        let mut other_fields = None;
        let mut count = 0;
        for value in values {
            let guessed_values = if is_new { &guesses.values } else { &agent.values };
            let guess = guessed_fields.get(count).zip(guessed_values.get(count));
            let guess = guess.map(|(&field, &value)| Property { field, value });
            let Property { field, value } = property(value, guess);
            if other_fields.is_none() && guessed_fields.get(count) != Some(&field) {
                other_fields = guessed_fields.get(..count).map(<[usize]>::to_vec);
            }
            if let Some(fields) = &mut other_fields {
                fields.push(field);
            }
            match agent.values.get_mut(count) {
                Some(old) => *old = value,
                None => agent.values.push(value),
            }
            count += 1;
        }
        agent.values.truncate(count);
        if count < guessed_fields.len() && other_fields.is_none() {
            other_fields = guessed_fields.get(..count).map(<[usize]>::to_vec);
        }
        if let Some(fields) = other_fields {
            agent.fields = self.0.insert_full(fields).0;
        }
    }
}

impl AgentProperties {
    /// Replaces the properties by copies.
    pub fn copy_from(&mut self, other: &Self) {
        self.fields = other.fields;
        self.values.clone_from(&other.values);
    }
}

/// A search for one field of many agents. It remembers where the field is in the last agent's list of
/// fields.
#[derive(Debug)]
pub struct FieldSearch<'agents> {
    lists: &'agents FieldLists,
    field: usize,
    /// The last agent's list; at first one that does not exist.
    last_list: Cell<usize>,
    /// The position of the field in that list; one beyond its end if the list does not contain the
    /// field.
    position: Cell<usize>,
}

impl<'agents> FieldSearch<'agents> {
    /// A search for the field with this number.
    pub fn new(lists: &'agents FieldLists, field: usize) -> Self {
        Self {
            lists,
            field,
            last_list: Cell::new(usize::MAX),
            position: Cell::new(usize::MAX),
        }
    }

    /// Returns the number of the agent's value of the field. For an attribute that the agent has twice
    /// it is the first value.
    #[inline]
    pub fn value(&self, agent: &AgentProperties) -> Option<usize> {
        if agent.fields != self.last_list.get() {
            self.search(agent.fields);
        }
        agent.values.get(self.position.get()).copied()
    }

    #[cold]
    #[inline(never)]
    fn search(&self, list: usize) {
        let position = self.lists.get(list).iter().position(|field| *field == self.field);
        self.last_list.set(list);
        self.position.set(position.unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Properties with these fields, each with its position as value.
    fn properties(fields: &[usize]) -> Vec<Property> {
        let property = |(value, &field)| Property { field, value };
        fields.iter().enumerate().map(property).collect()
    }

    fn replace(
        lists: &mut FieldLists,
        agent: &mut AgentProperties,
        guesses: &AgentProperties,
        fields: &[usize],
    ) {
        let properties = properties(fields).into_iter();
        lists.replace(agent, guesses, properties, |property, _| property);
    }

    #[test]
    fn search_finds_the_first_value_in_any_list_of_fields() {
        let orders: [&[usize]; 8] = [
            &[5, 6, 7],
            &[5, 7, 6],
            &[7],
            &[],
            &[7, 5, 7, 6],
            &[6, 5, 7, 7],
            &[5, 5, 6],
            &[5, 6, 7, 8],
        ];
        let mut lists = FieldLists::default();
        for before in orders {
            for after in orders {
                let [mut guesses, mut added, mut changed] = [(); 3].map(|()| AgentProperties::default());
                replace(&mut lists, &mut guesses, &AgentProperties::default(), before);
                replace(&mut lists, &mut added, &guesses, after);
                changed.copy_from(&guesses);
                replace(&mut lists, &mut changed, &AgentProperties::default(), after);
                for agent in [added, changed] {
                    let found: Vec<_> = lists.properties(&agent).collect();
                    assert_eq!(found, properties(after), "after {before:?}");
                    for field in 5..10 {
                        let search = FieldSearch::new(&lists, field);
                        let first = |fields: &[usize]| fields.iter().position(|it| *it == field);
                        assert_eq!(search.value(&guesses), first(before), "{before:?}");
                        assert_eq!(search.value(&agent), first(after), "{after:?} after {before:?}");
                        assert_eq!(search.value(&agent), first(after), "{after:?} again");
                    }
                }
            }
        }
        assert_eq!(lists.len(), orders.len());
    }
}
