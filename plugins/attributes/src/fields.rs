//! The fields of all agents: their names, and the values that each takes.

use std::cell::Cell;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::value::FieldValue;

/// Maximum number of values of a field for which a test caches its results. A field with more values
/// is one like the host name, whose values agents do not share.
const MAX_CACHED_RESULTS: usize = 4096;

/// The bits of a cached result.
const TESTED: u8 = 1;
const PASSES: u8 = 2;

/// Number of unused values that are retained in addition to as many as are used. They are retained
/// because an agent that leaves often returns with the same values.
const UNUSED_VALUES_MARGIN: usize = 1024;

/// A property of agents that a constraint can test.
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

    /// Whether a constraint on this field lifts the rule that tasks stay in the home region.
    pub fn is_fault_domain(&self) -> bool {
        matches!(self, Self::Region | Self::Zone)
    }
}

/// A field's number, and the number of one of the field's values. [`Fields::compact`] changes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// The field's number, as returned by [`Fields::find`].
    pub field: usize,
    /// The value's index in [`Fields::values`].
    pub value: usize,
}

/// The values of a field, each stored once.
pub type Values = IndexSet<FieldValue, FxBuildHasher>;

/// The fields that agents have or had.
#[derive(Debug, Default)]
pub struct Fields {
    names: IndexSet<Field, FxBuildHasher>,
    /// The values of each field, by the field's number.
    values: Vec<Values>,
    /// The number of values of all fields.
    count: usize,
    /// What `count` was after the last compaction.
    count_after_compaction: usize,
}

impl Fields {
    /// Stores an agent's value of a field, if it is new, and returns the numbers of both. `guess` is a
    /// property that may have the same field and value; if it has, no search is needed.
    pub fn intern(&mut self, field: Field, value: FieldValue, guess: Option<Property>) -> Property {
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
        let (value, is_new) = values.insert_full(value);
        self.count += usize::from(is_new);
        Property { field, value }
    }

    /// Whether half of the values may be unused.
    pub fn needs_compaction(&self) -> bool {
        self.count > 2 * self.count_after_compaction + UNUSED_VALUES_MARGIN
    }

    /// Removes the fields and values that are not used, and renumbers the properties of all agents.
    pub fn compact<'agents>(&mut self, used: impl Iterator<Item = &'agents mut Property>) {
        let old = std::mem::take(self);
        let mut renumbered: Vec<Vec<Option<Property>>> =
            old.values.iter().map(|values| vec![None; values.len()]).collect();
        for property in used {
            let replacements = renumbered.get_mut(property.field);
            let Some(replacement) = replacements.and_then(|values| values.get_mut(property.value)) else {
                continue;
            };
            if let Some((field, value)) = old.get(*property)
                && replacement.is_none()
            {
                *replacement = Some(self.intern(field.clone(), value.clone(), None));
            }
            *property = replacement.unwrap_or(*property);
        }
        self.count_after_compaction = self.count;
    }

    fn get(&self, property: Property) -> Option<(&Field, &FieldValue)> {
        let field = self.names.get_index(property.field)?;
        Some((field, self.values(property.field)?.get_index(property.value)?))
    }

    /// Returns the field's number, if an agent has or had the field.
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
    fn passes(&self, value: &FieldValue) -> bool;
}

/// A test of a field's values, for many agents. It caches its results, because agents share values.
#[derive(Debug)]
pub struct FieldTest<'agents, T> {
    /// The field's number.
    pub field: usize,
    values: &'agents Values,
    /// The test.
    pub value_test: T,
    /// The cached results, by the value's number: [`TESTED`] and [`PASSES`], as bits. An `Option<bool>`
    /// would be compiled to a jump table, whose jumps processors predict badly. Empty for a field with
    /// too many values.
    results: Vec<Cell<u8>>,
}

impl<'agents, T: ValueTest> FieldTest<'agents, T> {
    /// A test of the field with this number.
    pub fn new(fields: &'agents Fields, field: usize, value_test: T) -> Option<Self> {
        let values = fields.values(field)?;
        let cached = Some(values.len())
            .filter(|count| *count <= MAX_CACHED_RESULTS)
            .unwrap_or_default();
        Some(Self {
            field,
            values,
            value_test,
            results: vec![Cell::new(0); cached],
        })
    }

