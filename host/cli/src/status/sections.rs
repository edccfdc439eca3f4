//! The tables of `transom status` and `transom top`: headings and rows.

use serde_json::Value;

use crate::overview::{Overview, Service, rounded_duration};

/// Headings and rows of a table.
pub(crate) type Section = (&'static [&'static str], Vec<Vec<String>>);

/// A row for each service.
pub(crate) fn services(overview: &Overview) -> Section {
    let rows = overview.services.iter().map(|service| {
        let ports = service.ports.iter().map(|port| {
            if port.name == service.name {
                port.address.clone()
            } else {
                format!("{} {}", port.name, port.address)
            }
        });
        vec![
            service.name.clone(),
            if service.ready { "yes" } else { "no" }.to_owned(),
            leader(service),
            ports.collect::<Vec<_>>().join(", "),
            summary(service),
        ]
    });
    (&["service", "ready", "leader", "ports", "state"], rows.collect())
}

fn leader(service: &Service) -> String {
    match (&service.framework, &service.source) {
        (Some(framework), _) => {
            let leader = match (&framework.leader, framework.leading) {
                (_, true) => "here",
                (Some(other), false) => other,
                (None, false) => "none",
            };
            let subscribed = if framework.subscribed == Some(false) {
                ", not subscribed"
            } else {
                ""
            };
            format!("{} ({leader}{subscribed})", framework.name)
        }
        (None, Some(source)) => format!("source: {source}"),
        (None, None) => "-".to_owned(),
    }
}

