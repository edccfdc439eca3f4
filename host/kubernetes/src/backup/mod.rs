//! Backup and restore of the datastore.
//!
//! An operation is a backup or a restore. Only one operation at a time is under way. Its record in
//! the store is written before each of its steps begins, so that a new leader can continue it.
//! [`phase`] contains the rules, a pure function; `core::backup` carries them out.
//!
//! * A **backup**: a one-off task dumps the datastore into its sandbox; the daemon reads the dump
//!   through the agent's files API into [`directory`].
//! * A **restore**: the servers are stopped. A SQL datastore keeps running, and a one-off task loads
//!   the dump. A kvstore is stopped and starts with a data directory created from the snapshot, and a
//!   one-off task waits until it is healthy. Then the servers start again. If the restore fails, the
//!   former data are brought back; if that fails as well, the servers stay stopped until another
//!   restore or `cluster/start`.
//!   In a kvstore of several members, one member gets the backup, as the only member of a new cluster,
//!   and the others join it when the servers start. If the restore fails, all former members return.
//!
//! [`script`] contains the commands of the tasks, [`delivery`] the URL from which the cluster's
//! fetcher downloads the backup.

pub(crate) mod delivery;
pub(crate) mod directory;
pub(crate) mod phase;
pub(crate) mod receive;
pub(crate) mod script;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_common::{Secret, ambient};

use crate::kvstore::KvstoreRecord;
use crate::secrets::reveal_optional;
use crate::settings::Engine;

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
    /// A random id, which distinguishes operations.
    pub(crate) id: String,
    #[serde(rename = "what")]
    pub(crate) kind: OperationKind,
    /// The name of the backup that is made or restored.
    pub(crate) backup: String,
    pub(crate) phase: Phase,
    pub(crate) started: Timestamp,
    /// The deadline of the phase: it fails if it has not ended by then.
    #[serde(rename = "until")]
    pub(crate) deadline: Timestamp,
    /// The one-off task of the phase, once it is requested.
    pub(crate) task: Option<String>,
    /// The number of one-off tasks of the phase that were lost.
    pub(crate) lost: u32,
    /// The digest of the dump, from the result of its task or from its manifest.
    pub(crate) sha256: Option<String>,
    /// The random part of the URL from which the fetcher downloads the backup.
    pub(crate) token: String,
    /// The host on which the kvstore ran when the restore began, and which has its data.
    pub(crate) host: Option<String>,
    /// Why a restore is undone, or is stuck.
    pub(crate) problem: Option<String>,
    /// The member of a clustered kvstore that gets the backup; `None`: a new member.
    #[serde(default)]
    pub(crate) member: Option<u32>,
    /// The members of a clustered kvstore before the backup was loaded. They return if that fails.
    #[serde(default)]
    pub(crate) former: Option<KvstoreRecord>,
    /// The id of the earlier restore that has moved the former data away, if these were not brought
    /// back since.
    #[serde(default)]
    pub(crate) set_aside_by: Option<String>,
    /// The token that belongs to the backup's data. After a restore servers start with it.
    #[serde(default, serialize_with = "reveal_optional")]
    pub(crate) orch_token: Option<Secret>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperationKind {
    Backup,
    Restore,
}

impl OperationKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }
}

/// The phase of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Backup: a task dumps the datastore into its sandbox.
    Dump,
    /// Backup: the daemon reads the dump.
    Read,
    /// Restore: the servers are stopped, and then a kvstore.
    Stop,
    /// Restore: the datastore gets the data of the backup.
    Load,
    /// Failed restore of a kvstore: the kvstore is stopped.
    Withdraw,
    /// Failed restore of a kvstore: it starts with its former data.
    Revert,
    /// Restore: the servers start again.
    Resume,
    /// Failed restore whose former data could not be brought back: the servers stay stopped.
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

/// The description of a backup, in a file next to its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    /// The name of the framework.
    pub(crate) framework: String,
    pub(crate) engine: Engine,
    /// The configured version of Kubernetes.
    pub(crate) version: String,
    pub(crate) created: Timestamp,
    /// Bytes of the data.
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// The token of the cluster, without which no server can read the data. Backups of former daemons
    /// do not have it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "reveal_optional"
    )]
    pub(crate) token: Option<Secret>,
}

impl Operation {
    /// An operation that begins now.
    pub(crate) fn new(
        kind: OperationKind,
        backup: String,
        now: Timestamp,
        timeout: std::time::Duration,
    ) -> Self {
        let mut id = ambient::uuid().simple().to_string();
        let token = ambient::uuid().simple().to_string();
        id.truncate(12);
        Self {
            id,
            kind,
            backup,
            phase: match kind {
                OperationKind::Backup => Phase::Dump,
                OperationKind::Restore => Phase::Stop,
            },
            started: now,
            deadline: now.checked_add(timeout).unwrap_or(Timestamp::MAX),
            task: None,
            lost: 0,
            sha256: None,
            token,
            host: None,
            problem: None,
            member: None,
            former: None,
            orch_token: None,
            set_aside_by: None,
        }
    }

    /// The operation's id in the name of the directory with the former data of a kvstore.
    pub(crate) fn set_aside_id(&self) -> &str {
        self.set_aside_by.as_deref().unwrap_or(&self.id)
    }

    /// How many members of a kvstore start with the former data.
    pub(crate) fn former_members(&self) -> u32 {
        let voters = self.former.as_ref().map_or(0, |former| former.voters.len());
        u32::try_from(voters).unwrap_or(u32::MAX).max(1)
    }

    /// Whether the servers must be stopped in this phase.
    pub(crate) fn stops_servers(&self) -> bool {
        match self.phase {
            Phase::Dump | Phase::Read | Phase::Resume => false,
            Phase::Stop | Phase::Load | Phase::Withdraw | Phase::Revert | Phase::Held => true,
        }
    }

    /// A description of the phase, as a part of a sentence.
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
