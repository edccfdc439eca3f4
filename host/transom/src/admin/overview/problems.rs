//! The rules that find problems in the other parts of the overview. Pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time from the document")]

use jiff::Timestamp;
use transom_cli::overview::{
    Cluster, Deployment, Overview, Plugins, Point, Problem, Process, Service, Severity, Store, Waiting,
    rounded_duration, with_plural,
};
use transom_scheduler::Reason;

/// A task that waits longer for its launch is a problem, in seconds: if it cannot use the offers that
/// arrive, and if none arrive, as between the offers of a cluster with many frameworks.
const MAX_WAITING_SECONDS: u64 = 15;
const MAX_WAITING_SECONDS_WITHOUT_OFFERS: u64 = 60;
/// A deployment that runs longer is a problem, in seconds.
const MAX_DEPLOYMENT_SECONDS: u64 = 900;
/// Records that the cluster has not confirmed for longer are stale, in seconds.
const MAX_RECORD_AGE_SECONDS: f64 = 300.0;
/// Percentages of the limit of open files that cause a warning and an error.
const WARNING_FILES_PERCENT: u64 = 80;
const ERROR_FILES_PERCENT: u64 = 95;

/// All problems, errors first.
pub(super) fn find(overview: &Overview) -> Vec<Problem> {
    let mut problems = Vec::new();
    for service in &overview.services {
        check_service(service, overview.now, &mut problems);
    }
    check_cluster(&overview.cluster, &mut problems);
    if let Some(store) = &overview.store {
        check_store(store, &mut problems);
    }
    if let Some(plugins) = &overview.plugins {
        check_plugins(plugins, &mut problems);
    }
    if let Some(process) = &overview.process {
        check_process(process, &mut problems);
    }
    problems.sort_by_key(|problem| problem.severity);
    problems
}

fn problem(severity: Severity, source: &str, message: String, advice: impl Into<String>) -> Problem {
    Problem {
        severity,
        source: source.to_owned(),
        message,
        advice: advice.into(),
    }
}

fn check_service(service: &Service, now: Timestamp, problems: &mut Vec<Problem>) {
    let before = problems.len();
    let name = service.name.as_str();
    let mut add = |severity, message: String, advice: String| {
        problems.push(problem(severity, name, message, advice));
    };
    if let Some(framework) = &service.framework {
        let framework_name = &framework.name;
        if framework.leader.is_none() {
            add(
                Severity::Error,
                format!("no daemon leads the framework {framework_name}"),
                "A daemon is elected within `store.lease_seconds` while the store answers; if none is, see the log of \
                 the daemons, and `transom doctor` for the store."
                    .to_owned(),
            );
        } else if framework.leading && framework.subscribed == Some(false) {
            add(
                Severity::Error,
                format!("the framework {framework_name} is not subscribed with the cluster manager, so no task is launched"),
                "Check the masters and the credentials with `transom doctor`; the log has the master's answer.".to_owned(),
            );
        }
    }
    match (service.source.as_deref(), record_age_seconds(service)) {
        (Some("none"), Some(age)) if service.ready => add(
            Severity::Error,
            format!(
                "no master can be reached; lookups are answered from records that are {} old",
                rounded_duration(age as u64)
            ),
            "Check `cluster.master` and the network with `transom doctor`.".to_owned(),
        ),
        (Some(source), Some(age)) if service.ready && age > MAX_RECORD_AGE_SECONDS => add(
            Severity::Warning,
            format!(
                "the records are stale: the cluster confirmed them {} ago ({source})",
                rounded_duration(age as u64)
            ),
            "See the log of discovery for failed requests to the master, and `discovery.refresh_seconds`."
                .to_owned(),
        ),
        _ => {}
    }
    let failing = &service.state.failing;
    for one in failing {
        add(Severity::Warning, one.message.clone(), one.advice.clone());
    }
    let is_told = |name: &str| failing.iter().any(|one| one.name == name);
    for waiting in service.state.waiting.iter().filter(|it| !is_told(&it.name)) {
        if let Some((message, advice)) = waiting_problem(service, waiting, now) {
            add(Severity::Warning, message, advice);
        }
    }
    for unhealthy in service.state.unhealthy.iter().filter(|it| !is_told(&it.name)) {
        add(
            Severity::Warning,
            format!(
                "{}: {} {} a health check",
                unhealthy.name,
                with_plural(unhealthy.instances, "instance"),
                if unhealthy.instances == 1 { "fails" } else { "fail" }
            ),
            format!(
                "`transom apps tasks {}` lists them with their results.",
                unhealthy.name
            ),
        );
    }
    for deployment in &service.state.deployments {
        if let Some(message) = deployment_problem(deployment, now) {
            add(
                Severity::Warning,
                message,
                "`transom apps deployments` shows its steps; `transom apps queue` why instances wait."
                    .to_owned(),
            );
        }
    }
    if let Some(message) = service.state.summary.get("problem").and_then(|it| it.as_str()) {
        let advice =
            "`transom doctor` checks what the principal may view; a wait for agents ends within a minute.";
        problems.push(problem(Severity::Error, name, message.to_owned(), advice));
    }
    if !service.ready && problems.len() == before {
        let (message, advice) = if service.source.is_some() {
            (
                "discovery has no records yet: lookups fail",
                "It needs one response from a master; check `cluster.master` with `transom doctor`.",
            )
        } else {
            (
                "the service is not ready",
                "See the log for its reason; `transom doctor` checks what it needs.",
            )
        };
        problems.push(problem(Severity::Error, name, message.to_owned(), advice));
    }
}

