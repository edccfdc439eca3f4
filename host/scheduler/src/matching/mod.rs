//! Matching tasks with offers. The arithmetic here is pure; which agents are allowed at all is
//! decided by the matcher and given as agent handles.
//!
//! Amounts are counted in thousandths, as in Mesos, so that ten tasks of 0.1 CPU fit into 1 CPU.
//!
//! # Roles and reservations
//!
//! A resource may be used when it is unreserved and the run spec accepts `*`, or reserved
//! (statically or dynamically, in the old or the new format) for an accepted role or an ancestor of
//! it (`eng` for `eng/web`): Mesos offers those too. Resources are returned as offered, with
//! reservations and labels. Reserved resources are used before unreserved ones.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub(crate) mod agents;
pub(crate) mod matcher;
pub(crate) mod matcher_client;
pub(crate) mod offer_demand;
pub(crate) mod offer_pool;
mod offer_resources;
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

use transom_cluster::{OfferId, TaskId, v1};

pub(crate) use offer_resources::OpenOffer;
pub(crate) use offers::{CandidateScan, Offers};

use crate::{Build, PortRequest, Reason, RunSpec};

/// The scalar resources, and the reason when one is insufficient.
const SCALARS: [(&str, Reason); 4] = [
    ("cpus", Reason::InsufficientCpus),
    ("mem", Reason::InsufficientMemory),
    ("disk", Reason::InsufficientDisk),
    ("gpus", Reason::InsufficientGpus),
];

/// The resources that one instance requires.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// Each part gets its own resources: a single task, or a group's executor and then its members.
    parts: Vec<Part>,
    /// All parts' amounts, in thousandths.
    total: [u64; SCALARS.len()],
    /// The ports of all parts.
    port_requests: ports::PortRequests,
    roles: Vec<String>,
}

#[derive(Clone, Debug)]
struct Part {
    scalars: [u64; SCALARS.len()],
    /// How many.
    ports: usize,
}

impl Requirements {
    /// `default_roles`: the roles that a spec without roles accepts.
    pub(crate) fn of(spec: &RunSpec, default_roles: &[String]) -> Self {
        let roles = if spec.roles.is_empty() {
            default_roles
        } else {
            &spec.roles
        };
        let mut need = Self {
            parts: Vec::new(),
            total: Default::default(),
            port_requests: ports::PortRequests::new(&[]),
            roles: roles.to_vec(),
        };
        let mut ports = spec.ports.clone();
        need.add([spec.cpus, spec.mem, spec.disk, spec.gpus], &spec.ports);
        if let Build::Group(group) = &spec.build {
            for member in &group.members {
                need.add([member.cpus, member.mem, member.disk, member.gpus], &member.ports);
                ports.extend(&member.ports);
            }
        }
        need.port_requests = ports::PortRequests::new(&ports);
        need
    }

    fn add(&mut self, amounts: [f64; SCALARS.len()], ports: &[PortRequest]) {
        let scalars = amounts.map(milli_units);
        for (total, amount) in self.total.iter_mut().zip(scalars) {
            *total = total.saturating_add(amount);
        }
        self.parts.push(Part {
            scalars,
            ports: ports.len(),
        });
    }

    fn accepts(&self, reserved_for: &str) -> bool {
        self.roles.iter().any(|role| {
            role == reserved_for
                || role
                    .strip_prefix(reserved_for)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// In thousandths. Negative amounts and NaN count as zero.
fn milli_units(amount: f64) -> u64 {
    (amount * 1000.0).round() as u64
}

/// The resources allocated to one instance.
#[derive(Debug, PartialEq)]
pub(crate) struct Allocation {
    /// One for each part of the requirements.
    pub(crate) parts: Vec<PartAllocation>,
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
    pub(crate) taken: Allocation,
}
