//! What the checks of running instances find: health checks that fail, checks without a result, and
//! readiness checks that fail. Pure.

use transom_replicas::Condition;

use super::{Failing, MIN_FAILURES, check_advice, to_seconds};
use crate::core::failures::first_line;
use crate::core::spec_view::SpecView;
use crate::health::NoResult;
use crate::instance::Instance;
use crate::model::{Check, CheckKind, HealthCheck, HealthProtocol, ReadinessCheck, Spec};
use crate::time::Moment;

/// The number of agents that a sentence names.
const MAX_AGENTS: usize = 3;
/// The maximum number of characters of a command in a sentence.
const MAX_COMMAND_CHARS: usize = 60;
/// The words for a failure of a check that the agent makes and does not explain.
const UNEXPLAINED: &str = "the agent gives no reason";

/// A check of one instance that fails.
struct Finding {
    what: What,
    request: String,
    count: u32,
    since: Moment,
    last: String,
    last_success: Option<Moment>,
}

/// What a check finds, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Unhealthy,
    /// `of_plugin`: the component is the cause, not the task.
    NoResult {
        of_plugin: bool,
    },
    NotReady,
}

/// The first finding of the running instances; of several equal ones, that which lasts longest.
pub(super) fn failing(view: &SpecView) -> Option<Failing> {
    let running = view.instances.values();
    let running = running.filter(|it| it.condition() == Condition::Running && it.replica.is_wanted());
    let (mut worst, mut agents, mut instances, mut all): (Option<Finding>, Vec<String>, u32, u32) =
        (None, Vec::new(), 0, 0);
    for instance in running {
        all += 1;
        let Some(finding) = of_instance(view, instance) else {
            continue;
        };
        let agent = instance.record().map(|record| record.agent.hostname.as_str());
        let kind = std::mem::discriminant(&finding.what);
        match &mut worst {
            Some(known) if std::mem::discriminant(&known.what) == kind => {
                instances += 1;
                known.count = known.count.max(finding.count);
                if finding.since < known.since {
                    *known = Finding {
                        count: known.count,
                        ..finding
                    };
                }
            }
            Some(known) if known.what < finding.what => continue,
            _ => {
                (instances, worst) = (1, Some(finding));
                agents.clear();
            }
        }
        let agent = agent.filter(|agent| agents.len() < MAX_AGENTS && !agents.iter().any(|it| it == agent));
        agents.extend(agent.map(str::to_owned));
    }
    worst.map(|finding| described(view, &finding, agents, (instances, all)))
}

/// The first finding of an instance.
fn of_instance(view: &SpecView, instance: &Instance) -> Option<Finding> {
    let record = &view.record;
    let spec = if record.is_outdated(instance.version()) {
        view.definition(instance.version())
    } else {
        &record.spec
    };
    unhealthy(spec, instance)
        .or_else(|| without_result(spec, instance))
        .or_else(|| not_ready(spec, instance))
}

fn unhealthy(spec: &Spec, instance: &Instance) -> Option<Finding> {
    let checks = spec.health_checks().iter().zip(&instance.health);
    let mut failing = checks.filter(|(_, state)| state.is_known() && !state.is_alive());
    if let Some((check, state)) = failing.next() {
        return Some(Finding {
            what: What::Unhealthy,
            request: request(check),
            count: state.consecutive_failures,
            since: state.failing_since.or(state.last_failure)?,
            last: state.last_failure_cause.as_deref().unwrap_or_default().to_owned(),
            last_success: state.last_success,
        });
    }
    // The agents check the containers of pods.
    let mut tasks = instance.tasks.iter().map(|task| &task.record);
    let record = tasks.find(|record| record.group.is_some() && record.healthy() == Some(false))?;
    let name = record.group.as_ref().map_or("", |group| group.member.as_str());
    let status = record.status.as_ref();
    Some(Finding {
        what: What::Unhealthy,
        request: format!("the health check of the container {name}"),
        count: 0,
        since: record.updated_at.into(),
        last: status
            .and_then(|status| status.message.clone())
            .unwrap_or_default(),
        last_success: None,
    })
}

/// A component that fails has failed for all; a task gets a few attempts until it answers.
fn lasts(row: &NoResult) -> bool {
    row.is_of_plugin() || row.count >= MIN_FAILURES
}

