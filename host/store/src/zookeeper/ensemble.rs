//! One session with the ensemble, and the nodes of a store:
//!
//! | node | contains |
//! |---|---|
//! | `PATH/current` | [`Current`], as JSON: the format, and the snapshot that the log continues |
//! | `PATH/log/POSITION` | an entry of the log, or where its pieces are staged |
//! | `PATH/staged/NAME/NUMBER` | a piece of a large entry |
//! | `PATH/snapshots/NAME/NUMBER` | a piece of a snapshot |
//! | `PATH/barrier` | nothing; written before a read, to know that the read is of the latest state |
//!
//! The node `NAME` of pieces contains the position where they are used, which is set once, in the
//! transaction that uses them. Another daemon that deletes unused pieces sets [`ABANDONED`] there first,
//! so pieces are either used or deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use transom_common::ambient::{blocking, uuid};
use uuid::Uuid;
use zookeeper_client::{
    Acls, AuthId, Client, CreateMode, Error as ZooKeeperError, MultiWriteError, OneshotWatcher,
};

use super::records::{Record, decode};
use super::settings::Settings;
use super::state::State;
use super::tls::Forwarder;
use crate::{Cause, Error};

/// The largest node: half of the largest request that a server accepts by default
/// (`jute.maxbuffer`).
const MAX_NODE: usize = 512 << 10;
/// The format of the log.
const FORMAT: u32 = 1;
/// Requests that are sent before the first one is answered.
const WINDOW: usize = 8;
/// Entries of the log that are read at once.
const READ_AHEAD: u64 = 32;
/// The largest entry in memory. Batches are smaller, and a group has few of them.
const MAX_ENTRY: u64 = 1 << 30;
/// A session, and the search for a server that grants one, may last so many times as long as an attempt
/// to connect.
const SESSION_FACTOR: u32 = 5;
/// A request may take so many times as long as a connection.
const CALL_FACTOR: u32 = 2;
/// What the node of pieces contains that are being deleted.
const ABANDONED: &[u8] = b"abandoned";
/// The folders of pieces.
pub(super) const STAGED_PIECES: &str = "staged";
pub(super) const SNAPSHOTS: &str = "snapshots";
/// The kinds of entries: with its records, and staged.
const COMPLETE: u8 = 1;
const STAGED: u8 = 2;

/// The start of the log.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Current {
    format: u32,
    /// Differs from that of any other store, such as one that an ensemble had before it lost its data.
    pub(super) id: String,
    /// No version and no fencing number up to this one is ever assigned.
    first: u64,
    /// The last position that the snapshot contains.
    pub(super) position: u64,
    /// `None` before the first one: nothing is before the log.
    pub(super) snapshot: Option<Pieces>,
}

impl Current {
    pub(super) fn followed_by(&self, position: u64, snapshot: Pieces) -> Self {
        Self {
            position,
            snapshot: Some(snapshot),
            ..self.clone()
        }
    }
}

/// Where the pieces of a snapshot or a large entry are.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Pieces {
    pub(super) name: String,
    /// Bytes of all pieces together.
    pub(super) bytes: u64,
    /// Bytes of the records, without compression.
    records: u64,
}

/// An entry of the log.
#[derive(Debug)]
pub(super) struct Entry {
    /// The id of the attempt that wrote it.
    pub(super) id: Uuid,
    pub(super) records: Vec<Record>,
    /// Bytes in the ensemble.
    pub(super) bytes: u64,
}

/// What became of an attempt to append an entry.
#[derive(Debug)]
pub(super) enum Appended {
    Done,
    /// The log has an entry at this position, perhaps from an earlier attempt.
    Occupied,
    /// There is another snapshot.
    Superseded,
    /// The staged pieces were deleted as abandoned.
    Unstaged,
}

/// Waits for an answer, but no longer than for a server that does not answer: while the client library
/// looks for another server, a request waits for as long as the session may last.
async fn within<T, E: From<ZooKeeperError>>(
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(ZooKeeperError::Timeout.into()),
    }
}

/// A session. Cloning is cheap; the session ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Ensemble {
    client: Client,
    root: Arc<str>,
    acls: Acls<'static>,
    /// How long a request may take.
    limit: Duration,
    _forwarder: Option<Arc<Forwarder>>,
}

