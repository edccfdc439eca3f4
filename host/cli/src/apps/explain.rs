//! Why instances wait: the launch queue's entry of an app or pod, condition by condition.
//!
//! Everything here is made from the documents of `/v2/queue` and `/v2/deployments`.

use serde_json::{Value, json};

use super::api::Api;
use super::progress;

/// A reason of the API: its name, the condition in words, and the resource that it is about.
struct Condition {
    reason: &'static str,
    name: &'static str,
    resource: Option<&'static str>,
}

const fn condition(reason: &'static str, name: &'static str, resource: Option<&'static str>) -> Condition {
    Condition {
        reason,
        name,
        resource,
    }
}

const CONDITIONS: [Condition; 10] = [
    condition("UnfulfilledRole", "role", None),
    condition("UnfulfilledConstraint", "constraints", None),
    condition("NoCorrespondingReservationFound", "reservation", None),
    condition("AgentMaintenance", "maintenance", None),
    condition("InsufficientCpus", "cpus", Some("cpus")),
    condition("InsufficientMemory", "mem", Some("mem")),
    condition("InsufficientDisk", "disk", Some("disk")),
    condition("InsufficientGpus", "gpus", Some("gpus")),
    condition("InsufficientPorts", "ports", Some("ports")),
    condition("DeclinedScarceResources", "GPUs kept for GPU tasks", None),
];

/// Reasons for which the scheduler matches no offer at all.
const OBSTACLES: [(&str, &str); 4] = [
    (
        "Disconnected",
        "the daemon is not subscribed to the cluster's master",
    ),
    (
        "MatcherUnavailable",
        "the component that matches offers is missing or failed; see `transom plugin list`",
    ),
    ("StoreUnavailable", "the state store is unavailable"),
    ("NoOffers", "no offer has arrived yet"),
];

/// The launch queue, with the reasons and the last unused offers of each entry.
pub(super) async fn queue(api: &Api) -> anyhow::Result<Value> {
    api.get("v2/queue?embed=lastUnusedOffers&embed=reasons").await
}

/// The definition in an entry of the queue.
pub(super) fn definition(item: &Value) -> &Value {
    let kinds = ["app", "pod"].map(|kind| &item[kind]);
    kinds
        .into_iter()
        .find(|definition| definition.is_object())
        .unwrap_or(&Value::Null)
}

/// The queue's entry of an app or pod.
pub(super) fn queue_item<'a>(queue: &'a Value, id: &str) -> Option<&'a Value> {
    let mut items = queue["queue"].as_array()?.iter();
    items.find(|item| definition(item)["id"] == id)
}

/// The steps of the last round that declined offers: condition, declined offers, processed offers.
fn steps(item: &Value) -> Vec<(&'static Condition, u64, u64)> {
    let summary = &item["processedOffersSummary"]["rejectSummaryLastOffers"];
    let steps = summary.as_array().into_iter().flatten();
    steps
        .filter_map(|step| {
            let condition = CONDITIONS
                .iter()
                .find(|candidate| step["reason"] == candidate.reason)?;
            let number = |key: &str| step[key].as_u64().unwrap_or(0);
            Some((condition, number("declined"), number("processed")))
        })
        .collect()
}

/// The reason for which no offer is matched at all, if there is one.
fn obstacle(item: &Value) -> Option<&'static str> {
    let last = item["reasons"]["last"].as_object()?;
    let obstacle = OBSTACLES.iter().find(|(reason, _)| last.contains_key(*reason))?;
    Some(obstacle.1)
}

fn delay(item: &Value) -> Option<u64> {
    let seconds_left = item["delay"]["timeLeftSeconds"].as_u64()?;
    (seconds_left > 0 && item["delay"]["overdue"] != true).then_some(seconds_left)
}

/// Which fixed ports, or values of constraints, the last offers lacked: the texts for a reason.
fn rejections<'a>(item: &'a Value, reason: &str) -> Vec<&'a str> {
    let list = item["reasons"]["rejections"].as_array().into_iter().flatten();
    list.filter(|rejection| rejection["reason"] == reason)
        .filter_map(|rejection| rejection["text"].as_str())
        .collect()
}

