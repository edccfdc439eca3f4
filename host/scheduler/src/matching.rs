//! What fits where: pure arithmetic over offers. Which agents may be used at all is the matcher's answer and
//! comes in as agent handles.
//!
//! Amounts are counted in thousandths, as the cluster manager does, so that ten tasks of 0.1 CPU fit into 1
//! CPU.

use std::collections::BTreeMap;

use rand::Rng;
use transom_cluster::{OfferId, TaskId, v1};

use crate::{PortRequest, Reason, RunSpec};

/// What one instance takes.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    scalars: [(&'static str, u64, Reason); 4],
    ports: Vec<PortRequest>,
    roles: Vec<String>,
}

impl Need {
    /// `default_roles`: what a spec without roles accepts.
    pub(crate) fn of(spec: &RunSpec, default_roles: &[String]) -> Self {
        let roles = if spec.roles.is_empty() {
            default_roles
        } else {
            &spec.roles
        };
        Self {
            scalars: [
                ("cpus", thousandths(spec.cpus), Reason::InsufficientCpus),
                ("mem", thousandths(spec.mem), Reason::InsufficientMemory),
                ("disk", thousandths(spec.disk), Reason::InsufficientDisk),
                ("gpus", thousandths(spec.gpus), Reason::InsufficientGpus),
            ],
            ports: spec.ports.clone(),
            roles: roles.to_vec(),
        }
    }

    fn accepts(&self, stock: &Stock) -> bool {
        self.roles.contains(&stock.role)
    }

    fn fixed(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().filter_map(|port| match port {
            PortRequest::Fixed(number) => Some(*number),
            PortRequest::Random => None,
        })
    }
}

/// Negative amounts and what is no number count as nothing.
fn thousandths(amount: f64) -> u64 {
    (amount * 1000.0).round() as u64
}

/// An offer while it is being divided up.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) offer: OfferId,
    /// The agent's handle.
    pub(crate) agent: u32,
    maintenance: Option<(i64, i64)>,
    stocks: Vec<Stock>,
}

/// What is left of one resource of an offer. The resource itself says whose it is and is handed back with the
/// amount taken.
#[derive(Clone, Debug)]
struct Stock {
    resource: v1::Resource,
    role: String,
    left: Left,
}

#[derive(Clone, Debug)]
enum Left {
    Thousandths(u64),
    /// Inclusive, not overlapping.
    Ports(Vec<(u16, u16)>),
}

/// What one task gets.
#[derive(Debug, PartialEq)]
pub(crate) struct Taken {
    pub(crate) resources: Vec<v1::Resource>,
    pub(crate) host_ports: Vec<u16>,
}

impl Bin {
    /// Leaves out what a plain task must not use: revocable and shared resources, volumes and special disks,
    /// resource providers'.
    pub(crate) fn new(offer: &v1::Offer, agent: u32) -> Self {
        let plain = |resource: &&v1::Resource| {
            resource.revocable.is_none()
                && resource.shared.is_none()
                && resource.disk.is_none()
                && resource.provider_id.is_none()
        };
        let mut stocks: Vec<_> = offer
            .resources
            .iter()
            .filter(plain)
            .filter_map(Stock::new)
            .collect();
        // Reserved resources are used up first: nobody else can have them.
        stocks.sort_by_key(|stock| stock.role == "*");
        let maintenance = offer.unavailability.as_ref().map(|window| {
            let start = window.start.nanoseconds;
            let length = window
                .duration
                .as_ref()
                .map_or(i64::MAX, |length| length.nanoseconds);
            (start, start.saturating_add(length))
        });
        Self {
            offer: offer.id.clone(),
            agent,
            maintenance,
            stocks,
        }
    }

