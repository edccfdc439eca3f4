//! The stored data of the service, under the framework's name:
//!
//! | key | record |
//! |---|---|
//! | `wanted` | [`Wanted`] |
//! | `token` | the token with which servers and agents join, if none is configured |
//! | `datastore` | [`DatastoreRecord`]: the secrets of the datastore |
//! | `client-config` | [`StoredClientConfig`] |
//! | `kvstore` | [`KvstoreRecord`] |
//! | `backup` | [`backup::State`]: the backup or restore under way, and how the last ones ended |
//!
//! Tasks and the framework's id are the scheduler's records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_cluster::TaskId;
use transom_common::{HostPort, Secret};
use transom_store::typed::{Changes, TypedStore};
use transom_store::{Expect, Store};

use super::command::Resource;
use crate::autoscale::Autoscaled;
use crate::backup;
use crate::config::{Config, KindConfig};
use crate::kind::{Kind, PerKind};
use crate::kvstore::KvstoreRecord;
use crate::secrets::{self, DatastoreRecord, InUse};
use crate::settings::Engine;
use crate::{Error, Result};

/// The key of the wanted state.
pub(crate) const WANTED: &str = "wanted";
/// The key of the token.
pub(crate) const TOKEN: &str = "token";
/// The key of the datastore's secrets.
pub(crate) const DATASTORE: &str = "datastore";
/// The key of the client configuration that is served.
pub(crate) const CLIENT_CONFIG: &str = "client-config";
/// The key of backups and restores.
const BACKUP: &str = "backup";

/// The key of the kvstore's members.
pub(crate) const KVSTORE: &str = "kvstore";

/// The wanted state. Only requests, a changed configuration and the autoscaler change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) counts: PerKind<u32>,
    /// The counts in the configuration when it was last read. If the configuration now has another
    /// count, an operator has changed it, and it replaces the stored count.
    pub(crate) configured: PerKind<u32>,
    /// The counts before the cluster was stopped.
    #[serde(default)]
    pub(crate) restore: Option<PerKind<u32>>,
    /// Whether the agents' nodes are cordoned.
    #[serde(default)]
    pub(crate) cordoned: bool,
    /// Whether a requested uncordon of the agents' nodes is not finished yet.
    #[serde(default)]
    pub(crate) uncordoning: bool,
    /// Resources that requests have changed.
    #[serde(default)]
    pub(crate) adjusted: PerKind<ResourceOverrides>,
    /// Counts the requested restarts of each kind.
    #[serde(default)]
    pub(crate) generations: PerKind<u64>,
    /// How many of the wanted tasks of each kind were ready at the same time. A change waits only for as
    /// many. `None`: as many as are wanted; records without this field are from clusters that ran.
    #[serde(default)]
    pub(crate) ready_before: PerKind<Option<u32>>,
    /// Whether several members of a kvstore were ever wanted. From then on each member, even a single
    /// one, has a port for other members.
    #[serde(default)]
    pub(crate) clustered: bool,
    /// The last change of the count of agents by the autoscaler.
    #[serde(default)]
    pub(crate) autoscaled: Option<Autoscaled>,
}

/// Resources that replace the configured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceOverrides {
    cpus: Option<f64>,
    cpu_limit: Option<f64>,
    mem: Option<f64>,
    mem_limit: Option<f64>,
    disk: Option<f64>,
    disk_limit: Option<f64>,
}

impl ResourceOverrides {
    pub(crate) fn set(&mut self, resource: Resource, limit: bool, amount: f64) {
        let place = match (resource, limit) {
            (Resource::Cpus, false) => &mut self.cpus,
            (Resource::Cpus, true) => &mut self.cpu_limit,
            (Resource::Memory, false) => &mut self.mem,
            (Resource::Memory, true) => &mut self.mem_limit,
            (Resource::Disk, false) => &mut self.disk,
            (Resource::Disk, true) => &mut self.disk_limit,
        };
        *place = Some(amount);
    }