/// The most informative numbers of a service.
fn summary(service: &Service) -> String {
    let numbers = &service.state.summary;
    let number = |key: &str| numbers[key].as_u64().unwrap_or_default();
    let mut parts = Vec::new();
    let mut add = |count: u64, text: String| {
        if count > 0 {
            parts.push(text);
        }
    };
    if numbers.get("instances_wanted").is_some() {
        let (apps, pods) = (number("apps"), number("pods"));
        add(1, with_plural(apps, "app"));
        add(pods, with_plural(pods, "pod"));
        let (running, wanted) = (number("instances_running"), number("instances_wanted"));
        add(
            1,
            format!("{running} of {} running", with_plural(wanted, "instance")),
        );
        let staged = number("instances_staged");
        add(staged, format!("{staged} starting"));
        let queued = number("instances_queued");
        add(queued, format!("{queued} waiting"));
        let unhealthy = number("instances_unhealthy");
        add(unhealthy, format!("{unhealthy} unhealthy"));
        let deployments = number("deployments");
        add(deployments, with_plural(deployments, "deployment"));
    } else if let Some(records) = numbers["records"].as_u64() {
        add(1, with_plural(number("names"), "name"));
        add(1, with_plural(records, "record"));
        let age = numbers["age_seconds"].as_f64().unwrap_or_default();
        // Before the first records there is no domain.
        let confirmed = u64::from(numbers["domain"].is_string());
        add(
            confirmed,
            format!("confirmed {} ago", rounded_duration(age as u64)),
        );
        let queries = number("queries");
        let noun = if queries == 1 { "query" } else { "queries" };
        add(1, format!("{queries} {noun} answered"));
    } else if numbers["nodes"].is_object() {
        add(
            1,
            format!(
                "{} of {} running",
                number("running"),
                with_plural(number("wanted"), "task")
            ),
        );
        add(1, by_phase(&numbers["nodes"]));
    } else if numbers.get("queued").is_some() {
        add(1, format!("{} queued", number("queued")));
        add(1, format!("{} running", number("running")));
        add(1, format!("{} finished", number("finished")));
        let failed = number("failed");
        add(failed, format!("{failed} failed"));
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

fn by_phase(nodes: &Value) -> String {
    let phases = nodes.as_object().into_iter().flatten();
    let phases = phases.map(|(phase, count)| format!("{count} {}", phase.replace('_', " ")));
    phases.collect::<Vec<_>>().join(", ")
}

/// A row for each resource of the cluster.
pub(crate) fn cluster(overview: &Overview) -> Section {
    let rows = overview.cluster.resources.iter();
    let rows = rows
        .filter(|(_, amounts)| amounts.total > 0.0)
        .map(|(name, amounts)| {
            vec![
                name.clone(),
                format!("{} of {}", amount(amounts.used), amount(amounts.total)),
                format!("{:.0} %", amounts.used / amounts.total * 100.0),
                amount(amounts.offered),
            ]
        });
    (&["resource", "used", "share", "offered"], rows.collect())
}

/// The master, the store and the plugins, and the daemon's process.
pub(crate) fn parts(overview: &Overview) -> Section {
    let cluster = &overview.cluster;
    let master = cluster.leader.clone();
    let mut rows = vec![vec![
        "master".to_owned(),
        state(cluster.reachable),
        master.unwrap_or_else(|| cluster.masters.join(", ")),
        format!(
            "version {}, {} of {} active",
            cluster.version.as_deref().unwrap_or("unknown"),
            cluster.agents.active,
            with_plural(cluster.agents.total, "agent")
        ),
    ]];
    if let Some(store) = &overview.store {
        rows.push(vec![
            "store".to_owned(),
            state(store.reachable),
            store.server.clone(),
            format!("{}, {}", store.kind, store.durability),
        ]);
    }
    if let Some(plugins) = &overview.plugins {
        let mut numbers = vec![format!("{} of {} serving", plugins.serving, plugins.total)];
        for (count, noun) in [
            (plugins.rejected, "rejected"),
            (plugins.disabled, "disabled"),
            (plugins.quarantined, "in quarantine"),
            (plugins.shadows, "shadows"),
            (plugins.canaries, "canaries"),
        ] {
            if count > 0 {
                numbers.push(format!("{count} {noun}"));
            }
        }
        rows.push(vec![
            "plugins".to_owned(),
            if plugins.disabled + plugins.rejected == 0 {
                "ok"
            } else {
                "see below"
            }
            .to_owned(),
            plugins.dir.clone(),
            numbers.join(", "),
        ]);
    }
    if let Some(process) = &overview.process {
        let limit = process.open_files_limit;
        rows.push(vec![
            "process".to_owned(),
            "ok".to_owned(),
            format!("pid {}", process.id),
            format!(
                "{} MB resident, {} of {} open files, {:.1} s CPU",
                process.resident_bytes >> 20,
                process.open_files,
                limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()),
                process.cpu_seconds
            ),
        ]);
    }
    (&["item", "state", "address", "details"], rows)
}

/// Waiting apps and jobs, with their reasons.
pub(crate) fn waiting(overview: &Overview) -> Section {
    let mut rows = Vec::new();
    for service in &overview.services {
        for waiting in &service.state.waiting {
            let since = waiting.since.map(|since| {
                let seconds = overview.now.duration_since(since).as_secs();
                rounded_duration(u64::try_from(seconds).unwrap_or_default())
            });
            rows.push(vec![
                waiting.name.clone(),
                service.name.clone(),
                waiting.instances.to_string(),
                since.unwrap_or_else(|| "-".to_owned()),
                waiting.why.clone(),
            ]);
        }
    }
    (&["waiting", "service", "count", "for", "why"], rows)
}

/// Running deployments.
pub(crate) fn deployments(overview: &Overview) -> Section {
    let all = overview.services.iter().flat_map(|one| &one.state.deployments);
    let rows = all.map(|one| {
        let seconds = overview.now.duration_since(one.since).as_secs();
        vec![
            one.subject.clone(),
            format!("{} of {}", one.step, one.steps),
            rounded_duration(u64::try_from(seconds).unwrap_or_default()),
            one.id.clone(),
        ]
    });
    (&["deployment", "step", "for", "id"], rows.collect())
}

fn state(reachable: Option<bool>) -> String {
    match reachable {
        Some(true) => "reachable",
        Some(false) => "unreachable",
        None => "not seen yet",
    }
    .to_owned()
}

fn with_plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// Formats a number with at most two decimals.
fn amount(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
