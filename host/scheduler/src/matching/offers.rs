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
    pub(crate) refused: BTreeMap<Reason, u32>,
}

/// The first candidates of a scan, found without scanning all offers.
#[derive(Debug, PartialEq)]
pub(crate) struct Shortlist {
    pub(crate) candidates: Vec<(u32, u32)>,
    /// Whether there are no other candidates.
    pub(crate) complete: bool,
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
    first_sums: Vec<usize>,
    /// Reservations by key, each with the index of an offer that contains its resources. Built on
    /// first use.
    holding: Option<HashMap<String, usize>>,
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
    need: &'a Requirements,
    accepted: Vec<bool>,
    /// For each of the allocation roles, whether it may be used.
    allocation: Vec<bool>,
    count: u32,
    now: i64,
}

impl Offers {
    pub(crate) fn new(mut offers: Vec<OpenOffer>) -> Self {
        offers.sort_by_key(|offer| offer.agent);
        let mut agents: Vec<Agent> = Vec::new();
        let (mut sums, mut roles) = (Vec::with_capacity(offers.len()), Vec::new());
        let mut first_sums = Vec::with_capacity(offers.len() + 1);
        let (mut allocated, mut allocation_roles) = (Vec::with_capacity(offers.len()), Vec::new());
        for (at, offer) in offers.iter().enumerate() {
            match agents.last_mut() {
                Some(agent) if agent.handle == offer.agent => agent.offers.end = at + 1,
                _ => agents.push(Agent {
                    handle: offer.agent,
                    offers: at..at + 1,
                }),
            }
            let role = offer.role.as_ref();
            allocated.push(role.map(|role| index_of(role, &mut allocation_roles)));
            first_sums.push(sums.len());
            sums.extend(offer.totals().into_iter().map(|(role, totals)| RoleTotals {
                role: index_of(role, &mut roles),
                totals,
            }));
        }
        first_sums.push(sums.len());
        Self {
            open: offers,
            agents,
            roles,
            allocation_roles,
            allocated,
            sums,
            first_sums,
            holding: None,
        }
    }

    /// The index of an offer that contains the resources of this reservation, if there is one.
    pub(super) fn holding(&mut self, key: &str) -> Option<usize> {
        let open = &self.open;
        let holding = self.holding.get_or_insert_with(|| {
            let held = open.iter().enumerate();
            let keys = held.flat_map(|(at, offer)| {
                let held = offer.held().iter();
                held.map(move |held| (held.owner.key.clone(), at))
            });
            keys.collect()
        });
        holding.get(key).copied()
    }

    /// All offers, grouped by agent.
    pub(super) fn open(&self) -> &[OpenOffer] {
        &self.open
    }

    pub(super) fn at(&mut self, at: usize) -> &mut OpenOffer {
        &mut self.open[at]
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
    pub(crate) fn scan(&self, need: &Requirements, count: u32, now: i64) -> CandidateScan {
        let query = self.query(need, count, now);
        let mut candidates = Vec::new();
        let mut refused = BTreeMap::new();
        for agent in &self.agents {
            let mut refuse = |reason| *refused.entry(reason).or_default() += 1;
            let room = self.room(agent, &query, &mut refuse);
            if room > 0 {
                candidates.push((agent.handle, room));
            }
        }
        candidates.sort_by_key(|candidate| order(*candidate));
        CandidateScan { candidates, refused }
    }

    /// The first `most` candidates of the same scan, without the agents for which `pass_over` is true.
    pub(crate) fn shortlist(
        &self,
        need: &Requirements,
        count: u32,
        now: i64,
        most: usize,
        pass_over: impl Fn(usize) -> bool,
    ) -> Shortlist {
        let query = self.query(need, count, now);
        // Agents with room for all instances come first in the order, so the search ends when it
        // has found enough of them.
        let mut candidates = Vec::new();
        let mut others = Vec::new();
        let mut complete = true;
        for (place, agent) in self.agents.iter().enumerate() {
            if candidates.len() == most {
                complete = false;
                break;
            }
            if pass_over(place) {
                complete = false;
                continue;
            }
            match self.room(agent, &query, &mut |_| ()) {
                0 => {}
                room if room == count => candidates.push((agent.handle, room)),
                room => others.push((agent.handle, room)),
            }
        }
        others.sort_by_key(|candidate| order(*candidate));
        candidates.extend(others);
        complete &= candidates.len() <= most;
        candidates.truncate(most);
        Shortlist { candidates, complete }
    }

    fn query<'a>(&self, need: &'a Requirements, count: u32, now: i64) -> MatchQuery<'a> {
        let accepted = self.roles.iter().map(|role| need.accepts(role)).collect();
        let roles = self.allocation_roles.iter();
        let allocation = roles.map(|role| need.may_use_offer_of(Some(role))).collect();
        MatchQuery {
            need,
            accepted,
            allocation,
            count,
            now,
        }
    }

    /// How many instances fit into the offers of an agent. `refuse` is called with the reasons of
    /// each offer without room.
    fn room(&self, agent: &Agent, query: &MatchQuery<'_>, refuse: &mut impl FnMut(Reason)) -> u32 {
        let mut room = 0_u32;
        for at in agent.offers.clone() {
            let sums = &self.sums[self.first_sums[at]..self.first_sums[at + 1]];
            let allocated = self.allocated[at].is_none_or(|role| query.allocation[role]);
            let usable = sums.iter().filter(|sum| allocated && query.accepted[sum.role]);
            let usable = usable.map(|sum| sum.totals).reduce(Totals::plus);
            let fits = self.open[at].room_of(usable, query.need, query.count, query.now, &mut *refuse);
            room = room.saturating_add(fits).min(query.count);
        }
        room
    }

    /// Allocates resources of the chosen agents to the instances, in order. If a chosen agent has
    /// no room, which means that it was not a candidate, its handle is returned, and earlier
    /// assignments stay.
    pub(crate) fn assign(
        &mut self,
        need: &Requirements,
        ids: &[TaskId],
        chosen: &[u32],
        rng: &mut impl Rng,
    ) -> (Vec<Assignment>, Option<u32>) {
        let mut assigned = Vec::with_capacity(chosen.len());
        for (id, &agent) in ids.iter().zip(chosen) {
            let offers = self
                .index_of_agent(agent)
                .map(|place| self.agents[place].offers.clone());
            let taken = offers.into_iter().flatten().find_map(|at| {
                let taken = self.open[at].take(need, rng)?;
                Some((at, taken))
            });
            let Some((at, taken)) = taken else {
                return (assigned, Some(agent));
            };
            self.add_up(at);
            assigned.push(Assignment {
                id: id.clone(),
                offer: self.open[at].id.clone(),
                agent,
                taken,
            });
        }
        (assigned, None)
    }

    /// Recomputes the totals of an offer, whose roles and their order do not change.
    fn add_up(&mut self, at: usize) {
        let sums = &mut self.sums[self.first_sums[at]..self.first_sums[at + 1]];
        for (sum, (_, totals)) in sums.iter_mut().zip(self.open[at].totals()) {
            sum.totals = totals;
        }
    }
}

/// The sort key of candidates: most room first.
fn order((agent, room): (u32, u32)) -> (Reverse<u32>, u32) {
    (Reverse(room), agent)
}

fn index_of(role: &Arc<str>, roles: &mut Vec<Arc<str>>) -> usize {
    let known = roles.iter().position(|known| known == role);
    known.unwrap_or_else(|| {
        roles.push(Arc::clone(role));
        roles.len() - 1
    })
}
