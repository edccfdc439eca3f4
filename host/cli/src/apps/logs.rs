//! `transom apps logs`: the output of tasks, through the daemon's admin port.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use transom_plugin_host::printable;

use super::api::{Api, Port, Query};
use super::complete;
use super::id::{self, Kind, Target};
use super::instances::{self, Instance};
use super::stream;
use crate::admin_port::{self, Connection, OtherAdminPort};
use crate::exit::Unavailable;
use crate::http::{self, Client};
use crate::output::print_note;
use crate::task_output::{PIECE, Piece, Printer, ReadError, Source, Stream, tail};

/// Timeout of reading a piece.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the requests while output is followed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the daemon may be unreachable while output is followed.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// The most pieces of one stream that are printed before the next stream has its turn.
const MAX_PIECES: usize = 64;
/// The most tasks whose output is shown at once.
const MAX_TASKS: usize = 100;

/// Show the output of tasks: the end of stdout and stderr, and with `--follow` what is appended.
///
/// `--follow` with a task ends with the task, and says how it ended. With an app or pod it also shows
/// the tasks that replace others, until it is interrupted or the app is deleted. If there are several
/// tasks, each line begins with the short id of its task. On a terminal, control characters are escaped
/// and colours left out; a pipe or a file receives the bytes as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps logs web\n  \
    transom apps logs --follow --lines 10 ed57045e\n  \
    transom apps logs --previous web\n  \
    transom apps logs --stream stdout web > web.log")]
pub(crate) struct Logs {
    /// Id of an app or pod, or id or short id of a task, as `transom apps tasks` shows them.
    #[arg(value_name = "APP|TASK", add = complete::apps_and_tasks())]
    name: String,
    /// Continue with what the tasks write, until they end.
    #[arg(short, long)]
    follow: bool,
    /// Show the output of the app's last task that failed.
    #[arg(short, long, conflicts_with = "follow")]
    previous: bool,
    /// Lines of each stream to show from its end.
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 100)]
    lines: usize,
    /// Only this stream. Default: both, each on the stream of the same name.
    #[arg(long)]
    stream: Option<Stream>,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    admin: OtherAdminPort,
}

/// What the command's argument names.
enum Subject {
    Task(Instance),
    Spec(Target),
}

/// Reads the sandbox of one task.
struct Sandbox<'a> {
    client: &'a Client,
    framework: &'a str,
    instance: Instance,
}

impl Source for Sandbox<'_> {
    async fn read(&self, stream: Stream, offset: Option<u64>, length: u64) -> Result<Piece, ReadError> {
        let mut query = vec![
            ("agent", self.instance.agent.clone()),
            ("framework", self.framework.to_owned()),
            ("task", self.instance.task.clone()),
            ("stream", stream.name().to_owned()),
            ("length", length.to_string()),
        ];
        query.extend(self.instance.executor.clone().map(|id| ("executor", id)));
        query.extend(offset.map(|offset| ("offset", offset.to_string())));
        let request = self.client.request(Method::GET, ["v1", "cluster", "log"]);
        let failed = |failure| ReadError::Failed(admin_port::no_answer(self.client, failure));
        let response = self.client.send(request.query(&query)).await.map_err(failed)?;
        let status = response.status();
        let next = response.headers().get("transom-next-offset");
        let next = next.and_then(|next| next.to_str().ok()?.parse().ok());
        let data = http::body_bytes(response).await.map_err(failed)?;
        if let (true, Some(next)) = (status.is_success(), next) {
            return Ok(Piece { data, next });
        }
        let text = String::from_utf8_lossy(&data);
        let error = admin_port::check_status(self.client, status, &text);
        let error = error.err().unwrap_or_else(|| {
            anyhow::anyhow!(
                "the answer of {} is not the output of a task",
                self.client.base_url()
            )
        });
        Err(match status {
            StatusCode::NOT_FOUND => ReadError::Missing(format!("{error:#}")),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                ReadError::Failed(error.context(Unavailable))
            }
            _ => ReadError::Failed(error),
        })
    }
}