impl Ensemble {
    pub(super) async fn connect(settings: &Settings) -> Result<Self, Cause> {
        let mut connector = Client::connector()
            // The session carries no lease: its timeout bounds the search for a server that answers.
            .with_session_timeout(settings.connect_timeout * SESSION_FACTOR)
            .with_connection_timeout(settings.connect_timeout)
            .with_fail_eagerly();
        if let Some(digest) = &settings.digest {
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        let forwarder = match &settings.tls {
            Some(tls) => Some(Forwarder::start(settings.servers(), tls.authorities.as_deref()).await?),
            None => None,
        };
        let servers = forwarder.as_ref().map(|forwarder| &forwarder.addresses);
        let connecting = connector.connect(servers.unwrap_or(&settings.servers));
        let connected = within(settings.connect_timeout * SESSION_FACTOR, connecting).await;
        let client = connected.map_err(|error| {
            format!(
                "no server of ZooKeeper at {} accepts a session{}: {error}",
                settings.servers,
                if forwarder.is_some() { " in TLS" } else { "" },
            )
        })?;
        Ok(Self {
            client,
            root: settings.root.as_str().into(),
            acls: if settings.digest.is_some() {
                Acls::creator_all()
            } else {
                Acls::anyone_all()
            },
            limit: settings.connect_timeout * CALL_FACTOR,
            _forwarder: forwarder.map(Arc::new),
        })
    }

    fn path(&self, rest: impl std::fmt::Display) -> String {
        format!("{}/{rest}", self.root)
    }

    fn failed(&self, error: &ZooKeeperError) -> Cause {
        match error {
            ZooKeeperError::NoAuth | ZooKeeperError::AuthFailed => format!(
                "ZooKeeper denies access to {}; check the user and the password of the store",
                self.root
            ),
            other => format!("ZooKeeper: {other}"),
        }
        .into()
    }

    fn corrupt(path: &str, source: impl Into<Cause>) -> Cause {
        let source = Some(source.into());
        let place = format!("{path} of ZooKeeper");
        Box::new(Error::Corrupt { place, source })
    }

    async fn create_missing(&self, path: &str, data: &[u8]) -> Result<(), ZooKeeperError> {
        let options = CreateMode::Persistent.with_acls(self.acls);
        match within(self.limit, self.client.create(path, data, &options)).await {
            Ok(_) | Err(ZooKeeperError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the nodes of a store that do not exist. `first`: for a new store, see [`Current`].
    pub(super) async fn prepare(&self, first: u64, world_access: bool) -> Result<(), Cause> {
        if !self.exists().await? {
            let options = CreateMode::Persistent.with_acls(self.acls);
            let made = within(self.limit, self.client.mkdir(&self.root, &options)).await;
            made.map_err(|error| self.failed(&error))?;
            let current = Current {
                format: FORMAT,
                id: uuid().to_string(),
                first,
                position: 0,
                snapshot: None,
            };
            let current = serde_json::to_vec(&current)?;
            for (name, data) in [
                ("log", &b""[..]),
                (STAGED_PIECES, b""),
                (SNAPSHOTS, b""),
                ("barrier", b""),
                // The last one: with it the store exists.
                ("current", &current),
            ] {
                let created = self.create_missing(&self.path(name), data).await;
                created.map_err(|error| self.failed(&error))?;
            }
        }
        self.check_access(world_access).await
    }

    /// Whether there is a store.
    pub(super) async fn exists(&self) -> Result<bool, Cause> {
        let found = within(self.limit, self.client.check_stat(&self.path("current"))).await;
        Ok(found.map_err(|error| self.failed(&error))?.is_some())
    }

    /// Fails if anyone has access to the store, unless that is allowed.
    pub(super) async fn check_access(&self, world_access: bool) -> Result<(), Cause> {
        let acls = within(self.limit, self.client.get_acl(&self.path("current"))).await;
        let (acls, _) = acls.map_err(|error| self.failed(&error))?;
        if !world_access && acls.iter().any(|acl| *acl.auth_id() == AuthId::anyone()) {
            return Err(format!(
                "anyone can read the state at {}: its nodes have the ACL world:anyone; set the ACLs of {0} and all \
                 nodes below to those of the store's user, or set store.world_access",
                self.root
            )
            .into());
        }
        Ok(())
    }

    /// The start of the log, and the version of its node.
    pub(super) async fn current(&self) -> Result<(Current, i32), Cause> {
        let path = self.path("current");
        let got = within(self.limit, self.client.get_data(&path)).await;
        let (data, stat) = got.map_err(|error| self.failed(&error))?;
        let current: Current = serde_json::from_slice(&data).map_err(|error| Self::corrupt(&path, error))?;
        if current.format != FORMAT {
            let why = format!("format {}, and this version knows {FORMAT}", current.format);
            return Err(Self::corrupt(&path, why));
        }
        Ok((current, stat.version))
    }

    /// The state at the start of the log, which is then returned too.
    pub(super) async fn load(&self) -> Result<(State, Current, i32), Cause> {
        let (mut current, mut version) = self.current().await?;
        loop {
            let mut state = State::new(current.position, current.first);
            let Some(snapshot) = &current.snapshot else {
                return Ok((state, current, version));
            };
            let path = self.path(format_args!("{SNAPSHOTS}/{}", snapshot.name));
            if let Some(bytes) = self.pieces(SNAPSHOTS, snapshot).await? {
                let records = self.decoded(&path, bytes, snapshot.records).await?;
                state.apply(records, Instant::now());
                return Ok((state, current, version));
            }
            // Unless there is another snapshot by now.
            let (later, later_version) = self.current().await?;
            if later_version == version {
                return Err(Self::corrupt(&path, "pieces of the snapshot are missing"));
            }
            (current, version) = (later, later_version);
        }
    }

    /// The pieces below a folder; `None` if they were deleted.
    async fn pieces(&self, folder: &str, pieces: &Pieces) -> Result<Option<Vec<u8>>, Cause> {
        let count = pieces.bytes.div_ceil(MAX_NODE as u64);
        let parent = self.path(format_args!("{folder}/{}", pieces.name));
        let (client, limit) = (self.client.clone(), self.limit);
        let read = stream::iter(0..count)
            .map(move |number| within(limit, client.get_data(&format!("{parent}/{number}"))))
            .buffered(WINDOW);
        let parts: Result<Vec<_>, _> = read.map_ok(|(data, _)| data).try_collect().await;
        match parts {
            Ok(parts) => Ok(Some(parts.concat())),
            Err(ZooKeeperError::NoNode) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes pieces below a folder. A name stands for one content, so what an earlier call has written
    /// stays. `None`: they were deleted as abandoned meanwhile.
    pub(super) async fn write_pieces(
        &self,
        folder: &str,
        name: Uuid,
        encoded: &Bytes,
        records: u64,
    ) -> Result<Option<Pieces>, Cause> {
        let name = name.to_string();
        let parent = self.path(format_args!("{folder}/{name}"));
        self.create_missing(&parent, b"")
            .await
            .map_err(|error| self.failed(&error))?;
        let (ensemble, all) = (self.clone(), encoded.clone());
        let written = stream::iter(0..encoded.len().div_ceil(MAX_NODE))
            .map(move |number| {
                let piece = all.slice(number * MAX_NODE..all.len().min((number + 1) * MAX_NODE));
                let (ensemble, path) = (ensemble.clone(), format!("{parent}/{number}"));
                async move { ensemble.create_missing(&path, &piece).await }
            })
            .buffered(WINDOW);
        match written.try_for_each(|()| std::future::ready(Ok(()))).await {
            Ok(()) => Ok(Some(Pieces {
                name,
                bytes: encoded.len() as u64,
                records,
            })),
            Err(ZooKeeperError::NoNode) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn decoded(&self, path: &str, encoded: Vec<u8>, limit: u64) -> Result<Vec<Record>, Cause> {
        let decoded = if Self::is_large(&encoded) {
            // `None`: the runtime ends.
            let decoded = blocking(move || decode(&encoded, limit)).await;
            decoded.ok_or_else(|| Box::new(Error::Closed))?
        } else {
            decode(&encoded, limit)
        };
        decoded.map_err(|error| Self::corrupt(path, error))
    }

    /// The entries from a position on, up to some, and whether there may be more.
    pub(super) async fn read(&self, first: u64) -> Result<(Vec<Entry>, bool), Cause> {
        let (client, limit, parent) = (self.client.clone(), self.limit, self.path("log"));
        let read = stream::iter(first..first + READ_AHEAD)
            .map(move |position| within(limit, client.get_data(&format!("{parent}/{position}"))))
            .buffered(READ_AHEAD as usize);
        let mut read = std::pin::pin!(read);
        let mut entries = Vec::new();
        while let Some(node) = read.next().await {
            match node {
                Ok((data, _)) => {
                    let path = self.path(format_args!("log/{}", first + entries.len() as u64));
                    match self.entry(&path, &data).await? {
                        Some(entry) => entries.push(entry),
                        None => return Ok((entries, true)),
                    }
                }
                Err(ZooKeeperError::NoNode) => return Ok((entries, false)),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok((entries, true))
    }

    /// `None` if its pieces were deleted.
    async fn entry(&self, path: &str, data: &[u8]) -> Result<Option<Entry>, Cause> {
        let (kind, rest) = data
            .split_first()
            .ok_or_else(|| Self::corrupt(path, "it is empty"))?;
        let (id, rest) = rest
            .split_first_chunk::<16>()
            .ok_or_else(|| Self::corrupt(path, "it has no id"))?;
        let (records, bytes) = match *kind {
            COMPLETE => (
                self.decoded(path, rest.to_vec(), MAX_ENTRY).await?,
                data.len() as u64,
            ),
            STAGED => {
                let pieces: Pieces =
                    serde_json::from_slice(rest).map_err(|error| Self::corrupt(path, error))?;
                let Some(encoded) = self.pieces(STAGED_PIECES, &pieces).await? else {
                    return Ok(None);
                };
                let limit = pieces.records.min(MAX_ENTRY);
                (self.decoded(path, encoded, limit).await?, pieces.bytes)
            }
            other => return Err(Self::corrupt(path, format!("its kind is {other}"))),
        };
        Ok(Some(Entry {
            id: Uuid::from_bytes(*id),
            records,
            bytes,
        }))
    }

    /// Whether an entry has to be staged.
    pub(super) fn is_large(encoded: &[u8]) -> bool {
        encoded.len() > MAX_NODE
    }

    /// Appends an entry at a position, if the log has none there and its start is still that of
    /// `version`.
    pub(super) async fn append(
        &self,
        position: u64,
        version: i32,
        id: Uuid,
        entry: Result<&[u8], &Pieces>,
    ) -> Result<Appended, Cause> {
        let path = self.path(format_args!("log/{position}"));
        let mut data = vec![if entry.is_ok() { COMPLETE } else { STAGED }];
        data.extend_from_slice(id.as_bytes());
        match entry {
            Ok(encoded) => data.extend_from_slice(encoded),
            Err(pieces) => data.extend_from_slice(&serde_json::to_vec(pieces)?),
        }
        let options = CreateMode::Persistent.with_acls(self.acls);
        let write = || {
            let mut writer = self.client.new_multi_writer();
            writer.add_check_version(&self.path("current"), version)?;
            writer.add_create(&path, &data, &options)?;
            if let Err(pieces) = entry {
                let staged = self.path(format_args!("{STAGED_PIECES}/{}", pieces.name));
                writer.add_set_data(&staged, position.to_string().as_bytes(), Some(0))?;
            }
            Ok(writer.commit())
        };
        let written = write().map_err(|error: ZooKeeperError| self.failed(&error))?;
        match within(self.limit, written).await {
            Ok(_) => Ok(Appended::Done),
            Err(MultiWriteError::OperationFailed {
                source: ZooKeeperError::BadVersion,
                index: 0,
            }) => Ok(Appended::Superseded),
            Err(MultiWriteError::OperationFailed {
                source: ZooKeeperError::NodeExists,
                index: 1,
            }) => Ok(Appended::Occupied),
            Err(MultiWriteError::OperationFailed {
                source: ZooKeeperError::BadVersion | ZooKeeperError::NoNode,
                index: 2,
            }) => Ok(Appended::Unstaged),
            Err(error) => Err(self.failed(&error.into())),
        }
    }

    /// Whether the log has no entry at a position, at a time after this call began. `is_strict`:
    /// certainly, for which the ensemble writes; otherwise as the connected server knows it. `version`: of
    /// the known start of the log. With a later one, the entry may have been deleted.
    pub(super) async fn ends_before(
        &self,
        position: u64,
        version: i32,
        is_strict: bool,
    ) -> Result<bool, Cause> {
        let (barrier, path) = (self.path("barrier"), self.path(format_args!("log/{position}")));
        // The server carries them out in this order.
        let written = is_strict.then(|| self.client.set_data(&barrier, b"", None));
        let found = self.client.check_stat(&path);
        let start = self.client.check_stat(&self.path("current"));
        let answered = async {
            if let Some(written) = written {
                written.await?;
            }
            Ok((found.await?, start.await?))
        };
        let (found, start) = within(self.limit, answered)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(found.is_none() && start.is_some_and(|start| start.version <= version))
    }

    /// Watches for the entry at a position; `None` if there is one, or was: see
    /// [`ends_before`](Self::ends_before).
    pub(super) async fn watch(&self, position: u64, version: i32) -> Result<Option<OneshotWatcher>, Cause> {
        let path = self.path(format_args!("log/{position}"));
        let found = self.client.check_and_watch_stat(&path);
        let start = self.client.check_stat(&self.path("current"));
        let answered = within(self.limit, async { Ok((found.await?, start.await?)) }).await;
        let ((found, watcher), start) = answered.map_err(|error| self.failed(&error))?;
        let ends = found.is_none() && start.is_some_and(|start| start.version <= version);
        Ok(ends.then_some(watcher))
    }

    /// Lets the log begin with a snapshot, if it still begins as in `version`. Returns whether it does.
    pub(super) async fn set_current(&self, current: &Current, version: i32) -> Result<bool, Cause> {
        let data = serde_json::to_vec(current)?;
        let write = || {
            let mut writer = self.client.new_multi_writer();
            writer.add_set_data(&self.path("current"), &data, Some(version))?;
            if let Some(snapshot) = &current.snapshot {
                let snapshot = self.path(format_args!("{SNAPSHOTS}/{}", snapshot.name));
                writer.add_set_data(&snapshot, current.position.to_string().as_bytes(), Some(0))?;
            }
            Ok(writer.commit())
        };
        let written = write().map_err(|error: ZooKeeperError| self.failed(&error))?;
        match within(self.limit, written).await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed {
                source: ZooKeeperError::BadVersion | ZooKeeperError::NoNode,
                ..
            }) => Ok(false),
            Err(error) => Err(self.failed(&error.into())),
        }
    }

    /// Deletes what nothing needs when the log begins as in `current`, or later: entries of the log,
    /// staged pieces and other snapshots.
    pub(super) async fn clean(&self, current: &Current) -> Result<(), Cause> {
        let is_entry = |position: u64| position > current.position;
        let entries = self.children("log").await?.into_iter();
        let entries = entries.filter(|name| !name.parse().is_ok_and(is_entry));
        let entries = entries
            .map(|name| self.path(format_args!("log/{name}")))
            .collect();
        self.delete_all(entries).await?;
        self.clean_pieces(STAGED_PIECES, is_entry).await?;
        self.clean_pieces(SNAPSHOTS, |position| position >= current.position)
            .await
    }

    /// Deletes pieces that are not used, and those that are used at a position that nothing needs.
    async fn clean_pieces(&self, folder: &str, is_needed: impl Fn(u64) -> bool) -> Result<(), Cause> {
        for name in self.children(folder).await? {
            let path = self.path(format_args!("{folder}/{name}"));
            let position = match within(self.limit, self.client.get_data(&path)).await {
                Ok((position, _)) => position,
                Err(ZooKeeperError::NoNode) => continue,
                Err(error) => return Err(self.failed(&error)),
            };
            let is_used = if position.is_empty() {
                match within(self.limit, self.client.set_data(&path, ABANDONED, Some(0))).await {
                    Ok(_) => false,
                    // They are used by now, or deleted.
                    Err(ZooKeeperError::BadVersion | ZooKeeperError::NoNode) => true,
                    Err(error) => return Err(self.failed(&error)),
                }
            } else {
                let position = String::from_utf8_lossy(&position);
                position.parse().is_ok_and(&is_needed)
            };
            if !is_used {
                self.delete_pieces(folder, &name).await?;
            }
        }
        Ok(())
    }

    async fn children(&self, folder: &str) -> Result<Vec<String>, Cause> {
        let path = self.path(folder);
        let children = within(self.limit, self.client.list_children(&path)).await;
        children.map_err(|error| self.failed(&error))
    }

    pub(super) async fn delete_pieces(&self, folder: &str, name: &str) -> Result<(), Cause> {
        let path = self.path(format_args!("{folder}/{name}"));
        let children = match within(self.limit, self.client.list_children(&path)).await {
            Ok(children) => children,
            Err(ZooKeeperError::NoNode) => return Ok(()),
            Err(error) => return Err(self.failed(&error)),
        };
        let children = children
            .into_iter()
            .map(|name| format!("{path}/{name}"))
            .collect();
        self.delete_all(children).await?;
        match within(self.limit, self.client.delete(&path, None)).await {
            // Their writer has not noticed yet; the next snapshot deletes the rest.
            Ok(()) | Err(ZooKeeperError::NoNode | ZooKeeperError::NotEmpty) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn delete_all(&self, paths: Vec<String>) -> Result<(), Cause> {
        let (client, limit) = (self.client.clone(), self.limit);
        let mut deleted = stream::iter(paths)
            .map(move |path| within(limit, client.delete(&path, None)))
            .buffered(WINDOW);
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(()) | Err(ZooKeeperError::NoNode) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }
}
