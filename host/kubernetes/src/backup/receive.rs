//! Transfers the dump from the sandbox of its task to the directory of backups.

use std::io::{self, Write};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use transom_cluster::{FrameworkId, TaskId};
use transom_common::{ambient, error_chain};
use transom_scheduler::AgentLocation;

use super::directory::{Directory, FileError};
use super::script::DUMP;
use super::{Manifest, Operation};
use crate::config::Config;
use crate::dependencies::{Cluster, SandboxFile};
use crate::settings::Engine;

/// The number of bytes that one call requests. Agents may return fewer.
const READ_CHUNK_BYTES: u64 = 1 << 20;

/// Why a dump cannot be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("writing the dump failed")]
    Write(#[source] io::Error),
    #[error("reading the dump from its task's sandbox failed")]
    Read(#[source] transom_cluster::Error),
    #[error("the dump is not in its task's sandbox")]
    Missing,
    #[error("the dump has {size} bytes; at most {maximum} are possible (`backup.max_bytes`)")]
    TooLarge { size: u64, maximum: u64 },
    #[error("the dump has changed while it was read")]
    Changed,
    #[error("the dump does not have the digest that its task computed")]
    Digest,
}

/// A dump that has been written.
#[derive(Debug)]
struct Copied {
    size: u64,
    sha256: String,
    is_whole_snapshot: bool,
}

/// The digest in an etcd snapshot: its last 32 bytes are the SHA-256 digest of all others.
#[derive(Default)]
struct SnapshotDigest {
    digest: Sha256,
    /// The last bytes so far.
    last: Vec<u8>,
}

impl SnapshotDigest {
    const LENGTH: usize = 32;

    fn update(&mut self, data: &[u8]) {
        self.last.extend(data);
        let others = self.last.len().saturating_sub(Self::LENGTH);
        self.digest.update(&self.last[..others]);
        self.last.drain(..others);
    }

    fn matches(self) -> bool {
        self.digest.finalize()[..] == self.last[..]
    }
}

/// A dump to be received.
#[derive(Debug)]
pub(crate) struct Reception {
    pub(crate) config: Arc<Config>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) directory: Directory,
    pub(crate) agent: Arc<AgentLocation>,
    pub(crate) framework: FrameworkId,
    pub(crate) operation: Operation,
}

impl Reception {
    /// Receives the dump and deletes surplus backups. Returns the size of the dump.
    pub(crate) async fn run(self) -> Result<u64, ReceiveError> {
        let directory = self.directory.clone();
        let received = self.receive().await;
        if received.is_err() {
            blocking(move || {
                directory.discard();
                Ok(())
            })
            .await?;
        }
        received
    }

    async fn receive(self) -> Result<u64, ReceiveError> {
        let directory = self.directory.clone();
        let file = blocking(move || Ok(directory.receive()?)).await?;
        let Copied {
            size,
            sha256,
            is_whole_snapshot,
        } = self.copy(file).await?;
        // An image without `sha256sum` leaves no digest.
        let expected = self.operation.sha256.as_deref();
        let is_whole = match (expected, self.config.settings.engine()) {
            (Some(""), Engine::Kvstore) => is_whole_snapshot,
            _ => expected == Some(sha256.as_str()),
        };
        if !is_whole {
            return Err(ReceiveError::Digest);
        }
        let manifest = Manifest {
            name: self.operation.backup.clone(),
            framework: self.config.name().to_owned(),
            engine: self.config.settings.engine(),
            version: self.config.settings.orch_version.clone(),
            created: ambient::now(),
            size,
            sha256,
            token: self.operation.orch_token.clone(),
        };
        let (directory, keep) = (self.directory.clone(), self.config.settings.backup.keep);
        blocking(move || {
            directory.finish(&manifest)?;
            // The backup is complete even if the deletion of old ones fails.
            match directory.prune(keep as usize) {
                Ok(deleted) if deleted.is_empty() => {}
                Ok(deleted) => tracing::info!(?deleted, "deleted the oldest backups"),
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "deleting the oldest backups failed");
                }
            }
            Ok(size)
        })
        .await
    }

    /// Writes the dump into a file and syncs the file.
    async fn copy(&self, mut file: std::fs::File) -> Result<Copied, ReceiveError> {
        let task = TaskId::from(self.operation.task.clone().unwrap_or_default());
        let maximum = self.config.settings.backup.max_bytes;
        let dump = SandboxFile {
            agent: &self.agent,
            framework: &self.framework,
            task: &task,
            path: DUMP,
        };
        let (mut digest, mut snapshot) = (Sha256::new(), SnapshotDigest::default());
        let (mut offset, mut first_size) = (0, None);
        loop {
            let read = self
                .cluster
                .read_bytes(dump, offset, READ_CHUNK_BYTES)
                .await
                .map_err(ReceiveError::Read)?
                .ok_or(ReceiveError::Missing)?;
            let size = *first_size.get_or_insert(read.size);
            if size > maximum {
                return Err(ReceiveError::TooLarge { size, maximum });
            }
            if read.size != size || (read.data.is_empty() && offset < size) {
                return Err(ReceiveError::Changed);
            }
            offset += read.data.len() as u64;
            if offset > size {
                return Err(ReceiveError::Changed);
            }
            let done = offset == size;
            digest.update(&read.data);
            snapshot.update(&read.data);
            file = blocking(move || {
                file.write_all(&read.data).map_err(ReceiveError::Write)?;
                if done {
                    file.sync_all().map_err(ReceiveError::Write)?;
                }
                Ok(file)
            })
            .await?;
            if done {
                return Ok(Copied {
                    size,
                    sha256: format!("{:x}", digest.finalize()),
                    is_whole_snapshot: snapshot.matches(),
                });
            }
        }
    }
}

/// Runs blocking work in the runtime's pool for blocking tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReceiveError> + Send + 'static,
) -> Result<T, ReceiveError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ReceiveError::Write(io::Error::other(error))))
}

#[cfg(test)]
mod tests;
