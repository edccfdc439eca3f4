//! Why instances wait: the launch queue's entry of an app or pod, condition by condition.
//!
//! Everything here is made from the documents of `/v2/queue` and `/v2/deployments`. The words of the
//! reasons are the daemon's.

use std::ops::Deref;

use serde_json::{Value, json};

use super::api::Api;
use super::progress;

/// An entry of the queue, with the daemon's words for reasons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    entry: &'a Value,
    words: &'a Value,
}

impl Deref for Item<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.entry
    }
}

/// A step of the last round that tested offers.
struct Step<'a> {
    reason: &'a str,
    label: &'a str,
    sentence: &'a str,
    advice: &'a str,
    resource: Option<&'a str>,
    declined: u64,
    processed: u64,
}

/// The launch queue, with the reasons and the last unused offers of each entry.
pub(super) async fn queue(api: &Api) -> anyhow::Result<Value> {
    api.get("v2/queue?embed=lastUnusedOffers&embed=reasons").await
}

/// The entries of the queue.
pub(super) fn queue_items(queue: &Value) -> impl Iterator<Item = Item<'_>> {
    let words = &queue["words"];
    let entries = queue["queue"].as_array().into_iter().flatten();
    entries.map(move |entry| Item { entry, words })
}

/// The queue's entry of an app or pod.
pub(super) fn queue_item<'a>(queue: &'a Value, id: &str) -> Option<Item<'a>> {
    queue_items(queue).find(|item| item.definition()["id"] == id)
}

impl<'a> Item<'a> {
    /// The definition.
    pub(super) fn definition(self) -> &'a Value {
        let kinds = ["app", "pod"].map(|kind| &self.entry[kind]);
        let mut objects = kinds.into_iter().filter(|definition| definition.is_object());
        objects.next().unwrap_or(&Value::Null)
    }

    /// The steps of the last round.
    fn steps(self) -> Vec<Step<'a>> {
        let steps = self.entry["processedOffersSummary"]["rejectSummaryLastOffers"].as_array();
        let steps = steps.into_iter().flatten().filter_map(|step| {
            let reason = step["reason"].as_str()?;
            let words = &self.words[reason];
            Some(Step {
                reason,
                label: words["label"].as_str().unwrap_or(reason),
                sentence: words["sentence"].as_str().unwrap_or("offers do not match"),
                advice: words["advice"].as_str().unwrap_or_default(),
                resource: words["resource"].as_str(),
                declined: step["declined"].as_u64().unwrap_or(0),
                processed: step["processed"].as_u64().unwrap_or(0),
            })
        });
        steps.collect()
    }

    /// The words of the reason for which no offer is matched at all, if there is one.
    fn obstacle(self) -> Option<&'a Value> {
        let last = self.entry["reasons"]["last"].as_object()?;
        let mut words = last.keys().map(|reason| &self.words[reason]);
        words.find(|words| words["kind"] == "obstacle")
    }
}

fn delay(item: Item<'_>) -> Option<u64> {
    let seconds_left = item["delay"]["timeLeftSeconds"].as_u64()?;
    (seconds_left > 0 && item["delay"]["overdue"] != true).then_some(seconds_left)
}

/// Which fixed ports, or values of constraints, the last offers lacked: the texts for a reason.
fn rejections<'a>(item: Item<'a>, reason: &str) -> Vec<&'a str> {
    let list = item.entry["reasons"]["rejections"]
        .as_array()
        .into_iter()
        .flatten();
    list.filter(|rejection| rejection["reason"] == reason)
        .filter_map(|rejection| rejection["text"].as_str())
        .collect()
}

/// The main reason in a few words.
pub(super) fn main_reason(item: Item<'_>) -> String {
    if let Some(seconds_left) = delay(item) {
        return format!("the next launch is in {seconds_left} s, after failures");
    }
    if let Some(obstacle) = item.obstacle() {
        return obstacle["sentence"].as_str().unwrap_or_default().to_owned();
    }
    let declined: Vec<String> = item
        .steps()
        .iter()
        .filter_map(|step| declined(item, step))
        .collect();
    if declined.is_empty() {
        "no suitable offer yet".to_owned()
    } else {
        declined.join(", ")
    }
}

