//! `transom store check`: reads everything in a store and reports damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use transom_cli::output::{Output, print_text, table};
use transom_framework::Framework;
use transom_scheduler::FRAMEWORK_ID_KEY;
use transom_store::transfer::{self, Contents, Error, Progress, Snapshot};
use transom_store::{Entry, Store, typed};

use super::exit;
use super::location::StoreArgument;
use super::records::{Owner, owner, problem};

/// Read every record of a store, decode it as its service does, and report what is damaged.
///
/// Nothing is changed. The daemons may run, except that of an embedded store, which only one process can
/// have open.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no problems (unknown records may be shown); 1 damaged records, records of a newer \
    version, or an unfinished copy; 2 invalid command line or configuration; 3 the store is unavailable.\n\n\
    Examples:\n  \
    transom store check --store /etc/transom/transom.toml\n  \
    transom store check --store 10.0.0.20:6379 --output json | jq .frameworks"
)]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    store: StoreArgument,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The records of a framework.
#[derive(Debug, Default, Serialize)]
struct FrameworkRecords {
    name: String,
    /// `apps`, `workflow` or `kubernetes`; `None` if it has no records of its own yet.
    service: Option<&'static str>,
    framework_id: Option<String>,
    tasks: u64,
    apps: u64,
    jobs: u64,
    records: u64,
    bytes: u64,
    /// The address of the leader.
    leader: Option<String>,
}

/// A record that is not as expected.
#[derive(Debug, Serialize)]
struct Problem {
    key: String,
    problem: String,
}

#[derive(Debug, Serialize)]
struct Report {
    server: String,
    #[serde(flatten)]
    contents: Contents,
    frameworks: Vec<FrameworkRecords>,
    damaged: Vec<Problem>,
    /// Keys that no service of this version has.
    unknown: Vec<String>,
    unfinished: Option<Progress>,
}

impl Check {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let location = self.store.location()?;
        let store = location.open().await?;
        let unfinished = transfer::unfinished(&*store).await.map_err(exit)?;
        let snapshot = Snapshot::of_store(&*store).await.map_err(exit)?;
        let mut report = Report::new(location.shown(), &snapshot);
        report.unfinished = unfinished;
        for framework in &mut report.frameworks {
            framework.leader = leader(&store, &framework.name).await.map_err(exit)?;
        }
        print_text(self.output, &report, &report.text())?;
        match (report.damaged.len(), &report.unfinished) {
            (0, None) => Ok(()),
            (0, Some(_)) => bail!("the store has an unfinished copy"),
            (1, _) => bail!("1 record cannot be used"),
            (count, _) => bail!("{count} records cannot be used"),
        }
    }
}

/// The address of the leader of a framework.
async fn leader(store: &Arc<dyn Store>, framework: &str) -> transfer::Result<Option<String>> {
    let name = Framework::lease(framework);
    let lease = typed::with_timeout(typed::TIMEOUT, store.lease(&name)).await;
    let lease = lease.map_err(|source| Error::Store {
        doing: "reading who leads",
        source,
    })?;
    Ok(lease.map(|lease| {
        let address = lease
            .holder
            .split_once(' ')
            .map(|(_, address)| address.to_owned());
        address.unwrap_or(lease.holder)
    }))
}

impl Report {
    fn new(server: String, snapshot: &Snapshot) -> Self {
        let mut frameworks: BTreeMap<&str, FrameworkRecords> = BTreeMap::new();
        let (mut damaged, mut unknown) = (Vec::new(), Vec::new());
        for entry in snapshot.entries() {
            let owner = owner(&entry.key);
            match owner {
                Owner::Framework { name, key, service } => {
                    frameworks.entry(name).or_default().add(key, service, entry);
                }
                Owner::Site => {}
                Owner::Unknown => unknown.push(entry.key.clone()),
            }
            if let Some(problem) = problem(entry, &owner) {
                let key = entry.key.clone();
                damaged.push(Problem { key, problem });
            }
        }
        let named = frameworks.into_iter().map(|(name, records)| FrameworkRecords {
            name: name.to_owned(),
            ..records
        });
        Self {
            server,
            contents: snapshot.contents().clone(),
            frameworks: named.collect(),
            damaged,
            unknown,
            unfinished: None,
        }
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.frameworks.is_empty() {
            let headings = [
                "framework",
                "service",
                "id",
                "tasks",
                "apps",
                "jobs",
                "records",
                "bytes",
                "leader",
            ];
            parts.push(table(
                &headings,
                self.frameworks.iter().map(FrameworkRecords::row),
            ));
        }
        let unknown = self.unknown.iter().map(|key| Problem {
            key: key.clone(),
            problem: "unknown: no service of this version has such a key".to_owned(),
        });
        let unknown: Vec<Problem> = unknown.collect();
        let problems = self.damaged.iter().chain(&unknown);
        let rows: Vec<_> = problems
            .map(|one| vec![one.key.clone(), one.problem.clone()])
            .collect();
        if !rows.is_empty() {
            parts.push(table(&["record", "problem"], rows));
        }
        if let Some(Progress {
            from,
            contents,
            copied,
            ..
        }) = &self.unfinished
        {
            parts.push(format!(
                "An unfinished copy from {from}: {copied} of {} entries. Repeat the `transom store copy` or `restore` that \
                 wrote it; daemons reject this store until then.",
                contents.entries
            ));
        }
        parts.push(format!(
            "{}: {} records, {} bytes, {} of them damaged or newer, {} unknown",
            self.server,
            self.contents.entries,
            self.contents.bytes,
            self.damaged.len(),
            self.unknown.len()
        ));
        parts.join("\n\n")
    }
}

impl FrameworkRecords {
    fn add(&mut self, key: &str, service: Option<&'static str>, entry: &Entry) {
        self.records += 1;
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
        self.service = self.service.or(service);
        match key.split_once('/').map_or(key, |(folder, _)| folder) {
            FRAMEWORK_ID_KEY => {
                self.framework_id = Some(String::from_utf8_lossy(&entry.value).trim().to_owned());
            }
            "tasks" => self.tasks += 1,
            "apps" => self.apps += 1,
            "jobs" => self.jobs += 1,
            _ => {}
        }
    }

    fn row(&self) -> Vec<String> {
        let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
        vec![
            self.name.clone(),
            text(self.service),
            text(self.framework_id.as_deref()),
            self.tasks.to_string(),
            self.apps.to_string(),
            self.jobs.to_string(),
            self.records.to_string(),
            self.bytes.to_string(),
            text(self.leader.as_deref()),
        ]
    }
}
