//! The agents as the matcher knows them. Each has a handle that is never reused.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use transom_cluster::{AgentId, v1};
use transom_plugin_host::matcher::{Agent, Attribute, AttributeValue};

use crate::{AgentLocation, Reservation, TaskRecord};

/// An agent that neither sends offers nor runs tasks of this framework for this long is dropped.
const AGENT_RETENTION: Duration = Duration::from_mins(10);

/// An agent.
#[derive(Debug)]
struct AgentEntry {
    handle: u32,
    location: Arc<AgentLocation>,
    attributes: Arc<[v1::Attribute]>,
    /// The time of the last offer.
    last_seen: Instant,
}

/// All agents that have sent offers or run tasks of this framework.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    by_id: HashMap<AgentId, AgentEntry>,
    by_handle: HashMap<u32, AgentId>,
    next: u32,
    changed: BTreeSet<u32>,
    removed: BTreeSet<u32>,
    /// The agents in the matcher's agent set.
    known_to_matcher: BTreeSet<u32>,
    /// Agents in maintenance. The matcher must not expect instances there, for example when it
    /// spreads instances over all agents.
    hidden: BTreeSet<AgentId>,
}

impl Agents {
    /// Removes an agent from the matcher's agent set, or adds it again.
    pub(crate) fn set_hidden(&mut self, id: &AgentId, hidden: bool) {
        let changes = if hidden {
            self.hidden.insert(id.clone())
        } else {
            self.hidden.remove(id)
        };
        let entry = self.by_id.get(id).filter(|_| changes);
        let Some(handle) = entry.map(|entry| entry.handle) else {
            return;
        };
        if hidden {
            self.changed.remove(&handle);
            self.removed.insert(handle);
        } else {
            self.removed.remove(&handle);
            self.changed.insert(handle);
        }
    }

    /// The same for the agent with this handle.
    pub(crate) fn set_handle_hidden(&mut self, handle: u32, hidden: bool) {
        if !hidden && self.hidden.is_empty() {
            return;
        }
        if let Some(id) = self.by_handle.get(&handle).cloned() {
            self.set_hidden(&id, hidden);
        }
    }

    /// Whether an agent is excluded from the matcher's agent set because of maintenance.
    pub(crate) fn is_hidden(&self, id: &AgentId) -> bool {
        self.hidden.contains(id)
    }

    /// The handle of an agent, updated from an offer. `None` when the handles are exhausted, after
    /// 2^32 agents.
    pub(crate) fn handle_of_offer(&mut self, offer: &v1::Offer, now: Instant) -> Option<u32> {
        let location = location_of(offer);
        if let Some(entry) = self.by_id.get_mut(&location.id)
            && *entry.location == location
            && *entry.attributes == *offer.attributes
        {
            entry.last_seen = now;
            return Some(entry.handle);
        }
        self.upsert(Arc::new(location), offer.attributes.as_slice().into(), now)
    }

    /// The handle of an agent, from the record of a task. Newer data from an offer is kept.
    pub(crate) fn handle_of_task(&mut self, record: &TaskRecord, now: Instant) -> Option<u32> {
        if let Some(entry) = self.by_id.get(&record.agent.id) {
            return Some(entry.handle);
        }
        let (location, attributes) = (&record.agent, &record.agent_attributes);
        self.upsert(Arc::clone(location), Arc::clone(attributes), now)
    }

    /// The same from the record of a reservation.
    pub(crate) fn handle_of_reservation(&mut self, record: &Reservation, now: Instant) -> Option<u32> {
        if let Some(entry) = self.by_id.get(&record.agent.id) {
            return Some(entry.handle);
        }
        let (location, attributes) = (&record.agent, &record.agent_attributes);
        self.upsert(Arc::clone(location), Arc::clone(attributes), now)
    }

    fn upsert(
        &mut self,
        location: Arc<AgentLocation>,
        attributes: Arc<[v1::Attribute]>,
        now: Instant,
    ) -> Option<u32> {
        let handle = if let Some(entry) = self.by_id.get(&location.id) {
            entry.handle
        } else {
            let handle = self.next;
            self.next = handle.checked_add(1)?;
            self.by_handle.insert(handle, location.id.clone());
            handle
        };
        if !self.hidden.contains(&location.id) {
            self.changed.insert(handle);
        }
        let entry = AgentEntry {
            handle,
            location,
            attributes,
            last_seen: now,
        };
        self.by_id.insert(entry.location.id.clone(), entry);
        Some(handle)
    }

    /// The number of known agents.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Location and attributes of an agent, as stored in records.
    pub(crate) fn get(&self, handle: u32) -> Option<(&Arc<AgentLocation>, &Arc<[v1::Attribute]>)> {
        let entry = self.by_id.get(self.by_handle.get(&handle)?)?;
        Some((&entry.location, &entry.attributes))
    }

