//! Documents of apps: the definition and the embedded parts.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use transom_replicas::Condition;

use super::change::DeploymentReference;
use super::pieces::Elements;
use super::query::Query;
use super::task::{self, ReadinessCheckResult, Task};
use crate::core::ends::TaskFailure;
use crate::core::failing::{self, Failing};
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::instance::Instance;
use crate::model::App;
use crate::time::Moment;

// Its tasks are written apart from the other members, one by one.
/// An app with the embedded parts.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppInfo<'a> {
    #[serde(flatten)]
    app: &'a App,
    /// Tasks that are launched and do not run yet.
    tasks_staged: u32,
    tasks_running: u32,
    /// Tasks without results of health checks count neither as healthy nor as unhealthy.
    tasks_healthy: u32,
    tasks_unhealthy: u32,
    /// The deployments that change the app.
    deployments: Vec<DeploymentReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readiness_check_results: Option<Vec<ReadinessCheckResult<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<Task<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_task_failure: Option<&'a TaskFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks_stats: Option<TaskStatsByVersion>,
    /// What fails of it, and why; absent if nothing does. Only with `embed=failing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<Failing>,
}

/// All apps, or those that a request selects.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AppList<'a> {
    pub(super) apps: Vec<AppInfo<'a>>,
}

/// One app.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AppSingle<'a> {
    pub(super) app: AppInfo<'a>,
}

/// The apps below a group.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AppsBelow<'a> {
    #[serde(rename = "*")]
    pub(super) apps: Vec<AppInfo<'a>>,
}

/// The times of the kept definitions, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VersionList<'a> {
    pub(super) versions: Vec<&'a Moment>,
}

/// Tasks by the age of their configuration; groups without tasks are absent.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskStatsByVersion {
    #[serde(skip_serializing_if = "Option::is_none")]
    started_after_last_scaling: Option<Stats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_latest_config: Option<Stats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_outdated_config: Option<Stats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_summary: Option<Stats>,
}

/// A group of tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Stats {
    stats: TaskStats,
}

/// The statistics of a group of tasks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskStats {
    counts: TaskCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    life_time: Option<TaskLifeTime>,
}

/// How long the started tasks have run.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskLifeTime {
    average_seconds: f64,
    median_seconds: f64,
}

impl TaskLifeTime {
    /// Computes the statistics of these times; `None` if there are none.
    fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.len() / 2;
        let upper = *seconds.get(middle)?;
        let median_seconds = if seconds.len().is_multiple_of(2) {
            f64::midpoint(seconds[middle - 1], upper)
        } else {
            upper
        };
        Some(Self {
            average_seconds: seconds.iter().sum::<f64>() / seconds.len() as f64,
            median_seconds,
        })
    }
}

/// Numbers of tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskCounts {
    staged: u32,
    running: u32,
    healthy: u32,
    unhealthy: u32,
}

