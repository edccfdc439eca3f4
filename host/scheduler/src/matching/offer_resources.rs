//! The resources of one offer while a round allocates them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use transom_cluster::{OfferId, v1};

use super::disks::{self, Disk};
use super::offered_reservation::{OfferedReservation, Owner};
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
    remaining_resources: Vec<OfferedResource>,
    /// Resources for run specs with volumes, which most offers do not contain.
    volume_resources: Option<Box<VolumeResources>>,
}

/// Resources that only run specs with volumes may use.
#[derive(Clone, Debug, Default)]
struct VolumeResources {
    disks: Vec<Disk>,
    reservations: Vec<OfferedReservation>,
}

/// Amounts of [`SCALARS`] in thousandths, and the number of ports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    amounts: [u64; SCALARS.len()],
    ports: u64,
}

impl Totals {
    pub(super) fn plus(mut self, other: Self) -> Self {
        for (amount, other) in self.amounts.iter_mut().zip(other.amounts) {
            *amount = amount.saturating_add(other);
        }
        self.ports += other.ports;
        self
    }
}

/// The remainder of one resource of an offer. The resource carries its role and is returned with
/// the allocated amount.
#[derive(Clone, Debug)]
struct OfferedResource {
    resource: Arc<v1::Resource>,
    role: Arc<str>,
    remaining: Remainder,
}

#[derive(Clone, Debug)]
enum Remainder {
    /// The amount of one of [`SCALARS`], in thousandths.
    Amount { scalar_index: usize, remaining: u64 },
    /// Spans that do not overlap.
    Ports(Vec<Span>),
}