/// Why a step declined offers: the ports or values that they lack, or the number of these offers.
fn declined(item: Item<'_>, step: &Step<'_>) -> Option<String> {
    let Step {
        label,
        declined,
        processed,
        ..
    } = step;
    if *declined == 0 {
        return None;
    }
    let rejections = rejections(item, step.reason);
    let needs = step
        .resource
        .and_then(|resource| needed(item.definition(), resource));
    Some(match needs.map(format_number) {
        _ if !rejections.is_empty() => format!("{label}: {}", rejections.join("; ")),
        Some(needs) => format!("{label}: {declined} of {processed} offers have less than {needs}"),
        None => format!("{label}: {declined} of {processed} {}", step.sentence),
    })
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
fn largest_offer<'a>(item: Item<'a>, resource: &str) -> Option<(f64, &'a str)> {
    let offers = item.entry["lastUnusedOffers"].as_array()?.iter();
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
fn agent_count(item: Item<'_>) -> usize {
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
fn constraints(item: Item<'_>) -> Vec<(String, u64)> {
    let definition = item.definition();
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
pub(super) fn document(item: Item<'_>, locks: &[&Value]) -> Value {
    let definition = item.definition();
    let steps = item.steps();
    let conditions: Vec<Value> = steps
        .iter()
        .map(|step| {
            let mut row = json!({
                "condition": step.label, "reason": step.reason, "declined": step.declined, "processed": step.processed,
            });
            if let Some(resource) = step.resource {
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
fn advice(item: Item<'_>, locks: &[&Value]) -> Vec<String> {
    let definition = item.definition();
    let id = definition["id"].as_str().unwrap_or("ID");
    let mut advice = Vec::new();
    if let Some(seconds_left) = delay(item) {
        advice.push(format!(
            "Wait {seconds_left} s, or launch now with `transom apps queue {id} --reset-delay`; `transom apps show {id}` has the \
             last failure."
        ));
    }
    if let Some(obstacle) = item.obstacle() {
        let text = |key: &str| obstacle[key].as_str().unwrap_or_default();
        advice.push(format!(
            "Nothing is launched now: {}. {}",
            text("sentence"),
            text("advice")
        ));
    }
    for step in item.steps() {
        let Some(declined) = declined(item, &step) else {
            continue;
        };
        let Some(resource) = step.resource.filter(|_| rejections(item, step.reason).is_empty()) else {
            advice.push(format!("{declined}. {}", step.advice));
            continue;
        };
        let needs = needed(definition, resource)
            .map(format_number)
            .unwrap_or_default();
        let offered = match largest_offer(item, resource) {
            Some((largest, host)) => format!("the largest offer has {} ({host})", format_number(largest)),
            None => format!("{} of {} offers have less", step.declined, step.processed),
        };
        advice.push(format!(
            "It needs {needs} {resource}, and {offered}. {}",
            step.advice
        ));
        if item["app"].is_object() && resource != "ports" {
            advice.push(format!(
                "`transom apps update {id} --set {resource}=…` changes its request."
            ));
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
pub(super) const HEADINGS: &[&str] = &["condition", "offers", "declined", "needed", "largest unused"];

/// `now` is the time of the request.
pub(super) fn explanation(item: Item<'_>, locks: &[&Value], now: jiff::Timestamp) -> Explanation {
    let definition = item.definition();
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
    let steps = item.steps();
    let steps = steps
        .iter()
        .filter(|_| steps.iter().any(|step| step.processed > 0));
    let rows = steps.map(|step| {
        let needs = step.resource.and_then(|resource| needed(definition, resource));
        let offered = step.resource.and_then(|resource| largest_offer(item, resource));
        // A resource that the task does not need cannot be the cause.
        let offered = offered.filter(|_| needs.is_some_and(|needs| needs > 0.0));
        // The number of other ports says nothing about a fixed one.
        let offered =
            offered.filter(|_| step.resource != Some("ports") || rejections(item, step.reason).is_empty());
        vec![
            step.label.to_owned(),
            step.processed.to_string(),
            step.declined.to_string(),
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
