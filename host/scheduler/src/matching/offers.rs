//! The offers of a round, and which of them have room for an instance.
//!
//! A round matches every pending run spec, so the remaining resources are summed once and kept in
//! contiguous tables. Scanning thousands of offers is then cheap arithmetic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use rand::Rng;
use transom_cluster::TaskId;

use super::offer_resources::Totals;
use super::{Assignment, OpenOffer, Requirements};
use crate::Reason;

/// The agents with room for instances, and the reasons why the other offers have none.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CandidateScan {
    /// Agent handle and number of instances that fit, at most the requested number. Agents with the
    /// most room come first.
    pub(crate) candidates: Vec<(u32, u32)>,
    pub(crate) refused_offers: BTreeMap<Reason, u32>,
}

/// The first candidates of a scan, found without scanning all offers.
#[derive(Debug, PartialEq)]
pub(crate) struct Shortlist {
    pub(crate) candidates: Vec<(u32, u32)>,
    /// Whether there are no other candidates.
    pub(crate) is_complete: bool,
}

/// All offers of a round.
#[derive(Debug)]
pub(crate) struct Offers {
    /// Grouped by agent, in the order of arrival.
    open: Vec<OpenOffer>,
    /// The agents, by handle.
    agents: Vec<Agent>,
    /// All roles of the resources.
    roles: Vec<Arc<str>>,
    /// All roles that offers are allocated to.
    allocation_roles: Vec<Arc<str>>,
    /// For each offer the index of its allocation role, if it has one.
    allocated: Vec<Option<usize>>,
    sums: Vec<RoleTotals>,
    /// The start of each offer's totals in `sums`, and finally the end of the last one's.
    sum_starts: Vec<usize>,
    /// Reservations by key, each with the index of an offer that contains its resources. Built on
    /// first use.
    by_reservation: Option<HashMap<String, usize>>,
}

#[derive(Debug)]
struct Agent {
    handle: u32,
    offers: Range<usize>,
}

/// The remaining resources of one offer and role.
#[derive(Debug)]
struct RoleTotals {
    /// Index into the roles.
    role: usize,
    totals: Totals,
}

/// Requirements, and the roles that they may use.
struct MatchQuery<'a> {
    requirements: &'a Requirements,
    accepted_roles: Vec<bool>,
    /// For each of the allocation roles, whether it may be used.
    accepted_allocation_roles: Vec<bool>,
    count: u32,
    now: i64,
}

impl Offers {
    pub(crate) fn new(mut offers: Vec<OpenOffer>) -> Self {
        offers.sort_by_key(|offer| offer.agent);
        let mut agents: Vec<Agent> = Vec::new();
        let (mut sums, mut roles) = (Vec::with_capacity(offers.len()), Vec::new());
        let mut sum_starts = Vec::with_capacity(offers.len() + 1);
        let (mut allocated, mut allocation_roles) = (Vec::with_capacity(offers.len()), Vec::new());
        for (offer_index, offer) in offers.iter().enumerate() {
            match agents.last_mut() {
                Some(agent) if agent.handle == offer.agent => agent.offers.end = offer_index + 1,
                _ => agents.push(Agent {
                    handle: offer.agent,
                    offers: offer_index..offer_index + 1,
                }),
            }
            let role = offer.role.as_ref();
            allocated.push(role.map(|role| index_of(role, &mut allocation_roles)));
            sum_starts.push(sums.len());
            sums.extend(offer.totals().into_iter().map(|(role, totals)| RoleTotals {
                role: index_of(role, &mut roles),
                totals,
            }));
        }
        sum_starts.push(sums.len());
        Self {
            open: offers,
            agents,
            roles,
            allocation_roles,
            allocated,
            sums,
            sum_starts,
            by_reservation: None,
        }
    }

    /// The index of an offer that contains the resources of this reservation, if there is one.
    pub(super) fn offer_with_reservation(&mut self, key: &str) -> Option<usize> {
        let open = &self.open;
        let by_reservation = self.by_reservation.get_or_insert_with(|| {
            let offered = open.iter().enumerate();
            let keys = offered.flat_map(|(offer_index, offer)| {
                let offered = offer.offered_reservations().iter();
                offered.map(move |offered| (offered.owner.key.clone(), offer_index))
            });
            keys.collect()
        });
        by_reservation.get(key).copied()
    }

    /// All offers, grouped by agent.
    pub(super) fn open(&self) -> &[OpenOffer] {
        &self.open
    }