    /// The settings with these resources.
    pub(crate) fn apply_to(&self, settings: &KindConfig) -> KindConfig {
        KindConfig {
            cpus: self.cpus.unwrap_or(settings.cpus),
            cpu_limit: self.cpu_limit.or(settings.cpu_limit),
            mem: self.mem.unwrap_or(settings.mem),
            mem_limit: self.mem_limit.or(settings.mem_limit),
            disk: self.disk.unwrap_or(settings.disk),
            disk_limit: self.disk_limit.or(settings.disk_limit),
            ..settings.clone()
        }
    }
}

impl Wanted {
    /// The wanted state according to the configuration.
    fn configured(config: &Config) -> Self {
        let counts = PerKind::from_fn(|kind| config.kinds.of(kind).count);
        Self {
            counts,
            configured: counts,
            cordoned: config.settings.orch_disable_scheduling,
            ready_before: PerKind::from_fn(|_| Some(0)),
            ..Self::default()
        }
    }

    /// Sets `clustered` if several members of a kvstore are wanted.
    pub(crate) fn record_clustering(&mut self, config: &Config) {
        let several = config.settings.engine() == Engine::Kvstore && self.counts.datastore > 1;
        self.clustered |= several && !config.settings.runs_ds_command();
    }

    /// Takes over the counts that have changed in the configuration since it was last read.
    fn reconfigure(&mut self, config: &Config) {
        for kind in Kind::ALL {
            let (count, known) = (config.kinds.of(kind).count, *self.configured.of(kind));
            if count != known {
                tracing::info!(
                    framework = config.name(),
                    %kind,
                    configured = count,
                    before = known,
                    "the configured count has changed; it replaces the stored one"
                );
                *self.counts.of_mut(kind) = count;
                *self.configured.of_mut(kind) = count;
            }
        }
    }
}

/// The client configuration as the server wrote it, and the address at which clients reach that
/// server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredClientConfig {
    pub(crate) text: String,
    pub(crate) address: HostPort,
    /// The server's task; empty if the record was imported.
    #[serde(default)]
    pub(crate) task: String,
}

impl StoredClientConfig {
    /// Whether a server has written it. The server of an imported record is known by its address only.
    pub(crate) fn is_of(&self, task: &TaskId, address: &HostPort) -> bool {
        if self.task.is_empty() {
            self.address == *address
        } else {
            self.task == task.as_str()
        }
    }
}

/// The records. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Repository(TypedStore);

/// Everything that is stored, read at the start of a term.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) wanted: Wanted,
    /// The random token.
    pub(crate) token: Secret,
    pub(crate) in_use: InUse,
    /// Why settings of the configuration are ignored.
    pub(crate) ignored: Vec<String>,
    pub(crate) datastore: DatastoreRecord,
    pub(crate) client_config: Option<StoredClientConfig>,
    pub(crate) kvstore: KvstoreRecord,
    pub(crate) backup: backup::State,
}

impl Repository {
    pub(crate) fn new(store: Arc<dyn Store>, config: &Config) -> Self {
        Self(TypedStore::new(store, config.name()).with_timeout(config.store_timeout))
    }

