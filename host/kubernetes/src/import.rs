//! Imports the state of an m3s: its framework id, its counts, its client configuration, and its tasks,
//! which keep running.
//!
//! [`translate`] is pure: the caller reads m3s's store. [`Import::write`] writes to a store that has no
//! leader and no records of this framework.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use transom_cluster::v1::{self, TaskState};
use transom_common::HostPort;
use transom_framework::Framework;
use transom_scheduler::{AgentLocation, FRAMEWORK_ID_KEY, Launched, TaskRecord};
use transom_store::transfer::{self, Holds};
use transom_store::typed;
use transom_store::{Batch, Expect, Store};

use crate::config::Config;
use crate::core::persist::{self, StoredClientConfig, Wanted};
use crate::core::version::IMPORTED;
use crate::kind::{Kind, PerKind};
use crate::orchestrator::ClientConfig;
use crate::task::{Launch, Metadata};

/// The records of an m3s, as its Redis contains them.
#[derive(Clone, Debug, Default)]
pub struct Original {
    /// `<name>:framework`.
    pub framework: Value,
    /// `<name>:framework_config`.
    pub config: Value,
    /// `<name>:kubernetes_config`.
    pub client_config: Option<String>,
    /// `<name>:datastore:*`, `<name>:server:*`, `<name>:agent:*`.
    pub tasks: Vec<Value>,
}

/// The parts of an m3s's state that the import takes over.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The framework's id.
    pub framework_id: Option<String>,
    /// The wanted counts.
    pub counts: PerKind<u32>,
    /// The running tasks, by kind.
    pub tasks: PerKind<Vec<String>>,
    /// Whether the client configuration is taken over.
    pub client_config: bool,
    /// Sentences about what the import leaves out or changes.
    pub notes: Vec<String>,
    records: BTreeMap<String, Bytes>,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The store of m3s has no state to import.
    #[error("there are no records of an m3s with this name")]
    Nothing,
    /// A daemon leads on the store.
    #[error(transparent)]
    Held(#[from] transfer::Error),
    /// The store has records of the framework.
    #[error(
        "the store has records of this framework already: {0}; use an empty store, or another framework_name"
    )]
    NotEmpty(String),
    /// The store failed.
    #[error("the state store failed")]
    Store(#[source] typed::Error),
}

impl From<typed::Error> for ImportError {
    fn from(error: typed::Error) -> Self {
        Self::Store(error)
    }
}

/// Translates m3s's records to the records with which a daemon of this configuration continues.
///
/// # Errors
/// [`ImportError::Nothing`].
pub fn translate(original: &Original, config: &Config) -> Result<Import, ImportError> {
    if original.framework.is_null() && original.config.is_null() {
        return Err(ImportError::Nothing);
    }
    let mut import = Import::default();
    let id = original.framework["FrameworkInfo"]["id"]["value"].as_str();
    import.framework_id = id.filter(|id| !id.is_empty()).map(str::to_owned);
    match &import.framework_id {
        Some(id) => {
            let id = Bytes::from(id.clone());
            import.records.insert(FRAMEWORK_ID_KEY.to_owned(), id);
        }
        None => import
            .notes
            .push("m3s has no framework id: its tasks cannot be taken over".to_owned()),
    }
    let name = original.framework["FrameworkName"].as_str().unwrap_or_default();
    if name != config.name() {
        import.notes.push(format!(
            "m3s's framework is named {name:?} and `framework_name` is {:?}: tasks get other names from their next \
             launch on",
            config.name()
        ));
    }
    let wanted = wanted(&original.config, config);
    import.counts = wanted.counts;
    insert_record(&mut import.records, persist::WANTED, &wanted)?;
    if let (None, Some(token)) = (&config.settings.orch_token, original.config["K3SToken"].as_str()) {
        insert_record(&mut import.records, persist::TOKEN, &token)?;
    }
    if import.framework_id.is_some() {
        tasks(original, config, &mut import)?;
    }
    client_config(original, &mut import)?;
    Ok(import)
}