    pub(super) fn offer_mut(&mut self, index: usize) -> &mut OpenOffer {
        &mut self.open[index]
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    #[cfg(test)]
    pub(super) fn offers(&self) -> &[OpenOffer] {
        &self.open
    }

    /// The number of agents. The index of an agent does not change.
    pub(crate) fn agents(&self) -> usize {
        self.agents.len()
    }

    /// The index of an agent.
    pub(crate) fn index_of_agent(&self, handle: u32) -> Option<usize> {
        self.agents
            .binary_search_by_key(&handle, |agent| agent.handle)
            .ok()
    }

    /// Scans all offers for up to `count` instances. `now`: nanoseconds since 1970.
    pub(crate) fn scan(&self, requirements: &Requirements, count: u32, now: i64) -> CandidateScan {
        let query = self.query(requirements, count, now);
        let mut candidates = Vec::new();
        let mut refused_offers = BTreeMap::new();
        for agent in &self.agents {
            let mut add_reason = |reason| *refused_offers.entry(reason).or_default() += 1;
            let capacity = self.capacity(agent, &query, &mut add_reason);
            if capacity > 0 {
                candidates.push((agent.handle, capacity));
            }
        }
        candidates.sort_by_key(|candidate| candidate_order(*candidate));
        CandidateScan {
            candidates,
            refused_offers,
        }
    }

    /// The first `limit` candidates of the same scan, without the agents for which `skip` is true.
    pub(crate) fn shortlist(
        &self,
        requirements: &Requirements,
        count: u32,
        now: i64,
        limit: usize,
        skip: impl Fn(usize) -> bool,
    ) -> Shortlist {
        let query = self.query(requirements, count, now);
        // Agents with room for all instances come first in the order, so the search ends when it
        // has found enough of them.
        let mut candidates = Vec::new();
        let mut partially_fitting = Vec::new();
        let mut is_complete = true;
        for (agent_index, agent) in self.agents.iter().enumerate() {
            if candidates.len() == limit {
                is_complete = false;
                break;
            }
            if skip(agent_index) {
                is_complete = false;
                continue;
            }
            match self.capacity(agent, &query, &mut |_| ()) {
                0 => {}
                capacity if capacity == count => candidates.push((agent.handle, capacity)),
                capacity => partially_fitting.push((agent.handle, capacity)),
            }
        }
        partially_fitting.sort_by_key(|candidate| candidate_order(*candidate));
        candidates.extend(partially_fitting);
        is_complete &= candidates.len() <= limit;
        candidates.truncate(limit);
        Shortlist {
            candidates,
            is_complete,
        }
    }

    fn query<'a>(&self, requirements: &'a Requirements, count: u32, now: i64) -> MatchQuery<'a> {
        let accepted_roles = self
            .roles
            .iter()
            .map(|role| requirements.accepts_role(role))
            .collect();
        let roles = self.allocation_roles.iter();
        let accepted_allocation_roles = roles
            .map(|role| requirements.accepts_offer_of_role(Some(role)))
            .collect();
        MatchQuery {
            requirements,
            accepted_roles,
            accepted_allocation_roles,
            count,
            now,
        }
    }

    /// How many instances fit into the offers of an agent. `add_reason` is called with the reasons of
    /// each offer without room.
    fn capacity(&self, agent: &Agent, query: &MatchQuery<'_>, add_reason: &mut impl FnMut(Reason)) -> u32 {
        #[cfg(test)]
        comparisons::add();
        let mut capacity = 0_u32;
        for offer_index in agent.offers.clone() {
            let sums = &self.sums[self.sum_starts[offer_index]..self.sum_starts[offer_index + 1]];
            let allocated =
                self.allocated[offer_index].is_none_or(|role| query.accepted_allocation_roles[role]);
            let usable = sums
                .iter()
                .filter(|sum| allocated && query.accepted_roles[sum.role]);
            let usable = usable.map(|sum| sum.totals).reduce(Totals::plus);
            let fits = self.open[offer_index].capacity_of(
                usable,
                query.requirements,
                query.count,
                query.now,
                &mut *add_reason,
            );
            capacity = capacity.saturating_add(fits).min(query.count);
        }
        capacity
    }

    /// Allocates resources of the chosen agents to the instances, in order. If a chosen agent has
    /// no room, which means that it was not a candidate, its handle is returned, and earlier
    /// assignments stay.
    pub(crate) fn assign(
        &mut self,
        requirements: &Requirements,
        ids: &[TaskId],
        chosen: &[u32],
        rng: &mut impl Rng,
    ) -> (Vec<Assignment>, Option<u32>) {
        let mut assigned = Vec::with_capacity(chosen.len());
        for (id, &agent) in ids.iter().zip(chosen) {
            let offers = self
                .index_of_agent(agent)
                .map(|agent_index| self.agents[agent_index].offers.clone());
            let allocation = offers.into_iter().flatten().find_map(|offer_index| {
                let allocation = self.open[offer_index].take(requirements, rng)?;
                Some((offer_index, allocation))
            });
            let Some((offer_index, allocation)) = allocation else {
                return (assigned, Some(agent));
            };
            self.update_totals(offer_index);
            assigned.push(Assignment {
                id: id.clone(),
                offer: self.open[offer_index].id.clone(),
                agent,
                allocation,
            });
        }
        (assigned, None)
    }

    /// Recomputes the totals of an offer, whose roles and their order do not change.
    fn update_totals(&mut self, offer_index: usize) {
        let sums = &mut self.sums[self.sum_starts[offer_index]..self.sum_starts[offer_index + 1]];
        for (sum, (_, totals)) in sums.iter_mut().zip(self.open[offer_index].totals()) {
            sum.totals = totals;
        }
    }
}

/// The sort key of candidates: most room first.
fn candidate_order((agent, capacity): (u32, u32)) -> (Reverse<u32>, u32) {
    (Reverse(capacity), agent)
}

fn index_of(role: &Arc<str>, roles: &mut Vec<Arc<str>>) -> usize {
    let position = roles.iter().position(|known| known == role);
    position.unwrap_or_else(|| {
        roles.push(Arc::clone(role));
        roles.len() - 1
    })
}

/// The number of comparisons of an agent's resources with requirements, for tests of the work that a
/// round does.
#[cfg(test)]
pub(crate) mod comparisons {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add() {
        COUNT.set(COUNT.get() + 1);
    }

    pub(crate) fn take() -> usize {
        COUNT.take()
    }
}
