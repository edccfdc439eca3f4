//! `transom plugin dev`: builds and tests a project after each change, and has the daemon serve it.
//!
//! A failure (of the build, a self-test, a case, or the daemon's admission) changes nothing in the
//! daemon: the last version that passed keeps serving.

mod daemon;
mod follow;
mod watch;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::printable;
use transom_plugin_tools::workbench::{ComponentFiles, Verdict, Workbench};

use super::build::{Built, Kind, Project};
use super::cache::CacheArgs;
use super::input::{bytes, read_cases};
use super::served::Admission;
use super::test::print_failure;
use crate::admin_port::Connection;
use crate::exit::Misconfigured;
use crate::output::print_note;
use crate::signals::stop_on_signal;
use daemon::Daemon;
use follow::Follower;
use watch::{Watch, fingerprint};

/// Build a plugin project, test it and have a running daemon serve it, again after each change, and
/// show its log and its calls in between.
///
/// Each round runs the steps of `build`, `check` and `test`, and then copies the component and its
/// manifest to the daemon's plugin directory, which has to be on this machine. If a step fails, the
/// previous version keeps serving. Ctrl-C ends the command; the last version keeps serving.
#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Project folder.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Name that the plugin gets in the daemon, such as `events` to serve in place of the
    /// first-party filter. Default: the project's name.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// The daemon's plugin directory. Default: the directory that the daemon reports.
    #[arg(long, value_name = "DIR")]
    plugins: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    connection: Connection,
}

impl Dev {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let project = Project::find(&self.dir).context(Misconfigured)?;
        let name = self.name.clone().unwrap_or_else(|| project.name.clone());
        let daemon = Daemon::find(self.connection, name, self.plugins.as_deref()).await?;
        let workbench = self.cache.apply_for(&daemon.dir, Workbench::new()?)?;
        let token = CancellationToken::new();
        stop_on_signal(token.clone())?;
        print_status(format_args!(
            "{} ({}, {}) is served as {} from {}",
            project.dir.display(),
            project.world.name(),
            language(project.kind),
            daemon.plugin.name,
            daemon.dir.display()
        ));
        let mut watch = Watch::new(&project.dir)?;
        let mut follower = Follower::new(&daemon.plugin).await?;
        let mut built = None;
        while !token.is_cancelled() {
            let current = fingerprint(&project.dir);
            if built.as_ref() != Some(&current) {
                built = Some(current);
                tokio::select! {
                    () = token.cancelled() => break,
                    () = build_and_report(&project.dir, &daemon, &workbench) => {}
                }
                print_status("waiting for changes; Ctrl-C ends this command");
            }
            watch.watch_new_folders()?;
            tokio::select! {
                () = token.cancelled() => {}
                () = watch.changed() => {}
                never = follower.follow() => match never {}
            }
        }
        print_status(daemon.plugin.serving_text().await);
        Ok(())
    }
}

/// Prints a line. A closed standard output is ignored, so that the command continues.
fn print_status(line: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

fn language(kind: Kind) -> &'static str {
    match kind {
        Kind::Rust => "Rust",
        Kind::Python => "Python",
        Kind::JavaScript => "JavaScript",
    }
}

/// Builds, tests and serves the project once, and reports the result.
async fn build_and_report(dir: &Path, daemon: &Daemon, workbench: &Workbench) {
    print_status("building");
    let started = Instant::now();
    match build_test_and_serve(dir, daemon, workbench).await {
        Ok(admission) => {
            print_status(format_args!(
                "{admission}, after {:.1} s",
                started.elapsed().as_secs_f64()
            ));
        }
        Err(error) => {
            let messages: Vec<String> = error.chain().map(ToString::to_string).collect();
            for line in messages.join(": ").lines() {
                print_note(printable(line));
            }
            print_status(format_args!(
                "nothing was changed in the daemon: {}",
                daemon.plugin.serving_text().await
            ));
        }
    }
}

async fn build_test_and_serve(
    dir: &Path,
    daemon: &Daemon,
    workbench: &Workbench,
) -> anyhow::Result<Admission> {
    // Read again in each round, because the manifest or the language may have changed.
    let project = Project::find(dir)?;
    let built = project.build_into(&project.dir.join("out")).await?;
    print_status(format_args!(
        "built {} ({})",
        built.path.display(),
        bytes(built.component.len() as u64)
    ));
    test(&project, &built, workbench).await?;
    daemon.serve(&built).await
}

/// Runs the admission stages of `transom plugin check`, and the cases as `transom plugin test` does.
async fn test(project: &Project, built: &Built, workbench: &Workbench) -> anyhow::Result<()> {
    let manifest = String::from_utf8(built.manifest.clone())
        .with_context(|| format!("{}.toml is not UTF-8", project.name))?;
    let files = ComponentFiles::new(&project.name, built.component.clone(), manifest);
    let mut candidate = workbench.admit(&files).await?;
    candidate.self_tests().await?;
    let files = ["cases.toml", "cases.json"].map(|name| project.dir.join(name));
    let Some(file) = files.into_iter().find(|it| it.is_file()) else {
        print_status("there is no cases.toml: only the manifest's self-tests were run");
        return Ok(());
    };
    let (cases, ..) = read_cases(&file)?;
    let reports = candidate.test(&cases).await;
    let failed: Vec<_> = reports
        .iter()
        .filter(|it| it.verdict != Verdict::Passed)
        .collect();
    for report in &failed {
        print_failure(report);
    }
    match failed.len() {
        0 => print_status(format_args!("{} cases passed", reports.len())),
        failures => bail!("{failures} of {} cases failed", reports.len()),
    }
    Ok(())
}
