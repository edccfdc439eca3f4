//! Reads the state of a stopped Marathon from ZooKeeper.
//!
//! Nothing is written. Before and after reading, no process of Marathon may be registered. Every
//! request has a timeout; the number of nodes and their bytes together are limited. A node that cannot
//! be read is named in the report; without the storage version, the framework's id or the root group
//! the command fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::stream::{self, StreamExt};
use tokio::time::timeout;
use transom_apps::migration::Marathon;
use transom_apps::migration::stored::{
    Category, LEADERS, Reference, StoredError, StoredState, VERSION, check_version, read_framework_id,
    wanted_versions,
};
use transom_common::ZooKeeperPath;
use zookeeper_client::{Client, Error};

use crate::exit::{Misconfigured, Unavailable};

/// Timeout of a connection to a server.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the session, of the search for a server, and of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of concurrent requests.
const MAX_CONCURRENT: usize = 16;
/// The maximum number of nodes that are read.
const MAX_NODES: usize = 2_000_000;
/// The maximum number of bytes in all nodes together.
const MAX_BYTES: usize = 1 << 30;
/// The maximum number of processes of Marathon in an error.
const MAX_NAMED: usize = 10;

/// Marathon's part of ZooKeeper.
struct Nodes {
    client: Client,
    from: ZooKeeperPath,
    node_count: AtomicUsize,
    byte_count: AtomicUsize,
}

/// The nodes of an app or a pod.
struct DefinitionNodes {
    reference: Reference,
    current: Option<Vec<u8>>,
    past: Result<Vec<(Reference, Vec<u8>)>, StoredError>,
    failure: Option<Vec<u8>>,
}

/// Reads everything that an import needs from `from`, such as `zk://host:2181/marathon`. For each app
/// and pod that is the newest `max_versions` definitions, and those that its tasks were launched with.
pub(super) async fn read(
    from: &str,
    credentials: Option<(String, String)>,
    max_versions: usize,
) -> anyhow::Result<Marathon> {
    let mut from = ZooKeeperPath::parse(from)
        .map_err(|error| anyhow::anyhow!("--from: {error}; expected zk://HOST:PORT,HOST:PORT/PATH"))
        .context(Misconfigured)?;
    if let Some((user, password)) = credentials {
        if from.digest.is_some() {
            let error = anyhow::anyhow!("--from has credentials, and --username is given");
            return Err(error).context(Misconfigured);
        }
        from.digest = Some(format!("{user}:{password}"));
    }
    let nodes = Nodes::connect(from).await.context(Unavailable)?;
    let marathon = nodes.read(max_versions).await.context(Unavailable)?;
    Ok(marathon)
}

