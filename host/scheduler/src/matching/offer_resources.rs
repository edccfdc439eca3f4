//! The resources of one offer while a round allocates them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use transom_cluster::{OfferId, v1};

use super::disks::{self, Disk};
use super::held::{Held, Owner};
use super::ports::{Draw, Free, Lowest, Span, count, overlap};
use super::{Allocation, DISK, PartAllocation, Requirements, SCALARS, milli_units};
use crate::Reason;

/// An offer and its remaining resources.
#[derive(Clone, Debug)]
pub(crate) struct OpenOffer {
    pub(crate) id: OfferId,
    /// The agent's handle.
    pub(crate) agent: u32,
    /// The role that the offer is allocated to; `None` if the framework is not multi-role.
    pub(super) role: Option<Arc<str>>,
    /// See [`OpenOffer::closed_during`].
    closed: Option<(i64, i64)>,
    has_gpus: bool,
    resources_left: Vec<OfferedResource>,
    /// Resources for run specs with volumes, which most offers do not contain.
    special: Option<Box<Special>>,
}

/// Resources that only run specs with volumes may use.
#[derive(Clone, Debug, Default)]
struct Special {
    disks: Vec<Disk>,
    held: Vec<Held>,
}

/// Amounts of [`SCALARS`] in thousandths, and the number of ports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    amounts: [u64; SCALARS.len()],
    ports: u64,
}

impl Totals {
    pub(super) fn plus(mut self, more: Self) -> Self {
        for (amount, more) in self.amounts.iter_mut().zip(more.amounts) {
            *amount = amount.saturating_add(more);
        }
        self.ports += more.ports;
        self
    }
}

/// The remainder of one resource of an offer. The resource carries its role and is returned with
/// the allocated amount.
#[derive(Clone, Debug)]
struct OfferedResource {
    resource: Arc<v1::Resource>,
    role: Arc<str>,
    left: Remainder,
}

#[derive(Clone, Debug)]
enum Remainder {
    /// The amount of one of [`SCALARS`], in thousandths.
    Amount { which: usize, left: u64 },
    /// Spans that do not overlap.
    Ports(Vec<Span>),
}

impl OpenOffer {
    /// Reads an offer. Resources that a task must not use (revocable and shared resources, other
    /// volumes, disks of unknown types, other resources of resource providers) and unknown
    /// resources are skipped.
    pub(crate) fn new(offer: &v1::Offer, agent: u32) -> Self {
        let unreserved: Arc<str> = "*".into();
        let mut resources_left = Vec::with_capacity(offer.resources.len());
        let mut special: Option<Box<Special>> = None;
        for resource in &offer.resources {
            if resource.revocable.is_some() || resource.shared.is_some() {
                continue;
            }
            if let Some(owner) = Owner::of(resource) {
                Held::add(&mut special.get_or_insert_default().held, owner, resource);
            } else if resource.disk.is_some() {
                let role = role_of(resource).map_or_else(|| Arc::clone(&unreserved), Arc::from);
                if let Some(disk) = Disk::new(resource, role) {
                    special.get_or_insert_default().disks.push(disk);
                }
            } else if resource.provider_id.is_none() {
                resources_left.extend(OfferedResource::new(resource, &unreserved));
            }
        }
        // Reserved resources are used first: no other framework can use them.
        resources_left.sort_by_key(|resource_left| &*resource_left.role == "*");
        Self {
            id: offer.id.clone(),
            agent,
            role: allocated_to(offer),
            closed: None,
            has_gpus: resources_left.iter().any(OfferedResource::is_gpus),
            resources_left,
            special,
        }
    }

    /// The same offer, closed from and until these times, in nanoseconds since 1970, because the
    /// agent is in maintenance.
    pub(crate) fn closed_during(self, closed: Option<(i64, i64)>) -> Self {
        Self { closed, ..self }
    }

