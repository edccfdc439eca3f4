//! Matching of tasks with offers. The arithmetic is free of I/O. The matcher decides which agents
//! are allowed at all; its decision is passed in as agent handles.
//!
//! Amounts are counted in thousandths, as in Mesos, so that ten tasks of 0.1 CPU fit into 1 CPU.
//!
//! # Roles and reservations
//!
//! An offer is allocated to one role of the framework and may be used by run specs of that role.
//!
//! A resource may be used when it is unreserved and the run spec accepts `*`, or reserved
//! (statically or dynamically, in the old or the new format) for an accepted role or an ancestor of
//! it (`eng` for `eng/web`): Mesos offers those too. Resources are returned as offered, with
//! reservations and labels. Reserved resources are used before unreserved ones.
//!
//! An instance with volumes has its own reservation ([`offered_reservation`]), whose resources no
//! other instance uses. Only volumes use disks other than the root disk ([`disks`]).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub(crate) mod agents;
mod disks;
pub(crate) mod failures;
#[cfg(feature = "simulation")]
mod first_fit;
pub(crate) mod maintenance;
pub(crate) mod matcher;
pub(crate) mod matcher_client;
pub(crate) mod matchers;
pub(crate) mod offer_demand;
pub(crate) mod offer_pool;
mod offer_resources;
pub(crate) mod offered_reservation;
mod offers;
#[cfg(test)]
mod port_tests;
mod ports;
pub(crate) mod queue;
pub(crate) mod round;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;

use transom_cluster::{OfferId, TaskId, v1};

pub(crate) use offer_resources::OpenOffer;
pub(crate) use offers::{CandidateScan, Offers, Shortlist};

use crate::{Build, DiskKind, ExecutorResources, PortRequest, Reason, RunSpec, VolumeRequest};

/// The scalar resources, and the reason when one is insufficient.
const SCALARS: [(&str, Reason); 4] = [
    ("cpus", Reason::InsufficientCpus),
    ("mem", Reason::InsufficientMemory),
    ("disk", Reason::InsufficientDisk),
    ("gpus", Reason::InsufficientGpus),
];

/// The index of `disk` in [`SCALARS`].
const DISK: usize = 2;

/// The resources that one instance requires.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// Each part gets its own resources: a single task and then its executor, or a group's executor
    /// and then its members.
    parts: Vec<Part>,
    /// All parts' amounts, in thousandths.
    total: [u64; SCALARS.len()],
    /// The ports of all parts.
    port_requests: ports::PortRequests,
    roles: Vec<String>,
    /// The role to which offers must be allocated; `None`: any.
    role: Option<String>,
    /// See [`RunSpec::avoid_gpus`].
    avoids_gpus: bool,
    /// The volumes to create.
    volumes: Vec<VolumeRequest>,
    /// The resources are to be reserved for `role`: they must not be reserved for it already, since
    /// a reservation can only be refined.
    reserves: bool,
}

/// The requirements of an instance without volumes, to compare them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequirementsKey {
    parts: Vec<Part>,
    port_requests: ports::PortRequests,
    roles: Vec<String>,
    role: Option<String>,
    avoids_gpus: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    scalars: [u64; SCALARS.len()],
    /// Number of ports.
    ports: usize,
}

impl Requirements {
    /// The requirements of one instance. `default_roles` are accepted by a spec without any roles.
    pub(crate) fn of(spec: &RunSpec, default_roles: &[String]) -> Self {
        let roles = match &spec.role {
            _ if !spec.roles.is_empty() => spec.roles.clone(),
            Some(role) => vec![role.clone(), "*".to_owned()],
            None => default_roles.to_vec(),
        };
        let mut requirements = Self {
            parts: Vec::new(),
            total: Default::default(),
            port_requests: ports::PortRequests::new(&[]),
            roles,
            role: spec.role.clone(),
            avoids_gpus: spec.avoid_gpus,
            volumes: Vec::new(),
            reserves: false,
        };
        let mut ports = spec.ports.clone();
        requirements.add_part([spec.cpus, spec.mem, spec.disk, spec.gpus], &spec.ports);
        if let Build::Group(group) = &spec.build {
            for member in &group.members {
                requirements.add_part([member.cpus, member.mem, member.disk, member.gpus], &member.ports);
                ports.extend(&member.ports);
            }
        }
        let executor = spec.executor;
        if matches!(spec.build, Build::Task(_)) && executor != ExecutorResources::default() {
            requirements.add_part([executor.cpus, executor.mem, executor.disk, 0.0], &[]);
        }
        requirements.port_requests = ports::PortRequests::new(&ports);
        requirements
    }