/// The embedded parts of an app's document.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as in the query"
)]
pub(super) struct Embed {
    pub(super) tasks: bool,
    pub(super) last_failure: bool,
    pub(super) readiness: bool,
    pub(super) tasks_stats: bool,
    /// Adds Transom's own `checkFailure` to tasks: why a check has no newer result.
    pub(super) check_failure: bool,
    /// Adds Transom's own `failing`: why instances fail.
    pub(super) failing: bool,
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
            failing: query.embeds("failing"),
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

/// The documents of the apps among these apps and pods, each an [`AppInfo`].
pub(super) fn documents(
    views: impl Iterator<Item = Arc<SpecView>> + Send + 'static,
    snapshot: Arc<Snapshot>,
    embed: Embed,
) -> Elements {
    elements(views, snapshot, embed, failing::if_wanted(embed.failing))
}

/// The documents of the apps among these. `failing`: what fails of each.
pub(super) fn elements(
    views: impl Iterator<Item = Arc<SpecView>> + Send + 'static,
    snapshot: Arc<Snapshot>,
    embed: Embed,
    failing: impl Fn(&SpecView) -> Option<Failing> + Send + 'static,
) -> Elements {
    let mut apps = views.filter_map(|view| Some((Arc::clone(view.record.spec.app()?), view)));
    Box::new(move |document, pieces| {
        let Some((app, view)) = apps.next() else {
            return false;
        };
        let info = AppInfo {
            failing: failing(&view),
            ..app_info(&view, &app, &snapshot, embed)
        };
        let tasks = || task::documents(Arc::clone(&view), embed.check_failure);
        let tasks = embed.tasks.then(|| (",\"tasks\":[", tasks()));
        pieces.object(document, &app.id, &info, tasks);
        true
    })
}

/// An app's document with the embedded parts but its tasks.
fn app_info<'a>(view: &'a SpecView, app: &'a App, snapshot: &'a Snapshot, embed: Embed) -> AppInfo<'a> {
    let lock = snapshot.lock(&app.id);
    let counts = &view.counts;
    // As in upstream, the results are shown only during a deployment.
    let readiness = || lock.map_or_else(Vec::new, |_| task::readiness_results(view));
    AppInfo {
        app,
        tasks_staged: counts.launching(),
        tasks_running: counts.of(Condition::Running),
        tasks_healthy: counts.healthy,
        tasks_unhealthy: counts.unhealthy,
        deployments: lock.map(|id| DeploymentReference { id }).into_iter().collect(),
        readiness_check_results: embed.readiness.then(readiness),
        tasks: None,
        last_task_failure: view.record.last_failure.as_ref().filter(|_| embed.last_failure),
        tasks_stats: embed.tasks_stats.then(|| stats(view)),
        failing: None,
    }
}

/// The document of an app that this deployment creates.
pub(super) fn created<'a>(app: &'a App, deployment: &'a str) -> AppInfo<'a> {
    AppInfo {
        app,
        tasks_staged: 0,
        tasks_running: 0,
        tasks_healthy: 0,
        tasks_unhealthy: 0,
        deployments: vec![DeploymentReference { id: deployment }],
        readiness_check_results: None,
        tasks: None,
        last_task_failure: None,
        tasks_stats: None,
        failing: None,
    }
}

impl TaskCounts {
    fn of<'a>(instances: impl IntoIterator<Item = &'a Arc<Instance>>) -> Self {
        let mut counts = Self {
            staged: 0,
            running: 0,
            healthy: 0,
            unhealthy: 0,
        };
        for instance in instances {
            let condition = instance.condition();
            counts.staged += u32::from(condition.is_launching());
            counts.running += u32::from(condition == Condition::Running);
            let healthy = instance.is_healthy();
            counts.healthy += u32::from(healthy == Some(true));
            counts.unhealthy += u32::from(healthy == Some(false));
        }
        counts
    }
}

/// Counts of tasks by the age of their configuration.
fn stats(view: &SpecView) -> TaskStatsByVersion {
    let config = view.record.spec.config_version();
    let info = view.record.spec.version_info();
    let now = Moment::now().timestamp();
    let scaled = info.map_or(view.record.spec.version(), |info| info.last_scaling_at);
    let all = || {
        let instances = view.instances.values();
        instances.filter(|instance| instance.record().is_some())
    };
    let of = |wanted: &dyn Fn(Moment) -> bool| {
        let chosen = || all().filter(|instance| wanted(instance.version()));
        chosen().next()?;
        let started = chosen().filter_map(|instance| instance.record()?.started_at);
        let seconds = started.map(|at| now.duration_since(at).as_secs_f64().max(0.0));
        Some(Stats {
            stats: TaskStats {
                counts: TaskCounts::of(chosen()),
                life_time: TaskLifeTime::of(seconds.collect()),
            },
        })
    };
    TaskStatsByVersion {
        started_after_last_scaling: of(&|version| version >= scaled),
        with_latest_config: of(&|version| version >= config),
        with_outdated_config: of(&|version| version < config),
        total_summary: of(&|_| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_time_is_the_average_and_the_median() {
        for (seconds, average, median) in [
            (vec![4.0], 4.0, 4.0),
            (vec![9.0, 1.0], 5.0, 5.0),
            (vec![10.0, 1.0, 4.0], 5.0, 4.0),
        ] {
            let expected = TaskLifeTime {
                average_seconds: average,
                median_seconds: median,
            };
            assert_eq!(TaskLifeTime::of(seconds), Some(expected));
        }
        assert_eq!(TaskLifeTime::of(Vec::new()), None);
    }
}
