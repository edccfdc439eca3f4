//! The fields of all agents: their names, and the values that each takes.

use std::cell::Cell;

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use crate::constraint::Found;

/// Results that a test keeps. A field with more values is one like the host name, whose values are
/// not shared.
const MOST_RESULTS: usize = 4096;

/// As many unused values as used ones are kept, and so many more, because an agent that leaves often
/// comes back with the same ones.
const SPARE: usize = 1024;

/// What a constraint looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `@hostname` or `hostname`.
    Hostname,
    /// `@region`
    Region,
    /// `@zone`
    Zone,
    /// An agent's attribute of that name.
    Attribute(String),
}

impl Field {
    /// The field that a constraint names.
    pub fn parse(name: &str) -> Self {
        match name {
            "@hostname" | "hostname" => Self::Hostname,
            "@region" => Self::Region,
            "@zone" => Self::Zone,
            name => Self::Attribute(name.to_owned()),
        }
    }

    /// Whether a constraint on it lifts the rule that tasks stay in the home region.
    pub fn is_fault_domain(&self) -> bool {
        matches!(self, Self::Region | Self::Zone)
    }
}

/// A field's number, and the number of a value among those of the field. [`Fields::compact`] changes
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Of [`Fields::find`].
    pub field: usize,
    /// The place in [`Fields::values`].
    pub value: usize,
}

/// The values of a field, each stored once.
pub type Values = IndexSet<Found, FixedState>;

/// The fields that agents have or had.
#[derive(Debug, Default)]
pub struct Fields {
    names: IndexSet<Field, FixedState>,
    /// By the field's number.
    values: Vec<Values>,
    /// Values of all fields, and how many of them there were after the last compaction.
    count: usize,
    count_used: usize,
}

impl Fields {
    /// The numbers for an agent's value of a field. `guess`: a property that may have the same ones,
    /// so that no search is needed.
    pub fn intern(&mut self, field: Field, value: Found, guess: Option<Property>) -> Property {
        let guess = guess.filter(|guess| self.names.get_index(guess.field) == Some(&field));
        let field = guess.map_or_else(|| self.names.insert_full(field).0, |guess| guess.field);
        if self.values.len() < self.names.len() {
            self.values.push(Values::default());
        }
        let Some(values) = self.values.get_mut(field) else {
            return Property { field, value: 0 };
        };
        if let Some(guess) = guess
            && values.get_index(guess.value) == Some(&value)
        {
            return guess;
        }
        let (value, new) = values.insert_full(value);
        self.count += usize::from(new);
        Property { field, value }
    }

    /// Whether half of the values may be unused.
    pub fn is_crowded(&self) -> bool {
        self.count > 2 * self.count_used + SPARE
    }

    /// Removes the fields and values that are not used, and renumbers the properties of all agents.
    pub fn compact<'agents>(&mut self, used: impl Iterator<Item = &'agents mut Property>) {
        let old = std::mem::take(self);
        let mut renumbered: Vec<Vec<Option<Property>>> =
            old.values.iter().map(|values| vec![None; values.len()]).collect();
        for property in used {
            let new = renumbered.get_mut(property.field);
            let Some(new) = new.and_then(|values| values.get_mut(property.value)) else {
                continue;
            };
            if let Some((field, value)) = old.get(*property)
                && new.is_none()
            {
                *new = Some(self.intern(field.clone(), value.clone(), None));
            }
            *property = new.unwrap_or(*property);
        }
        self.count_used = self.count;
    }

    fn get(&self, property: Property) -> Option<(&Field, &Found)> {
        let field = self.names.get_index(property.field)?;
        Some((field, self.values(property.field)?.get_index(property.value)?))
    }

    /// The field's number, if an agent has or had the field.
    pub fn find(&self, field: &Field) -> Option<usize> {
        self.names.get_index_of(field)
    }

    /// All fields, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&Field, usize)> {
        self.names.iter().zip(0..)
    }

    /// The values of a field.
    pub fn values(&self, field: usize) -> Option<&Values> {
        self.values.get(field)
    }
}

/// A test of a value.
pub trait ValueTest {
    /// Whether the value passes.
    fn passes(&self, value: &Found) -> bool;
}