/// Seconds since discovery's records were confirmed.
fn record_age_seconds(service: &Service) -> Option<f64> {
    service.state.summary.get("age_seconds")?.as_f64()
}

fn waiting_problem(service: &Service, waiting: &Waiting, now: Timestamp) -> Option<(String, String)> {
    let since = waiting.since?;
    let seconds = seconds_since(since, now);
    // A task in backoff after failures waits on purpose.
    let delayed = waiting.reasons.len() == 1 && waiting.reasons.contains_key(Reason::Backoff.as_str());
    let limit = match waiting.offers {
        0 => MAX_WAITING_SECONDS_WITHOUT_OFFERS,
        _ => MAX_WAITING_SECONDS,
    };
    if seconds < limit || delayed {
        return None;
    }
    let is_apps = service.name == "apps";
    let instance_count = with_plural(waiting.instances, if is_apps { "instance" } else { "task" });
    let message = format!(
        "{}: {instance_count} waiting for {}: {}",
        waiting.name,
        rounded_duration(seconds),
        waiting.why
    );
    let details = if is_apps {
        format!(
            "`transom apps explain {}` says which agents may run it and why others may not.",
            waiting.name
        )
    } else {
        "`/v0/queue` of the service has the reason of each job.".to_owned()
    };
    let advice: Vec<&str> = waiting
        .advice
        .iter()
        .map(String::as_str)
        .chain([&*details])
        .collect();
    Some((message, advice.join(" ")))
}

fn deployment_problem(deployment: &Deployment, now: Timestamp) -> Option<String> {
    let seconds = seconds_since(deployment.since, now);
    if let Some(blocked) = &deployment.blocked {
        return Some(format!(
            "the deployment of {} cannot go on in step {} of {} since {}: {blocked} ({})",
            deployment.subject,
            deployment.step,
            deployment.steps,
            deployment.since.strftime("%Y-%m-%dT%H:%M:%SZ"),
            deployment.id
        ));
    }
    (seconds >= MAX_DEPLOYMENT_SECONDS).then(|| {
        format!(
            "the deployment of {} has run for {} and is in step {} of {} ({})",
            deployment.subject,
            rounded_duration(seconds),
            deployment.step,
            deployment.steps,
            deployment.id
        )
    })
}