    /// How many instances fit, at most `limit`, or why none does. `now`: nanoseconds since 1970.
    fn room(&self, need: &Need, limit: u32, now: i64) -> Result<u32, Vec<Reason>> {
        if self
            .maintenance
            .is_some_and(|(start, end)| start <= now && now < end)
        {
            return Err(vec![Reason::AgentMaintenance]);
        }
        if !self.stocks.iter().any(|stock| need.accepts(stock)) {
            return Err(vec![Reason::UnfulfilledRole]);
        }
        let mut room = u64::from(limit);
        let mut reasons = Vec::new();
        let scalars = need.scalars.iter().filter(|(_, amount, _)| *amount > 0);
        let fits = scalars.map(|&(name, amount, reason)| (self.amount(need, name) / amount, reason));
        for (fits, reason) in fits.chain([(self.port_room(need), Reason::InsufficientPorts)]) {
            room = room.min(fits);
            if fits == 0 {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() {
            Ok(room as u32)
        } else {
            Err(reasons)
        }
    }

    fn amount(&self, need: &Need, name: &str) -> u64 {
        let stocks = self
            .stocks
            .iter()
            .filter(|stock| stock.resource.name == name && need.accepts(stock));
        stocks.map(Stock::thousandths).sum()
    }

    fn port_room(&self, need: &Need) -> u64 {
        let fixed: Vec<u16> = need.fixed().collect();
        let random = (need.ports.len() - fixed.len()) as u64;
        let ranges = || {
            self.stocks
                .iter()
                .filter(|stock| need.accepts(stock))
                .flat_map(Stock::ports)
        };
        let offered = |port: &u16| ranges().any(|(first, last)| (first..=last).contains(port));
        let repeated = fixed
            .iter()
            .enumerate()
            .any(|(at, port)| fixed[..at].contains(port));
        if repeated || !fixed.iter().all(offered) {
            return 0;
        }
        let total: u64 = ranges().map(|(first, last)| u64::from(last - first) + 1).sum();
        let left = total.saturating_sub(fixed.len() as u64);
        match (fixed.is_empty(), random) {
            (true, 0) => u64::MAX,
            (true, random) => left / random,
            (false, random) => u64::from(left >= random),
        }
    }

    /// Takes one instance's share out; `None`, with nothing taken, when it does not fit.
    fn take(&mut self, need: &Need, rng: &mut impl Rng) -> Option<Taken> {
        self.room(need, 1, i64::MIN).ok()?;
        let mut resources = Vec::new();
        for &(name, amount, _) in &need.scalars {
            let mut missing = amount;
            for stock in self
                .stocks
                .iter_mut()
                .filter(|stock| stock.resource.name == name && need.accepts(stock))
            {
                let Left::Thousandths(left) = &mut stock.left else {
                    continue;
                };
                let part = missing.min(*left);
                if part > 0 {
                    *left -= part;
                    missing -= part;
                    resources.push(stock.part(part));
                }
            }
        }
        let host_ports = self.take_ports(need, rng, &mut resources)?;
        Some(Taken {
            resources,
            host_ports,
        })
    }

    /// Fixed ports first, so that no random one gets into their way.
    fn take_ports(
        &mut self,
        need: &Need,
        rng: &mut impl Rng,
        resources: &mut Vec<v1::Resource>,
    ) -> Option<Vec<u16>> {
        let mut taken: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        for port in need.fixed() {
            let at = self
                .stocks
                .iter()
                .position(|stock| need.accepts(stock) && stock.has_port(port))?;
            self.stocks[at].remove_port(port);
            taken.entry(at).or_default().push(port);
        }
        let mut host_ports = Vec::with_capacity(need.ports.len());
        for request in &need.ports {
            let port = match request {
                PortRequest::Fixed(port) => *port,
                PortRequest::Random => {
                    let (at, port) = self.random_port(need, rng)?;
                    self.stocks[at].remove_port(port);
                    taken.entry(at).or_default().push(port);
                    port
                }
            };
            host_ports.push(port);
        }
        resources.extend(
            taken
                .into_iter()
                .map(|(at, ports)| self.stocks[at].part_of_ports(ports)),
        );
        Some(host_ports)
    }
}

impl Bin {
    /// Any port that may be used, each as likely as the others, and the index of its stock.
    fn random_port(&self, need: &Need, rng: &mut impl Rng) -> Option<(usize, u16)> {
        let stocks = || {
            self.stocks
                .iter()
                .enumerate()
                .filter(|(_, stock)| need.accepts(stock))
        };
        let ranges = || stocks().flat_map(|(at, stock)| stock.ports().map(move |range| (at, range)));
        let total: u32 = ranges()
            .map(|(_, (first, last))| u32::from(last - first) + 1)
            .sum();
        let mut skip = (total > 0).then(|| rng.random_range(0..total))?;
        for (at, (first, last)) in ranges() {
            let length = u32::from(last - first) + 1;
            if skip < length {
                return Some((at, first + u16::try_from(skip).ok()?));
            }
            skip -= length;
        }
        None
    }
}

impl Stock {
    fn new(resource: &v1::Resource) -> Option<Self> {
        let left = match resource.name.as_str() {
            "ports" => {
                let ranges = resource.port_ranges().filter_map(|(first, last)| {
                    let last = u16::try_from(last.min(u64::from(u16::MAX))).ok()?;
                    let first = u16::try_from(first.max(1)).ok()?;
                    (first <= last).then_some((first, last))
                });
                Left::Ports(ranges.collect())
            }
            _ => Left::Thousandths(thousandths(resource.scalar_value()?)),
        };
        Some(Self {
            resource: resource.clone(),
            role: role_of(resource),
            left,
        })
    }

    fn thousandths(&self) -> u64 {
        match self.left {
            Left::Thousandths(left) => left,
            Left::Ports(_) => 0,
        }
    }

    fn ports(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let ranges: &[(u16, u16)] = match &self.left {
            Left::Ports(ranges) => ranges,
            Left::Thousandths(_) => &[],
        };
        ranges.iter().copied()
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports().any(|(first, last)| (first..=last).contains(&port))
    }

    fn remove_port(&mut self, port: u16) {
        let Left::Ports(ranges) = &mut self.left else {
            return;
        };
        *ranges = std::mem::take(ranges)
            .into_iter()
            .flat_map(|(first, last)| {
                if (first..=last).contains(&port) {
                    let below = (first < port).then(|| (first, port - 1));
                    let above = (port < last).then(|| (port + 1, last));
                    [below, above]
                } else {
                    [Some((first, last)), None]
                }
            })
            .flatten()
            .collect();
    }

    fn part(&self, thousandths: u64) -> v1::Resource {
        let scalar = Some(v1::Scalar {
            value: thousandths as f64 / 1000.0,
        });
        v1::Resource {
            scalar,
            ..self.resource.clone()
        }
    }

    fn part_of_ports(&self, mut ports: Vec<u16>) -> v1::Resource {
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
            ..self.resource.clone()
        }
    }
}

/// For whom a resource is set aside: the innermost reservation, or in the older form the role; `*` for
/// nobody.
fn role_of(resource: &v1::Resource) -> String {
    let reserved = resource
        .reservations
        .last()
        .and_then(|reservation| reservation.role.as_deref());
    reserved.or(resource.role.as_deref()).unwrap_or("*").to_owned()
}

/// Which agents have room for instances, and why the other offers have none.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Survey {
    /// Agent handle and how many instances fit there, at most the number asked about; the emptiest first.
    pub(crate) candidates: Vec<(u32, u32)>,
    pub(crate) refused: BTreeMap<Reason, u32>,
}

