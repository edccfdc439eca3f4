//! The agents: loaded once, in the form that constraints compare.

use std::rc::Rc;

use transom_sdk::log;
use transom_sdk::matcher::{Agent, Candidate};

use crate::agent_table::AgentTable;
use crate::fields::{Field, Fields, Property};
use crate::pattern::PatternCache;
use crate::properties::{AgentProperties, FieldLists};
use crate::value::FieldValue;

/// Number of unused lists of fields that are retained in addition to as many as there are agents.
const UNUSED_LISTS_MARGIN: usize = 1024;

/// The cluster's agents.
#[derive(Debug)]
pub struct Agents {
    home_region: Option<String>,
    patterns: Rc<PatternCache>,
    fields: Fields,
    field_lists: FieldLists,
    table: AgentTable<AgentProperties>,
}

impl Agents {
    /// An empty set.
    pub fn new(home_region: Option<String>, patterns: Rc<PatternCache>) -> Self {
        Self {
            home_region,
            patterns,
            fields: Fields::default(),
            field_lists: FieldLists::default(),
            table: AgentTable::default(),
        }
    }

    /// Returns an agent, if the host loaded it, and logs a warning if not. The host loads every agent
    /// that it evaluates; the caller rejects an agent that is missing here.
    pub fn get(&self, handle: u32) -> Option<&AgentProperties> {
        warn_if_missing(handle, self.table.get(handle))
    }

    /// Returns the agent of each candidate, like [`Self::get`].
    pub fn get_all(&self, candidates: &[Candidate]) -> Vec<Option<&AgentProperties>> {
        let mut search = self.table.search();
        let agents = candidates
            .iter()
            .map(|candidate| warn_if_missing(candidate.agent, search.get(candidate.agent)));
        agents.collect()
    }

    /// All agents.
    pub fn all(&self) -> impl Iterator<Item = &AgentProperties> {
        self.table.iter()
    }

    /// The lists of fields that the agents have.
    pub fn field_lists(&self) -> &FieldLists {
        &self.field_lists
    }

    /// The fields of all agents.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The master's own region.
    pub fn home_region(&self) -> Option<&str> {
        self.home_region.as_deref()
    }

    /// The cache of compiled regular expressions.
    pub fn patterns(&self) -> &PatternCache {
        &self.patterns
    }

    /// Removes the agents with the handles `removed`, then adds the agents in `changed` or replaces
    /// those with the same handle.
    pub fn apply_changes(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        self.table.remove(removed);
        // Most agents have the same attributes in the same order, so that the values of a new agent
        // often are those of the new agent before it.
        let mut last_added = AgentProperties::default();
        for agent in changed {
            let (fields, lists) = (&mut self.fields, &mut self.field_lists);
            self.table.change_or_add(agent.handle, |properties, is_new| {
                let intern = |(field, value), guess| fields.intern(field, value, guess);
                lists.replace(properties, &last_added, field_values(agent), intern);
                if is_new {
                    last_added.copy_from(properties);
                }
            });
        }
        let max_lists = 2 * self.table.len() + UNUSED_LISTS_MARGIN;
        if self.fields.needs_compaction() || self.field_lists.len() > max_lists {
            self.compact();
        }
    }

    /// Removes the fields, values and lists of fields that no agent has.
    fn compact(&mut self) {
        let old_lists = std::mem::take(&mut self.field_lists);
        let properties = self.table.iter().map(|agent| old_lists.properties(agent));
        let mut properties: Vec<Vec<Property>> = properties.map(Iterator::collect).collect();
        self.fields.compact(properties.iter_mut().flatten());
        for (agent, properties) in self.table.iter_mut().zip(properties) {
            self.field_lists.replace(
                agent,
                &AgentProperties::default(),
                properties.into_iter(),
                |property, _| property,
            );
        }
    }
}

fn warn_if_missing<Agent>(handle: u32, agent: Option<Agent>) -> Option<Agent> {
    if agent.is_none() {
        warn_missing(handle);
    }
    agent
}

#[cold]
fn warn_missing(handle: u32) {
    log::warn!("agent {handle} is not in the agent set");
}

/// The values of an agent's fields, in the order in which they are stored.
fn field_values(agent: Agent) -> impl Iterator<Item = (Field, FieldValue)> {
    let with_text = |field: Field, text: Option<String>| Some((field, FieldValue::from_text(text?)));
    let attributes = agent.attributes.into_iter().map(|attribute| {
        let value = FieldValue::from_attribute(attribute.value);
        (Field::Attribute(attribute.name), value)
    });
    with_text(Field::Hostname, Some(agent.hostname))
        .into_iter()
        .chain(with_text(Field::Region, agent.region))
        .chain(with_text(Field::Zone, agent.zone))
        .chain(attributes)
}
