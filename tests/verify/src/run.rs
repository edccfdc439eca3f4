//! A run: preflight, the stories one after the other, and the clean-up.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use transom_tests::site::copy_components;

use crate::cleanup::clean_up;
use crate::master::Master;
use crate::options::Options;
use crate::preflight;
use crate::report::{Outcome, Report, Verdict};
use crate::site::Site;
use crate::stories::{self, Name};

/// Time for the daemon to start and register.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// Time for the end of a story in addition to its timeout, which limits only its waits.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(45);

/// Verifies the daemon against a master. A failed story is part of the report; an error means that
/// the run could not begin.
pub async fn run(options: Options) -> anyhow::Result<Report> {
    let mut signals = Signals::new()?;
    let stories = options.stories();
    preflight::this_machine(&stories)?;
    let master = Master::new(&options.master, options.credentials())?;
    let version = tokio::select! {
        checked = preflight::cluster(&master, &options) => checked?,
        name = signals.next() => return Err(anyhow!("{name} before the run began")),
    };
    let logs = Logs::new(options.logs.as_deref())?;
    copy_components(&logs.path().join("plugins"));
    let run = format!("transom-verify-{:08x}", rand::random::<u32>());
    let mut site = Site::new(logs.path(), run.clone(), options, master)?;
    site.line(&format!(
        "run {run} on master {} (version {version}); logs in {}",
        site.master.address(),
        logs.path().display()
    ));
    let begun = Instant::now();
    let mut verdicts = Vec::new();
    let interrupted = tokio::select! {
        () = carry_out(&mut site, &stories, &mut verdicts) => false,
        name = signals.next() => {
            eprintln!("{name}: cleaning up; a second signal ends this program at once and leaves the rest to the master");
            true
        }
    };
    if interrupted {
        verdicts.extend(stories[verdicts.len()..].iter().map(|name| not_run(*name)));
    }
    let left_behind = tokio::select! {
        left = clean_up(&mut site) => left,
        name = signals.next() => vec![format!("{name} during the clean-up: frameworks {run}-*")],
    };
    let held = left_behind.is_empty() && verdicts.iter().all(|story| story.outcome == Outcome::Held);
    Ok(Report {
        master: site.master.address(),
        version,
        run,
        held,
        seconds: begun.elapsed().as_secs_f64(),
        stories: verdicts,
        left_behind,
        logs: logs.keep_unless(held),
    })
}

async fn carry_out(site: &mut Site, stories: &[Name], verdicts: &mut Vec<Verdict>) {
    for name in stories {
        let verdict = run_story(site, *name).await;
        verdicts.push(verdict);
    }
}

/// Runs one story, and removes what it left.
async fn run_story(site: &mut Site, name: Name) -> Verdict {
    site.story = name.as_str();
    site.progress(name.title());
    // The first start compiles the components; this time does not belong to the story.
    site.deadline = Instant::now() + START_TIMEOUT;
    let started = match name {
        // This story has its own daemons.
        Name::Leader => Ok(()),
        _ => site.ensure_daemon().await,
    };
    let begun = Instant::now();
    site.deadline = begun + site.options.limit;
    let result = match started {
        Ok(()) => run_with_limit(site, name).await,
        Err(error) => Err(error.context("the daemon could not be started")),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let reason = result.err().map(|error| format!("{error:#}"));
    let logs = match &reason {
        None => {
            site.progress(&format!("held, {seconds:.1} s"));
            Vec::new()
        }
        Some(reason) => {
            site.progress(&format!("FAILED: {reason}"));
            record(site, name).await
        }
    };
    site.deadline = Instant::now() + CLEANUP_TIMEOUT;
    if tokio::time::timeout(CLEANUP_TIMEOUT, site.remove_leftovers())
        .await
        .is_err()
    {
        site.progress("what it left could not be removed in time");
    }
    Verdict {
        name,
        title: name.title(),
        outcome: if reason.is_none() {
            Outcome::Held
        } else {
            Outcome::Failed
        },
        reason,
        seconds,
        logs,
    }
}

async fn run_with_limit(site: &mut Site, name: Name) -> anyhow::Result<()> {
    let limit = site.options.limit + CLEANUP_TIMEOUT;
    match tokio::time::timeout(limit, stories::run(site, name)).await {
        Ok(result) => result,
        Err(_) => Err(anyhow!("it did not end within {} s", limit.as_secs())),
    }
}

fn not_run(name: Name) -> Verdict {
    Verdict {
        name,
        title: name.title(),
        outcome: Outcome::NotRun,
        reason: None,
        seconds: 0.0,
        logs: Vec::new(),
    }
}

/// Records the views of daemon and master after a story failed. Returns the paths of logs and
/// documents.
async fn record(site: &Site, name: Name) -> Vec<PathBuf> {
    let dir = site.dir.join(name.as_str());
    let _ = fs::create_dir_all(&dir);
    let mut documents: Vec<(&str, Value)> = Vec::new();
    if let Ok(frameworks) = site.master.frameworks(&site.run).await {
        let mut tasks = Vec::new();
        for framework in frameworks {
            let seen = site.master.tasks(&framework.id).await.unwrap_or_default();
            tasks.extend(
                seen.iter()
                    .map(|task| Value::from(format!("{} {task:?}", framework.name))),
            );
        }
        documents.push(("master-tasks.json", Value::Array(tasks)));
    }
    for (file, port, path) in [
        ("apps.json", "apps", "/v2/apps"),
        ("tasks.json", "apps", "/v2/tasks"),
        ("deployments.json", "apps", "/v2/deployments"),
        ("queue.json", "apps", "/v2/queue"),
        ("jobs.json", "workflow", "/v0/events?wait=0"),
        ("jobs-queue.json", "workflow", "/v0/queue"),
        ("plugins.json", "admin", "/v1/plugins"),
    ] {
        if let Some(daemon) = &site.daemon
            && let Ok(url) = daemon.url(port, path)
            && let Ok(document) = site.get(&url).await
        {
            documents.push((file, document));
        }
    }
    for (file, document) in documents {
        let _ = fs::write(dir.join(file), format!("{document:#}\n"));
    }
    let mut places = vec![dir];
    let entries = fs::read_dir(&site.dir).into_iter().flatten().flatten();
    places.extend(
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|it| it == "log")),
    );
    places.sort();
    places
}

/// The directory of a run.
enum Logs {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Logs {
    fn new(directory: Option<&Path>) -> anyhow::Result<Self> {
        let Some(dir) = directory else {
            let dir = tempfile::Builder::new().prefix("transom-verify-").tempdir();
            return Ok(Self::Temporary(dir.context("cannot make a temporary directory")?));
        };
        fs::create_dir(dir).with_context(|| {
            format!(
                "--logs {}: expected a directory that does not exist yet, in one that does",
                dir.display()
            )
        })?;
        Ok(Self::Given(fs::canonicalize(dir)?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    /// Removes a temporary directory if everything held; otherwise returns the directory of the
    /// logs.
    fn keep_unless(self, held: bool) -> Option<PathBuf> {
        match self {
            Self::Given(dir) => Some(dir),
            Self::Temporary(_) if held => None,
            Self::Temporary(dir) => Some(dir.keep()),
        }
    }
}

/// The signals that end a run early.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
        }
    }
}
