//! Documents of apps: the definition and the embedded parts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::query::Query;
use super::task;
use crate::core::snapshot::{AppView, Snapshot};
use crate::instance::Instance;
use transom_replicas::Condition;

/// The embedded parts of an app's document.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as in the query"
)]
pub(super) struct Embed {
    pub(super) tasks: bool,
    pub(super) last_failure: bool,
    pub(super) readiness: bool,
    pub(super) tasks_stats: bool,
    /// Transom's own: why a check has no newer result.
    pub(super) check_failure: bool,
}

impl Embed {
    /// The requested parts. Counts and deployments are always embedded.
    pub(super) fn of(query: &Query) -> Self {
        let failures = query.embeds("failures");
        Self {
            tasks: query.embeds("tasks") || failures,
            last_failure: query.embeds("lastTaskFailure") || failures,
            readiness: query.embeds("readiness"),
            tasks_stats: query.embeds("taskStats"),
            check_failure: query.embeds("checkFailure"),
        }
    }

    /// The parts of a single app's document.
    pub(super) fn for_one(query: &Query) -> Self {
        Self {
            tasks: true,
            last_failure: true,
            ..Self::of(query)
        }
    }
}

/// An app's document with the embedded parts.
pub(super) fn shown(view: &AppView, snapshot: &Snapshot, embed: Embed) -> Value {
    let mut shown = json!(view.app);
    let lock = snapshot.lock(&view.app.id);
    let deployments: Vec<Value> = lock.iter().map(|id| json!({"id": id})).collect();
    let count = |conditions: &[Condition]| {
        view.instances
            .values()
            .filter(|one| conditions.contains(&one.condition()))
            .count()
    };
    shown["tasksStaged"] = json!(count(&Condition::LAUNCHING));
    shown["tasksRunning"] = json!(count(&[Condition::Running]));
    let (healthy, unhealthy) = by_health(view.instances.values().map(AsRef::as_ref));
    shown["tasksHealthy"] = json!(healthy);
    shown["tasksUnhealthy"] = json!(unhealthy);
    let deploying = !deployments.is_empty();
    shown["deployments"] = json!(deployments);
    if embed.tasks {
        shown["tasks"] = json!(task::of_app(view, embed.check_failure));
    }
    if let Some(failure) = view.last_failure.as_ref().filter(|_| embed.last_failure) {
        shown["lastTaskFailure"] = json!(failure);
    }
    if embed.readiness {
        // As upstream, the results are those of a deployment.
        let results = if deploying {
            task::readiness_results(view)
        } else {
            Vec::new()
        };
        shown["readinessCheckResults"] = json!(results);
    }
    if embed.tasks_stats {
        shown["tasksStats"] = stats(view);
    }
    shown
}

/// The numbers of healthy and of unhealthy tasks. Tasks without health information count as
/// neither.
fn by_health<'a>(instances: impl Iterator<Item = &'a Instance>) -> (usize, usize) {
    instances.fold((0, 0), |(healthy, unhealthy), instance| {
        match instance.is_healthy() {
            Some(true) => (healthy + 1, unhealthy),
            Some(false) => (healthy, unhealthy + 1),
            None => (healthy, unhealthy),
        }
    })
}

/// Counts of tasks by the age of their configuration; groups without tasks are omitted.
fn stats(view: &AppView) -> Value {
    let config = view.app.config_version();
    let scaled = view
        .app
        .version_info
        .map_or(view.app.version, |info| info.last_scaling_at);
    let mut stats = json!({});
    let all: Vec<_> = view
        .instances
        .values()
        .filter(|instance| instance.record.is_some())
        .collect();
    let mut group = |name: &str, chosen: Vec<&&Arc<Instance>>| {
        if !chosen.is_empty() {
            let count =
                |wanted: fn(Condition) -> bool| chosen.iter().filter(|one| wanted(one.condition())).count();
            let staged = count(Condition::is_launching);
            let running = count(|condition| condition == Condition::Running);
            let (healthy, unhealthy) = by_health(chosen.iter().copied().map(AsRef::as_ref));
            let counts =
                json!({"staged": staged, "running": running, "healthy": healthy, "unhealthy": unhealthy});
            stats[name] = json!({"stats": {"counts": counts}});
        }
    };
    group(
        "startedAfterLastScaling",
        all.iter()
            .filter(|instance| instance.version() >= scaled)
            .collect(),
    );
    group(
        "withLatestConfig",
        all.iter()
            .filter(|instance| instance.version() >= config)
            .collect(),
    );
    group(
        "withOutdatedConfig",
        all.iter()
            .filter(|instance| instance.version() < config)
            .collect(),
    );
    group("totalSummary", all.iter().collect());
    stats
}