    /// Drops a lost agent until it offers again: no task is matched with it, and constraints that
    /// spread tasks do not count it. Returns its handle if it was known.
    pub(crate) fn remove_lost(&mut self, id: &AgentId) -> Option<u32> {
        let handle = self.by_id.get(id).map(|entry| entry.handle);
        self.remove(id);
        handle
    }

    /// Drops agents that have sent no offer for a while and are not `in_use`.
    pub(crate) fn sweep(&mut self, now: Instant, in_use: impl Fn(&AgentId) -> bool) {
        let stale = |(id, entry): &(&AgentId, &AgentEntry)| {
            now.duration_since(entry.last_seen) >= AGENT_RETENTION && !in_use(id)
        };
        let stale: Vec<AgentId> = self
            .by_id
            .iter()
            .filter(stale)
            .map(|(id, _)| id.clone())
            .collect();
        for id in stale {
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &AgentId) {
        self.hidden.remove(id);
        if let Some(entry) = self.by_id.remove(id) {
            let handle = entry.handle;
            self.by_handle.remove(&handle);
            self.changed.remove(&handle);
            self.removed.insert(handle);
        }
    }

    /// The changes to send to the matcher: changed agents, and the handles of dropped ones.
    pub(crate) fn take_changes(&mut self) -> (Vec<Agent>, Vec<u32>) {
        let changed = std::mem::take(&mut self.changed);
        let agent = |handle: u32| {
            let (location, attributes) = self.get(handle)?;
            Some(to_agent(handle, location, attributes))
        };
        let changed: Vec<Agent> = changed.into_iter().filter_map(agent).collect();
        let removed = std::mem::take(&mut self.removed).into_iter();
        let removed = removed
            .filter(|handle| self.known_to_matcher.remove(handle))
            .collect();
        self.known_to_matcher
            .extend(changed.iter().map(|agent| agent.handle));
        (changed, removed)
    }

    /// Marks all agents as changed, for a new matcher.
    pub(crate) fn mark_all_changed(&mut self) {
        self.removed.clear();
        self.known_to_matcher.clear();
        let visible = self.by_handle.iter().filter(|(_, id)| !self.hidden.contains(*id));
        self.changed = visible.map(|(handle, _)| *handle).collect();
    }
}

/// The location of the agent of an offer.
fn location_of(offer: &v1::Offer) -> AgentLocation {
    let (region, zone) = fault_domain(offer.domain.as_ref());
    AgentLocation {
        id: offer.agent_id.clone(),
        hostname: offer.hostname.clone(),
        region,
        zone,
        endpoint: offer.agent_address(),
    }
}

/// Region and zone.
pub(crate) fn fault_domain(domain: Option<&v1::DomainInfo>) -> (Option<String>, Option<String>) {
    let fault_domain = domain.and_then(|domain| domain.fault_domain.as_ref());
    fault_domain
        .map(|domain| (domain.region.name.clone(), domain.zone.name.clone()))
        .unzip()
}

/// Converts an agent of the master to the matcher's format. `handle` is any number that is unique
/// in the agent set.
pub fn to_matcher_agent(handle: u32, info: &v1::AgentInfo) -> Agent {
    let (region, zone) = fault_domain(info.domain.as_ref());
    Agent {
        handle,
        id: info.id.as_ref().map_or_else(String::new, ToString::to_string),
        hostname: info.hostname.clone(),
        region,
        zone,
        attributes: info.attributes.iter().filter_map(attribute).collect(),
        extensions: Vec::new(),
    }
}

fn to_agent(handle: u32, location: &AgentLocation, attributes: &[v1::Attribute]) -> Agent {
    Agent {
        handle,
        id: location.id.as_str().to_owned(),
        hostname: location.hostname.clone(),
        region: location.region.clone(),
        zone: location.zone.clone(),
        attributes: attributes.iter().filter_map(attribute).collect(),
        extensions: Vec::new(),
    }
}

/// An attribute whose value is missing or of an unknown type is ignored.
fn attribute(attribute: &v1::Attribute) -> Option<Attribute> {
    let value = match attribute.r#type {
        v1::ValueType::Text => AttributeValue::Text(attribute.text.as_ref()?.value.clone()),
        v1::ValueType::Scalar => AttributeValue::Scalar(attribute.scalar.as_ref()?.value),
        v1::ValueType::Ranges => {
            let ranges = &attribute.ranges.as_ref()?.range;
            AttributeValue::Ranges(ranges.iter().map(|range| (range.begin, range.end)).collect())
        }
        v1::ValueType::Set => AttributeValue::Set(attribute.set.as_ref()?.item.clone()),
        v1::ValueType::Other(_) => return None,
    };
    Some(Attribute {
        name: attribute.name.clone(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use transom_common::HostPort;

    use super::*;
    use crate::testing::{offer, record};

    #[test]
    fn agent_keeps_its_handle_and_handles_are_not_reused() {
        let now = Instant::now();
        let mut agents = Agents::default();
        let mut one = offer("o1", "a1", 1.0, &[]);
        assert_eq!(agents.handle_of_offer(&one, now), Some(0));
        assert_eq!(agents.handle_of_offer(&offer("o2", "a2", 1.0, &[]), now), Some(1));
        let (changed, removed) = agents.take_changes();
        assert_eq!((changed.len(), removed.len()), (2, 0));

        one.id = "o3".into();
        assert_eq!(agents.handle_of_offer(&one, now), Some(0));
        assert_eq!(
            agents.take_changes(),
            (vec![], vec![]),
            "nothing about the agent has changed"
        );
        one.attributes = vec![v1::Attribute::text("rack", "r9")];
        assert_eq!(agents.handle_of_offer(&one, now), Some(0));
        let (changed, _) = agents.take_changes();
        assert_eq!(
            changed[0].attributes[0].value,
            AttributeValue::Text("r9".to_owned())
        );

        agents.sweep(now + AGENT_RETENTION, |id| id.as_str() == "a2");
        assert_eq!(agents.take_changes(), (vec![], vec![0]));
        assert_eq!(agents.get(0), None);
        assert_eq!(agents.handle_of_offer(&one, now), Some(2));
        agents.mark_all_changed();
        assert_eq!(
            agents
                .take_changes()
                .0
                .iter()
                .map(|agent| agent.handle)
                .collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn offers_override_the_agent_of_a_record() {
        let now = Instant::now();
        let mut agents = Agents::default();
        let mut remembered = record("t");
        remembered.agent_attributes = Arc::new([v1::Attribute::text("rack", "old")]);
        let handle = agents.handle_of_task(&remembered, now).unwrap();
        assert_eq!(*agents.get(handle).unwrap().1, remembered.agent_attributes);
        let mut offer = offer("o", remembered.agent.id.as_str(), 1.0, &[]);
        offer.attributes = vec![v1::Attribute::text("rack", "new")];
        assert_eq!(agents.handle_of_offer(&offer, now), Some(handle));
        assert_eq!(agents.handle_of_task(&remembered, now), Some(handle));
        assert_eq!(**agents.get(handle).unwrap().1, *offer.attributes);
    }

    #[test]
    fn lost_agent_gets_a_new_handle_when_it_offers_again() {
        let now = Instant::now();
        let mut agents = Agents::default();
        let offer = offer("o", "a1", 1.0, &[]);
        assert_eq!(agents.handle_of_offer(&offer, now), Some(0));
        agents.take_changes();
        assert_eq!(agents.remove_lost(&"a2".into()), None);
        assert_eq!(
            agents.take_changes(),
            (vec![], vec![]),
            "a lost agent that was unknown is no change"
        );
        assert_eq!(agents.remove_lost(&"a1".into()), Some(0));
        assert_eq!(agents.take_changes(), (vec![], vec![0]));
        assert_eq!(agents.handle_of_offer(&offer, now), Some(1));
        let (changed, removed) = agents.take_changes();
        assert_eq!((changed.len(), removed), (1, vec![]));
    }

    #[test]
    fn location_and_attributes_are_read_from_the_offer() {
        let offer: v1::Offer = serde_json::from_value(serde_json::json!({
            "id": {"value": "o"}, "framework_id": {"value": "f"}, "agent_id": {"value": "a"}, "hostname": "h",
            "url": {"scheme": "http", "path": "/slave(1)", "address": {"hostname": "h", "ip": "127.0.0.1", "port": 5051}},
            "domain": {"fault_domain": {"region": {"name": "r"}, "zone": {"name": "z"}}},
            "attributes": [
                {"name": "s", "type": "SCALAR", "scalar": {"value": 1.5}},
                {"name": "g", "type": "RANGES", "ranges": {"range": [{"begin": 6, "end": 7}]}},
                {"name": "e", "type": "SET", "set": {"item": ["x", "y"]}},
                {"name": "n", "type": "NEW"}
            ]
        }))
        .unwrap();
        let mut agents = Agents::default();
        let handle = agents.handle_of_offer(&offer, Instant::now()).unwrap();
        let location = agents.get(handle).unwrap().0.clone();
        assert_eq!(location.endpoint, Some(HostPort::new("127.0.0.1", 5051)));
        assert_eq!(
            (location.region.as_deref(), location.zone.as_deref()),
            (Some("r"), Some("z"))
        );
        let (changed, _) = agents.take_changes();
        let values: Vec<_> = changed[0]
            .attributes
            .iter()
            .map(|attribute| attribute.value.clone())
            .collect();
        let set = AttributeValue::Set(vec!["x".to_owned(), "y".to_owned()]);
        assert_eq!(
            values,
            [
                AttributeValue::Scalar(1.5),
                AttributeValue::Ranges(vec![(6, 7)]),
                set
            ]
        );
    }
}