fn check_cluster(cluster: &Cluster, problems: &mut Vec<Problem>) {
    let mut add = |severity, message: String, advice: &str| {
        problems.push(problem(severity, "cluster", message, advice));
    };
    if cluster.reachable == Some(false) {
        let error = cluster.error.as_deref().unwrap_or("no answer");
        add(
            Severity::Error,
            format!("no leading master can be reached: {error}"),
            "Check `cluster.master`, the credentials and the network: `transom doctor --config FILE`.",
        );
    }
    if cluster.seen.is_none() {
        return;
    }
    let agents = &cluster.agents;
    if agents.total == 0 {
        add(
            Severity::Error,
            "no agent is registered: no task can run".to_owned(),
            "Start agents, or check to which master they are connected.",
        );
    } else if agents.active < agents.total {
        add(
            Severity::Warning,
            format!(
                "{} of {} not active: {}",
                agents.total - agents.active,
                with_plural(agents.total, "agent"),
                agents.inactive.join(", ")
            ),
            "Their tasks may be unreachable and they send no offers. Check the machines, and the log of the master.",
        );
    }
}

fn check_store(store: &Store, problems: &mut Vec<Problem>) {
    if store.reachable == Some(false) {
        let error = store.error.as_deref().unwrap_or("no answer");
        problems.push(problem(
            Severity::Error,
            "store",
            format!("the store {} cannot be read: {error}", store.server),
            "Nothing is launched or changed meanwhile; tasks continue to run. Check it with `transom doctor --config FILE`.",
        ));
    }
    let advice = match store.durability.as_str() {
        "volatile" => "Set `appendonly yes` and `appendfsync always` in its configuration.",
        "unconfirmed" => "Set `store.replicas`, so that a write is acknowledged when replicas have it.",
        // `/ready` and the log tell the others: no setting avoids them without another cost.
        _ => return,
    };
    if let Some(risk) = &store.may_lose {
        let message = format!("the store {} can lose data: {risk}", store.server);
        problems.push(problem(Severity::Warning, "store", message, advice));
    }
}

fn check_plugins(plugins: &Plugins, problems: &mut Vec<Problem>) {
    let mut add = |severity, message: String, advice: String| {
        problems.push(problem(severity, "plugins", message, advice));
    };
    for Point {
        point,
        missing,
        used_by,
        ..
    } in &plugins.points
    {
        if missing.is_empty() || used_by.is_empty() {
            continue;
        }
        add(
            Severity::Error,
            format!(
                "{point}: no version of {} serves, which {} needs",
                missing.join(", "),
                used_by.join(", ")
            ),
            format!(
                "`transom plugin list` has the reason; the plugin's files belong in {}.",
                plugins.dir
            ),
        );
    }
    for plugin in &plugins.attention {
        let name = &plugin.name;
        let (severity, situation, command) = match (plugin.state.as_str(), plugin.serving) {
            ("disabled", _) => (Severity::Error, "is disabled after repeated faults", "show"),
            ("quarantined", _) => (
                Severity::Warning,
                "serves an earlier version; its files are ignored until they change",
                "history",
            ),
            (_, false) => (Severity::Error, "was rejected, and no version serves", "show"),
            (_, true) => (
                Severity::Warning,
                "has new files that were rejected; the earlier version serves",
                "show",
            ),
        };
        add(
            severity,
            format!("{name} {situation}: {}", plugin.reason),
            format!("`transom plugin {command} {name}`"),
        );
    }
}

fn check_process(process: &Process, problems: &mut Vec<Problem>) {
    let Some(limit) = process.open_files_limit.filter(|limit| *limit > 0) else {
        return;
    };
    let percent = process.open_files.saturating_mul(100) / limit;
    if percent < WARNING_FILES_PERCENT {
        return;
    }
    let severity = if percent < ERROR_FILES_PERCENT {
        Severity::Warning
    } else {
        Severity::Error
    };
    problems.push(problem(
        severity,
        "process",
        format!(
            "{} of {limit} open files are in use ({percent} %)",
            process.open_files
        ),
        "Raise the hard limit (`LimitNOFILE` of the systemd unit, `ulimit -Hn`), or lower limits of connections.",
    ));
}

fn seconds_since(since: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.duration_since(since).as_secs()).unwrap_or_default()
}

#[cfg(test)]
#[path = "problems_tests.rs"]
mod tests;