/// Looks at all offers for up to `count` instances. `now`: nanoseconds since 1970.
pub(crate) fn survey(bins: &[Bin], need: &Need, count: u32, now: i64) -> Survey {
    let mut room: BTreeMap<u32, u32> = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for bin in bins {
        match bin.room(need, count, now) {
            Ok(fits) => {
                let room = room.entry(bin.agent).or_default();
                *room = room.saturating_add(fits).min(count);
            }
            Err(reasons) => {
                for reason in reasons {
                    *refused.entry(reason).or_default() += 1;
                }
            }
        }
    }
    let mut candidates: Vec<_> = room.into_iter().filter(|(_, room)| *room > 0).collect();
    candidates.sort_by_key(|&(agent, room)| (std::cmp::Reverse(room), agent));
    Survey { candidates, refused }
}

/// One task's place.
#[derive(Debug, PartialEq)]
pub(crate) struct Assigned {
    pub(crate) task: TaskId,
    /// Index into the bins.
    pub(crate) bin: usize,
    pub(crate) taken: Taken,
}

/// Gives the tasks, in order, their shares at the chosen agents. Fails with the handle of an agent that has
/// no room (any more): then the choice was not one of the candidates'. What was assigned before stays taken.
pub(crate) fn assign(
    bins: &mut [Bin],
    need: &Need,
    tasks: &[TaskId],
    chosen: &[u32],
    rng: &mut impl Rng,
) -> (Vec<Assigned>, Option<u32>) {
    let mut assigned = Vec::with_capacity(chosen.len());
    for (task, agent) in tasks.iter().zip(chosen) {
        let mut there = bins.iter_mut().enumerate().filter(|(_, bin)| bin.agent == *agent);
        let place = there.find_map(|(at, bin)| Some((at, bin.take(need, rng)?)));
        let Some((bin, taken)) = place else {
            return (assigned, Some(*agent));
        };
        assigned.push(Assigned {
            task: task.clone(),
            bin,
            taken,
        });
    }
    (assigned, None)
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
