//! Offers: allocation, declines and rescinding.
//!
//! As in the real allocator, all free resources of an agent go to one framework, the one with the
//! smallest dominant share first. A framework is not offered declined resources again until its
//! decline filter expires.

use super::{Agent, AgentId, FrameworkId, Offer, OfferId, State, model::Filter};
use crate::wire::{
    json as doc,
    resources::{ReservationFormat, Resources},
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The default duration of a decline filter.
const DEFAULT_REFUSE_DURATION: Duration = Duration::from_secs(5);
/// Maximum duration of a decline filter.
const MAX_REFUSE_DURATION: Duration = Duration::from_hours(8784);

/// The resources of which a framework's largest fraction counts.
const SHARED: [&str; 3] = ["cpus", "mem", "disk"];
/// Amounts of them.
type Thousandths = [i64; SHARED.len()];

/// What each framework uses or is offered of [`SHARED`], and what there is.
struct Shares {
    total: Thousandths,
    used: BTreeMap<FrameworkId, Thousandths>,
}

impl Shares {
    fn of(state: &State) -> Self {
        let mut shares = Self {
            total: Thousandths::default(),
            used: BTreeMap::new(),
        };
        for agent in state.agents.values() {
            add(&mut shares.total, &agent.total);
        }
        for framework in state.frameworks.values() {
            let tasks = framework.tasks.values().filter(|task| !task.released);
            for resources in tasks.map(|task| &task.resources) {
                shares.add(&framework.id, resources);
            }
            for executor in framework.executors.values() {
                shares.add(&framework.id, &executor.resources);
            }
        }
        for offer in state.offers.values() {
            shares.add(&offer.framework, &offer.resources);
        }
        shares
    }

    fn add(&mut self, framework: &FrameworkId, resources: &Resources) {
        match self.used.get_mut(framework) {
            Some(used) => add(used, resources),
            None => add(self.used.entry(framework.clone()).or_default(), resources),
        }
    }

    /// The framework's dominant share: its largest fraction of any resource of the cluster.
    fn dominant(&self, framework: &FrameworkId) -> f64 {
        let used = self.used.get(framework).copied().unwrap_or_default();
        let fractions = used.iter().zip(self.total).map(|(used, total)| match total {
            0 => 0.0,
            total => *used as f64 / total as f64,
        });
        fractions.fold(0.0, f64::max)
    }
}

fn add(to: &mut Thousandths, resources: &Resources) {
    for (sum, name) in to.iter_mut().zip(SHARED) {
        *sum += resources.thousandths(name);
    }
}

impl State {
    /// Offers free resources, one event per framework, then makes the inverse offers.
    pub(crate) fn allocate(&mut self, now: Instant) {
        self.next_allocation = now + self.config.allocation_interval;
        for framework in self.frameworks.values_mut() {
            framework.filters.retain(|filter| filter.until > now);
        }
        let agents: Vec<AgentId> = self
            .agents
            .values()
            .filter(|agent| agent.is_active())
            .map(|agent| agent.id.clone())
            .collect();
        let mut offered: BTreeMap<FrameworkId, Vec<Value>> = BTreeMap::new();
        let mut shares = Shares::of(self);
        for agent in agents {
            // More than one offer if a part of the resources is reserved for other roles.
            while let Some((framework, offer)) = self.offer_agent(&agent, &mut shares) {
                offered.entry(framework).or_default().push(offer);
            }
        }
        for (framework, offers) in offered {
            self.send(
                &framework,
                &json!({"type": "OFFERS", "offers": {"offers": offers}}),
            );
        }
        self.send_inverse_offers(now);
    }

    /// The id of the next offer or inverse offer.
    pub(super) fn new_offer_id(&mut self) -> OfferId {
        let id = OfferId::from(format!("{}-O{}", self.master.id, self.next_offer));
        self.next_offer += 1;
        id
    }

    /// Creates one offer of all resources of the agent that are free for a role, if a framework can
    /// receive it.
    fn offer_agent(&mut self, agent_id: &AgentId, shares: &mut Shares) -> Option<(FrameworkId, Value)> {
        let available = self
            .agents
            .get(agent_id)
            .map(|agent| agent.available.clone())
            .filter(Resources::is_worth_offering)?;
        let mut candidates: Vec<(f64, f64, FrameworkId, String, Resources)> = Vec::new();
        for framework in self
            .frameworks
            .values()
            .filter(|framework| framework.is_subscribed())
        {
            let share = shares.dominant(&framework.id);
            for role in framework
                .roles()
                .into_iter()
                .filter(|role| !framework.suppressed.contains(role))
            {
                let visible = available.visible_to(&role);
                let declined = framework.filters.iter().any(|filter| {
                    filter.agent == *agent_id && filter.role == role && filter.declined.contains(&visible)
                });
                if !declined && visible.is_worth_offering() {
                    candidates.push((share, framework.registered, framework.id.clone(), role, visible));
                }
            }
        }
        let (_, _, framework, role, resources) = candidates
            .into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
        let id = self.new_offer_id();
        let offer = Offer {
            id: id.clone(),
            framework: framework.clone(),
            agent: agent_id.clone(),
            role,
            resources,
        };
        let message = self.offer_message(&offer);
        if let Some(agent) = self.agents.get_mut(agent_id) {
            agent.available.subtract(&offer.resources);
        }
        shares.add(&framework, &offer.resources);
        self.offers.insert(id, offer);
        Some((framework, message))
    }

    /// The resources that a framework's tasks and executors use.
    pub(crate) fn used_by(&self, id: &FrameworkId) -> Resources {
        let mut used = Resources::default();
        if let Some(framework) = self.frameworks.get(id) {
            framework
                .tasks
                .values()
                .filter(|task| !task.released)
                .for_each(|task| used.add(&task.resources));
            framework
                .executors
                .values()
                .for_each(|executor| used.add(&executor.resources));
        }
        used
    }

    /// The `Offer` message, in the form that the framework's capabilities select.
    pub(crate) fn offer_message(&self, offer: &Offer) -> Value {
        let Some(agent) = self.agents.get(&offer.agent) else {
            return json!({});
        };
        let framework = self.frameworks.get(&offer.framework);
        let multi_role = framework.is_some_and(|framework| framework.has_capability("MULTI_ROLE"));
        let refined = framework.is_some_and(|framework| framework.has_capability("RESERVATION_REFINEMENT"));
        let form = if refined {
            ReservationFormat::Refined
        } else {
            ReservationFormat::Legacy
        };
        let allocated = multi_role.then_some(offer.role.as_str());
        let mut message = doc::object(json!({
            "id": doc::id(offer.id.as_str()),
            "framework_id": doc::id(offer.framework.as_str()),
            "agent_id": doc::id(agent.id.as_str()),
            "hostname": agent.config.hostname,
            "url": agent_url(agent),
            "resources": offer.resources.messages(form, allocated),
        }));
        if !agent.attributes.is_empty() {
            message.insert("attributes".to_owned(), json!(agent.attributes));
        }
        doc::put(
            &mut message,
            "unavailability",
            self.maintenance.unavailability(agent).cloned(),
        );
        self.add_executor_ids(offer, &mut message);
        if let Some(role) = allocated {
            message.insert("allocation_info".to_owned(), json!({ "role": role }));
        }
        Value::Object(message)
    }

    /// The executors the framework runs on the offered agent.
    fn add_executor_ids(&self, offer: &Offer, message: &mut Map<String, Value>) {
        let Some(framework) = self.frameworks.get(&offer.framework) else {
            return;
        };
        let ids: Vec<Value> = framework
            .executors
            .keys()
            .filter(|(agent, _)| *agent == offer.agent)
            .map(|(_, id)| doc::id(id))
            .collect();
        if !ids.is_empty() {
            message.insert("executor_ids".to_owned(), Value::Array(ids));
        }
    }

    /// DECLINE: unknown offers are ignored.
    pub(crate) fn decline(&mut self, id: &FrameworkId, decline: &Value, now: Instant) {
        let refuse = refuse_duration(&decline["filters"]);
        for offer_id in doc::list(decline, &["offer_ids"]) {
            let offer_id = OfferId::from(offer_id["value"].as_str().unwrap_or_default());
            if self
                .offers
                .get(&offer_id)
                .is_none_or(|offer| offer.framework != *id)
            {
                continue;
            }
            if let Some(offer) = self.offers.remove(&offer_id) {
                self.add_decline_filter(
                    id,
                    &offer.agent,
                    &offer.role,
                    offer.resources.clone(),
                    refuse,
                    now,
                );
                self.free_resources(&offer.agent, &offer.resources);
            }
        }
    }

    /// Records that the framework declined these resources for a while.
    pub(super) fn add_decline_filter(
        &mut self,
        id: &FrameworkId,
        agent: &AgentId,
        role: &str,
        declined: Resources,
        refuse: Duration,
        now: Instant,
    ) {
        if refuse.is_zero() || declined.is_empty() {
            return;
        }
        if let Some(framework) = self.frameworks.get_mut(id) {
            framework.filters.push(Filter {
                agent: agent.clone(),
                role: role.to_owned(),
                declined,
                until: now + refuse,
            });
        }
    }

    /// REVIVE: removes decline filters and suppression, and offers free resources immediately.
    pub(crate) fn revive(&mut self, id: &FrameworkId, roles: &[String], now: Instant) {
        if let Some(framework) = self.frameworks.get_mut(id) {
            let all = roles.is_empty();
            framework.suppressed.retain(|role| !all && !roles.contains(role));
            framework
                .filters
                .retain(|filter| !all && !roles.contains(&filter.role));
            framework.inverse_filters.clear();
        }
        self.allocate(now);
    }

    /// SUPPRESS: stops offers for these roles, or for all roles, until a REVIVE.
    pub(crate) fn suppress(&mut self, id: &FrameworkId, roles: &[String]) {
        if let Some(framework) = self.frameworks.get_mut(id) {
            let roles = if roles.is_empty() {
                framework.roles()
            } else {
                roles.to_vec()
            };
            framework.suppressed.extend(roles);
        }
    }

    /// Returns resources of an agent to the free ones.
    pub(super) fn free_resources(&mut self, agent: &AgentId, resources: &Resources) {
        if let Some(agent) = self.agent_mut(agent) {
            agent.available.add(resources);
        }
    }

    /// Removes a framework's offers and inverse offers without an event, because its stream has ended.
    pub(super) fn withdraw_offers_of(&mut self, id: &FrameworkId) {
        let ids: Vec<OfferId> = self
            .offers
            .values()
            .filter(|offer| offer.framework == *id)
            .map(|offer| offer.id.clone())
            .collect();
        for id in ids {
            if let Some(offer) = self.offers.remove(&id) {
                self.free_resources(&offer.agent, &offer.resources);
            }
        }
        self.withdraw_inverse_offers_of(id);
    }

    /// Rescinds an agent's offers and inverse offers with events.
    pub(crate) fn rescind_offers_on(&mut self, agent: &AgentId) {
        let ids: Vec<OfferId> = self
            .offers
            .values()
            .filter(|offer| offer.agent == *agent)
            .map(|offer| offer.id.clone())
            .collect();
        for id in ids {
            if let Some(offer) = self.offers.remove(&id) {
                self.free_resources(&offer.agent, &offer.resources);
                self.send(
                    &offer.framework,
                    &json!({"type": "RESCIND", "rescind": {"offer_id": doc::id(id.as_str())}}),
                );
            }
        }
        self.rescind_inverse_offers_on(agent);
    }
}

/// The agent's own address, as in offers.
pub(super) fn agent_url(agent: &Agent) -> Value {
    json!({
        "scheme": "http",
        "address": {"hostname": agent.config.hostname, "ip": agent.addr.ip().to_string(), "port": agent.addr.port()},
        "path": "/slave(1)",
    })
}

/// The duration of the filter in an answer to offers or inverse offers.
pub(super) fn refuse_duration(filters: &Value) -> Duration {
    match doc::number(filters, &["refuse_seconds"]) {
        None => DEFAULT_REFUSE_DURATION,
        Some(seconds) if seconds <= 0.0 => Duration::ZERO,
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .unwrap_or(MAX_REFUSE_DURATION)
            .min(MAX_REFUSE_DURATION),
    }
}