/// The counts, and whether nodes are cordoned. The counts in the current configuration apply only if
/// m3s has none, or when they change later.
fn wanted(original: &Value, config: &Config) -> Wanted {
    let configured = PerKind::from_fn(|kind| config.kinds.of(kind).count);
    let count = |suffix: &str| {
        PerKind::from_fn(|kind| {
            let name = match kind {
                Kind::Datastore => "DSMax",
                Kind::Server => "K3SServerMax",
                Kind::Agent => "K3SAgentMax",
            };
            let stored = original[format!("{name}{suffix}")].as_u64();
            stored.and_then(|count| u32::try_from(count).ok())
        })
    };
    let (counts, restored) = (count(""), count("Restore"));
    let restore = PerKind::from_fn(|kind| restored.of(kind).unwrap_or_default());
    Wanted {
        counts: PerKind::from_fn(|kind| {
            let count = counts.of(kind).unwrap_or(*configured.of(kind));
            count.min(config.settings.max_scale)
        }),
        configured,
        restore: (restore != PerKind::default()).then_some(restore),
        cordoned: original["K3SDisableScheduling"] == true,
        ..Wanted::default()
    }
}

/// Translates the records of running tasks. The tasks get numbers in the order of their last change
/// of state.
fn tasks(original: &Original, config: &Config, import: &mut Import) -> Result<(), ImportError> {
    let mut tasks: Vec<&Value> = original.tasks.iter().collect();
    tasks.sort_by_key(|task| task["StateTime"].as_str().unwrap_or_default().to_owned());
    let mut next = PerKind::<u32>::default();
    for task in tasks {
        let id = task["TaskID"].as_str().unwrap_or_default();
        let name = task["task_name"].as_str().unwrap_or_default();
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| name.ends_with(&format!(":{kind}")));
        let state = task["State"].as_str().unwrap_or_default();
        let agent = task["Agent"].as_str().filter(|agent| !agent.is_empty());
        let (Some(kind), Some(agent)) = (kind, agent) else {
            import.notes.push(format!(
                "task {id} ({name}) was not launched; it is not taken over"
            ));
            continue;
        };
        let state: TaskState = serde_json::from_value(Value::from(state)).unwrap_or(TaskState::Staging);
        let mut record = record(id, agent, &state, task, config, kind);
        if record.is_terminal() {
            import
                .notes
                .push(format!("task {id} ({name}) has ended; it is not taken over"));
            continue;
        }
        let number = next.of_mut(kind);
        let metadata = Metadata {
            kind,
            number: *number,
            incarnation: 1,
        };
        *number += 1;
        record.metadata = Arc::new(serde_json::to_value(metadata).unwrap_or_default());
        insert_record(&mut import.records, &record.key(), &record)?;
        import.tasks.of_mut(kind).push(id.to_owned());
    }
    Ok(())
}

