//! The fields of all agents: their names, and the values that each takes.

use std::cell::Cell;

use crate::constraint::Found;
use crate::interner::Interner;

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

/// A field's number, and the number of a value among those of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Of [`Fields::find`].
    pub field: u32,
    /// Of [`Fields::values`].
    pub value: u32,
}

/// The fields that agents have or had.
#[derive(Debug, Default)]
pub struct Fields {
    names: Interner<Field>,
    /// By the field's number.
    values: Vec<Interner<Found>>,
    /// Values of all fields, and how many of them there were when unused ones were removed.
    count: usize,
    count_used: usize,
}

impl Fields {
    /// The numbers for an agent's value of a field. `guess`: a property that may have the same ones,
    /// so that no search is needed.
    pub fn intern(&mut self, field: Field, value: Found, guess: Option<Property>) -> Property {
        let guess = guess.filter(|guess| self.names.get(guess.field) == Some(&field));
        let field = guess.map_or_else(|| self.names.intern(field, None), |guess| guess.field);
        if self.values.len() < self.names.bound() {
            self.values.push(Interner::default());
        }
        let Some(values) = self.values.get_mut(field as usize) else {
            return Property { field, value: 0 };
        };
        let before = values.len();
        let value = values.intern(value, guess.map(|guess| guess.value));
        self.count += values.len() - before;
        Property { field, value }
    }

    /// Whether at least half of the values may be unused.
    pub fn is_crowded(&self) -> bool {
        self.count > 2 * self.count_used + SPARE
    }

    /// Removes the fields and values that are not used.
    pub fn retain(&mut self, used: impl Iterator<Item = Property>) {
        let mut marks: Vec<_> = self
            .values
            .iter()
            .map(|values| vec![false; values.bound()])
            .collect();
        for property in used {
            let mark = marks.get_mut(property.field as usize);
            if let Some(mark) = mark.and_then(|marks| marks.get_mut(property.value as usize)) {
                *mark = true;
            }
        }
        let marked = |marks: &[bool], id: u32| marks.get(id as usize).copied().unwrap_or(false);
        for (values, marks) in self.values.iter_mut().zip(&marks) {
            values.retain(|id| marked(marks, id));
        }
        self.names.retain(|id| {
            let values = self.values.get(id as usize);
            values.is_some_and(|values| !values.is_empty())
        });
        self.count = self.values.iter().map(Interner::len).sum();
        self.count_used = self.count;
    }

    /// The field's number, if an agent has the field.
    pub fn find(&self, field: &Field) -> Option<u32> {
        self.names.find(field)
    }

    /// All fields, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&Field, u32)> {
        self.names.iter()
    }

    /// The values of a field.
    pub fn values(&self, field: u32) -> Option<&Interner<Found>> {
        self.values.get(field as usize)
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
    pub field: u32,
    values: &'agents Interner<Found>,
    /// The test.
    pub test: T,
    /// By the value's number.
    results: Vec<Cell<Option<bool>>>,
}

impl<'agents, T: ValueTest> FieldTest<'agents, T> {
    /// A test of the field with this number.
    pub fn new(fields: &'agents Fields, field: u32, test: T) -> Option<Self> {
        let values = fields.values(field)?;
        let kept = if values.bound() <= MOST_RESULTS {
            values.bound()
        } else {
            0
        };
        Some(Self {
            field,
            values,
            test,
            results: vec![Cell::new(None); kept],
        })
    }

    /// Whether the value with this number passes.
    pub fn passes(&self, value: u32) -> bool {
        let kept = self.results.get(value as usize);
        if let Some(result) = kept.and_then(Cell::get) {
            return result;
        }
        let result = self
            .values
            .get(value)
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
        let kept = fields.intern(rack(), named("r1"), None);
        for n in 0..20 * SPARE {
            let attribute = Field::Attribute(format!("a{}", n / 100));
            let property = fields.intern(attribute, named(&n.to_string()), Some(kept));
            let values = fields.values(property.field).unwrap();
            assert_eq!(values.get(property.value), Some(&named(&n.to_string())));
            if fields.is_crowded() {
                fields.retain([kept].into_iter());
                assert!(!fields.is_crowded());
                assert_eq!(fields.iter().collect::<Vec<_>>(), [(&rack(), kept.field)]);
            }
        }
        assert!(fields.count <= SPARE + 2, "{}", fields.count);
        assert!(fields.names.bound() < 20, "{}", fields.names.bound());
        let stored: usize = fields.values.iter().map(Interner::bound).sum();
        assert!(stored <= SPARE + 200, "{stored}");
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
