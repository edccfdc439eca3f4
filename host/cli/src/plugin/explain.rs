//! `transom plugin explain`: explains decisions of plugins.
//!
//! Each command shows a document of the admin port; the daemon makes the explanations.

mod text;

use clap::{Args, Subcommand};
use serde_json::json;

use super::Daemon;
use super::recorded::duration;
use crate::output;

/// Explain decisions of plugins: which agents may run an app, a job or a member of a Kubernetes
/// cluster, which events pass a query, what an attempt of a probe does.
#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    Matcher(Placement),
    Filter(Events),
    Probe(Attempt),
}

/// Explain which agents may run one more instance of an app or pod, a pending workflow job, or a
/// pending member of a Kubernetes cluster, and how many other agents each condition rejects, with the
/// values of their attribute.
///
/// The daemon queries the serving matchers about every agent that the scheduler knows, in the order of
/// `plugins.use.matcher`. Resources are not considered: `transom apps explain` shows those of apps. The
/// daemon has to be the leader.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom plugin explain matcher --app /shop/web\n  \
    transom plugin explain matcher --job nightly-report\n  \
    transom plugin explain matcher --member server/0\n  \
    transom plugin explain matcher --app /shop/web --output json | jq '.refusals[] | {condition, agents}'")]
pub(crate) struct Placement {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    daemon: Daemon,
}

/// The task that is explained.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Subject {
    /// Id of the app or pod.
    #[arg(long, value_name = "ID")]
    app: Option<String>,
    /// Id of a pending workflow job, as `GET /v0/queue` of the workflow port lists it.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Pending member of a Kubernetes cluster, as kind and number: `server/0`. For the instance
    /// `[kubernetes.NAME]`: `NAME/server/0`.
    #[arg(long, value_name = "KIND/NUMBER")]
    member: Option<String>,
}

impl Subject {
    /// The name and value of the request's parameter, and the kind of the task.
    fn parameter(self) -> (&'static str, String, text::Kind) {
        let Subject { app, job, member } = self;
        let app = app.map(|id| ("app", id, text::Kind::App));
        let job = job.map(|id| ("job", id, text::Kind::Job));
        let member = member.map(|id| ("member", id, text::Kind::Member));
        // clap has checked that exactly one is given.
        app.or(job)
            .or(member)
            .unwrap_or(("app", String::new(), text::Kind::App))
    }
}

/// Explain which past events pass a query of the event stream, and which filter drops or replaces
/// the others.
///
/// The query is that of `GET /v2/events`. The events are those that the leader keeps for resumed
/// streams (`apps.events.buffer_events` and `apps.events.buffer_bytes`).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom plugin explain filter --query 'event_type=status_update_event&event_type=app_terminated_event'\n  \
    transom plugin explain filter --query 'filter=event.appId == \"/shop/web\"' --since 10m")]
pub(crate) struct Events {
    /// The query as a subscriber gives it after the question mark; may be empty.
    #[arg(long, value_name = "QUERY")]
    query: String,
    /// Age of the oldest event, such as `10m` or `2h`.
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    since: String,
    #[command(flatten)]
    daemon: Daemon,
}

/// Make one attempt of a task's check now, and show it step by step.
///
/// The serving component makes the attempt, under its limits and with its grants, and connects to the
/// task. The result changes neither the task's health nor the plugin's counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom plugin explain probe --task shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1\n  \
    transom plugin explain probe --task TASK_ID --check 1")]
pub(crate) struct Attempt {
    /// Id of the task, or of a pod's instance with all of its tasks.
    #[arg(long, value_name = "TASK_ID")]
    task: String,
    /// Index of the probe, from 0: the task's check, its health checks in order, its readiness check.
    /// Default: the first probe that the daemon makes.
    #[arg(long, value_name = "N")]
    check: Option<usize>,
    #[command(flatten)]
    daemon: Daemon,
}

impl Explain {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (document, text, output) = match self {
            Explain::Matcher(Placement { subject, daemon }) => {
                let (parameter, id, kind) = subject.parameter();
                let document = daemon
                    .connection
                    .get(&["explain", "matcher"], &[(parameter, id)])
                    .await?;
                let text = text::matcher(kind, &document);
                (document, text, daemon.output)
            }
            Explain::Filter(Events { query, since, daemon }) => {
                let parameters = [("query", query), ("since", since)];
                let document = daemon.connection.get(&["explain", "filter"], &parameters).await?;
                let text = text::filter(&document);
                (document, text, daemon.output)
            }
            Explain::Probe(Attempt { task, check, daemon }) => {
                let mut body = json!({"task": task});
                if let Some(check) = check {
                    body["check"] = json!(check);
                }
                let request =
                    daemon
                        .connection
                        .request(reqwest::Method::POST, &["explain", "probe"], Some(body));
                let document = request.await?;
                let text = text::probe(&document);
                (document, text, daemon.output)
            }
        };
        output::print_text(output, &document, &text)
    }
}