impl Nodes {
    async fn connect(from: ZooKeeperPath) -> anyhow::Result<Self> {
        let mut connector = Client::connector()
            .with_session_timeout(TIMEOUT)
            .with_connection_timeout(CONNECTION_TIMEOUT)
            .with_fail_eagerly();
        if let Some(digest) = &from.digest {
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        let connected = timeout(TIMEOUT, connector.connect(&from.servers)).await;
        let client = connected
            .unwrap_or(Err(Error::Timeout))
            .with_context(|| format!("no server of {from} accepts a session"))?;
        Ok(Self {
            client,
            from,
            node_count: AtomicUsize::new(0),
            byte_count: AtomicUsize::new(0),
        })
    }

    async fn read(&self, max_versions: usize) -> anyhow::Result<Marathon> {
        // The connected server may be behind the others.
        self.request(&self.from.path, self.client.sync(&self.from.path))
            .await?;
        self.reject_running().await?;
        let version = self.get(&self.path(VERSION)).await?.with_context(|| {
            format!(
                "{}{VERSION} does not exist; is this the path of Marathon's --zk?",
                self.from
            )
        })?;
        check_version(&version).with_context(|| format!("{}{VERSION}", self.from))?;
        let path = Category::FrameworkId.node("id");
        let id = read_framework_id(&self.required(&path).await?);
        let id = id.with_context(|| format!("{}{path}", self.from))?;
        let path = Category::Group.node("root");
        let state = StoredState::new(&id, &self.required(&path).await?);
        let mut state = state.with_context(|| format!("{}{path}", self.from))?;
        for (path, data) in self.all(Category::Deployments).await? {
            match data {
                Some(data) => state.add_deployment(&path, &data),
                None => state.reject(&path, &StoredError::Missing),
            }
        }
        for (path, data) in self.all(Category::Instances).await? {
            match data {
                Some(data) => state.add_instance(&path, &data),
                None => state.reject(&path, &StoredError::Missing),
            }
        }
        self.read_definitions(&mut state, max_versions).await?;
        self.reject_running().await?;
        Ok(state.into_marathon())
    }

    async fn read_definitions(&self, state: &mut StoredState, max_versions: usize) -> anyhow::Result<()> {
        let wanted: Vec<_> = state.current().iter().cloned().collect();
        let wanted = wanted.into_iter().map(|reference| {
            let used = state.used_versions(&reference.id);
            async move { self.definition(reference, &used, max_versions).await }
        });
        let wanted: Vec<_> = wanted.collect();
        let mut definitions = stream::iter(wanted).buffered(MAX_CONCURRENT);
        while let Some(nodes) = definitions.next().await {
            let nodes = nodes?;
            let folder = nodes.reference.folder();
            let path = format!("{folder}/{}", nodes.reference.version);
            match nodes.current {
                Some(data) => state.add_definition(&nodes.reference, &path, &data),
                None => state.reject(&path, &StoredError::Missing),
            }
            if let Some(failure) = nodes.failure {
                state.add_failure(&nodes.reference, &failure);
            }
            match nodes.past {
                Ok(past) => {
                    for (reference, data) in past {
                        let path = format!("{folder}/{}", reference.version);
                        state.add_definition(&reference, &path, &data);
                    }
                }
                Err(error) => state.reject(&folder, &error),
            }
        }
        Ok(())
    }

    /// Reads the nodes of an app or pod.
    async fn definition(
        &self,
        reference: Reference,
        used: &[String],
        max_versions: usize,
    ) -> anyhow::Result<DefinitionNodes> {
        let folder = self.path(&reference.folder());
        let current = self.get(&format!("{folder}/{}", reference.version)).await?;
        let failure = match reference.category {
            Category::Apps => self.get(&self.path(&reference.failure())).await?,
            _ => None,
        };
        let names = self.children(&folder).await?;
        let past = match wanted_versions(names, used, max_versions) {
            Ok(versions) => {
                let mut past = Vec::new();
                for version in versions
                    .into_iter()
                    .filter(|version| *version != reference.version)
                {
                    if let Some(data) = self.get(&format!("{folder}/{version}")).await? {
                        past.push((
                            Reference {
                                version,
                                ..reference.clone()
                            },
                            data,
                        ));
                    }
                }
                Ok(past)
            }
            Err(error) => Err(error),
        };
        Ok(DefinitionNodes {
            reference,
            current,
            past,
            failure,
        })
    }

    /// The nodes of a category with their paths below that of Marathon; a node that has vanished has no
    /// content. Deleted ones are left out.
    async fn all(&self, category: Category) -> anyhow::Result<Vec<(String, Option<Vec<u8>>)>> {
        let mut paths = Vec::new();
        let folder = category.folder();
        for bucket in self.children(&self.path(&folder)).await? {
            let names = self.children(&self.path(&format!("{folder}/{bucket}"))).await?;
            paths.extend(names.into_iter().map(|name| format!("{folder}/{bucket}/{name}")));
        }
        let contents = paths.into_iter().map(|path| async move {
            let data = self
                .request(&path, self.client.get_data(&self.path(&path)))
                .await?;
            anyhow::Ok((path, data.map(|(data, _)| data)))
        });
        let contents: Vec<_> = contents.collect();
        let mut contents = stream::iter(contents).buffered(MAX_CONCURRENT);
        let mut all = Vec::new();
        while let Some(node) = contents.next().await {
            let (path, data) = node?;
            self.count(data.as_ref().map_or(0, Vec::len))?;
            if data.as_ref().is_none_or(|data| !data.is_empty()) {
                all.push((path, data));
            }
        }
        Ok(all)
    }

    /// Fails if a process of Marathon is registered: it may change the state, and would act as the same
    /// framework.
    async fn reject_running(&self) -> anyhow::Result<()> {
        let folder = self.path(LEADERS);
        let mut running = BTreeSet::new();
        for name in self.children(&folder).await?.into_iter().take(MAX_NAMED) {
            let path = format!("{folder}/{name}");
            if let Some((data, stat)) = self.request(&path, self.client.get_data(&path)).await?
                && stat.ephemeral_owner != 0
            {
                running.insert(String::from_utf8_lossy(&data).into_owned());
            }
        }
        ensure!(
            running.is_empty(),
            "Marathon runs: {} in {folder}. Stop all its processes, and wait until their sessions with ZooKeeper \
             have ended; or import from the running Marathon with --from http://HOST:PORT",
            running.into_iter().collect::<Vec<_>>().join(", ")
        );
        Ok(())
    }

    /// The path in ZooKeeper of one below that of Marathon.
    fn path(&self, below: &str) -> String {
        format!("{}{below}", self.from.path)
    }

    /// The content of a node; `None` if it does not exist, or was deleted.
    async fn get(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let data = self.request(path, self.client.get_data(path)).await?;
        let data = data.map(|(data, _)| data).filter(|data| !data.is_empty());
        self.count(data.as_ref().map_or(0, Vec::len))?;
        Ok(data)
    }

    async fn required(&self, below: &str) -> anyhow::Result<Vec<u8>> {
        let data = self.get(&self.path(below)).await?;
        data.with_context(|| {
            format!(
                "{}{below} does not exist; has Marathon ever led with this state?",
                self.from
            )
        })
    }

    /// The names of the nodes in a folder; none if it does not exist.
    async fn children(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let children = self.request(path, self.client.list_children(path)).await?;
        let children = children.unwrap_or_default();
        ensure!(
            children.len() <= MAX_NODES,
            "{path} has more than {MAX_NODES} nodes"
        );
        Ok(children)
    }

    /// The answer to a request; `None` if there is no such node.
    async fn request<T>(
        &self,
        path: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> anyhow::Result<Option<T>> {
        match timeout(TIMEOUT, request).await.unwrap_or(Err(Error::Timeout)) {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::NoNode) => Ok(None),
            Err(Error::NoAuth | Error::AuthFailed) => bail!(
                "ZooKeeper denies reading {path}: give the credentials of Marathon's --zk with --username and \
                 TRANSOM_MARATHON_PASSWORD"
            ),
            Err(error) => Err(error).with_context(|| format!("{path} of {} cannot be read", self.from)),
        }
    }

    /// Counts a node with so many bytes towards the limits.
    fn count(&self, bytes: usize) -> anyhow::Result<()> {
        let nodes = self.node_count.fetch_add(1, Ordering::Relaxed);
        let bytes = self
            .byte_count
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        ensure!(
            nodes < MAX_NODES && bytes <= MAX_BYTES,
            "{} has more than {MAX_NODES} nodes or {MAX_BYTES} bytes",
            self.from
        );
        Ok(())
    }
}
