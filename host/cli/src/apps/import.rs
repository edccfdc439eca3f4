//! `transom apps import`: takes over the apps and running tasks of a Marathon, or restores a backup.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use transom_apps::migration::{self, Backup, Carried, Finding, Records, Report, Target};
use transom_common::{Secret, ZooKeeperPath};

use super::daemon_config::DaemonConfig;
use super::marathon::{self, Api};
use super::marathon_state;
use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};

/// The largest backup in bytes.
const MAX_BACKUP: u64 = 1 << 30;

/// Take over the apps, pods, groups and running tasks of a Marathon, or restore a document of
/// `transom apps export`.
///
/// The records are written to the store that the configuration names. No daemon may lead on that store,
/// and it must contain no apps. If anything cannot be imported, nothing is written. The import can be
/// repeated until a daemon has led on the store.
///
/// From a Marathon: either it runs, and its API is read, or all its processes are stopped, and its
/// state in ZooKeeper is read (Marathon 1.5 to 1.11). Then start the daemon while Marathon is stopped: it
/// subscribes with Marathon's framework id, and tasks keep running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps import --from http://marathon:8080 --config transom.toml --dry-run\n  \
    transom apps import --from zk://zk1:2181,zk2:2181/marathon --config transom.toml --dry-run\n  \
    transom apps import --file apps.json --config transom.toml")]
pub(crate) struct Import {
    /// URL of the Marathon, or the ZooKeeper path of a stopped one, as its `--zk` names it.
    #[arg(long, value_name = "URL", required_unless_present = "file")]
    from: Option<String>,
    /// A document of `transom apps export`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "master"])]
    file: Option<PathBuf>,
    /// The leading master of Marathon's cluster. Default: `cluster.master` of the configuration,
    /// whose credentials are used in both cases.
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// Marathon's user (`--http_credentials`), or that of its `--zk`, if it requires one.
    #[arg(long, env = "TRANSOM_MARATHON_USERNAME", value_name = "NAME")]
    username: Option<String>,
    /// Marathon's password. Prefer the environment variable: other users can read command lines.
    #[arg(long, env = "TRANSOM_MARATHON_PASSWORD", hide_env_values = true)]
    password: Option<Secret>,
    /// Configuration file of the daemon.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    /// Only show what would be imported and what differs.
    #[arg(long)]
    dry_run: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The outcome as JSON.
#[derive(Debug, Serialize)]
struct ImportReport<'a> {
    /// Whether the records were written.
    imported: bool,
    #[serde(flatten)]
    report: &'a Report,
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let daemon_config = DaemonConfig::load(&self.config)?;
        let (mut report, records) = match (&self.file, &self.from) {
            (Some(file), _) => read_backup(file, &daemon_config)?,
            (None, Some(from)) => self.read_marathon(from, &daemon_config).await?,
            (None, None) => bail!("either --from or --file is required"),
        };
        // A dry run creates no store.
        let target = if self.dry_run && !daemon_config.has_store()? {
            None
        } else {
            match daemon_config.store().await {
                Ok(store) => Some(Target::new(store, daemon_config.apps.framework_name.clone())),
                Err(error) if self.dry_run => {
                    report.reject("store", format!("{}.", error_line(&error)));
                    None
                }
                Err(error) => return Err(error),
            }
        };
        if let Some(target) = &target
            && let Err(error) = target.check(&records).await
        {
            report.reject("store", format!("{}.", error_line(&error.into())));
        }
        let accepted = report.is_accepted();
        let imported = match &target {
            Some(target) if accepted && !self.dry_run => {
                target.write(&records).await.context(Unavailable)?;
                true
            }
            _ => false,
        };
        self.print(&report, imported)?;
        if !accepted {
            let rejected = report
                .findings
                .iter()
                .filter(|finding| finding.kind == migration::Kind::Rejected);
            bail!(
                "nothing was imported: {} findings prevent the import",
                rejected.count()
            );
        }
        Ok(())
    }

    /// Converts the state of a Marathon, running or stored, to records.
    async fn read_marathon(
        &self,
        from: &str,
        daemon_config: &DaemonConfig,
    ) -> anyhow::Result<(Report, Records)> {
        let credentials = match (&self.username, &self.password) {
            (Some(user), password) => {
                let password = password.as_ref().map_or("", |password| password.reveal());
                Some((user.clone(), password.to_owned()))
            }
            (None, Some(_)) => bail!("--password is given without --username"),
            (None, None) => None,
        };
        let max_versions = daemon_config.apps.max_versions;
        let marathon = if from.starts_with(ZooKeeperPath::SCHEME) {
            marathon_state::read(from, credentials, max_versions).await?
        } else {
            let api = Api::new(from, credentials).context(Misconfigured)?;
            marathon::read(&api, max_versions).await.context(Unavailable)?
        };
        let cluster = daemon_config.cluster(self.master.as_deref())?;
        let state = cluster.get_state().await;
        cluster.close().await;
        let state = state
            .context("the master's state (GET_STATE) cannot be read")
            .context(Unavailable)?;
        Ok(migration::translate(
            &marathon,
            &state,
            &daemon_config.apps,
            &daemon_config.framework,
        ))
    }

    fn print(&self, report: &Report, imported: bool) -> anyhow::Result<()> {
        let document = ImportReport { imported, report };
        let status = if imported { "imported" } else { "can be imported" };
        let carried = report.carried.iter().map(|one| imported_row(one, status));
        let findings = report.findings.iter().map(finding_row);
        let rows = findings.chain(carried);
        output::print(self.output, &document, &["subject", "result", "detail"], rows)
    }
}

fn finding_row(finding: &Finding) -> Vec<String> {
    vec![
        finding.subject.clone(),
        finding.kind.word().to_owned(),
        finding.text.clone(),
    ]
}

fn imported_row(carried: &Carried, status: &str) -> Vec<String> {
    let detail = match carried.kind {
        "group" => carried.kind.to_owned(),
        kind => format!(
            "{kind}, {}, {}",
            with_plural(carried.versions, "version"),
            with_plural(carried.tasks, "task")
        ),
    };
    vec![carried.id.clone(), status.to_owned(), detail]
}

fn with_plural(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Reads the records of a backup.
fn read_backup(file: &Path, daemon_config: &DaemonConfig) -> anyhow::Result<(Report, Records)> {
    let cannot_read = || format!("cannot read {}", file.display());
    let mut text = Vec::new();
    let opened = File::open(file).with_context(cannot_read).context(Unavailable)?;
    opened
        .take(MAX_BACKUP + 1)
        .read_to_end(&mut text)
        .with_context(cannot_read)
        .context(Unavailable)?;
    if text.len() as u64 > MAX_BACKUP {
        bail!("{} is larger than {MAX_BACKUP} bytes", file.display());
    }
    let backup = Backup::parse(&text).with_context(|| format!("{} cannot be imported", file.display()))?;
    let mut report = Report::default();
    if backup.framework() != daemon_config.apps.framework_name {
        report.differs(
            "apps.framework_name",
            format!(
                "The backup is from the framework {:?}, and this configuration names the framework {:?}: the DNS names of \
                 tasks will contain the new name.",
                backup.framework(),
                daemon_config.apps.framework_name
            ),
        );
    }
    report.carried = backup.carried();
    let records = backup.into_records();
    report.framework_id = records.framework_id().map(str::to_owned);
    Ok((report, records))
}

/// An error with its causes.
fn error_line(error: &anyhow::Error) -> String {
    let texts = error.chain().map(ToString::to_string);
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(": ")
}
