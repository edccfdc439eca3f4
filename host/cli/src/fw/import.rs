//! `transom fw import`: takes over the state of an m3s.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use serde_json::Value;
use transom_common::Secret;
use transom_config::{Overrides, Settings, parts};
use transom_kubernetes::import::{self, Original};
use transom_kubernetes::{Kind, PerKind};

use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};

/// The timeout of the Redis.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of tasks that are read.
const MAX_TASKS: usize = 10_000;
/// The maximum size of one record in bytes.
const MAX_RECORD: usize = 4 << 20;

/// Take over the state of an m3s: framework id, counts, client configuration and running tasks.
///
/// Stop m3s first, then import, then start the daemon, which subscribes with m3s's framework id:
/// tasks keep running. The records are written to the store that the configuration names. No daemon may
/// lead on that store, and it must contain no records of the framework. m3s's store is not changed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom fw import --config transom.toml --from 127.0.0.1:6379 m3s")]
pub(crate) struct Import {
    /// m3s's framework name, with which its keys begin.
    name: String,
    /// The address of m3s's Redis, HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// The number of its database.
    #[arg(long, value_name = "N", default_value_t = 1)]
    database: u16,
    /// Its password. Prefer the environment variable: other users can read command lines.
    #[arg(long, env = "TRANSOM_M3S_REDIS_PASSWORD", hide_env_values = true)]
    password: Option<Secret>,
    /// The instance that takes over the state, if the configuration has several: NAME of
    /// `[kubernetes.NAME]`.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Configuration file of the daemon.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    /// Only show what would be imported.
    #[arg(long)]
    dry_run: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The outcome as JSON.
#[derive(Debug, Serialize)]
struct ImportReport<'a> {
    imported: bool,
    framework_id: Option<&'a str>,
    counts: PerKind<u32>,
    tasks: &'a PerKind<Vec<String>>,
    client_config: bool,
    notes: &'a [String],
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (settings, _) =
            transom_config::load(Some(&self.config), Overrides::default()).context(Misconfigured)?;
        let service = self.instance(&settings).context(Misconfigured)?;
        let original = self.read().await.context(Unavailable)?;
        let import = import::translate(&original, &service).with_context(|| {
            format!(
                "no records of {:?} in database {} of {}",
                self.name, self.database, self.from
            )
        })?;
        if !self.dry_run {
            let store = parts::store::config(&settings.store).open().await;
            let store = store.context(Unavailable)?;
            transom_store::transfer::check_finished(&*store)
                .await
                .context(Unavailable)?;
            import.write(store, &service).await?;
        }
        let report = ImportReport {
            imported: !self.dry_run,
            framework_id: import.framework_id.as_deref(),
            counts: import.counts,
            tasks: &import.tasks,
            client_config: import.client_config,
            notes: &import.notes,
        };
        output::print(self.output, &report, &["subject", "taken over"], rows(&report))
    }

    /// The configuration of the instance that takes over the state.
    fn instance(&self, settings: &Settings) -> anyhow::Result<transom_kubernetes::Config> {
        let file = self.config.display();
        let instances = settings.kubernetes();
        let sections: Vec<_> = instances.iter().map(|one| one.instance.section).collect();
        let index = choose_section(&sections, self.instance.as_deref())
            .map_err(|problem| anyhow::anyhow!("{file} {problem}"))?;
        Ok(transom_kubernetes::Config::new(instances[index].clone()))
    }

    /// Reads m3s's records.
    async fn read(&self) -> anyhow::Result<Original> {
        let read_all = async {
            let mut redis = self.connect().await?;
            let name = &self.name;
            let mut original = Original {
                framework: json(&mut redis, &format!("{name}:framework")).await?,
                config: json(&mut redis, &format!("{name}:framework_config")).await?,
                client_config: text(&mut redis, &format!("{name}:kubernetes_config")).await?,
                tasks: Vec::new(),
            };
            for kind in Kind::ALL {
                let pattern = format!("{}:{kind}:*", escape_pattern(name));
                for key in keys(&mut redis, &pattern).await? {
                    original.tasks.push(json(&mut redis, &key).await?);
                }
            }
            anyhow::Ok(original)
        };
        let read = tokio::time::timeout(READ_TIMEOUT, read_all).await;
        read.with_context(|| {
            format!(
                "the Redis server at {} did not answer within {READ_TIMEOUT:?}",
                self.from
            )
        })?
    }

    async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let cannot_connect = || format!("cannot connect to the Redis server at {}", self.from);
        let (host, port) = self
            .from
            .rsplit_once(':')
            .with_context(|| format!("--from is {:?}; expected HOST:PORT", self.from))?;
        let port = port
            .parse()
            .with_context(|| format!("--from is {:?}; expected HOST:PORT", self.from))?;
        let mut settings = redis::RedisConnectionInfo::default().set_db(i64::from(self.database));
        if let Some(password) = &self.password {
            settings = settings.set_password(password.reveal());
        }
        let address = redis::ConnectionAddr::Tcp(host.to_owned(), port);
        let info = redis::IntoConnectionInfo::into_connection_info(address)
            .with_context(cannot_connect)?
            .set_redis_settings(settings);
        let client = redis::Client::open(info).with_context(cannot_connect)?;
        client
            .get_multiplexed_async_connection()
            .await
            .with_context(cannot_connect)
    }
}

