//! The agents: loaded once, in the form that constraints compare.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::FixedState;
use transom_sdk::log;
use transom_sdk::matcher::Agent;

use crate::constraint::Found;
use crate::fields::{Field, Fields, Property};
use crate::pattern::Cache;

/// The properties of an agent that constraints use.
#[derive(Debug, Default)]
pub struct AgentProperties(Vec<Property>);

impl AgentProperties {
    /// The number of the value of a field; of the first one where an attribute stands twice.
    pub fn value(&self, field: usize) -> Option<usize> {
        let found = self.0.iter().find(|property| property.field == field);
        found.map(|property| property.value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Property> {
        self.0.iter().copied()
    }
}

/// The cluster's agents.
#[derive(Debug)]
pub struct Agents {
    home_region: Option<String>,
    patterns: Rc<Cache>,
    fields: Fields,
    known: HashMap<u32, AgentProperties, FixedState>,
}

impl Agents {
    /// None yet.
    pub fn new(home_region: Option<String>, patterns: Rc<Cache>) -> Self {
        Self {
            home_region,
            patterns,
            fields: Fields::default(),
            known: HashMap::default(),
        }
    }

    /// An agent, if it was loaded. The host loads every agent that it asks about; one that is not
    /// here is refused.
    pub fn get(&self, handle: u32) -> Option<&AgentProperties> {
        let found = self.known.get(&handle);
        if found.is_none() {
            log::warn!("agent {handle} is not in the agent set");
        }
        found
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &AgentProperties> {
        self.known.values()
    }

    /// The fields that they have.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The master's own region.
    pub fn home_region(&self) -> Option<&str> {
        self.home_region.as_deref()
    }

    /// Regular expressions that were made ready before.
    pub fn patterns(&self) -> &Cache {
        &self.patterns
    }

    /// Takes `gone` away, and adds agents or replaces those with the same handle.
    pub fn take_up(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        for handle in gone {
            self.known.remove(&handle);
        }
        // The guesses are the agent's former properties, or those of the agent before: most agents have
        // the same attributes in the same order.
        let mut similar: Vec<Property> = Vec::new();
        for agent in changed {
            let fields = &mut self.fields;
            let properties = &mut self.known.entry(agent.handle).or_default().0;
            let new = properties.is_empty();
            if new {
                properties.reserve_exact(agent.attributes.len() + 3);
            }
            let mut place = 0;
            named(agent).for_each(|(field, value)| {
                match properties.get_mut(place) {
                    Some(property) => *property = fields.intern(field, value, Some(*property)),
                    None => properties.push(fields.intern(field, value, similar.get(place).copied())),
                }
                place += 1;
            });
            properties.truncate(place);
            if new {
                similar.clone_from(properties);
            }
        }
        if self.fields.is_crowded() {
            let used = self.known.values_mut().flat_map(|agent| &mut agent.0);
            self.fields.compact(used);
        }
    }
}

/// An agent's properties that constraints use.
fn named(agent: Agent) -> impl Iterator<Item = (Field, Found)> {
    let name = |field: Field, name: Option<String>| Some((field, Found::name(name?)));
    let attributes = agent.attributes.into_iter().map(|attribute| {
        let value = Found::attribute(attribute.value);
        (Field::Attribute(attribute.name), value)
    });
    name(Field::Hostname, Some(agent.hostname))
        .into_iter()
        .chain(name(Field::Region, agent.region))
        .chain(name(Field::Zone, agent.zone))
        .chain(attributes)
}
