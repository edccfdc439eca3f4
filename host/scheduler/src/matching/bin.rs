//! One offer while it is being divided up.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use transom_cluster::{OfferId, v1};

use super::ports::{Free, Span, count};
use super::{Need, SCALARS, Share, Taken, thousandths};
use crate::Reason;

/// An offer and what is left of it.
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
    resource: Arc<v1::Resource>,
    role: Arc<str>,
    left: Left,
}

#[derive(Clone, Debug)]
enum Left {
    /// Of one of [`SCALARS`], in thousandths.
    Amount { which: usize, left: u64 },
    /// Not overlapping.
    Ports(Vec<Span>),
}

impl Bin {
    /// Leaves out what a plain task must not use: revocable and shared resources, volumes and special disks,
    /// resource providers'; and what no task asks for.
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
        stocks.sort_by_key(|stock| &*stock.role == "*");
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
    pub(super) fn room(&self, need: &Need, limit: u32, now: i64) -> Result<u32, Vec<Reason>> {
        if self
            .maintenance
            .is_some_and(|(start, end)| start <= now && now < end)
        {
            return Err(vec![Reason::AgentMaintenance]);
        }
        let (mut accepted, mut amounts, mut ports) = (false, [0_u64; SCALARS.len()], 0);
        for stock in self.stocks.iter().filter(|stock| need.accepts(&stock.role)) {
            accepted = true;
            match &stock.left {
                Left::Amount { which, left } => amounts[*which] += left,
                Left::Ports(spans) => ports += count(spans),
            }
        }
        if !accepted {
            return Err(vec![Reason::UnfulfilledRole]);
        }
        let (mut room, mut reasons) = (u64::from(limit), Vec::new());
        for ((amount, wanted), (_, reason)) in amounts.into_iter().zip(need.total).zip(SCALARS) {
            if let Some(fits) = amount.checked_div(wanted) {
                room = room.min(fits);
                if fits == 0 {
                    reasons.push(reason);
                }
            }
        }
        let ports = need.wishes.room(ports, room.max(1), || self.free(need));
        if ports == 0 {
            reasons.push(Reason::InsufficientPorts);
        }
        if reasons.is_empty() {
            Ok(room.min(ports) as u32)
        } else {
            Err(reasons)
        }
    }

    /// The ports that may be used.
    fn free(&self, need: &Need) -> Free {
        let stocks = self.stocks.iter().enumerate();
        let free = stocks.filter_map(|(at, stock)| match &stock.left {
            Left::Ports(spans) if need.accepts(&stock.role) => Some((at, spans.clone())),
            _ => None,
        });
        Free(free.collect())
    }

    /// Takes one instance's share out; `None`, with nothing taken, when it does not fit.
    pub(super) fn take(&mut self, need: &Need, rng: &mut impl Rng) -> Option<Taken> {
        self.room(need, 1, i64::MIN).ok()?;
        let mut free = self.free(need);
        let mut ports = need.wishes.take(&mut free, rng)?.into_iter();
        for (at, spans) in free.0 {
            self.stocks[at].left = Left::Ports(spans);
        }
        let mut shares = Vec::with_capacity(need.parts.len());
        for part in &need.parts {
            let mut resources = Vec::new();
            for (which, amount) in part.scalars.into_iter().enumerate() {
                self.take_amount(need, which, amount, &mut resources);
            }
            let ports: Vec<(usize, u16)> = ports.by_ref().take(part.ports).collect();
            let host_ports = ports.iter().map(|(_, port)| *port).collect();
            let mut by_stock: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
            for (at, port) in ports {
                by_stock.entry(at).or_default().push(port);
            }
            resources.extend(
                by_stock
                    .into_iter()
                    .map(|(at, ports)| self.stocks[at].ports(ports)),
            );
            shares.push(Share {
                resources,
                host_ports,
            });
        }
        Some(Taken { parts: shares })
    }

    fn take_amount(&mut self, need: &Need, which: usize, amount: u64, resources: &mut Vec<v1::Resource>) {
        let mut missing = amount;
        for stock in &mut self.stocks {
            let Left::Amount { which: other, left } = &mut stock.left else {
                continue;
            };
            let part = missing.min(*left);
            if *other == which && part > 0 && need.accepts(&stock.role) {
                *left -= part;
                missing -= part;
                resources.push(stock.amount(part));
            }
        }
    }
}

impl Stock {
    fn new(resource: &v1::Resource) -> Option<Self> {
        let left = if resource.name == "ports" {
            let ranges = resource.port_ranges().filter_map(|(first, last)| {
                let last = u16::try_from(last.min(u64::from(u16::MAX))).ok()?;
                let first = u16::try_from(first.max(1)).ok()?;
                (first <= last).then_some((first, last))
            });
            Left::Ports(ranges.collect())
        } else {
            let which = SCALARS.iter().position(|(name, _)| *name == resource.name)?;
            let left = thousandths(resource.scalar_value()?);
            Left::Amount { which, left }
        };
        Some(Self {
            resource: Arc::new(resource.clone()),
            role: role_of(resource),
            left,
        })
    }

    fn amount(&self, thousandths: u64) -> v1::Resource {
        let scalar = Some(v1::Scalar {
            value: thousandths as f64 / 1000.0,
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

/// For whom a resource is set aside: the innermost reservation, or in the older form the role; `*` for
/// nobody.
fn role_of(resource: &v1::Resource) -> Arc<str> {
    let reserved = resource
        .reservations
        .last()
        .and_then(|reservation| reservation.role.as_deref());
    reserved.or(resource.role.as_deref()).unwrap_or("*").into()
}