/// The index of the section that `--instance` names; the error lists the sections of the configuration.
fn choose_section(sections: &[&str], instance: Option<&str>) -> Result<usize, String> {
    let wanted = instance.map(|name| format!("kubernetes.{name}"));
    let section_names: Vec<_> = sections.iter().map(|section| format!("[{section}]")).collect();
    match (wanted, sections) {
        (_, []) => Err("has no section [kubernetes]".to_owned()),
        (None, [_]) => Ok(0),
        (None, _) => Err(format!(
            "has several instances; choose one of {} with --instance",
            section_names.join(", ")
        )),
        (Some(wanted), _) => sections
            .iter()
            .position(|section| *section == wanted)
            .ok_or_else(|| format!("has no section [{wanted}], but {}", section_names.join(", "))),
    }
}

/// Escapes a name for a pattern of Redis keys.
fn escape_pattern(name: &str) -> String {
    let special = |character: char| matches!(character, '*' | '?' | '[' | ']' | '\\');
    name.chars()
        .flat_map(|character| special(character).then_some('\\').into_iter().chain([character]))
        .collect()
}

async fn keys(redis: &mut MultiplexedConnection, pattern: &str) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::new();
    let mut cursor = 0_u64;
    loop {
        let (next, page): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(1000)
            .query_async(redis)
            .await?;
        keys.extend(page);
        if keys.len() > MAX_TASKS {
            bail!("there are more than {MAX_TASKS} keys that match {pattern}");
        }
        if next == 0 {
            // `SCAN` may return a key twice.
            keys.sort();
            keys.dedup();
            return Ok(keys);
        }
        cursor = next;
    }
}

async fn text(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<Option<String>> {
    let length: usize = redis
        .strlen(key)
        .await
        .with_context(|| format!("{key} is not text"))?;
    if length > MAX_RECORD {
        bail!("{key} has {length} bytes; the maximum is {MAX_RECORD}");
    }
    redis
        .get(key)
        .await
        .with_context(|| format!("{key} cannot be read"))
}

async fn json(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<Value> {
    let Some(text) = text(redis, key).await? else {
        return Ok(Value::Null);
    };
    // The parser's error is not used, because its text may quote a password.
    serde_json::from_str(&text).map_err(|_| anyhow::anyhow!("{key} is not JSON"))
}

fn rows<'a>(report: &'a ImportReport<'a>) -> impl Iterator<Item = Vec<String>> + 'a {
    let row = |subject: &str, value: String| vec![subject.to_owned(), value];
    let tasks = Kind::ALL
        .into_iter()
        .flat_map(|kind| report.tasks.of(kind))
        .count();
    let imported_rows = [
        row("framework id", report.framework_id.unwrap_or("no").to_owned()),
        row(
            "counts",
            format!(
                "{} datastores, {} servers, {} agents",
                report.counts.datastore, report.counts.server, report.counts.agent
            ),
        ),
        row("running tasks", tasks.to_string()),
        row(
            "client configuration",
            if report.client_config { "yes" } else { "no" }.to_owned(),
        ),
    ];
    let notes = report.notes.iter().map(move |note| row("note", note.clone()));
    imported_rows.into_iter().chain(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_the_only_one_or_the_one_with_the_name() {
        let two = ["kubernetes.a", "kubernetes.b"];
        for (sections, instance, expected) in [
            (&["kubernetes"][..], None, Ok(0)),
            (&["kubernetes.a"], None, Ok(0)),
            (&two, Some("b"), Ok(1)),
            (&[], None, Err("has no section [kubernetes]")),
            (&[], Some("a"), Err("has no section [kubernetes]")),
            (
                &two,
                None,
                Err("has several instances; choose one of [kubernetes.a], [kubernetes.b] with --instance"),
            ),
            (
                &two,
                Some("c"),
                Err("has no section [kubernetes.c], but [kubernetes.a], [kubernetes.b]"),
            ),
            (
                &["kubernetes"],
                Some("a"),
                Err("has no section [kubernetes.a], but [kubernetes]"),
            ),
        ] {
            let chosen = choose_section(sections, instance);
            assert_eq!(
                chosen,
                expected.map_err(str::to_owned),
                "{sections:?} {instance:?}"
            );
        }
    }
}
