//! Arithmetic of resources that have the same tag: amounts of CPUs, memory, disk and GPUs, and port
//! ranges.
//!
//! Amounts are kept in thousandths, as in the real allocator, so that 0.1 + 0.2 is 0.3. Ranges are
//! sorted, disjoint and inclusive. Callers check with [`Amounts::contains`] before they subtract;
//! missing resources are never subtracted.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Amounts and ports with the same reservations and volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    scalars: BTreeMap<String, i64>,
    ports: Vec<(u64, u64)>,
}

impl Amounts {
    /// An agent's total.
    pub(crate) fn total(cpus: f64, mem: f64, disk: f64, ports: (u64, u64)) -> Self {
        let scalars = [("cpus", cpus), ("mem", mem), ("disk", disk)];
        Self {
            scalars: scalars
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), to_milli(*amount)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            ports: if ports.0 <= ports.1 {
                vec![ports]
            } else {
                Vec::new()
            },
        }
    }

    /// Adds up a list of `Resource` messages. Ranges other than `ports`, and sets, are rejected
    /// with a reason.
    pub(crate) fn parse(resources: &[Value]) -> Result<Self, String> {
        let mut amounts = Self::default();
        for resource in resources {
            let name = resource["name"].as_str().unwrap_or_default();
            match resource["type"].as_str() {
                Some("SCALAR") => {
                    let amount = resource["scalar"]["value"].as_f64().unwrap_or(-1.0);
                    if !amount.is_finite() || amount < 0.0 {
                        return Err(format!("Resource '{name}' is not a positive scalar"));
                    }
                    *amounts.scalars.entry(name.to_owned()).or_default() += to_milli(amount);
                }
                Some("RANGES") if name == "ports" => {
                    for range in resource["ranges"]["range"].as_array().into_iter().flatten() {
                        let (Some(begin), Some(end)) = (range["begin"].as_u64(), range["end"].as_u64())
                        else {
                            return Err("Ranges need 'begin' and 'end'".to_owned());
                        };
                        if begin > end || amounts.ports.iter().any(|(b, e)| begin <= *e && *b <= end) {
                            return Err(format!(
                                "Resource 'ports' has a bad or overlapping range [{begin}-{end}]"
                            ));
                        }
                        amounts.ports.push((begin, end));
                    }
                }
                other => {
                    return Err(format!(
                        "Resource '{name}' of type {} is not supported",
                        other.unwrap_or("none")
                    ));
                }
            }
        }
        amounts.scalars.retain(|_, amount| *amount > 0);
        amounts.ports = coalesce(amounts.ports);
        Ok(amounts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.scalars.is_empty() && self.ports.is_empty()
    }

    pub(crate) fn scalar(&self, name: &str) -> f64 {
        self.thousandths(name) as f64 / 1000.0
    }

    /// A scalar without rounding.
    pub(crate) fn thousandths(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn port_count(&self) -> u64 {
        self.ports.iter().map(|(begin, end)| end - begin + 1).sum()
    }

    /// Whether it contains all of `other`.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.scalars.iter().all(|(name, amount)| {
            self.scalars
                .get(name)
                .is_some_and(|available| available >= amount)
        }) && other
            .ports
            .iter()
            .all(|(begin, end)| self.ports.iter().any(|(b, e)| b <= begin && end <= e))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.scalars {
            *self.scalars.entry(name.clone()).or_default() += amount;
        }
        let mut ports = std::mem::take(&mut self.ports);
        ports.extend(&other.ports);
        self.ports = coalesce(ports);
    }

    /// Subtracts `other`; amounts do not fall below zero.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.scalars {
            if let Some(available) = self.scalars.get_mut(name) {
                *available -= amount;
            }
        }
        self.scalars.retain(|_, amount| *amount > 0);
        for (begin, end) in &other.ports {
            self.ports = self
                .ports
                .iter()
                .flat_map(|range| subtract_range(*range, (*begin, *end)))
                .collect();
        }
    }

    /// In the form of `/state`: every amount as a float, ports as `"[a-b, c-d]"` if there are any.
    pub(crate) fn summary(&self) -> Value {
        let mut summary = Map::new();
        for name in ["disk", "mem", "gpus", "cpus"] {
            summary.insert(name.to_owned(), json!(self.scalar(name)));
        }
        if !self.ports.is_empty() {
            summary.insert("ports".to_owned(), json!(self.ports_text()));
        }
        Value::Object(summary)
    }

    /// In the form of `/roles`: only amounts above zero, ports as their number.
    pub(crate) fn quantities(&self) -> Value {
        let mut quantities: Map<String, Value> = self
            .scalars
            .keys()
            .map(|name| (name.clone(), json!(self.scalar(name))))
            .collect();
        if !self.ports.is_empty() {
            quantities.insert("ports".to_owned(), json!(self.port_count() as f64));
        }
        Value::Object(quantities)
    }

    /// As a list of `Resource` messages without roles, ports first as in offers.
    pub(crate) fn to_messages(&self) -> Vec<Value> {
        let ports = (!self.ports.is_empty()).then(|| {
            let ranges: Vec<Value> = self
                .ports
                .iter()
                .map(|(begin, end)| json!({"begin": begin, "end": end}))
                .collect();
            json!({"name": "ports", "type": "RANGES", "ranges": {"range": ranges}})
        });
        let scalars = ["cpus", "mem", "disk"].into_iter().map(str::to_owned);
        let others = self
            .scalars
            .keys()
            .filter(|name| !["cpus", "mem", "disk"].contains(&name.as_str()))
            .cloned();
        let scalars = scalars
            .chain(others)
            .filter(|name| self.scalars.contains_key(name))
            .map(|name| {
                let value = self.scalar(&name);
                json!({"name": name, "type": "SCALAR", "scalar": {"value": value}})
            });
        ports.into_iter().chain(scalars).collect()
    }

    /// In the form of the master's errors, with `tag` after each name: `cpus(allocated: alpha):2.9;
    /// mem(allocated: alpha):3744`.
    pub(crate) fn describe(&self, tag: &str) -> Vec<String> {
        let scalar = |name: &str| {
            let amount = self.scalars.get(name)?;
            Some(format!("{name}{tag}:{}", *amount as f64 / 1000.0))
        };
        let ports = (!self.ports.is_empty()).then(|| format!("ports{tag}:{}", self.ports_text()));
        let first = ["cpus", "mem", "gpus"].into_iter().filter_map(scalar);
        first.chain(ports).chain(scalar("disk")).collect()
    }

    fn ports_text(&self) -> String {
        let ranges: Vec<String> = self
            .ports
            .iter()
            .map(|(begin, end)| format!("{begin}-{end}"))
            .collect();
        format!("[{}]", ranges.join(", "))
    }
}