    /// Reads all records. At the first start the wanted state is created from the configuration, and
    /// the token and the datastore's secrets at random, and all are stored.
    pub(crate) async fn load(&self, config: &Config) -> Result<Stored> {
        let failed = |error| Error::of_store("reading the wanted counts", error);
        let stored = self.0.get::<Wanted>(WANTED).await.map_err(failed)?;
        let stored = stored.map(|record| record.value);
        let token = self.0.get::<String>(TOKEN).await.map_err(failed)?;
        let token = token.map(|record| record.value);
        let new_token = token.is_none().then(secrets::random);
        let datastore = self.0.get::<DatastoreRecord>(DATASTORE).await.map_err(failed)?;
        let stored_datastore = datastore.map(|record| record.value);
        let client_config = self.0.get(CLIENT_CONFIG).await.map_err(failed)?;
        let client_config: Option<StoredClientConfig> = client_config.map(|record| record.value);
        // Until a server has written its client configuration, there are no data worth keeping.
        let kept = stored_datastore.as_ref().and_then(|record| record.in_use.clone());
        let kept = kept.filter(|_| client_config.is_some());
        let in_use = kept.unwrap_or_else(|| InUse::of(config)).completed(config);
        let configured = config;
        let config = &in_use.apply_to(configured);
        let mut wanted = stored.clone().unwrap_or_else(|| Wanted::configured(config));
        wanted.reconfigure(config);
        wanted.record_clustering(config);
        let datastore = DatastoreRecord::complete(stored_datastore.clone(), config, stored.is_some())?;
        let datastore = datastore.using(Some(in_use.clone()));
        let mut changes = Changes::default();
        let encoded = (|| {
            if stored.as_ref() != Some(&wanted) {
                changes.put(WANTED, &wanted, Expect::Any)?;
            }
            if let Some(new_token) = &new_token {
                changes.put(TOKEN, new_token, Expect::Any)?;
            }
            if stored_datastore.as_ref() != Some(&datastore) {
                changes.put(DATASTORE, &datastore, Expect::Any)?;
            }
            Ok(())
        })();
        encoded.map_err(failed)?;
        if !changes.is_empty() {
            let written = self.0.commit(changes).await;
            written.map_err(|error| Error::of_store("storing the wanted counts", error))?;
        }
        let kvstore = self.0.get::<KvstoreRecord>(KVSTORE).await.map_err(failed)?;
        let backup = self.0.get::<backup::State>(BACKUP).await.map_err(failed)?;
        let token = token.or(new_token).unwrap_or_default().into();
        Ok(Stored {
            wanted,
            ignored: in_use.ignored(configured, &token),
            in_use,
            token,
            datastore,
            client_config,
            kvstore: kvstore.map(|record| record.value).unwrap_or_default(),
            backup: backup.map(|record| record.value).unwrap_or_default(),
        })
    }

    /// Stores the wanted state. It is durable when this returns.
    pub(crate) async fn put_wanted(&self, wanted: &Wanted) -> transom_store::typed::Result<()> {
        self.put(WANTED, wanted).await
    }

    /// Stores the secrets of the datastore.
    pub(crate) async fn put_datastore(&self, record: &DatastoreRecord) -> transom_store::typed::Result<()> {
        self.put(DATASTORE, record).await
    }

    /// Stores the client configuration.
    pub(crate) async fn put_client_config(
        &self,
        config: &StoredClientConfig,
    ) -> transom_store::typed::Result<()> {
        self.put(CLIENT_CONFIG, config).await
    }

    /// Stores the members of the kvstore.
    pub(crate) async fn put_kvstore(&self, record: &KvstoreRecord) -> transom_store::typed::Result<()> {
        self.put(KVSTORE, record).await
    }

    /// Stores the state of backups and restores.
    pub(crate) async fn put_backup(&self, state: &backup::State) -> transom_store::typed::Result<()> {
        self.put(BACKUP, state).await
    }

    /// Drops the framework's id, so that the next subscription gets a new one.
    pub(crate) async fn forget_framework(&self) -> transom_store::typed::Result<()> {
        let mut changes = Changes::default();
        changes.delete(transom_scheduler::FRAMEWORK_ID_KEY, Expect::Any);
        self.0.commit(changes).await.map(drop)
    }

    async fn put<T: Serialize>(&self, key: &str, record: &T) -> transom_store::typed::Result<()> {
        let mut changes = Changes::default();
        changes.put(key, record, Expect::Any)?;
        self.0.commit(changes).await.map(drop)
    }
}

/// Decodes a record of the service, except those of its scheduler. `key`: under the prefix. `None` if
/// the service has no record with such a key.
///
/// # Errors
/// The record cannot be decoded.
pub fn check_record(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    Some(match key {
        WANTED => Wanted::deserialize(record).map(drop),
        TOKEN => String::deserialize(record).map(drop),
        DATASTORE => DatastoreRecord::deserialize(record).map(drop),
        CLIENT_CONFIG => StoredClientConfig::deserialize(record).map(drop),
        KVSTORE => KvstoreRecord::deserialize(record).map(drop),
        BACKUP => backup::State::deserialize(record).map(drop),
        _ => return None,
    })
}