/// A test of a field's values that is asked about many agents. It keeps its results, because agents
/// share values.
#[derive(Debug)]
pub struct FieldTest<'agents, T> {
    /// The field's number.
    pub field: usize,
    values: &'agents Values,
    /// The test.
    pub test: T,
    /// By the value's number.
    results: Vec<Cell<Option<bool>>>,
}

impl<'agents, T: ValueTest> FieldTest<'agents, T> {
    /// A test of the field with this number.
    pub fn new(fields: &'agents Fields, field: usize, test: T) -> Option<Self> {
        let values = fields.values(field)?;
        let kept = Some(values.len())
            .filter(|kept| *kept <= MOST_RESULTS)
            .unwrap_or_default();
        Some(Self {
            field,
            values,
            test,
            results: vec![Cell::new(None); kept],
        })
    }

    /// Whether the value with this number passes.
    pub fn passes(&self, value: usize) -> bool {
        let kept = self.results.get(value);
        if let Some(result) = kept.and_then(Cell::get) {
            return result;
        }
        let result = self
            .values
            .get_index(value)
            .is_some_and(|value| self.test.passes(value));
        if let Some(kept) = kept {
            kept.set(Some(result));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Found {
        Found::name(name.to_owned())
    }

    fn rack() -> Field {
        Field::Attribute("rack".to_owned())
    }

    /// Counts what it is asked.
    #[derive(Default)]
    struct Counted(Cell<u32>);

    impl ValueTest for Counted {
        fn passes(&self, value: &Found) -> bool {
            self.0.set(self.0.get() + 1);
            value.text.len() == 2
        }
    }

    #[test]
    fn unused_fields_and_values_are_removed() {
        let mut fields = Fields::default();
        fields.intern(Field::Hostname, named("gone"), None);
        let mut kept = [0, 1, 0].map(|n| fields.intern(rack(), named(&format!("r{n}")), None));
        for n in 0..20 * SPARE {
            let attribute = Field::Attribute(format!("a{}", n / 100));
            let property = fields.intern(attribute.clone(), named(&n.to_string()), Some(kept[0]));
            assert_eq!(fields.get(property), Some((&attribute, &named(&n.to_string()))));
            if fields.is_crowded() {
                fields.compact(kept.iter_mut());
                assert!(!fields.is_crowded());
                assert_eq!(fields.iter().collect::<Vec<_>>(), [(&rack(), 0)]);
                assert_eq!(fields.values(0).unwrap().len(), 2);
            }
            for (property, name) in kept.into_iter().zip(["r0", "r1", "r0"]) {
                assert_eq!(fields.get(property), Some((&rack(), &named(name))));
            }
        }
        assert!(fields.count <= SPARE + 5, "{}", fields.count);
        assert!(fields.names.len() < 20, "{}", fields.names.len());
    }

    #[test]
    fn guess_saves_the_search_and_decides_nothing() {
        let mut fields = Fields::default();
        let [r1, r2] = ["r1", "r2"].map(|name| fields.intern(rack(), named(name), None));
        let host = fields.intern(Field::Hostname, named("r1"), None);
        for guess in [
            None,
            Some(r1),
            Some(r2),
            Some(host),
            Some(Property { field: 7, value: 7 }),
        ] {
            assert_eq!(fields.intern(rack(), named("r1"), guess), r1);
            assert_eq!(fields.intern(Field::Hostname, named("r1"), guess), host);
        }
    }

    #[test]
    fn each_value_is_tested_once() {
        let mut fields = Fields::default();
        let agents: Vec<_> = (0..100)
            .map(|n| fields.intern(rack(), named(&format!("r{}", n % 20)), None))
            .collect();
        let test = FieldTest::new(&fields, agents[0].field, Counted::default()).unwrap();
        let passed = agents.iter().filter(|agent| test.passes(agent.value)).count();
        assert_eq!(passed, 50);
        assert_eq!(test.test.0.get(), 20);
    }

    #[test]
    fn results_are_bounded() {
        let mut fields = Fields::default();
        let hosts: Vec<_> = (0..=MOST_RESULTS)
            .map(|n| fields.intern(Field::Hostname, named(&format!("h{n}")), None))
            .collect();
        let test = FieldTest::new(&fields, hosts[0].field, Counted::default()).unwrap();
        assert!(test.results.is_empty());
        let passed = hosts.iter().filter(|host| test.passes(host.value)).count();
        assert_eq!(passed, 10);
    }
}