impl Logs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
        let client = Connection::from(self.admin).client(TIMEOUT)?;
        // The stream is opened before the tasks are listed, so that no end is missed.
        let ends = if self.follow {
            Ends::open(&api).await
        } else {
            Ends::default()
        };
        let info = api.get("v2/info").await?;
        let framework = info["frameworkId"].as_str();
        let framework = framework
            .context(
                "the framework is not registered with the cluster manager yet; `transom status` shows why",
            )
            .context(Unavailable)?;
        let subject = subject(&api, &self.name).await?;
        let mut shown = match (&subject, self.previous) {
            (Subject::Spec(target), false) => instances::of_target(&api, target).await?,
            (Subject::Spec(target), true) => vec![last_failed(&target.document, &target.id)?],
            (Subject::Task(task), false) => vec![task.clone()],
            (Subject::Task(task), true) => {
                let app = api.find(&format!("v2/apps{}", task.owner)).await?;
                vec![last_failed(&app.unwrap_or_default()["app"], &task.owner)?]
            }
        };
        shown.retain(|one| !one.agent.is_empty());
        if shown.is_empty() && !self.follow {
            bail!(
                "no task of {name} is launched; `transom apps explain {name}` shows why, and `transom apps logs --previous \
                 {name}` the output of the last task that failed",
                name = self.name
            );
        }
        if shown.len() > MAX_TASKS {
            print_note(format_args!(
                "{} has {} tasks; the output of {MAX_TASKS} is shown",
                self.name,
                shown.len()
            ));
            shown.truncate(MAX_TASKS);
        }
        let streams = self.stream.map_or(Stream::ALL.to_vec(), |stream| vec![stream]);
        let mut session = Session {
            api: &api,
            client: &client,
            framework,
            streams,
            lines: self.lines,
            is_prefixed: shown.len() > 1 || (self.follow && matches!(subject, Subject::Spec(_))),
            followed: Vec::new(),
            seen: HashSet::new(),
            ends,
        };
        for instance in shown {
            session.add(instance, None);
        }
        if self.follow {
            session.follow(&subject).await
        } else {
            session.show().await
        }
    }
}

/// The app, pod or task with this name.
async fn subject(api: &Api, name: &str) -> anyhow::Result<Subject> {
    if let Ok(id) = id::parse(name) {
        for kind in [Kind::App, Kind::Pod] {
            let document = api.find(&format!("{}{id}", kind.path())).await?;
            let document = match kind {
                // The response for a path such as `/x/tasks` is another resource, without `app`.
                Kind::App => document.and_then(|it| it.get("app").cloned()),
                _ => document,
            };
            if let Some(document) = document {
                return Ok(Subject::Spec(Target { kind, id, document }));
            }
        }
    }
    let all = instances::all(api).await?;
    if let Some(found) = instances::matching(&all, name)? {
        return Ok(Subject::Task(found.clone()));
    }
    // Of the tasks that have ended, the API lists the last failed one of each app.
    if let Some(app) = instances::app_of(name)
        && let Some(document) = api.find(&format!("v2/apps{app}")).await?
    {
        let failure = &document["app"]["lastTaskFailure"];
        if failure["taskId"] == name {
            return Ok(Subject::Task(Instance::of_failure(failure)));
        }
        bail!(
            "{name} has ended, and the daemon only keeps the agent of an app's last failed task: `transom apps logs \
             --previous {app}` shows its output"
        );
    }
    bail!("{}", instances::unknown(&all, name))
}

fn last_failed(app: &Value, id: &str) -> anyhow::Result<Instance> {
    let failed = Instance::of_failure(&app["lastTaskFailure"]);
    anyhow::ensure!(
        !failed.task.is_empty(),
        "no task of {id} has failed (the last failed task of an app is kept, none of a pod)"
    );
    Ok(failed)
}

/// The ends of tasks, as the event stream reports them.
#[derive(Default)]
struct Ends {
    stream: Option<stream::Stream>,
    /// State and message, by task.
    by_task: HashMap<String, String>,
    /// Tasks of the followed app, some of which may end before they are listed.
    started: Vec<Instance>,
}

impl Ends {
    async fn open(api: &Api) -> Self {
        let query = Query::from([("event_type", "status_update_event".to_owned())]);
        Self {
            stream: stream::Stream::open(api, &query, None).await.ok(),
            by_task: HashMap::new(),
            started: Vec::new(),
        }
    }