    /// The requirements for making the reservation of an instance with volumes.
    pub(crate) fn for_new_reservation(spec: &RunSpec, default_roles: &[String]) -> Self {
        let role = spec.reservation_role(default_roles).to_owned();
        let mut requirements = Self::of(spec, &[role.clone(), "*".to_owned()]);
        let on_root = spec.volumes.iter().filter(|volume| volume.disk == DiskKind::Root);
        let root_disk = on_root.map(|volume| milli_units(volume.size as f64));
        requirements.total[DISK] = root_disk.fold(requirements.total[DISK], u64::saturating_add);
        requirements.role = Some(role);
        requirements.volumes.clone_from(&spec.volumes);
        requirements.reserves = true;
        requirements
    }

    /// The requirements of an instance that uses its reservation.
    pub(crate) fn for_existing_reservation(spec: &RunSpec, role: &str) -> Self {
        Self {
            roles: vec![role.to_owned()],
            role: Some(role.to_owned()),
            ..Self::of(spec, &[])
        }
    }

    /// Equal for requirements that the same offers fulfil, if there are no volumes.
    pub(crate) fn key(&self) -> RequirementsKey {
        RequirementsKey {
            parts: self.parts.clone(),
            port_requests: self.port_requests.clone(),
            roles: self.roles.clone(),
            role: self.role.clone(),
            avoids_gpus: self.avoids_gpus,
        }
    }

    fn add_part(&mut self, amounts: [f64; SCALARS.len()], ports: &[PortRequest]) {
        let scalars = amounts.map(milli_units);
        for (total, amount) in self.total.iter_mut().zip(scalars) {
            *total = total.saturating_add(amount);
        }
        self.parts.push(Part {
            scalars,
            ports: ports.len(),
        });
    }

    /// Whether offers that are allocated to this role may be used.
    fn accepts_offer_of_role(&self, allocated: Option<&str>) -> bool {
        match (&self.role, allocated) {
            (Some(role), Some(allocated)) => role == allocated,
            _ => true,
        }
    }

    fn accepts_role(&self, reserved_for: &str) -> bool {
        let is_accepted = self
            .roles
            .iter()
            .any(|role| role == reserved_for || is_descendant(role, reserved_for));
        let can_be_refined = |role: &String| reserved_for == "*" || is_descendant(role, reserved_for);
        is_accepted && (!self.reserves || self.role.as_ref().is_some_and(can_be_refined))
    }
}

fn is_descendant(role: &str, ancestor: &str) -> bool {
    role.strip_prefix(ancestor)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Converts an amount to thousandths. Negative amounts and NaN count as zero.
fn milli_units(amount: f64) -> u64 {
    (amount * 1000.0).round() as u64
}

/// The resources allocated to one instance.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Allocation {
    /// One allocation for each part of the requirements.
    pub(crate) parts: Vec<PartAllocation>,
    /// A disk for each volume to create.
    pub(crate) volumes: Vec<v1::Resource>,
}

/// The resources allocated to one part of an instance.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PartAllocation {
    pub(crate) resources: Vec<v1::Resource>,
    /// In the order of the requests.
    pub(crate) host_ports: Vec<u16>,
}

/// One instance, assigned to an offer.
#[derive(Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) id: TaskId,
    pub(crate) offer: OfferId,
    pub(crate) agent: u32,
    pub(crate) allocation: Allocation,
}