    /// Whether the offer must not be used at this time, in nanoseconds since 1970.
    pub(crate) fn is_closed(&self, now: i64) -> bool {
        self.closed.is_some_and(|(start, end)| start <= now && now < end)
    }

    /// The resources that are reserved for instances.
    pub(crate) fn held(&self) -> &[Held] {
        self.special.as_ref().map_or(&[], |special| &special.held)
    }

    /// The resources as offered, without those that were skipped.
    pub(crate) fn offered(&self) -> Vec<Arc<v1::Resource>> {
        let plain = self.resources_left.iter().map(|left| Arc::clone(&left.resource));
        let Some(special) = &self.special else {
            return plain.collect();
        };
        let disks = special.disks.iter().map(Disk::offered);
        let held = special.held.iter();
        let held = held.flat_map(|held| held.resources.iter().chain(&held.volumes));
        plain
            .chain(disks)
            .chain(held.map(|resource| Arc::new(resource.clone())))
            .collect()
    }

    /// Takes the resources of a reservation out of the offer.
    pub(super) fn take_held(&mut self, key: &str) -> Option<Held> {
        let held = &mut self.special.as_mut()?.held;
        let at = held.iter().position(|held| held.owner.key == key)?;
        Some(held.swap_remove(at))
    }

    /// An offer that contains only the resources of a reservation, without its volumes.
    pub(super) fn of_held(&self, held: &Held) -> Self {
        let unreserved: Arc<str> = "*".into();
        let resources = held.resources.iter();
        // The resources of a reservation may be used even on agents with GPUs.
        Self {
            has_gpus: false,
            id: self.id.clone(),
            agent: self.agent,
            role: self.role.clone(),
            closed: self.closed,
            resources_left: resources
                .filter_map(|resource| OfferedResource::new(resource, &unreserved))
                .collect(),
            special: None,
        }
    }

    /// The remaining resources by role.
    pub(super) fn totals(&self) -> Vec<(&Arc<str>, Totals)> {
        let mut totals: Vec<(&Arc<str>, Totals)> = Vec::with_capacity(1);
        for resource_left in &self.resources_left {
            let known = totals.iter().position(|(role, _)| **role == resource_left.role);
            let at = known.unwrap_or_else(|| {
                totals.push((&resource_left.role, Totals::default()));
                totals.len() - 1
            });
            let total = &mut totals[at].1;
            match &resource_left.left {
                Remainder::Amount { which, left } => {
                    total.amounts[*which] = total.amounts[*which].saturating_add(*left);
                }
                Remainder::Ports(spans) => total.ports += count(spans),
            }
        }
        totals
    }

    /// How many instances fit, at most `limit`. If none fits, `refuse` is called with the reasons.
    /// `now` is in nanoseconds since 1970.
    pub(crate) fn room(&self, need: &Requirements, limit: u32, now: i64, refuse: impl FnMut(Reason)) -> u32 {
        let allocated = need.may_use_offer_of(self.role.as_deref());
        let totals = self.totals().into_iter();
        let usable = totals
            .filter(|(role, _)| allocated && need.accepts(role))
            .map(|(_, totals)| totals);
        self.room_of(usable.reduce(Totals::plus), need, limit, now, refuse)
    }

    /// The same for given resources. `usable` is the sum of the remainders of the accepted roles,
    /// or `None` if there are none.
    pub(super) fn room_of(
        &self,
        usable: Option<Totals>,
        need: &Requirements,
        limit: u32,
        now: i64,
        mut refuse: impl FnMut(Reason),
    ) -> u32 {
        if self.is_closed(now) {
            refuse(Reason::AgentMaintenance);
            return 0;
        }
        let Some(usable) = usable else {
            refuse(Reason::UnfulfilledRole);
            return 0;
        };
        let (mut room, mut lacking) = (u64::from(limit), false);
        for ((amount, wanted), (_, reason)) in usable.amounts.into_iter().zip(need.total).zip(SCALARS) {
            let fits = amount.checked_div(wanted).unwrap_or(u64::MAX);
            if fits == 0 {
                refuse(reason);
                lacking = true;
            }
            room = room.min(fits);
        }
        let ports = if need.port_requests.spans().all(|span| self.has_port(need, span)) {
            need.port_requests
                .room(usable.ports, room.max(1), || self.free(need))
        } else {
            0
        };
        if ports == 0 {
            refuse(Reason::InsufficientPorts);
        }
        let mut room = if lacking { 0 } else { room.min(ports) as u32 };
        if room > 0 && !need.volumes.is_empty() {
            room = self.room_with_volumes(need, room);
            if room == 0 {
                refuse(Reason::InsufficientDisk);
            }
        }
        if room > 0 && need.avoids_gpus && self.has_gpus {
            refuse(Reason::DeclinedScarceResources);
            return 0;
        }
        room
    }