    /// Reads events until `deadline`, or until there is news of one of the tasks, or of the app.
    async fn wait(&mut self, api: &Api, deadline: Instant, followed: &[Followed<'_>], app: Option<&str>) {
        loop {
            let Some(stream) = &mut self.stream else {
                sleep_until(deadline).await;
                self.stream = Self::open(api).await.stream;
                return;
            };
            let frame = tokio::select! {
                () = sleep_until(deadline) => return,
                frame = stream.next() => frame,
            };
            let Ok(frame) = frame else {
                self.stream = None;
                continue;
            };
            let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
            let state = event["taskStatus"].as_str().unwrap_or_default();
            let task = event["taskId"].as_str().unwrap_or_default();
            let is_followed = followed.iter().any(|one| one.sandbox.instance.task == task);
            let is_of_app = app.is_some() && event["appId"].as_str() == app;
            if is_of_app && !is_followed {
                self.started.push(Instance::of_event(&event));
            }
            if is_final(state) && (is_followed || is_of_app) {
                let message = event["message"].as_str().unwrap_or_default();
                self.by_task.insert(task.to_owned(), ended_in(state, message));
            }
            if is_of_app || (is_followed && is_final(state)) {
                return;
            }
        }
    }
}

/// Whether a task in this state has ended.
fn is_final(state: &str) -> bool {
    !matches!(
        state,
        "" | "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING" | "TASK_KILLING" | "TASK_UNREACHABLE"
    )
}

fn ended_in(state: &str, message: &str) -> String {
    let colon = if message.is_empty() { "" } else { ": " };
    format!("{state}{colon}{message}")
}

/// A task whose output is shown.
struct Followed<'a> {
    sandbox: Sandbox<'a>,
    printer: Printer,
    /// Where each stream continues; `None` until its end was read.
    next: [Option<u64>; 2],
    /// The last reason for which a stream could not be read.
    failure: String,
    has_ended: bool,
}

struct Session<'a> {
    api: &'a Api,
    client: &'a Client,
    framework: &'a str,
    streams: Vec<Stream>,
    lines: usize,
    is_prefixed: bool,
    followed: Vec<Followed<'a>>,
    /// All tasks that are or were followed.
    seen: HashSet<String>,
    ends: Ends,
}