fn record(id: &str, agent: &str, state: &TaskState, task: &Value, config: &Config, kind: Kind) -> TaskRecord {
    let host = &task["MesosAgent"];
    let hostname = host["hostname"].as_str().unwrap_or_default().to_owned();
    let port = host["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let mappings = task["port_mappings"].as_array();
    let host_ports = mappings.into_iter().flatten().filter_map(|mapping| {
        let port = mapping["host_port"].as_u64()?;
        u16::try_from(port).ok()
    });
    let known: Option<Timestamp> = task["StateTime"].as_str().and_then(|text| text.parse().ok());
    let known = known.filter(|at| *at > Timestamp::UNIX_EPOCH);
    let view = v1::Task {
        name: Launch::name(config, kind),
        task_id: id.into(),
        framework_id: "".into(),
        agent_id: agent.into(),
        state: state.clone(),
        ..v1::Task::default()
    };
    TaskRecord::of_launched(
        &view,
        Launched {
            run_spec: Launch::name(config, kind),
            version: IMPORTED.to_owned(),
            group: None,
            agent: Arc::new(AgentLocation {
                id: agent.into(),
                endpoint: port.map(|port| HostPort::new(&hostname, port)),
                hostname,
                region: None,
                zone: None,
            }),
            agent_attributes: Arc::default(),
            host_ports: host_ports.collect(),
            staged_at: known,
            started_at: known.filter(|_| *state == TaskState::Running),
        },
    )
}

fn client_config(original: &Original, import: &mut Import) -> Result<(), ImportError> {
    let Some(text) = &original.client_config else {
        return Ok(());
    };
    let host = original.config["K3SServerHostname"].as_str().unwrap_or_default();
    let port = original.config["K3SServerPort"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok());
    let (false, Some(port)) = (host.is_empty(), port) else {
        import.notes.push(
            "m3s does not know the address of its server: the client configuration is not taken over, and the server \
             is replaced after `orch_node_timeout` unless it writes one into its sandbox"
                .to_owned(),
        );
        return Ok(());
    };
    if let Err(error) = ClientConfig::parse(text) {
        import
            .notes
            .push(format!("the client configuration is not taken over: {error}"));
        return Ok(());
    }
    let stored = StoredClientConfig {
        text: text.clone(),
        address: HostPort::new(host, port),
        // The daemon finds the server's task by the address.
        task: String::new(),
    };
    insert_record(&mut import.records, persist::CLIENT_CONFIG, &stored)?;
    import.client_config = true;
    Ok(())
}

fn insert_record<T: serde::Serialize>(
    records: &mut BTreeMap<String, Bytes>,
    key: &str,
    record: &T,
) -> Result<(), ImportError> {
    let encoded = serde_json::to_vec(record).map_err(|source| typed::Error::Record {
        key: key.to_owned(),
        source,
    })?;
    records.insert(key.to_owned(), encoded.into());
    Ok(())
}

impl Import {
    /// Writes the records under the framework's name, all of them or none.
    ///
    /// # Errors
    /// The reason why nothing was written. After [`ImportError::Store`] it is unknown whether records
    /// were written.
    pub async fn write(&self, store: Arc<dyn Store>, config: &Config) -> Result<(), ImportError> {
        let holds = Holds::acquire(store, [Framework::lease(config.name())]).await?;
        let written = self.write_with(holds.store(), config).await;
        holds.release().await;
        written
    }

    async fn write_with(&self, store: Arc<dyn Store>, config: &Config) -> Result<(), ImportError> {
        let folder = format!("{}/", config.name());
        let present = typed::with_timeout(typed::TIMEOUT, store.scan(&folder)).await?;
        let of_daemons = format!("{folder}daemons/");
        if let Some(entry) = present.iter().find(|entry| !entry.key.starts_with(&of_daemons)) {
            return Err(ImportError::NotEmpty(entry.key.clone()));
        }
        let batch = self.records.iter().fold(Batch::new(), |batch, (key, value)| {
            batch.put(format!("{folder}{key}"), value.clone(), Expect::Absent)
        });
        typed::with_timeout(typed::TIMEOUT, store.commit(batch)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::config;

    fn original() -> Original {
        let task = |kind: &str, id: &str, state: &str, at: &str, ports: &[u16]| {
            let mappings: Vec<Value> = ports.iter().map(|port| json!({"host_port": port})).collect();
            json!({
                "task_name": format!("m3s:{kind}"), "TaskID": id, "State": state, "StateTime": at,
                "Agent": if state == "__NEW" { "" } else { "agent-1" },
                "MesosAgent": {"hostname": "agent1.test", "port": 5051}, "port_mappings": mappings,
            })
        };
        Original {
            framework: json!({"FrameworkName": "m3s", "FrameworkInfo": {"id": {"value": "fw-0001"}}}),
            config: json!({
                "DSMax": 1, "K3SServerMax": 1, "K3SAgentMax": 3, "K3SToken": "tok", "K3SServerHostname": "agent1.test",
                "K3SServerPort": 31000, "K3SDisableScheduling": true, "K3SAgentMaxRestore": 0,
            }),
            client_config: Some(
                "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: default\n".to_owned(),
            ),
            tasks: vec![
                task(
                    "agent",
                    "a-2",
                    "TASK_RUNNING",
                    "2026-11-20T09:00:00Z",
                    &[31006, 31007],
                ),
                task(
                    "agent",
                    "a-1",
                    "TASK_RUNNING",
                    "2026-11-20T08:00:00Z",
                    &[31004, 31005],
                ),
                task("agent", "a-3", "__NEW", "2026-11-20T10:00:00Z", &[31008, 31009]),
                task(
                    "server",
                    "s-1",
                    "TASK_RUNNING",
                    "2026-11-20T07:00:00Z",
                    &[31000, 31003],
                ),
                task(
                    "datastore",
                    "d-1",
                    "TASK_FAILED",
                    "2026-11-20T07:00:00Z",
                    &[31001],
                ),
            ],
        }
    }

    fn record(import: &Import, key: &str) -> Value {
        serde_json::from_slice(&import.records[key]).unwrap()
    }

    #[test]
    fn id_counts_client_configuration_and_running_tasks_are_taken_over() {
        let import = translate(&original(), &config()).unwrap();
        assert_eq!(import.records[FRAMEWORK_ID_KEY], Bytes::from("fw-0001"));
        let expected = PerKind {
            datastore: 1,
            server: 1,
            agent: 3,
        };
        assert_eq!(import.counts, expected);
        assert_eq!(record(&import, persist::TOKEN), "tok");
        let wanted: Wanted = serde_json::from_value(record(&import, persist::WANTED)).unwrap();
        assert!(wanted.cordoned && wanted.restore.is_none());
        let stored: StoredClientConfig =
            serde_json::from_value(record(&import, persist::CLIENT_CONFIG)).unwrap();
        assert_eq!(stored.address, HostPort::new("agent1.test", 31000));
        assert_eq!((import.tasks.agent.len(), import.tasks.server.len()), (2, 1));
        let second = record(&import, "tasks/a-2");
        assert_eq!(
            second["metadata"],
            json!({"kind": "agent", "number": 1, "incarnation": 1})
        );
        assert_eq!(
            (&second["phase"], &second["version"]),
            (&json!("Launched"), &json!(IMPORTED))
        );
        assert_eq!(second["host_ports"], json!([31006, 31007]));
        assert_eq!(import.notes.len(), 2, "{:?}", import.notes);
    }

    #[test]
    fn missing_state_is_named_in_notes() {
        assert!(matches!(
            translate(&Original::default(), &config()),
            Err(ImportError::Nothing)
        ));
        let mut partial = original();
        partial.framework = json!({"FrameworkName": "prod"});
        partial.config = json!({"K3SAgentMax": -1});
        let import = translate(&partial, &config()).unwrap();
        assert!(import.framework_id.is_none() && !import.client_config);
        assert_eq!(import.counts.agent, 1, "the count of the configuration");
        let notes = import.notes.join("\n");
        for expected in ["no framework id", "named \"prod\"", "address of its server"] {
            assert!(notes.contains(expected), "{expected}: {notes}");
        }
    }

    #[tokio::test]
    async fn a_store_with_records_or_a_leader_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let server = format!("file:{}", folder.path().display());
        let store = transom_store::Config::new(&server).open().await.unwrap();
        let (import, config) = (translate(&original(), &config()).unwrap(), config());
        let lease = store
            .acquire("m3s/leader", "x host:1", std::time::Duration::from_mins(1))
            .await
            .unwrap();
        let led = import.write(Arc::clone(&store), &config).await;
        assert!(
            matches!(&led, Err(ImportError::Held(transfer::Error::Led { holder, .. })) if holder == "host:1"),
            "{led:?}"
        );
        store.release(&lease).await.unwrap();
        import.write(Arc::clone(&store), &config).await.unwrap();
        let again = import.write(Arc::clone(&store), &config).await;
        assert!(matches!(again, Err(ImportError::NotEmpty(_))), "{again:?}");
    }
}