    /// For how many instances there are disks for the volumes too.
    fn room_with_volumes(&self, need: &Requirements, limit: u32) -> u32 {
        let mut rest = self.clone();
        let taken = (0..limit).take_while(|_| rest.try_take(need, &mut Lowest).is_some());
        taken.count() as u32
    }

    /// Whether any of these ports is usable.
    fn has_port(&self, need: &Requirements, wished: Span) -> bool {
        self.resources_left
            .iter()
            .any(|resource_left| match &resource_left.left {
                Remainder::Ports(spans) => {
                    spans.iter().any(|span| overlap(*span, wished).is_some())
                        && need.accepts(&resource_left.role)
                }
                Remainder::Amount { .. } => false,
            })
    }

    /// The usable ports.
    fn free(&self, need: &Requirements) -> Free {
        if need.port_requests.is_empty() {
            return Free(Vec::new());
        }
        let resources_left = self.resources_left.iter().enumerate();
        let free = resources_left.filter_map(|(at, resource_left)| match &resource_left.left {
            Remainder::Ports(spans) if need.accepts(&resource_left.role) => Some((at, spans.clone())),
            _ => None,
        });
        Free(free.collect())
    }

    /// Allocates one instance. Returns `None` and allocates nothing if it does not fit.
    pub(super) fn take(&mut self, need: &Requirements, rng: &mut impl Rng) -> Option<Allocation> {
        if self.room(need, 1, i64::MIN, |_| ()) == 0 {
            return None;
        }
        self.try_take(need, rng)
    }

    /// Allocates one instance. If it does not fit, the offer is invalid afterwards.
    fn try_take(&mut self, need: &Requirements, rng: &mut impl Draw) -> Option<Allocation> {
        let volumes = self.take_disks(need)?;
        let mut free = self.free(need);
        let mut ports = need.port_requests.take(&mut free, rng)?.into_iter();
        for (at, spans) in free.0 {
            self.resources_left[at].left = Remainder::Ports(spans);
        }
        let mut shares = Vec::with_capacity(need.parts.len());
        for part in &need.parts {
            let mut resources = Vec::new();
            for (which, amount) in part.scalars.into_iter().enumerate() {
                self.take_amount(need, which, amount, &mut resources)?;
            }
            let ports: Vec<(usize, u16)> = ports.by_ref().take(part.ports).collect();
            let host_ports = ports.iter().map(|(_, port)| *port).collect();
            let mut by_resource: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
            for (at, port) in ports {
                by_resource.entry(at).or_default().push(port);
            }
            resources.extend(
                by_resource
                    .into_iter()
                    .map(|(at, ports)| self.resources_left[at].ports(ports)),
            );
            shares.push(PartAllocation {
                resources,
                host_ports,
            });
        }
        Some(Allocation {
            parts: shares,
            volumes,
        })
    }