/// The main reason in a few words.
pub(super) fn main_reason(item: &Value) -> String {
    if let Some(seconds_left) = delay(item) {
        return format!("the next launch is in {seconds_left} s, after failures");
    }
    if let Some(obstacle) = obstacle(item) {
        return obstacle.to_owned();
    }
    let declined: Vec<String> = steps(item)
        .into_iter()
        .filter(|(_, declined, _)| *declined > 0)
        .map(|(condition, declined, processed)| {
            let name = condition.name;
            let rejections = rejections(item, condition.reason);
            if !rejections.is_empty() {
                return format!("{name}: {}", rejections.join("; "));
            }
            let needs = condition
                .resource
                .and_then(|resource| needed(definition(item), resource));
            match needs {
                Some(needs) => format!(
                    "{name}: {declined} of {processed} offers have less than {}",
                    format_number(needs)
                ),
                None => format!("{name}: {declined} of {processed} offers do not match"),
            }
        })
        .collect();
    if declined.is_empty() {
        "no suitable offer yet".to_owned()
    } else {
        declined.join(", ")
    }
}

/// What an instance of a definition needs of a resource.
fn needed(definition: &Value, resource: &str) -> Option<f64> {
    let amount_in = |part: &Value| part[resource].as_f64().unwrap_or(0.0);
    let length = |list: &Value| list.as_array().map_or(0, Vec::len);
    let Some(containers) = definition["containers"].as_array() else {
        return match resource {
            "ports" => {
                let mappings = definition["container"]["portMappings"].as_array();
                let mapped = mappings
                    .into_iter()
                    .flatten()
                    .filter(|one| !one["hostPort"].is_null());
                Some((length(&definition["portDefinitions"]) + mapped.count()) as f64)
            }
            _ => definition[resource].as_f64(),
        };
    };
    if resource == "ports" {
        let endpoints = containers
            .iter()
            .filter_map(|one| one["endpoints"].as_array())
            .flatten();
        return Some(endpoints.filter(|one| !one["hostPort"].is_null()).count() as f64);
    }
    let container_sum: f64 = containers.iter().map(|one| amount_in(&one["resources"])).sum();
    Some(container_sum + amount_in(&definition["executorResources"]))
}

/// The largest amount of a resource in an unused offer, with the agent.
fn largest_offer<'a>(item: &'a Value, resource: &str) -> Option<(f64, &'a str)> {
    let offers = item["lastUnusedOffers"].as_array()?.iter();
    let amounts = offers.filter_map(|unused| {
        let offer = &unused["offer"];
        let resources = offer["resources"].as_array()?.iter();
        let parts = resources.filter(|one| one["name"] == resource).map(amount);
        // The sum of an empty iterator is minus zero; adding zero removes the sign.
        Some((parts.sum::<f64>() + 0.0, offer["hostname"].as_str()?))
    });
    amounts.max_by(|(a, _), (b, _)| a.total_cmp(b))
}

/// The amount of an offered resource; for ports their number.
fn amount(resource: &Value) -> f64 {
    let ranges = resource["ranges"].as_array().into_iter().flatten();
    let ports =
        ranges.filter_map(|range| Some(range["end"].as_u64()?.saturating_sub(range["begin"].as_u64()?) + 1));
    resource["scalar"]
        .as_f64()
        .unwrap_or_else(|| ports.sum::<u64>() as f64)
}

/// Formats a number with at most three decimals.
fn format_number(number: f64) -> String {
    let rounded = (number * 1000.0).round() / 1000.0;
    rounded.to_string()
}

