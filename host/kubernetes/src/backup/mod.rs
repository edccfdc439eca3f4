//! Backup and restore of the datastore.
//!
//! An operation is a backup or a restore; one at a time is under way. It is a record in the store,
//! written before each of its steps begins, so that the next daemon goes on with it. [`phase`] has
//! the rules, a pure function; `core::backup` carries them out.
//!
//! * A **backup**: a one-off task dumps the datastore into its sandbox; the daemon reads the dump
//!   through the agent's files API into [`directory`].
//! * A **restore**: the servers end. A SQL datastore keeps running, and a one-off task loads the
//!   dump. A kvstore ends and starts with a data directory made from the snapshot, and a one-off
//!   task waits for its health. The servers start again. If it fails, the former data comes back;
//!   if that fails too, the servers stay stopped until another restore or `cluster/start`.
//!   Of a kvstore of several members one gets the backup, as the only member of a new cluster; the
//!   others join it when the servers start. If it fails, all former members return.
//!
//! [`script`] has the commands of the tasks, [`delivery`] the address from which the cluster's
//! fetcher gets the backup.

pub(crate) mod delivery;
pub(crate) mod directory;
pub(crate) mod phase;
pub(crate) mod receive;
pub(crate) mod script;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::kvstore::KvstoreRecord;

/// The stored state of backups and restores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The backup or restore under way.
    pub(crate) operation: Option<Operation>,
    /// How the last backup ended.
    pub(crate) last_backup: Option<Outcome>,
    /// When the last successful backup ended, and its size.
    pub(crate) last_success: Option<Success>,
    /// How the last restore ended.
    pub(crate) last_restore: Option<Outcome>,
}

/// A backup or a restore under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Tells operations apart.
    pub(crate) id: String,
    pub(crate) what: What,
    /// The name of the backup that is made or restored.
    pub(crate) backup: String,
    pub(crate) phase: Phase,
    pub(crate) started: Timestamp,
    /// When the phase has failed, if it is not over before.
    pub(crate) until: Timestamp,
    /// The one-off task of the phase, once it is requested.
    pub(crate) task: Option<String>,
    /// How many one-off tasks of the phase were lost.
    pub(crate) lost: u32,
    /// The digest of the dump, as its task or its manifest has it.
    pub(crate) sha256: Option<String>,
    /// A part of the address from which the fetcher gets the backup.
    pub(crate) token: String,
    /// The host of the kvstore when the restore began; its data is there.
    pub(crate) host: Option<String>,
    /// Why a restore is undone, or is stuck.
    pub(crate) problem: Option<String>,
    /// The member of a clustered kvstore that gets the backup; `None`: a new one.
    #[serde(default)]
    pub(crate) member: Option<u32>,
    /// The members of a clustered kvstore before the backup was loaded. They return if that fails.
    #[serde(default)]
    pub(crate) former: Option<KvstoreRecord>,
    /// The earlier restore that has set the former data aside, if they are not back since.
    #[serde(default)]
    pub(crate) set_aside_by: Option<String>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    Backup,
    Restore,
}

impl What {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Backup: a task dumps the datastore into its sandbox.
    Dump,
    /// Backup: the daemon reads the dump.
    Read,
    /// Restore: the servers end, and a kvstore after them.
    Stop,
    /// Restore: the datastore gets the data of the backup.
    Load,
    /// Failed restore of a kvstore: the kvstore ends.
    Withdraw,
    /// Failed restore of a kvstore: it starts with its former data.
    Revert,
    /// Restore: the servers start again.
    Resume,
    /// Failed restore whose former data is not back: the servers stay stopped.
    Held,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dump => "dump",
            Self::Read => "read",
            Self::Stop => "stop",
            Self::Load => "load",
            Self::Withdraw => "withdraw",
            Self::Revert => "revert",
            Self::Resume => "resume",
            Self::Held => "held",
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) backup: String,
    pub(crate) ended: Timestamp,
    /// Why it failed; `None`: it succeeded.
    pub(crate) problem: Option<String>,
}

/// A successful backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Success {
    pub(crate) ended: Timestamp,
    pub(crate) size: u64,
}

/// The description of a backup, a file beside its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    /// The name of the framework.
    pub(crate) framework: String,
    pub(crate) engine: EngineName,
    /// The configured version of Kubernetes.
    pub(crate) version: String,
    pub(crate) created: Timestamp,
    /// Bytes of the data.
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// [`Engine`] as manifests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineName {
    Sql,
    Kvstore,
}

impl From<Engine> for EngineName {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Sql => Self::Sql,
            Engine::Kvstore => Self::Kvstore,
        }
    }
}

impl EngineName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Kvstore => "kvstore",
        }
    }
}

impl Operation {
    /// An operation that begins now.
    pub(crate) fn new(what: What, backup: String, now: Timestamp, timeout: std::time::Duration) -> Self {
        let mut id = uuid::Uuid::new_v4().simple().to_string();
        let token = uuid::Uuid::new_v4().simple().to_string();
        id.truncate(12);
        Self {
            id,
            what,
            backup,
            phase: match what {
                What::Backup => Phase::Dump,
                What::Restore => Phase::Stop,
            },
            started: now,
            until: now.checked_add(timeout).unwrap_or(Timestamp::MAX),
            task: None,
            lost: 0,
            sha256: None,
            token,
            host: None,
            problem: None,
            member: None,
            former: None,
            set_aside_by: None,
        }
    }

    /// The id in the name of the former data of a kvstore.
    pub(crate) fn aside(&self) -> &str {
        self.set_aside_by.as_deref().unwrap_or(&self.id)
    }

    /// How many members of a kvstore start with the former data.
    pub(crate) fn former_members(&self) -> u32 {
        let voters = self.former.as_ref().map_or(0, |former| former.voters.len());
        u32::try_from(voters).unwrap_or(u32::MAX).max(1)
    }

    /// Whether it keeps the servers stopped.
    pub(crate) fn stops_servers(&self) -> bool {
        match self.phase {
            Phase::Dump | Phase::Read | Phase::Resume => false,
            Phase::Stop | Phase::Load | Phase::Withdraw | Phase::Revert | Phase::Held => true,
        }
    }

    /// What it does now, as a part of a sentence.
    pub(crate) fn describe(&self) -> String {
        let backup = &self.backup;
        match self.phase {
            Phase::Dump => format!("a task dumps the datastore for the backup {backup}"),
            Phase::Read => format!("the daemon reads the backup {backup} from its task's sandbox"),
            Phase::Stop => format!("the servers are being stopped to restore the backup {backup}"),
            Phase::Load => format!("the datastore is being restored from the backup {backup}"),
            Phase::Withdraw | Phase::Revert => {
                format!(
                    "the restore of the backup {backup} has failed; the former data is being brought back"
                )
            }
            Phase::Resume => format!("the backup {backup} is restored; the servers are being started"),
            Phase::Held => format!(
                "the restore of the backup {backup} has failed and the former data is not back, so the servers stay \
                 stopped until another restore, or until `cluster/start` accepts the data as it is"
            ),
        }
    }
}
