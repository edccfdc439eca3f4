//! Why a job waits, in words. Pure.

use serde_json::{Value, json};
use transom_scheduler::{Reason, Reasons};

/// One word for programs, a sentence for people, and the conditions that no agent on offer satisfies.
#[derive(Debug, PartialEq)]
pub(crate) struct Why {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) unmet: Vec<String>,
}

impl Why {
    /// As the queue shows it.
    pub(crate) fn shown(&self) -> Value {
        json!({"code": self.code, "message": self.message, "unmet": self.unmet})
    }
}

/// A job that was not handed to the scheduler yet.
pub(crate) fn unknown() -> Why {
    Why {
        code: Reason::NoOffers.as_str(),
        message: "it was queued a moment ago".to_owned(),
        unmet: Vec::new(),
    }
}

/// What the last round found. `conditions`: those of the job, in the order in which they were asked.
pub(crate) fn why(reasons: &Reasons, conditions: &[String]) -> Why {
    let unmet: Vec<String> = reasons
        .last_conditions
        .iter()
        .filter(|(_, refused)| reasons.last_offers > 0 && **refused >= reasons.last_offers)
        .filter_map(|(index, _)| conditions.get(*index as usize).cloned())
        .collect();
    let mut sentences: Vec<String> = reasons
        .last
        .iter()
        .filter(|(reason, _)| **reason != Reason::UnfulfilledCondition)
        .map(|(reason, count)| sentence(*reason, *count, reasons.last_offers))
        .collect();
    sentences.extend(refusals(reasons, conditions));
    sentences.extend(reasons.message.clone());
    let code = reasons.last.iter().max_by_key(|(_, count)| **count);
    if sentences.is_empty() {
        sentences.push("no offer has been tried yet".to_owned());
    }
    Why {
        code: code.map_or(Reason::NoOffers, |(reason, _)| *reason).as_str(),
        message: sentences.join("; "),
        unmet,
    }
}

/// What each condition refused.
fn refusals(reasons: &Reasons, conditions: &[String]) -> Vec<String> {
    let named = |index: &u32| {
        conditions
            .get(*index as usize)
            .map_or_else(|| format!("number {index}"), |text| format!("`{text}`"))
    };
    let mut told: Vec<String> = reasons
        .last_conditions
        .iter()
        .map(|(index, refused)| {
            if reasons.last_offers > 0 && *refused >= reasons.last_offers {
                format!(
                    "no agent on offer satisfies the condition {} ({} looked at)",
                    named(index),
                    agents(reasons.last_offers)
                )
            } else {
                format!("{} refused by the condition {}", agents(*refused), named(index))
            }
        })
        .collect();
    let counted: u32 = reasons.last_conditions.values().sum();
    let all = reasons.last.get(&Reason::UnfulfilledCondition).copied();
    if let Some(all) = all.filter(|all| *all > counted && reasons.message.is_none()) {
        told.push(format!(
            "{} refused by the attribute matcher",
            agents(all - counted)
        ));
    }
    told
}

fn sentence(reason: Reason, count: u32, offers: u32) -> String {
    let short = |what: &str| format!("not enough {what} on {count} of {}", self::offers(offers));
    match reason {
        Reason::UnfulfilledRole => format!("{} for another role", self::offers(count)),
        Reason::AgentMaintenance => format!("{} in maintenance", agents(count)),
        Reason::UnfulfilledCondition => format!("{} refused by conditions", agents(count)),
        Reason::InsufficientCpus => short("CPU"),
        Reason::InsufficientMemory => short("memory"),
        Reason::InsufficientDisk => short("disk"),
        Reason::InsufficientGpus => short("GPUs"),
        Reason::InsufficientPorts => short("ports"),
        Reason::Backoff => "it is not to be launched yet".to_owned(),
        Reason::NoOffers => "no agent has offered anything since it was queued".to_owned(),
        Reason::Disconnected => {
            "the framework is not registered with the cluster manager; the daemon keeps trying".to_owned()
        }
        Reason::MatcherUnavailable => "the attribute matcher cannot be asked".to_owned(),
        Reason::StoreUnavailable => "the state store does not answer".to_owned(),
        other => other.as_str().to_owned(),
    }
}

fn agents(count: u32) -> String {
    counted(count, "agent")
}

fn offers(count: u32) -> String {
    counted(count, "offer")
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn reasons(last: &[(Reason, u32)], conditions: &[(u32, u32)], message: Option<&str>) -> Reasons {
        Reasons {
            last: last.iter().copied().collect(),
            last_offers: 3,
            last_conditions: conditions.iter().copied().collect::<BTreeMap<_, _>>(),
            message: message.map(str::to_owned),
            ..Reasons::default()
        }
    }

    #[test]
    fn reasons_in_words() {
        let conditions = ["gpu:true".to_owned(), "rack:r1".to_owned()];
        for (reasons, code, expected, unmet) in [
            (
                Reasons::default(),
                "NoOffers",
                "no offer has been tried yet",
                vec![],
            ),
            (
                reasons(&[(Reason::Disconnected, 1)], &[], None),
                "Disconnected",
                "the framework is not registered with the cluster manager; the daemon keeps trying",
                vec![],
            ),
            (
                reasons(&[(Reason::UnfulfilledCondition, 3)], &[(0, 3)], None),
                "UnfulfilledCondition",
                "no agent on offer satisfies the condition `gpu:true` (3 agents looked at)",
                vec!["gpu:true"],
            ),
            (
                reasons(
                    &[(Reason::UnfulfilledCondition, 2), (Reason::InsufficientCpus, 1)],
                    &[(1, 2)],
                    None,
                ),
                "UnfulfilledCondition",
                "not enough CPU on 1 of 3 offers; 2 agents refused by the condition `rack:r1`",
                vec![],
            ),
            (
                reasons(
                    &[(Reason::MatcherUnavailable, 1)],
                    &[],
                    Some("no plugin `attributes`"),
                ),
                "MatcherUnavailable",
                "the attribute matcher cannot be asked; no plugin `attributes`",
                vec![],
            ),
            (
                reasons(&[(Reason::UnfulfilledCondition, 3)], &[(0, 1)], None),
                "UnfulfilledCondition",
                "1 agent refused by the condition `gpu:true`; 2 agents refused by the attribute matcher",
                vec![],
            ),
        ] {
            let why = why(&reasons, &conditions);
            assert_eq!((why.code, why.message.as_str()), (code, expected));
            assert_eq!(why.unmet, unmet);
        }
    }
}
