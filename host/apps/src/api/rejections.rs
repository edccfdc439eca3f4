//! What exactly the last offers lacked: the fixed ports that no offer has, and the values that a
//! constraint requires and no agent has. `InsufficientPorts` and `UnfulfilledConstraint` alone do not
//! tell an operator which port or which agent to look for.
//!
//! The texts are about the offers in [`Reasons::unused_offers`], and say how many these were.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use transom_cluster::v1::{Attribute, ValueType};
use transom_common::text::clip;
use transom_plugin_host::printable;
use transom_scheduler::{PortRequest, Reason, Reasons, UnusedOffer};

use crate::core::places::Places;
use crate::ids::SpecId;
use crate::model::{Constraint, Spec};
use crate::task::{pod, ports};

/// Maximum number of texts of one entry.
const MAX_TEXTS: usize = 20;
/// Maximum number of values or ranges in one text.
const MAX_VALUES: usize = 5;
/// Maximum length of a value in bytes.
const MAX_VALUE_BYTES: usize = 64;

/// What the last offers lacked, in words.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Rejection {
    /// The name of the reason in the summaries.
    reason: &'static str,
    text: String,
}

/// What the last offers lacked for an app or pod.
pub(super) fn rejections(spec: &Spec, reasons: &Reasons, places: &Places) -> Vec<Rejection> {
    let of = |reason: Reason| {
        move |text| Rejection {
            reason: reason.as_str(),
            text,
        }
    };
    let mut list = Vec::new();
    if reasons.last.contains_key(&Reason::InsufficientPorts) {
        let texts = fixed_ports(spec)
            .into_iter()
            .filter_map(|port| missing_port(spec, port, reasons, places));
        list.extend(texts.map(of(Reason::InsufficientPorts)));
    }
    if reasons.last.contains_key(&Reason::UnfulfilledConstraint) {
        let constraints = reasons.last_constraints.iter().filter(|(_, agents)| **agents > 0);
        let texts = constraints.filter_map(|(index, agents)| {
            let constraint = spec.constraints().get(*index as usize)?;
            unfulfilled(constraint, *agents, reasons, places)
        });
        list.extend(texts.map(of(Reason::UnfulfilledConstraint)));
    }
    list.truncate(MAX_TEXTS);
    list
}

/// The ports of the agent that the definition fixes.
fn fixed_ports(spec: &Spec) -> BTreeSet<u16> {
    let requests = match spec {
        Spec::App(app) => ports::requests(app),
        Spec::Pod(pod) => pod.containers.iter().flat_map(pod::requests).collect(),
    };
    let fixed = requests.into_iter().filter_map(|request| match request {
        PortRequest::Fixed(port) => Some(port),
        PortRequest::Random | PortRequest::Range(..) => None,
    });
    fixed.collect()
}

fn missing_port(spec: &Spec, port: u16, reasons: &Reasons, places: &Places) -> Option<String> {
    let offers = &reasons.unused_offers;
    let without: Vec<&UnusedOffer> = offers
        .iter()
        .map(|offer| &**offer)
        .filter(|offer| !port_ranges(offer).any(|(first, last)| (first..=last).contains(&u64::from(port))))
        .collect();
    if without.is_empty() {
        return None;
    }
    let offered: BTreeSet<(u64, u64)> = without.iter().flat_map(|offer| port_ranges(offer)).collect();
    let offered = if offered.is_empty() {
        "these offer no ports".to_owned()
    } else {
        let ranges = offered.iter().map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        format!("agents offer {}", listed(ranges))
    };
    let mut text = if without.len() == offers.len() {
        format!("host port {port} is in none of {}: {offered}", counted(reasons))
    } else {
        format!(
            "host port {port} is not in {} of {}: {offered}",
            without.len(),
            counted(reasons)
        )
    };
    let users = || places.users(port);
    let used: BTreeSet<(&SpecId, &str)> = users().map(|user| (&user.id, &*user.host)).collect();
    if !used.is_empty() {
        let used = used
            .iter()
            .map(|(user, host)| format!("{user} on {}", shown(host)));
        text = format!("{text}. The port is used by {}", listed(used));
    }
    if users().any(|user| user.id == *spec.id() && user.version != Some(spec.version())) {
        text.push_str(
            "; with `upgradeStrategy.minimumHealthCapacity` 0 an update ends an old instance before it starts \
             the new one",
        );
    }
    Some(text)
}