impl OpenOffer {
    /// Reads an offer. Resources that a task must not use (revocable and shared resources, other
    /// volumes, disks of unknown types, other resources of resource providers) and unknown
    /// resources are skipped.
    pub(crate) fn new(offer: &v1::Offer, agent: u32) -> Self {
        let unreserved: Arc<str> = "*".into();
        let mut remaining_resources = Vec::with_capacity(offer.resources.len());
        let mut volume_resources: Option<Box<VolumeResources>> = None;
        for resource in &offer.resources {
            if resource.revocable.is_some() || resource.shared.is_some() {
                continue;
            }
            if let Some(owner) = Owner::of(resource) {
                OfferedReservation::add(
                    &mut volume_resources.get_or_insert_default().reservations,
                    owner,
                    resource,
                );
            } else if resource.disk.is_some() {
                let role = role_of(resource).map_or_else(|| Arc::clone(&unreserved), Arc::from);
                if let Some(disk) = Disk::new(resource, role) {
                    volume_resources.get_or_insert_default().disks.push(disk);
                }
            } else if resource.provider_id.is_none() {
                remaining_resources.extend(OfferedResource::new(resource, &unreserved));
            }
        }
        // Reserved resources are used first: no other framework can use them.
        remaining_resources.sort_by_key(|remaining_resource| &*remaining_resource.role == "*");
        Self {
            id: offer.id.clone(),
            agent,
            role: allocated_to(offer),
            closed: None,
            has_gpus: remaining_resources.iter().any(OfferedResource::is_gpus),
            remaining_resources,
            volume_resources,
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
    pub(crate) fn offered_reservations(&self) -> &[OfferedReservation] {
        self.volume_resources
            .as_ref()
            .map_or(&[], |volume_resources| &volume_resources.reservations)
    }

    /// The resources as offered, without those that were skipped.
    pub(crate) fn offered_resources(&self) -> Vec<Arc<v1::Resource>> {
        let matchable = self
            .remaining_resources
            .iter()
            .map(|remaining| Arc::clone(&remaining.resource));
        let Some(volume_resources) = &self.volume_resources else {
            return matchable.collect();
        };
        let disks = volume_resources.disks.iter().map(Disk::offered_resource);
        let reservations = volume_resources.reservations.iter();
        let reservations =
            reservations.flat_map(|reservation| reservation.resources.iter().chain(&reservation.volumes));
        matchable
            .chain(disks)
            .chain(reservations.map(|resource| Arc::new(resource.clone())))
            .collect()
    }

    /// Takes the resources of a reservation out of the offer.
    pub(super) fn take_reservation(&mut self, key: &str) -> Option<OfferedReservation> {
        let reservations = &mut self.volume_resources.as_mut()?.reservations;
        let index = reservations
            .iter()
            .position(|reservation| reservation.owner.key == key)?;
        Some(reservations.swap_remove(index))
    }

    /// An offer that contains only the resources of a reservation, without its volumes.
    pub(super) fn only_reservation(&self, reservation: &OfferedReservation) -> Self {
        let unreserved: Arc<str> = "*".into();
        let resources = reservation.resources.iter();
        // The resources of a reservation may be used even on agents with GPUs.
        Self {
            has_gpus: false,
            id: self.id.clone(),
            agent: self.agent,
            role: self.role.clone(),
            closed: self.closed,
            remaining_resources: resources
                .filter_map(|resource| OfferedResource::new(resource, &unreserved))
                .collect(),
            volume_resources: None,
        }
    }

    /// The remaining resources by role.
    pub(super) fn totals(&self) -> Vec<(&Arc<str>, Totals)> {
        let mut totals: Vec<(&Arc<str>, Totals)> = Vec::with_capacity(1);
        for remaining_resource in &self.remaining_resources {
            let known = totals
                .iter()
                .position(|(role, _)| **role == remaining_resource.role);
            let index = known.unwrap_or_else(|| {
                totals.push((&remaining_resource.role, Totals::default()));
                totals.len() - 1
            });
            let total = &mut totals[index].1;
            match &remaining_resource.remaining {
                Remainder::Amount {
                    scalar_index,
                    remaining,
                } => {
                    total.amounts[*scalar_index] = total.amounts[*scalar_index].saturating_add(*remaining);
                }
                Remainder::Ports(spans) => total.ports += count(spans),
            }
        }
        totals
    }

    /// How many instances fit, at most `limit`. If none fits, `add_reason` is called with the reasons.
    /// `now` is in nanoseconds since 1970.
    pub(crate) fn capacity(
        &self,
        requirements: &Requirements,
        limit: u32,
        now: i64,
        add_reason: impl FnMut(Reason),
    ) -> u32 {
        let allocated = requirements.accepts_offer_of_role(self.role.as_deref());
        let totals = self.totals().into_iter();
        let usable = totals
            .filter(|(role, _)| allocated && requirements.accepts_role(role))
            .map(|(_, totals)| totals);
        self.capacity_of(usable.reduce(Totals::plus), requirements, limit, now, add_reason)
    }

    /// The same for given resources. `usable` is the sum of the remainders of the accepted roles,
    /// or `None` if there are none.
    pub(super) fn capacity_of(
        &self,
        usable: Option<Totals>,
        requirements: &Requirements,
        limit: u32,
        now: i64,
        mut add_reason: impl FnMut(Reason),
    ) -> u32 {
        if self.is_closed(now) {
            add_reason(Reason::AgentMaintenance);
            return 0;
        }
        let Some(usable) = usable else {
            add_reason(Reason::UnfulfilledRole);
            return 0;
        };
        let (mut capacity, mut is_insufficient) = (u64::from(limit), false);
        for ((amount, requested), (_, reason)) in
            usable.amounts.into_iter().zip(requirements.total).zip(SCALARS)
        {
            let fits = amount.checked_div(requested).unwrap_or(u64::MAX);
            if fits == 0 {
                add_reason(reason);
                is_insufficient = true;
            }
            capacity = capacity.min(fits);
        }
        let ports = if requirements
            .port_requests
            .spans()
            .all(|span| self.has_port(requirements, span))
        {
            requirements
                .port_requests
                .capacity(usable.ports, capacity.max(1), || self.free_ports(requirements))
        } else {
            0
        };
        if ports == 0 {
            add_reason(Reason::InsufficientPorts);
        }
        let mut capacity = if is_insufficient {
            0
        } else {
            capacity.min(ports) as u32
        };
        if capacity > 0 && !requirements.volumes.is_empty() {
            capacity = self.capacity_with_volumes(requirements, capacity);
            if capacity == 0 {
                add_reason(Reason::InsufficientDisk);
            }
        }
        if capacity > 0 && requirements.avoids_gpus && self.has_gpus {
            add_reason(Reason::DeclinedScarceResources);
            return 0;
        }
        capacity
    }

    /// For how many instances there are disks for the volumes too.
    fn capacity_with_volumes(&self, requirements: &Requirements, limit: u32) -> u32 {
        let mut remaining_offer = self.clone();
        let taken = (0..limit).take_while(|_| remaining_offer.try_take(requirements, &mut Lowest).is_some());
        taken.count() as u32
    }

    /// Whether any of these ports is usable.
    fn has_port(&self, requirements: &Requirements, requested_span: Span) -> bool {
        self.remaining_resources
            .iter()
            .any(|remaining_resource| match &remaining_resource.remaining {
                Remainder::Ports(spans) => {
                    spans.iter().any(|span| overlap(*span, requested_span).is_some())
                        && requirements.accepts_role(&remaining_resource.role)
                }
                Remainder::Amount { .. } => false,
            })
    }

    /// The usable ports.
    fn free_ports(&self, requirements: &Requirements) -> Free {
        if requirements.port_requests.is_empty() {
            return Free(Vec::new());
        }
        let remaining_resources = self.remaining_resources.iter().enumerate();
        let free = remaining_resources.filter_map(|(index, remaining_resource)| {
            match &remaining_resource.remaining {
                Remainder::Ports(spans) if requirements.accepts_role(&remaining_resource.role) => {
                    Some((index, spans.clone()))
                }
                _ => None,
            }
        });
        Free(free.collect())
    }

    /// Allocates one instance. Returns `None` and allocates nothing if it does not fit.
    pub(super) fn take(&mut self, requirements: &Requirements, rng: &mut impl Rng) -> Option<Allocation> {
        if self.capacity(requirements, 1, i64::MIN, |_| ()) == 0 {
            return None;
        }
        self.try_take(requirements, rng)
    }

    /// Allocates one instance. If it does not fit, the offer is invalid afterwards.
    fn try_take(&mut self, requirements: &Requirements, rng: &mut impl Draw) -> Option<Allocation> {
        let volumes = self.take_disks(requirements)?;
        let mut free = self.free_ports(requirements);
        let mut ports = requirements.port_requests.take(&mut free, rng)?.into_iter();
        for (index, spans) in free.0 {
            self.remaining_resources[index].remaining = Remainder::Ports(spans);
        }
        let mut part_allocations = Vec::with_capacity(requirements.parts.len());
        for part in &requirements.parts {
            let mut resources = Vec::new();
            for (scalar_index, amount) in part.scalars.into_iter().enumerate() {
                self.take_amount(requirements, scalar_index, amount, &mut resources)?;
            }
            let ports: Vec<(usize, u16)> = ports.by_ref().take(part.ports).collect();
            let host_ports = ports.iter().map(|(_, port)| *port).collect();
            let mut by_resource: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
            for (index, port) in ports {
                by_resource.entry(index).or_default().push(port);
            }
            resources.extend(
                by_resource
                    .into_iter()
                    .map(|(index, ports)| self.remaining_resources[index].ports(ports)),
            );
            part_allocations.push(PartAllocation {
                resources,
                host_ports,
            });
        }
        Some(Allocation {
            parts: part_allocations,
            volumes,
        })
    }

    /// Allocates a disk for each volume. A volume on the root disk needs one resource that is large
    /// enough, because a volume cannot consist of several resources.
    fn take_disks(&mut self, requirements: &Requirements) -> Option<Vec<v1::Resource>> {
        if requirements.volumes.is_empty() {
            return Some(Vec::new());
        }
        let disks = self
            .volume_resources
            .as_mut()
            .map_or(&mut [][..], |volume_resources| &mut volume_resources.disks);
        let taken = disks::take(disks, &requirements.volumes, |role| {
            requirements.accepts_role(role)
        })?;
        let mut volumes = Vec::with_capacity(taken.len());
        for (taken, volume) in taken.into_iter().zip(&requirements.volumes) {
            volumes.push(match taken {
                Some(disk) => disk,
                None => self.take_root_disk(requirements, milli_units(volume.size as f64))?,
            });
        }
        Some(volumes)
    }

    fn take_root_disk(&mut self, requirements: &Requirements, size: u64) -> Option<v1::Resource> {
        self.remaining_resources.iter_mut().find_map(|offered| {
            let Remainder::Amount {
                scalar_index: DISK,
                remaining,
            } = &mut offered.remaining
            else {
                return None;
            };
            if *remaining < size || !requirements.accepts_role(&offered.role) {
                return None;
            }
            *remaining -= size;
            Some(offered.amount(size))
        })
    }

    /// Allocates an amount of a scalar resource; `None` if there is too little.
    fn take_amount(
        &mut self,
        requirements: &Requirements,
        scalar_index: usize,
        amount: u64,
        resources: &mut Vec<v1::Resource>,
    ) -> Option<()> {
        let mut amount_missing = amount;
        for offered in &mut self.remaining_resources {
            let Remainder::Amount {
                scalar_index: other,
                remaining,
            } = &mut offered.remaining
            else {
                continue;
            };
            let part = amount_missing.min(*remaining);
            if *other == scalar_index && part > 0 && requirements.accepts_role(&offered.role) {
                *remaining -= part;
                amount_missing -= part;
                resources.push(offered.amount(part));
            }
        }
        (amount_missing == 0).then_some(())
    }
}

impl OfferedResource {
    fn is_gpus(&self) -> bool {
        self.resource.name == "gpus" && matches!(self.remaining, Remainder::Amount { remaining: 1.., .. })
    }

    fn new(resource: &v1::Resource, unreserved: &Arc<str>) -> Option<Self> {
        let remaining = if resource.name == "ports" {
            let ranges = resource.port_ranges().filter_map(|(first, last)| {
                let last = u16::try_from(last.min(u64::from(u16::MAX))).ok()?;
                let first = u16::try_from(first.max(1)).ok()?;
                (first <= last).then_some((first, last))
            });
            Remainder::Ports(ranges.collect())
        } else {
            let scalar_index = SCALARS.iter().position(|(name, _)| *name == resource.name)?;
            let remaining = milli_units(resource.scalar_value()?);
            Remainder::Amount {
                scalar_index,
                remaining,
            }
        };
        Some(Self {
            resource: Arc::new(resource.clone()),
            role: role_of(resource).map_or_else(|| Arc::clone(unreserved), Arc::from),
            remaining,
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