    /// Whether the value with this number passes.
    #[inline]
    pub fn passes(&self, value: usize) -> bool {
        let cached = self.results.get(value).map_or(0, Cell::get);
        if cached & TESTED == 0 {
            return self.test(value);
        }
        cached & PASSES != 0
    }

    #[cold]
    #[inline(never)]
    fn test(&self, value: usize) -> bool {
        let result = self
            .values
            .get_index(value)
            .is_some_and(|value| self.value_test.passes(value));
        if let Some(cached) = self.results.get(value) {
            cached.set(if result { TESTED | PASSES } else { TESTED });
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_value(name: &str) -> FieldValue {
        FieldValue::from_text(name.to_owned())
    }

    fn rack() -> Field {
        Field::Attribute("rack".to_owned())
    }

    /// Counts its calls.
    #[derive(Default)]
    struct CountingTest(Cell<u32>);

    impl ValueTest for CountingTest {
        fn passes(&self, value: &FieldValue) -> bool {
            self.0.set(self.0.get() + 1);
            value.text.len() == 2
        }
    }

    #[test]
    fn unused_fields_and_values_are_removed() {
        let mut fields = Fields::default();
        fields.intern(Field::Hostname, text_value("gone"), None);
        let mut used = [0, 1, 0].map(|n| fields.intern(rack(), text_value(&format!("r{n}")), None));
        for n in 0..20 * UNUSED_VALUES_MARGIN {
            let attribute = Field::Attribute(format!("a{}", n / 100));
            let property = fields.intern(attribute.clone(), text_value(&n.to_string()), Some(used[0]));
            assert_eq!(
                fields.get(property),
                Some((&attribute, &text_value(&n.to_string())))
            );
            if fields.needs_compaction() {
                fields.compact(used.iter_mut());
                assert!(!fields.needs_compaction());
                assert_eq!(fields.iter().collect::<Vec<_>>(), [(&rack(), 0)]);
                assert_eq!(fields.values(0).unwrap().len(), 2);
            }
            for (property, name) in used.into_iter().zip(["r0", "r1", "r0"]) {
                assert_eq!(fields.get(property), Some((&rack(), &text_value(name))));
            }
        }
        assert!(fields.count <= UNUSED_VALUES_MARGIN + 5, "{}", fields.count);
        assert!(fields.names.len() < 20, "{}", fields.names.len());
    }

    #[test]
    fn guess_saves_the_search_and_decides_nothing() {
        let mut fields = Fields::default();
        let [r1, r2] = ["r1", "r2"].map(|name| fields.intern(rack(), text_value(name), None));
        let host = fields.intern(Field::Hostname, text_value("r1"), None);
        for guess in [
            None,
            Some(r1),
            Some(r2),
            Some(host),
            Some(Property { field: 7, value: 7 }),
        ] {
            assert_eq!(fields.intern(rack(), text_value("r1"), guess), r1);
            assert_eq!(fields.intern(Field::Hostname, text_value("r1"), guess), host);
        }
    }

    #[test]
    fn each_value_is_tested_once() {
        let mut fields = Fields::default();
        let agents: Vec<_> = (0..100)
            .map(|n| fields.intern(rack(), text_value(&format!("r{}", n % 20)), None))
            .collect();
        let test = FieldTest::new(&fields, agents[0].field, CountingTest::default()).unwrap();
        let passed = agents.iter().filter(|agent| test.passes(agent.value)).count();
        assert_eq!(passed, 50);
        assert_eq!(test.value_test.0.get(), 20);
    }

    #[test]
    fn results_are_bounded() {
        let mut fields = Fields::default();
        let hosts: Vec<_> = (0..=MAX_CACHED_RESULTS)
            .map(|n| fields.intern(Field::Hostname, text_value(&format!("h{n}")), None))
            .collect();
        let test = FieldTest::new(&fields, hosts[0].field, CountingTest::default()).unwrap();
        assert!(test.results.is_empty());
        let passed = hosts.iter().filter(|host| test.passes(host.value)).count();
        assert_eq!(passed, 10);
    }
}
