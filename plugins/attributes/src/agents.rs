//! The agents: loaded once, in the form that constraints compare.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::FixedState;
use transom_sdk::log;
use transom_sdk::matcher::Agent;

use crate::fields::{Field, Fields, Property};
use crate::pattern::PatternCache;
use crate::value::FieldValue;

/// The properties of an agent that constraints use.
#[derive(Debug, Default)]
pub struct AgentProperties(Vec<Property>);

impl AgentProperties {
    /// Returns the number of the agent's value of a field. For an attribute that the agent has twice it
    /// is the first value.
    pub fn value(&self, field: usize) -> Option<usize> {
        let property = self.0.iter().find(|property| property.field == field);
        property.map(|property| property.value)
    }

    /// All properties. An attribute may occur more than once.
    pub fn iter(&self) -> impl Iterator<Item = Property> {
        self.0.iter().copied()
    }
}

/// The cluster's agents.
#[derive(Debug)]
pub struct Agents {
    home_region: Option<String>,
    patterns: Rc<PatternCache>,
    fields: Fields,
    by_handle: HashMap<u32, AgentProperties, FixedState>,
}

impl Agents {
    /// An empty set.
    pub fn new(home_region: Option<String>, patterns: Rc<PatternCache>) -> Self {
        Self {
            home_region,
            patterns,
            fields: Fields::default(),
            by_handle: HashMap::default(),
        }
    }

    /// Returns an agent, if the host loaded it, and logs a warning if not. The host loads every agent
    /// that it evaluates; the caller refuses an agent that is missing here.
    pub fn get(&self, handle: u32) -> Option<&AgentProperties> {
        let agent = self.by_handle.get(&handle);
        if agent.is_none() {
            log::warn!("agent {handle} is not in the agent set");
        }
        agent
    }

    /// All agents.
    pub fn all(&self) -> impl Iterator<Item = &AgentProperties> {
        self.by_handle.values()
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
        for handle in removed {
            self.by_handle.remove(&handle);
        }
        // The guess for a property is the one at the same position: of the agent's old properties, or,
        // for a new agent, of the new agent before it. Most agents have the same attributes in the same
        // order.
        let mut last_added: Vec<Property> = Vec::new();
        for agent in changed {
            let fields = &mut self.fields;
            let properties = &mut self.by_handle.entry(agent.handle).or_default().0;
            let is_new = properties.is_empty();
            if is_new {
                properties.reserve_exact(agent.attributes.len() + 3);
            }
            let mut position = 0;
            field_values(agent).for_each(|(field, value)| {
                match properties.get_mut(position) {
                    Some(property) => *property = fields.intern(field, value, Some(*property)),
                    None => properties.push(fields.intern(field, value, last_added.get(position).copied())),
                }
                position += 1;
            });
            properties.truncate(position);
            if is_new {
                last_added.clone_from(properties);
            }
        }
        if self.fields.needs_compaction() {
            let used = self.by_handle.values_mut().flat_map(|agent| &mut agent.0);
            self.fields.compact(used);
        }
    }
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
