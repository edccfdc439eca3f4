//! Inverse offers: requests to release the resources of an agent whose maintenance is planned.
//!
//! As in the real allocator, a framework receives one for each agent of a scheduled machine on
//! which it has tasks, executors or offers. It receives the next one when it has answered and the
//! filter of its answer has expired. An answer only changes the maintenance status.

use super::{Agent, AgentId, Framework, FrameworkId, OfferId, State, epoch, offers, time_info};
use crate::wire::json as doc;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Instant};

/// An outstanding inverse offer.
#[derive(Debug)]
pub(crate) struct InverseOffer {
    pub(crate) framework: FrameworkId,
    pub(crate) agent: AgentId,
    /// `InverseOffer`.
    pub(crate) message: Value,
}

impl State {
    /// Creates the inverse offers that are due and sends each framework one event.
    pub(super) fn send_inverse_offers(&mut self, now: Instant) {
        for framework in self.frameworks.values_mut() {
            framework.inverse_filters.retain(|_, until| *until > now);
        }
        let mut due: Vec<(AgentId, FrameworkId, Value)> = Vec::new();
        for agent in self.agents.values().filter(|agent| agent.is_active()) {
            let Some(unavailability) = self.maintenance.unavailability(agent) else {
                continue;
            };
            let frameworks = self.frameworks.values().filter(|framework| {
                framework.is_subscribed()
                    && !framework.inverse_filters.contains_key(&agent.id)
                    && self.uses_agent(framework, &agent.id)
                    && !self.has_inverse_offer(&framework.id, &agent.id)
            });
            due.extend(frameworks.map(|framework| {
                let message = message(agent, framework, unavailability);
                (agent.id.clone(), framework.id.clone(), message)
            }));
        }
        let mut offers_by_framework: BTreeMap<FrameworkId, Vec<Value>> = BTreeMap::new();
        for (agent, framework, mut message) in due {
            let id = self.new_offer_id();
            message["id"] = doc::id(id.as_str());
            offers_by_framework
                .entry(framework.clone())
                .or_default()
                .push(message.clone());
            let offer = InverseOffer {
                framework,
                agent,
                message,
            };
            self.maintenance.inverse_offers.insert(id, offer);
        }
        for (framework, offers) in offers_by_framework {
            self.send(
                &framework,
                &json!({"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": offers}}),
            );
        }
    }

    /// Whether a framework has tasks, executors or offers on an agent.
    fn uses_agent(&self, framework: &Framework, agent: &AgentId) -> bool {
        let mut tasks = framework.tasks.values();
        let mut executors = framework.executors.keys();
        let mut offers = self.offers.values();
        tasks.any(|task| task.agent == *agent && !task.released)
            || executors.any(|(agent_id, _)| agent_id == agent)
            || offers.any(|offer| offer.framework == framework.id && offer.agent == *agent)
    }

    fn has_inverse_offer(&self, framework: &FrameworkId, agent: &AgentId) -> bool {
        let mut offers = self.maintenance.inverse_offers.values();
        offers.any(|offer| offer.framework == *framework && offer.agent == *agent)
    }

    /// `ACCEPT_INVERSE_OFFERS` and `DECLINE_INVERSE_OFFERS`. Unknown ids are ignored.
    pub(super) fn answer_inverse_offers(
        &mut self,
        id: &FrameworkId,
        answer: &Value,
        status: &str,
        now: Instant,
    ) {
        let refuse = offers::refuse_duration(&answer["filters"]);
        for offer_id in doc::list(answer, &["inverse_offer_ids"]) {
            let offer_id = OfferId::from(offer_id["value"].as_str().unwrap_or_default());
            let offers = &mut self.maintenance.inverse_offers;
            if offers.get(&offer_id).is_none_or(|offer| offer.framework != *id) {
                continue;
            }
            let Some(offer) = offers.remove(&offer_id) else {
                continue;
            };
            let answer_status = json!({
                "status": status,
                "framework_id": doc::id(id.as_str()),
                "timestamp": time_info(epoch()),
            });
            let answers = self.maintenance.answers.entry(offer.agent.clone()).or_default();
            answers.insert(id.clone(), answer_status);
            if let Some(framework) = self.frameworks.get_mut(id)
                && !refuse.is_zero()
            {
                framework.inverse_filters.insert(offer.agent, now + refuse);
            }
        }
    }

    /// Removes a framework's inverse offers without an event, because its stream has ended.
    pub(super) fn withdraw_inverse_offers_of(&mut self, id: &FrameworkId) {
        self.maintenance
            .inverse_offers
            .retain(|_, offer| offer.framework != *id);
        if let Some(framework) = self.frameworks.get_mut(id) {
            framework.inverse_filters.clear();
        }
    }

    /// Rescinds an agent's inverse offers with events.
    pub(super) fn rescind_inverse_offers_on(&mut self, agent: &AgentId) {
        let offers = &mut self.maintenance.inverse_offers;
        let rescinded: Vec<(OfferId, InverseOffer)> =
            offers.extract_if(.., |_, offer| offer.agent == *agent).collect();
        for (id, offer) in rescinded {
            let rescind = json!({"inverse_offer_id": doc::id(id.as_str())});
            self.send(
                &offer.framework,
                &json!({"type": "RESCIND_INVERSE_OFFER", "rescind_inverse_offer": rescind}),
            );
        }
    }

    /// Drops the frameworks' answers for an agent that was removed or whose unavailability has
    /// changed.
    pub(super) fn forget_answers(&mut self, agent: &AgentId) {
        self.maintenance.answers.remove(agent);
        for framework in self.frameworks.values_mut() {
            framework.inverse_filters.remove(agent);
        }
    }

    /// Drops the answers of a framework.
    pub(super) fn forget_answers_of(&mut self, id: &FrameworkId) {
        self.maintenance.answers.retain(|_, answers| {
            answers.remove(id);
            !answers.is_empty()
        });
    }
}

/// `InverseOffer`, without its id.
fn message(agent: &Agent, framework: &Framework, unavailability: &Value) -> Value {
    json!({
        "id": {},
        "url": offers::agent_url(agent),
        "framework_id": doc::id(framework.id.as_str()),
        "agent_id": doc::id(agent.id.as_str()),
        "unavailability": unavailability,
    })
}