    /// Allocates a disk for each volume. A volume on the root disk needs one resource that is large
    /// enough, because a volume cannot consist of several resources.
    fn take_disks(&mut self, need: &Requirements) -> Option<Vec<v1::Resource>> {
        if need.volumes.is_empty() {
            return Some(Vec::new());
        }
        let disks = self
            .special
            .as_mut()
            .map_or(&mut [][..], |special| &mut special.disks);
        let taken = disks::take(disks, &need.volumes, |role| need.accepts(role))?;
        let mut volumes = Vec::with_capacity(taken.len());
        for (taken, volume) in taken.into_iter().zip(&need.volumes) {
            volumes.push(match taken {
                Some(disk) => disk,
                None => self.take_root_disk(need, milli_units(volume.size as f64))?,
            });
        }
        Some(volumes)
    }

    fn take_root_disk(&mut self, need: &Requirements, size: u64) -> Option<v1::Resource> {
        self.resources_left.iter_mut().find_map(|resource_left| {
            let Remainder::Amount { which: DISK, left } = &mut resource_left.left else {
                return None;
            };
            if *left < size || !need.accepts(&resource_left.role) {
                return None;
            }
            *left -= size;
            Some(resource_left.amount(size))
        })
    }

    /// Allocates an amount of a scalar resource; `None` if there is too little.
    fn take_amount(
        &mut self,
        need: &Requirements,
        which: usize,
        amount: u64,
        resources: &mut Vec<v1::Resource>,
    ) -> Option<()> {
        let mut missing = amount;
        for resource_left in &mut self.resources_left {
            let Remainder::Amount { which: other, left } = &mut resource_left.left else {
                continue;
            };
            let part = missing.min(*left);
            if *other == which && part > 0 && need.accepts(&resource_left.role) {
                *left -= part;
                missing -= part;
                resources.push(resource_left.amount(part));
            }
        }
        (missing == 0).then_some(())
    }
}

impl OfferedResource {
    fn is_gpus(&self) -> bool {
        self.resource.name == "gpus" && matches!(self.left, Remainder::Amount { left: 1.., .. })
    }

    fn new(resource: &v1::Resource, unreserved: &Arc<str>) -> Option<Self> {
        let left = if resource.name == "ports" {
            let ranges = resource.port_ranges().filter_map(|(first, last)| {
                let last = u16::try_from(last.min(u64::from(u16::MAX))).ok()?;
                let first = u16::try_from(first.max(1)).ok()?;
                (first <= last).then_some((first, last))
            });
            Remainder::Ports(ranges.collect())
        } else {
            let which = SCALARS.iter().position(|(name, _)| *name == resource.name)?;
            let left = milli_units(resource.scalar_value()?);
            Remainder::Amount { which, left }
        };
        Some(Self {
            resource: Arc::new(resource.clone()),
            role: role_of(resource).map_or_else(|| Arc::clone(unreserved), Arc::from),
            left,
        })
    }

    fn amount(&self, milli_units: u64) -> v1::Resource {
        let scalar = Some(v1::Scalar {
            value: milli_units as f64 / 1000.0,
        });
        v1::Resource {
            scalar,
            ..v1::Resource::clone(&self.resource)
        }
    }

    fn ports(&self, mut ports: Vec<u16>) -> v1::Resource {
        ports.sort_unstable();
        let mut range: Vec<v1::Range> = Vec::new();
        for port in ports.into_iter().map(u64::from) {
            match range.last_mut() {
                Some(last) if last.end + 1 == port => last.end = port,
                _ => range.push(v1::Range {
                    begin: port,
                    end: port,
                }),
            }
        }
        v1::Resource {
            ranges: Some(v1::Ranges { range }),
            ..v1::Resource::clone(&self.resource)
        }
    }
}

fn allocated_to(offer: &v1::Offer) -> Option<Arc<str>> {
    Some(offer.allocation_info.as_ref()?.role.as_deref()?.into())
}

/// The role for which a resource is reserved: that of the innermost reservation, or the older field
/// `role`. `None` if it is unreserved.
fn role_of(resource: &v1::Resource) -> Option<&str> {
    let reserved = resource
        .reservations
        .last()
        .and_then(|reservation| reservation.role.as_deref());
    reserved.or(resource.role.as_deref()).filter(|role| *role != "*")
}