/// The number of different agents in the unused offers.
fn agent_count(item: &Value) -> usize {
    let offers = item["lastUnusedOffers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut ids: Vec<&str> = offers
        .iter()
        .filter_map(|unused| unused["offer"]["agentId"].as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

/// The definition's constraints in short, `hostname UNIQUE`, with the number of agents that each
/// rejected.
fn constraints(item: &Value) -> Vec<(String, u64)> {
    let definition = definition(item);
    let of_app = definition["constraints"].as_array();
    let of_pod = definition["scheduling"]["placement"]["constraints"].as_array();
    let rejected = &item["reasons"]["last_constraints"];
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let constraints = of_app.or(of_pod).into_iter().flatten().enumerate();
    constraints
        .map(|(index, constraint)| {
            let text = match constraint {
                Value::Array(words) => words.iter().map(word).collect::<Vec<_>>().join(" "),
                other => ["fieldName", "operator", "value"]
                    .iter()
                    .filter_map(|key| other.get(*key).map(word))
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            (text, rejected[index.to_string()].as_u64().unwrap_or(0))
        })
        .collect()
}

/// Everything about one waiting app or pod. `locks` are the running deployments that change it.
pub(super) fn document(item: &Value, locks: &[&Value]) -> Value {
    let definition = definition(item);
    let conditions: Vec<Value> = steps(item)
        .into_iter()
        .map(|(condition, declined, processed)| {
            let mut row = json!({
                "condition": condition.name, "reason": condition.reason, "declined": declined, "processed": processed,
            });
            if let Some(resource) = condition.resource {
                row["needed"] = json!(needed(definition, resource));
                row["largestOffer"] = json!(largest_offer(item, resource).map(|(amount, _)| amount));
            }
            row
        })
        .collect();
    let constraints: Vec<Value> = constraints(item)
        .into_iter()
        .map(|(constraint, agents)| json!({"constraint": constraint, "rejectedAgents": agents}))
        .collect();
    let summary = &item["processedOffersSummary"];
    json!({
        "id": definition["id"],
        "waiting": item["count"],
        "since": item["since"],
        "reason": main_reason(item),
        "delaySeconds": delay(item),
        "conditions": conditions,
        "constraints": constraints,
        "message": item["reasons"]["message"],
        "rejections": item["reasons"]["rejections"],
        "agents": agent_count(item),
        "lastOffers": item["reasons"]["last_offers"],
        "processedOffers": summary["processedOffersCount"],
        "unusedOffers": summary["unusedOffersCount"],
        "deployments": locks,
        "advice": advice(item, locks),
    })
}

/// Advice for an operator, the most likely remedy first.
fn advice(item: &Value, locks: &[&Value]) -> Vec<String> {
    let definition = definition(item);
    let id = definition["id"].as_str().unwrap_or("ID");
    let is_app = item["app"].is_object();
    let mut advice = Vec::new();
    if let Some(seconds_left) = delay(item) {
        advice.push(format!(
            "Wait {seconds_left} s, or launch now with `transom apps queue {id} --reset-delay`; `transom apps show {id}` has the \
             last failure."
        ));
    }
    if let Some(obstacle) = obstacle(item) {
        advice.push(format!("Nothing is launched now: {obstacle}."));
        if obstacle == OBSTACLES[3].1 {
            advice.push("Check that agents are registered, and that other frameworks do not hold all of their resources.".to_owned());
        }
    }
    for (condition, declined, processed) in steps(item) {
        if declined == 0 {
            continue;
        }
        let rejections = rejections(item, condition.reason);
        if condition.reason == "InsufficientPorts" && !rejections.is_empty() {
            advice.push(format!(
                "Request a port that agents offer (or any: port 0), free the port, or add it to the agents' resources: {}.",
                rejections.join("; ")
            ));
        } else if let Some(resource) = condition.resource {
            let needs = needed(definition, resource)
                .map(format_number)
                .unwrap_or_default();
            let request_less = if is_app && resource != "ports" {
                format!(": request less with `transom apps update {id} --set {resource}=…`,")
            } else {
                ": request less,".to_owned()
            };
            advice.push(match largest_offer(item, resource) {
                Some((largest, host)) => format!(
                    "It needs {needs} {resource}, and the largest offer has {} ({host}){request_less} free resources on agents, or add agents.",
                    format_number(largest)
                ),
                None => format!("It needs {needs} {resource}, and {declined} of {processed} offers have less{request_less} free resources on agents, or add agents."),
            });
        } else {
            advice.push(match condition.reason {
                "UnfulfilledConstraint" => {
                    let rejecting = constraints(item).into_iter().filter(|(_, agents)| *agents > 0);
                    let list: Vec<String> = rejecting
                        .map(|(text, agents)| format!("[{text}] rejects {agents} agents"))
                        .collect();
                    let list = match (rejections.is_empty(), list.is_empty()) {
                        (false, _) => rejections.join("; "),
                        (true, true) => "its constraints reject them".to_owned(),
                        (true, false) => list.join(", "),
                    };
                    format!("Relax a constraint, or add agents that satisfy it: {list}.")
                }
                "UnfulfilledRole" => "No offer has resources of its role: check `role`, `acceptedResourceRoles` and the \
                                      roles of the agents' reservations."
                    .to_owned(),
                "NoCorrespondingReservationFound" => "The instance needs its reserved resources and volume, and their agent \
                                                      sends no offers: start that agent again, or give up the reservation \
                                                      and the volume with `transom apps kill --wipe`.".to_owned(),
                "AgentMaintenance" => "Agents are in a maintenance window: wait for its end, or add agents.".to_owned(),
                _ => "Offers with GPUs are kept for tasks that use GPUs: see `gpu_scheduling_behavior`.".to_owned(),
            });
        }
    }
    for lock in locks {
        let deployment = lock["id"].as_str().unwrap_or_default();
        advice.push(format!(
            "Deployment {deployment} waits for it: `transom apps deployments --rollback {deployment}` \
             restores the previous definition."
        ));
    }
    advice
}

/// The explanation as text: lines before the table, its rows, and lines after it.
pub(super) struct Explanation {
    pub(super) lines_before: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) lines_after: Vec<String>,
}

/// The headings of the rows.
pub(super) const HEADINGS: [&str; 5] = ["condition", "offers", "declined", "needed", "largest unused"];

/// `now` is the time of the request.
pub(super) fn explanation(item: &Value, locks: &[&Value], now: jiff::Timestamp) -> Explanation {
    let definition = definition(item);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = text(&definition["id"]);
    let count = item["count"].as_u64().unwrap_or(0);
    let since = text(&item["since"]);
    let seconds = since
        .parse::<jiff::Timestamp>()
        .map(|since| now.as_second() - since.as_second());
    let age = seconds.map_or_else(|_| since.clone(), |seconds| format!("{} s", seconds.max(0)));
    let noun_and_verb = if count == 1 {
        "instance waits"
    } else {
        "instances wait"
    };
    let mut lines_before = vec![format!(
        "{id}: {count} {noun_and_verb} for {age}: {}",
        main_reason(item)
    )];
    let message = item["reasons"]["message"].as_str();
    lines_before.extend(message.map(|message| format!("Message of the matcher: {message}")));
    // Without offers in the last round there is nothing to count.
    let steps = steps(item);
    let steps = steps
        .iter()
        .filter(|_| steps.iter().any(|(_, _, processed)| *processed > 0));
    let rows = steps.map(|(condition, declined, processed)| {
        let needs = condition
            .resource
            .and_then(|resource| needed(definition, resource));
        let offered = condition
            .resource
            .and_then(|resource| largest_offer(item, resource));
        // A resource that the task does not need cannot be the cause.
        let offered = offered.filter(|_| needs.is_some_and(|needs| needs > 0.0));
        // The number of other ports says nothing about a fixed one.
        let offered = offered
            .filter(|_| condition.resource != Some("ports") || rejections(item, condition.reason).is_empty());
        vec![
            condition.name.to_owned(),
            processed.to_string(),
            declined.to_string(),
            needs.map_or_else(|| "-".to_owned(), format_number),
            offered.map_or_else(
                || "-".to_owned(),
                |(amount, host)| format!("{} ({host})", format_number(amount)),
            ),
        ]
    });
    let mut lines_after = Vec::new();
    for (constraint, agents) in constraints(item) {
        lines_after.push(format!(
            "Constraint [{constraint}] rejected {agents} agents in the last round."
        ));
    }
    let summary = &item["processedOffersSummary"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    lines_after.push(format!(
        "Offers: {} in the last round, from {} agents; {} since it started waiting, {} of them unused.",
        number(&item["reasons"]["last_offers"]),
        agent_count(item),
        number(&summary["processedOffersCount"]),
        number(&summary["unusedOffersCount"]),
    ));
    for lock in locks {
        lines_after.push(format!(
            "Deployment {}: {}.",
            text(&lock["id"]),
            progress::line(lock, &[])
        ));
    }
    let advice = advice(item, locks);
    if !advice.is_empty() {
        lines_after.push("What to do:".to_owned());
        lines_after.extend(advice.into_iter().map(|line| format!("* {line}")));
    }
    Explanation {
        lines_before,
        rows: rows.collect(),
        lines_after,
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