/// Why a constraint rejects agents; `None` if its counts say everything.
fn unfulfilled(constraint: &Constraint, agents: u32, reasons: &Reasons, places: &Places) -> Option<String> {
    let [field, operator, operand @ ..] = constraint.0.as_slice() else {
        return None;
    };
    let words: Vec<String> = constraint.0.iter().map(|word| shown(word)).collect();
    let name = format!("constraint {}", words.join(" "));
    let is_hostname = matches!(field.as_str(), "hostname" | "@hostname");
    let offers = &reasons.unused_offers;
    let values: BTreeMap<String, &UnusedOffer> = offers
        .iter()
        .filter_map(|offer| Some((value(field, offer)?, &**offer)))
        .collect();
    if values.is_empty() {
        let what = field.strip_prefix('@').map_or_else(
            || format!("the attribute {}", shown(field)),
            |domain| format!("a {}", shown(domain)),
        );
        return (!offers.is_empty()).then(|| format!("{name}: no agent of {} has {what}", counted(reasons)));
    }
    let known = listed(values.keys().map(|value| shown(value)));
    let required = operand
        .first()
        .filter(|_| matches!(operator.as_str(), "CLUSTER" | "IS"));
    Some(match required {
        Some(required) => match values.get(required) {
            // The agent itself is allowed, and lacks something else.
            Some(offer) if !offer.reasons.contains(&Reason::UnfulfilledConstraint) => {
                let lacks = offer.reasons.iter().map(|reason| reason.as_str().to_owned());
                format!(
                    "{name}: the offer of {} was not used for other reasons: {}",
                    shown(required),
                    listed(lacks)
                )
            }
            Some(_) => return None,
            None if is_hostname && places.has_host(required) => {
                format!(
                    "{name}: the agent {} sends no offer, because all it has is in use",
                    shown(required)
                )
            }
            None if is_hostname => {
                format!(
                    "{name}: no agent is called {}: {} came from {known}",
                    shown(required),
                    counted(reasons)
                )
            }
            None => format!(
                "{name}: no agent of {} has the value {}; they have {known}",
                counted(reasons),
                shown(required)
            ),
        },
        None if operator == "UNIQUE" => {
            format!("{name}: rejects {agents} agents, because instances run already on {known}")
        }
        None => format!(
            "{name}: rejects {agents} agents; the values of {} are {known}",
            counted(reasons)
        ),
    })
}

/// The value that a constraint's field has on the agent of an offer.
fn value(field: &str, offer: &UnusedOffer) -> Option<String> {
    match field {
        "hostname" | "@hostname" => Some(offer.agent.hostname.clone()),
        "@region" => offer.agent.region.clone(),
        "@zone" => offer.agent.zone.clone(),
        _ => offer
            .attributes
            .iter()
            .find(|one| one.name == field)
            .map(attribute_text),
    }
}

fn attribute_text(attribute: &Attribute) -> String {
    let text = match attribute.r#type {
        ValueType::Text => attribute.text.as_ref().map(|text| text.value.clone()),
        ValueType::Scalar => attribute.scalar.as_ref().map(|scalar| scalar.value.to_string()),
        ValueType::Ranges => attribute.ranges.as_ref().map(|ranges| {
            let ranges = ranges
                .range
                .iter()
                .map(|range| format!("{}-{}", range.begin, range.end));
            format!("[{}]", listed(ranges))
        }),
        ValueType::Set => attribute
            .set
            .as_ref()
            .map(|set| format!("{{{}}}", listed(set.item.iter().cloned()))),
        ValueType::Other(_) => None,
    };
    text.unwrap_or_default()
}

fn port_ranges(offer: &UnusedOffer) -> impl Iterator<Item = (u64, u64)> + '_ {
    let ports = offer.resources.iter().filter(|resource| resource.name == "ports");
    ports.flat_map(|resource| resource.port_ranges())
}

/// The offers that the texts are about: `3 offers`, or `the 10 offers looked at of 40`.
fn counted(reasons: &Reasons) -> String {
    let seen = reasons.unused_offers.len();
    match reasons.last_offers as usize {
        all if all > seen => format!("the {seen} offers looked at of {all}"),
        _ if seen == 1 => "1 offer".to_owned(),
        _ => format!("{seen} offers"),
    }
}

/// Values separated by commas; only the first ones if there are many.
fn listed(values: impl Iterator<Item = String>) -> String {
    let mut values: Vec<String> = values.collect();
    let more = values.len().saturating_sub(MAX_VALUES);
    values.truncate(MAX_VALUES);
    let list = values.join(", ");
    if more > 0 {
        format!("{list} and {more} more")
    } else {
        list
    }
}

/// A value of a client or an agent, in a text for a person.
fn shown(value: &str) -> String {
    printable(&clip(value, MAX_VALUE_BYTES)).into_owned()
}

#[cfg(test)]
#[path = "rejections_tests.rs"]
mod tests;
