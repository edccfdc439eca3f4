//! Formats explanations as text. All facts are from the documents of the admin port.

use serde_json::Value;
use transom_common::text::clip;

use crate::output;
use crate::plugin::input::micros;

/// The maximum number of bytes of a step, an answer or an event in the output.
const MAX_CELL: usize = 160;

/// The kind of a task whose placement is explained.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One more instance of an app or pod.
    App,
    /// A workflow job.
    Job,
    /// A member of a Kubernetes cluster.
    Member,
}

impl Kind {
    /// The object of the sentence "agents may run …".
    fn subject(self) -> &'static str {
        match self {
            Kind::App => "one more instance",
            Kind::Job | Kind::Member => "it",
        }
    }

    /// A sentence about the instances that are placed already; empty for a job, which runs once.
    fn placement_text(self, document: &Value) -> String {
        let (placed, wanted) = (number(&document["placed"]), number(&document["instances"]));
        match self {
            Kind::App => format!(" {placed} of {wanted} instances are placed."),
            Kind::Job => String::new(),
            Kind::Member => format!(" {placed} of {wanted} of its kind are placed."),
        }
    }

    /// The command or request that shows which offers are too small.
    fn resources_command(self, id: &str) -> String {
        match self {
            Kind::App => format!("`transom apps explain {id}` shows"),
            Kind::Job => "`GET /v0/queue` of the workflow port shows".to_owned(),
            Kind::Member => "`GET /api/fw/v0/explain` of the kubernetes port shows".to_owned(),
        }
    }
}

/// Explains which agents may run a task.
pub(super) fn matcher(kind: Kind, document: &Value) -> String {
    let (id, agents) = (text(&document["id"]), number(&document["agents"]));
    let accepted = number(&document["accepted"]);
    let (subject, matchers) = (kind.subject(), names(&document["matchers"]));
    let mut blocks = vec![format!(
        "{id}: {accepted} of {agents} agents may run {subject}.{} Matchers: {matchers}.",
        kind.placement_text(document)
    )];
    let rejections = items(&document["refusals"]);
    blocks.push(rejection_table(rejections));
    if let Some((canaries, answer)) = canary(document) {
        blocks.push(format!(
            "The answer above is that of the serving versions. {id} is in the share of a canary, which receives the call \
             first: {canaries}. With the canary {} of {} agents may run {subject}.{}",
            number(&answer["accepted"]),
            number(&answer["agents"]),
            canary_failure(answer)
        ));
        blocks.push(rejection_table(items(&answer["refusals"])));
    }
    let mut notes = Vec::new();
    if let Some(failure) = failure(document) {
        notes.push(format!("Nothing is launched: {failure}"));
    } else if agents == 0 {
        notes.push(
            "The scheduler has received no offers, so it has no list of agents. Check that agents are registered with \
             the master, and that other frameworks do not hold all of their resources."
                .to_owned(),
        );
    } else if items(&document["constraints"]).is_empty() && rejections.is_empty() {
        notes.push(format!(
            "{id} has no constraints, and no matcher has a rule against these agents."
        ));
    } else if accepted == 0 {
        notes.push("Relax one of these constraints, or add agents with other values.".to_owned());
    }
    if document["subscribed"] == false {
        notes.push("The framework is not subscribed with a master, so nothing is launched.".to_owned());
    }
    if accepted > 0 {
        notes.push(format!(
            "Resources are not considered here: {} which offers are too small.",
            kind.resources_command(&id)
        ));
    }
    blocks.push(notes.join("\n"));
    finish(&blocks)
}