impl Session<'_> {
    /// Adds a task, whose output is shown from `offset`, or its end.
    fn add(&mut self, instance: Instance, offset: Option<u64>) {
        if instance.agent.is_empty() || self.followed.len() >= MAX_TASKS {
            return;
        }
        if !self.seen.insert(instance.task.clone()) {
            return;
        }
        let prefix = if self.is_prefixed {
            format!("{} ", printable(&instances::short(&instance.task)))
        } else {
            String::new()
        };
        self.followed.push(Followed {
            sandbox: Sandbox {
                client: self.client,
                framework: self.framework,
                instance,
            },
            printer: Printer::new(prefix),
            next: [offset; 2],
            failure: String::new(),
            has_ended: false,
        });
    }

    /// Prints the end of each stream once.
    async fn show(&mut self) -> anyhow::Result<()> {
        let mut failures = Vec::new();
        for followed in &mut self.followed {
            for stream in &self.streams {
                match tail(&followed.sandbox, *stream, self.lines).await {
                    Ok(piece) => followed.printer.print(*stream, &piece.data)?,
                    Err(error) => {
                        let Instance { task, state, .. } = &followed.sandbox.instance;
                        let context = format!("the output of {task} ({state}) cannot be read");
                        failures.push(match error {
                            // The mark that determines the exit code stays the outermost one.
                            ReadError::Failed(error) if error.is::<Unavailable>() => {
                                anyhow::anyhow!("{context}{error:#}").context(Unavailable)
                            }
                            error => error.into_error().context(context),
                        });
                        break;
                    }
                }
            }
            followed.printer.finish()?;
        }
        let last = failures.pop();
        for failure in failures {
            print_note(format_args!("transom: {}", printable(&format!("{failure:#}"))));
        }
        last.map_or(Ok(()), Err)
    }

    async fn follow(&mut self, subject: &Subject) -> anyhow::Result<()> {
        let app = match subject {
            Subject::Spec(target) if target.kind == Kind::App => Some(target.id.as_str()),
            _ => None,
        };
        let mut reachable_at = Instant::now();
        loop {
            let round = Instant::now();
            match self.present(subject).await {
                Ok(present) => {
                    reachable_at = Instant::now();
                    for instance in present
                        .iter()
                        .flatten()
                        .chain(&std::mem::take(&mut self.ends.started))
                    {
                        self.add(instance.clone(), Some(0));
                    }
                    let is_running = |task: &str| {
                        let mut present = present.iter().flatten();
                        present.any(|one| one.task == task && !is_final(&one.state))
                    };
                    for followed in &mut self.followed {
                        let task = &followed.sandbox.instance.task;
                        // The output before the end is read after the end is known.
                        followed.has_ended = self.ends.by_task.contains_key(task) || !is_running(task);
                    }
                    self.print_new().await?;
                    if self.report_ends(subject).await? || present.is_none() {
                        return Ok(());
                    }
                }
                Err(error) if error.is::<Unavailable>() && reachable_at.elapsed() < MAX_OUTAGE => {}
                Err(error) => return Err(error),
            }
            let deadline = round + POLL_INTERVAL;
            self.ends.wait(self.api, deadline, &self.followed, app).await;
        }
    }

    /// The present tasks of the subject; `None` if it does not exist any more.
    async fn present(&self, subject: &Subject) -> anyhow::Result<Option<Vec<Instance>>> {
        let found = match subject {
            Subject::Spec(target) => instances::of_target(self.api, target).await,
            Subject::Task(task) => if task.executor.is_none() {
                let path = format!("v2/apps{}/tasks", task.owner);
                let listed = self.api.get(&path).await;
                listed.map(|it| instances::of_tasks(&it["tasks"]))
            } else {
                let path = format!("v2/pods{}::status", task.owner);
                self.api.get(&path).await.map(|it| instances::of_pod(&it))
            }
            .map(|list| list.into_iter().filter(|one| one.task == task.task).collect()),
        };
        match found {
            Ok(list) => Ok(Some(list)),
            Err(error) if super::api::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Prints what the tasks have written since the last call.
    async fn print_new(&mut self) -> anyhow::Result<()> {
        for followed in &mut self.followed {
            for stream in &self.streams {
                if let Err(reason) = print_stream(followed, *stream, self.lines).await? {
                    // A task that is being launched has no sandbox yet.
                    let is_failure = match &reason {
                        ReadError::Missing(_) => followed.has_ended,
                        ReadError::Failed(_) => true,
                    };
                    let text = format!("{:#}", reason.into_error());
                    if is_failure && followed.failure != text {
                        print_note(format_args!(
                            "transom: {}: {}",
                            printable(&followed.sandbox.instance.task),
                            printable(&text)
                        ));
                        followed.failure = text;
                    }
                    break;
                }
                followed.failure.clear();
            }
        }
        Ok(())
    }

    /// Reports how tasks ended, and forgets them. Returns whether the session is over.
    async fn report_ends(&mut self, subject: &Subject) -> anyhow::Result<bool> {
        let lacks_event =
            |one: &Followed<'_>| one.has_ended && !self.ends.by_task.contains_key(&one.sandbox.instance.task);
        if self.ends.stream.is_some() && self.followed.iter().any(lacks_event) {
            // The list of tasks may be ahead of the event stream.
            let deadline = Instant::now() + POLL_INTERVAL;
            self.ends.wait(self.api, deadline, &self.followed, None).await;
        }
        let ended: Vec<_> = self.followed.extract_if(.., |one| one.has_ended).collect();
        let has_ended = !ended.is_empty();
        for mut followed in ended {
            followed.printer.finish()?;
            let Instance { task, owner, .. } = &followed.sandbox.instance;
            let end = match self.ends.by_task.remove(task) {
                Some(end) => end,
                None => self.last_failure(owner, task).await,
            };
            print_note(format_args!("{} ended: {}", printable(task), printable(&end)));
        }
        Ok(has_ended && matches!(subject, Subject::Task(_)))
    }

    /// How a task ended whose last event was not received.
    async fn last_failure(&self, app: &str, task: &str) -> String {
        let document = self.api.find(&format!("v2/apps{app}")).await.ok().flatten();
        let document = document.unwrap_or_default();
        let failure = &document["app"]["lastTaskFailure"];
        let text = |key: &str| failure[key].as_str().unwrap_or_default();
        if failure["taskId"] == task {
            ended_in(text("state"), text("message"))
        } else {
            "its last state was not received".to_owned()
        }
    }
}

/// Prints what was appended to a stream; at first its last lines.
async fn print_stream(
    followed: &mut Followed<'_>,
    stream: Stream,
    lines: usize,
) -> anyhow::Result<Result<(), ReadError>> {
    let mut pieces = 0;
    // A task that has ended writes no more, so the rest is read to its end.
    while pieces < MAX_PIECES || followed.has_ended {
        pieces += 1;
        let next = followed.next[stream as usize];
        let read = match next {
            None => tail(&followed.sandbox, stream, lines).await,
            Some(_) => followed.sandbox.read(stream, next, PIECE).await,
        };
        let piece = match read {
            Ok(piece) => piece,
            Err(reason) => return Ok(Err(reason)),
        };
        followed.printer.print(stream, &piece.data)?;
        followed.next[stream as usize] = Some(piece.next);
        if next.is_some() && piece.data.is_empty() {
            break;
        }
    }
    Ok(Ok(()))
}