fn without_result(spec: &Spec, instance: &Instance) -> Option<Finding> {
    let health = spec.health_checks().iter().zip(&instance.health);
    let mut health = health.filter_map(|(check, state)| {
        let row = state.no_result.as_deref().filter(|row| lasts(row))?;
        Some((
            format!("the health check {}", request(check)),
            row,
            state.last_success,
        ))
    });
    let mut checks = (0..spec.check_count()).filter_map(|index| {
        let check = spec.check(index)?;
        let task = instance.instance_task(&instance.checked_task(spec, index)?.id)?;
        let row = task.check_failure.as_ref().filter(|row| lasts(row))?;
        Some((format!("the check {}", request_of_check(&check)), row, None))
    });
    let (request, row, last_success) = health.next().or_else(|| checks.next())?;
    let of_plugin = row.is_of_plugin();
    Some(Finding {
        last_success,
        ..of_row(row, What::NoResult { of_plugin }, request)
    })
}

fn not_ready(spec: &Spec, instance: &Instance) -> Option<Finding> {
    let row = instance
        .readiness
        .as_ref()?
        .failures
        .as_ref()
        .filter(|row| lasts(row))?;
    let ReadinessCheck { name, path, .. } = spec.readiness_checks().first()?;
    Some(of_row(row, What::NotReady, format!("{name}: GET {path}")))
}

fn of_row(row: &NoResult, what: What, request: String) -> Finding {
    Finding {
        what,
        request,
        count: row.count,
        since: row.since,
        last: row.last.message.clone(),
        last_success: None,
    }
}

/// What a health check does, in a few words.
fn request(check: &HealthCheck) -> String {
    match (check.protocol, &check.command) {
        (HealthProtocol::Tcp | HealthProtocol::MesosTcp, _) => "connection".to_owned(),
        (HealthProtocol::Command, Some(command)) => of_command(&command.value),
        _ => format!("GET {}", check.path.as_deref().unwrap_or("/")),
    }
}

fn request_of_check(check: &Check) -> String {
    match &check.kind {
        CheckKind::Http { path, .. } => format!("GET {}", path.as_deref().unwrap_or("/")),
        CheckKind::Tcp { .. } => "connection".to_owned(),
        CheckKind::Exec { .. } => "command".to_owned(),
        CheckKind::Plugin(plugin) => format!("by the plugin {}", plugin.name),
    }
}

fn of_command(command: &str) -> String {
    let line = first_line(command);
    let short: String = line.chars().take(MAX_COMMAND_CHARS).collect();
    let more = if short.len() < line.len() { "…" } else { "" };
    format!("`{short}{more}`")
}

/// The sentence and the advice. `instances`: how many of all running ones.
fn described(view: &SpecView, finding: &Finding, agents: Vec<String>, instances: (u32, u32)) -> Failing {
    let spec = &view.record.spec;
    let id = spec.id();
    let (kind, what, verb) = match finding.what {
        What::Unhealthy => ("unhealthy", "unhealthy", "failed"),
        What::NoResult { .. } => (
            "check-without-result",
            "check without a result",
            "could not be made",
        ),
        What::NotReady => ("not-ready", "not ready", "failed"),
    };
    let times = match finding.count {
        0 => String::new(),
        1 => "once ".to_owned(),
        count => format!("{count} times "),
    };
    let last = match first_line(&finding.last) {
        last if last.is_empty() => UNEXPLAINED.to_owned(),
        last => last,
    };
    let success = match (finding.what, finding.last_success) {
        (What::Unhealthy, Some(at)) => format!("; last success {}", to_seconds(at)),
        (What::Unhealthy, None) if finding.count > 0 => "; it has not succeeded yet".to_owned(),
        _ => String::new(),
    };
    let (failing, all) = instances;
    let message = format!(
        "{id}: {what}: {} {verb} {times}since {} on {} ({failing} of {all} running); last: {last}{success}",
        finding.request,
        to_seconds(finding.since),
        agents.join(", "),
    );
    let advice = match finding.what {
        What::Unhealthy => check_advice(spec),
        What::NoResult { of_plugin: true } => {
            "`transom plugin list` shows whether its plugin serves, and why not; meanwhile the tasks keep their last \
             result."
                .to_owned()
        }
        What::NoResult { .. } => format!(
            "`transom apps tasks {id}` lists the tasks; `transom plugin explain probe --task TASK` shows each step of \
             the check."
        ),
        What::NotReady => format!(
            "Read the task's log; `transom apps deployments` shows the deployment that waits for {id}, and \
             `transom apps versions {id}` the definitions to return to."
        ),
    };
    Failing {
        name: id.to_string(),
        kind,
        count: finding.count,
        since: finding.since.timestamp(),
        agents,
        message,
        advice,
        stderr: Vec::new(),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