/// A table of the number of agents that each condition rejects.
fn rejection_table(rejections: &[Value]) -> String {
    let rows: Vec<Vec<String>> = rejections
        .iter()
        .map(|rejection| {
            vec![
                text(&rejection["plugin"]),
                text(&rejection["condition"]),
                number(&rejection["agents"]).to_string(),
                values(rejection),
                names(&rejection["examples"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    output::table(
        &["plugin", "condition", "agents", "their values", "for example"],
        rows,
    )
}

/// The canaries that would receive this call, and their answer.
fn canary(explanation: &Value) -> Option<(String, &Value)> {
    let canary = explanation["canary"].as_object()?;
    let versions = items(&canary["versions"]).iter();
    let versions = versions.map(|it| format!("{} {}", text(&it["plugin"]), text(&it["version"])));
    Some((versions.collect::<Vec<_>>().join(", "), &canary["answer"]))
}

/// A sentence about a canary that gives no answer. For such a call the daemon queries the serving
/// version.
fn canary_failure(answer: &Value) -> String {
    match answer["failure"]["message"].as_str() {
        Some(message) => format!(" It gives no answer: {message}"),
        None => String::new(),
    }
}

/// The attribute values of rejected agents, each with the number of agents.
fn values(rejection: &Value) -> String {
    let listed = items(&rejection["values"]).iter().map(|one| {
        let value = one["value"].as_str().unwrap_or("(none)");
        format!("{value}: {}", number(&one["agents"]))
    });
    let mut listed: Vec<String> = listed.collect();
    let others = number(&rejection["other_values"]);
    if others > 0 {
        listed.push(format!("others: {others}"));
    }
    if listed.is_empty() {
        "-".to_owned()
    } else {
        listed.join(", ")
    }
}

/// Explains which events pass a query.
pub(super) fn filter(document: &Value) -> String {
    let count = |key: &str| number(&document[key]);
    let mut blocks = vec![format!(
        "{} events since {}: {} pass, {} are replaced, {} are dropped, {} are dropped because a filter fails on them. \
         Filters: {}.",
        count("events"),
        text(&document["since"]),
        count("passed"),
        count("replaced"),
        count("dropped"),
        count("failed"),
        names(&document["filters"]),
    )];
    let (mut rows, mut examples) = (Vec::new(), Vec::new());
    for kind in items(&document["kinds"]) {
        for outcome in items(&kind["outcomes"]) {
            let plugin = outcome["plugin"].as_str();
            rows.push(vec![
                text(&kind["kind"]),
                text(&outcome["outcome"]),
                number(&outcome["events"]).to_string(),
                plugin.unwrap_or("-").to_owned(),
            ]);
            // Only dropped and replaced events have an example: the others are in the stream unchanged.
            let Some(plugin) = plugin else { continue };
            // `--output json` contains all examples, with more of their documents.
            for example in items(&outcome["examples"]).iter().take(1) {
                examples.push(format!(
                    "{} {} by {plugin}: event {} {}",
                    text(&kind["kind"]),
                    text(&outcome["outcome"]),
                    number(&example["sequence"]),
                    example["subject"].as_str().unwrap_or_default()
                ));
                examples.push(format!("  {}", clip(&text(&example["body"]), MAX_CELL)));
                let replacement = example["replacement"].as_str();
                examples.extend(replacement.map(|it| format!("  now {}", clip(it, MAX_CELL))));
                examples.extend(example["message"].as_str().map(|it| format!("  because {it}")));
            }
        }
    }
    if !rows.is_empty() {
        blocks.push(output::table(
            &["event type", "outcome", "events", "plugin"],
            rows,
        ));
    }
    blocks.push(examples.join("\n"));
    if let Some((canaries, answer)) = canary(document) {
        let count = |key: &str| number(&answer[key]);
        blocks.push(format!(
            "The answer above is that of the serving versions. The query is in the share of a canary, which receives the \
             call first: {canaries}. With the canary {} pass, {} are replaced, {} are dropped, {} are dropped because a filter fails on \
             them.{}",
            count("passed"),
            count("replaced"),
            count("dropped"),
            count("failed"),
            canary_failure(answer)
        ));
    }
    let mut notes = Vec::new();
    if let Some(failure) = failure(document) {
        notes.push(format!(
            "Later events were not evaluated, and are not sent to any stream: {failure}"
        ));
    }
    let ignored = items(&document["ignored_parameters"]);
    if !ignored.is_empty() {
        notes.push(format!(
            "The event stream ignores these parameters: {}. Further parameters must be listed in \
             `apps.events.parameters`.",
            names(&document["ignored_parameters"])
        ));
    }
    match document["oldest_kept"].as_str() {
        None => notes.push("No events are kept: this daemon has published none since it leads.".to_owned()),
        Some(oldest) if is_later(oldest, &document["since"]) => notes.push(format!(
            "The oldest event that is kept is from {oldest}: this daemon has not led longer, or older ones exceeded \
             `apps.events.buffer_events` or `apps.events.buffer_bytes`."
        )),
        Some(_) => {}
    }
    if document["more"] == true {
        notes.push("There are more events than could be decided in time: use a shorter --since.".to_owned());
    }
    blocks.push(notes.join("\n"));
    finish(&blocks)
}

fn is_later(oldest: &str, since: &Value) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    time(oldest) > since.as_str().and_then(time)
}

/// Shows the attempt of a probe.
pub(super) fn probe(document: &Value) -> String {
    let transcript = &document["transcript"];
    let version = transcript["version"].as_str().unwrap_or("(no version serves)");
    let mut blocks = vec![format!(
        "{} of {}: check {} ({}, {}) by {} {version}",
        text(&document["task"]),
        text(&document["app"]),
        number(&document["check"]),
        text(&document["purpose"]),
        text(&document["kind"]),
        text(&transcript["plugin"]),
    )];
    blocks.push(steps(transcript));
    let mut lines = remarks(transcript);
    let verdict = text(&document["verdict"]);
    lines.push(match transcript["failure"]["message"].as_str() {
        Some(message) => format!("Verdict: no result ({verdict}): {message}"),
        None => format!("Verdict: {verdict}, {}", compact(&transcript["outcome"])),
    });
    lines.push(format!(
        "It took {}, of which {} was processor time of the component. It counts neither for the task nor for the plugin.",
        time(&transcript["took_micros"]),
        time(&transcript["cpu_micros"])
    ));
    blocks.push(lines.join("\n"));
    if let Some((canaries, answer)) = canary(transcript) {
        blocks.push(format!(
            "The attempt above is that of the serving version. The task is in the share of a canary, which receives the \
             call first: {canaries}. The attempt of the canary:"
        ));
        blocks.push(steps(answer));
        let mut lines = remarks(answer);
        lines.push(match answer["failure"]["message"].as_str() {
            Some(message) => format!("No result: {message}"),
            None => format!("Result: {}", compact(&answer["outcome"])),
        });
        blocks.push(lines.join("\n"));
    }
    finish(&blocks)
}

/// A table of the steps of an attempt.
fn steps(transcript: &Value) -> String {
    let rows = items(&transcript["steps"])
        .iter()
        .enumerate()
        .map(|(index, step)| {
            let mut answer = compact(&step["answer"]);
            if let Some(denied) = step["denied"].as_str() {
                answer = format!("{answer}: {denied}");
            }
            vec![
                (index + 1).to_string(),
                time(&step["at_micros"]),
                time(&step["took_micros"]),
                compact(&step["step"]),
                answer,
            ]
        });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return "The component has requested no step.".to_owned();
    }
    output::table(&["step", "at", "took", "request", "answer"], rows)
}

/// Remarks about omitted steps and repeated runs.
fn remarks(transcript: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let omitted = number(&transcript["omitted_steps"]);
    if omitted > 0 {
        lines.push(format!("{omitted} further steps are not listed."));
    }
    let runs = number(&transcript["runs"]);
    if runs > 1 {
        lines.push(format!(
            "The attempt began {runs} times, because its instance was lost."
        ));
    }
    lines
}

/// A document on one line, shortened.
fn compact(value: &Value) -> String {
    clip(&value.to_string(), MAX_CELL)
}

fn time(value: &Value) -> String {
    micros(number(value) as f64)
}

/// The message about a plugin that gave no answer, and a command that shows more.
fn failure(document: &Value) -> Option<String> {
    let failure = document["failure"].as_object()?;
    let message = text(&failure["message"]);
    Some(match failure["plugin"].as_str() {
        Some(plugin) => {
            format!("{message}. `transom plugin show {plugin}` has its state and its last fault.")
        }
        None => message,
    })
}

fn finish(blocks: &[String]) -> String {
    let blocks: Vec<&str> = blocks
        .iter()
        .map(String::as_str)
        .filter(|it| !it.is_empty())
        .collect();
    blocks.join("\n\n")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn names(value: &Value) -> String {
    let names: Vec<&str> = items(value).iter().filter_map(Value::as_str).collect();
    names.join(", ")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placement(agents: u64, rejections: &Value, failure: &Value) -> String {
        matcher(
            Kind::App,
            &json!({
                "id": "/web", "instances": 3, "subscribed": true, "matchers": ["attributes", "spread"],
                "constraints": ["rack CLUSTER r1"], "agents": agents, "accepted": 0, "placed": 1,
                "refusals": rejections, "failure": failure,
            }),
        )
    }

    #[test]
    fn rejections_name_plugin_condition_and_values() {
        let rejections = json!([{
            "plugin": "attributes", "constraint": 0, "condition": "rack CLUSTER r1", "agents": 9,
            "values": [{"value": "r2", "agents": 5}, {"value": null, "agents": 3}], "other_values": 1,
            "examples": ["a", "b"],
        }]);
        let text = placement(9, &rejections, &Value::Null);
        assert!(
            text.starts_with("/web: 0 of 9 agents may run one more instance. 1 of 3 instances"),
            "{text}"
        );
        assert!(
            text.contains("r2: 5, (none): 3, others: 1") && text.contains("a, b"),
            "{text}"
        );
        assert!(text.contains("Relax one of these"), "{text}");
    }

    #[test]
    fn job_and_member_have_their_own_wording() {
        let document = json!({
            "id": "etl", "instances": 1, "subscribed": true, "matchers": ["attributes"], "constraints": [],
            "agents": 2, "accepted": 2, "placed": 0, "refusals": [], "failure": null,
        });
        let text = matcher(Kind::Job, &document);
        assert!(
            text.starts_with("etl: 2 of 2 agents may run it. Matchers: attributes."),
            "{text}"
        );
        assert!(text.contains("`GET /v0/queue` of the workflow port"), "{text}");
        let text = matcher(Kind::Member, &document);
        assert!(text.contains("run it. 0 of 1 of its kind are placed."), "{text}");
        assert!(text.contains("`GET /api/fw/v0/explain` of"), "{text}");
    }

    #[test]
    fn canary_answer_is_shown_in_addition_to_that_of_the_serving_version() {
        let versions = json!([{"plugin": "attributes", "version": "2.0.0", "digest": "sha256:00"}]);
        let text = matcher(
            Kind::App,
            &json!({
                "id": "/web", "agents": 9, "accepted": 9, "canary": {"versions": versions, "answer": {
                    "agents": 9, "accepted": 4, "refusals": [{"plugin": "attributes", "condition": "rack UNIQUE", "agents": 5}],
                }},
            }),
        );
        assert!(
            text.contains("receives the call first: attributes 2.0.0. With the canary 4 of 9 agents")
                && text.contains("rack UNIQUE"),
            "{text}"
        );
        let text = probe(
            &json!({"transcript": {"outcome": {"http": 200}, "canary": {"versions": versions, "answer": {
                "steps": [], "failure": {"message": "it trapped"},
            }}}}),
        );
        assert!(
            text.contains("receives the call first: attributes 2.0.0. The attempt of the canary")
                && text.contains("No result: it trapped"),
            "{text}"
        );
        let text = filter(&json!({"canary": {"versions": versions, "answer": {"dropped": 3}}}));
        assert!(
            text.contains("attributes 2.0.0. With the canary 0 pass, 0 are replaced, 3 are dropped"),
            "{text}"
        );
    }

    #[test]
    fn failing_matcher_and_missing_agents_are_reported_as_the_reason() {
        let failure = json!({"plugin": "spread", "message": "plugin `spread` is disabled"});
        let text = placement(2, &json!([]), &failure);
        assert!(
            text.contains("Nothing is launched: plugin `spread` is disabled. `transom plugin show spread`"),
            "{text}"
        );
        let text = placement(0, &json!([]), &Value::Null);
        assert!(text.contains("has received no offers"), "{text}");
    }

    #[test]
    fn events_are_listed_with_the_filter_that_drops_them() {
        let document = json!({
            "since": "2026-01-01T00:00:00Z", "oldest_kept": "2026-01-01T00:30:00Z", "more": true,
            "ignored_parameters": ["color"], "filters": ["events", "redact"],
            "events": 3, "passed": 1, "replaced": 1, "dropped": 1, "failed": 0, "failure": null,
            "kinds": [{"kind": "a_event", "events": 3, "outcomes": [
                {"outcome": "passed", "plugin": null, "events": 1, "examples": [{"sequence": 7, "body": "{}"}]},
                {"outcome": "dropped", "plugin": "events", "events": 1,
                 "examples": [{"sequence": 8, "subject": "/web", "body": "{\"x\":1}"}]},
                {"outcome": "replaced", "plugin": "redact", "events": 1,
                 "examples": [{"sequence": 9, "body": "{\"x\":2}", "replacement": "{}"}]},
            ]}],
        });
        let text = filter(&document);
        assert!(
            text.contains("3 events since 2026-01-01T00:00:00Z: 1 pass, 1 are replaced, 1 are dropped"),
            "{text}"
        );
        assert!(
            text.contains("a_event dropped by events: event 8 /web\n  {\"x\":1}"),
            "{text}"
        );
        assert!(
            text.contains("  {\"x\":2}\n  now {}") && !text.contains("event 7"),
            "{text}"
        );
        for part in [
            "parameters: color",
            "is from 2026-01-01T00:30:00Z",
            "shorter --since",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn attempt_shows_each_step_and_the_verdict() {
        let document = json!({
            "task": "t", "app": "/web", "check": 1, "purpose": "health", "kind": "http", "verdict": "denied",
            "transcript": {
                "plugin": "check-http", "version": "1.0.0", "runs": 2, "omitted_steps": 3,
                "steps": [{"run": 1, "at_micros": 1500, "took_micros": 20, "step": {"connect": {"to": "10.0.0.1:1"}},
                           "answer": {"error": "denied"}, "denied": "10.0.0.1:1: not granted"}],
                "outcome": null, "failure": {"reason": "denied", "message": "no \u{1b}[31mway"},
                "took_micros": 2000, "cpu_micros": 300, "memory": 1,
            },
        });
        let text = probe(&document);
        assert!(
            text.starts_with("t of /web: check 1 (health, http) by check-http 1.0.0"),
            "{text}"
        );
        for part in [
            "denied\"}: 10.0.0.1:1: not granted",
            "3 further steps",
            "began 2 times",
            "no result (denied): no",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