fn to_milli(amount: f64) -> i64 {
    (amount * 1000.0).round() as i64
}

/// The parts of `range` that are not in `removed`.
fn subtract_range(range: (u64, u64), removed: (u64, u64)) -> Vec<(u64, u64)> {
    if removed.1 < range.0 || range.1 < removed.0 {
        return vec![range];
    }
    let mut remaining = Vec::new();
    if range.0 < removed.0 {
        remaining.push((range.0, removed.0 - 1));
    }
    if removed.1 < range.1 {
        remaining.push((removed.1 + 1, range.1));
    }
    remaining
}

/// Sorts the ranges and joins adjacent ones.
fn coalesce(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (begin, end) in ranges {
        match merged.last_mut() {
            Some(last) if begin <= last.1.saturating_add(1) => last.1 = last.1.max(end),
            _ => merged.push((begin, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(ranges: &[(u64, u64)]) -> Amounts {
        Amounts {
            scalars: BTreeMap::new(),
            ports: ranges.to_vec(),
        }
    }

    #[test]
    fn ports_can_be_subtracted_and_added_back() {
        type Ranges = &'static [(u64, u64)];
        let cases: [(Ranges, (u64, u64), Ranges); 5] = [
            (&[(10, 20)], (10, 10), &[(11, 20)]),
            (&[(10, 20)], (20, 20), &[(10, 19)]),
            (&[(10, 20)], (12, 14), &[(10, 11), (15, 20)]),
            (&[(10, 20)], (10, 20), &[]),
            (&[(10, 20)], (30, 40), &[(10, 20)]),
        ];
        for (available, take, left) in cases {
            let mut amounts = ports(available);
            amounts.subtract(&ports(&[take]));
            assert_eq!(amounts, ports(left), "{available:?} without {take:?}");
            amounts.add(&ports(&[take]));
            assert!(amounts.contains(&ports(available)), "{available:?} again");
        }
    }

    #[test]
    fn bad_resources_are_rejected() {
        let overlap = json!([{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 5}, {"begin": 5, "end": 6}]}}]);
        assert!(Amounts::parse(overlap.as_array().unwrap()).is_err());
        let negative = json!([{"name": "cpus", "type": "SCALAR", "scalar": {"value": -1.0}}]);
        assert!(Amounts::parse(negative.as_array().unwrap()).is_err());
    }
}
