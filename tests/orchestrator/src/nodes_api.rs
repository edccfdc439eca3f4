//! An API that contains only nodes, for tests that need no control plane. It has only those calls
//! that the framework and the agents use.
//!
//! It accepts the same credentials as the control plane: the authority's certificates and the
//! agents' token. Nodes are stored in the shared folder, as a datastore would store them. A node is
//! not ready if its agent sends no renewals.
//!
//! While the shared folder contains the file `keep-pods`, each node has a pod that no drain may
//! evict.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificates::Authority;
use crate::node::VERSION;
use crate::shared::SharedFolder;
use crate::{Arguments, address};

/// How long a node stays ready without a renewal; the control plane has the same setting here.
const NODE_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum of connections between their handshake and their first request.
const MAX_WAITING_CONNECTIONS: usize = 64;

/// The API with its bound port.
pub(crate) struct NodesApi {
    listener: Secure,
    router: Router,
}

struct Shared {
    token: String,
    /// The folder with a file for each node, which is written at each renewal. Servers of a cluster
    /// share it.
    folder: PathBuf,
    /// While this file exists, each node has a pod that cannot be evicted.
    kept_pods: PathBuf,
    /// The lock for changes of nodes, also by other servers.
    lock: PathBuf,
}

/// The peer of a connection.
#[derive(Clone, Debug)]
struct Peer {
    address: SocketAddr,
    /// Whether it presented a certificate of the authority.
    certified: bool,
}

impl NodesApi {
    pub(crate) async fn bind(arguments: &Arguments, token: &str) -> anyhow::Result<Self> {
        let folder = SharedFolder::of(arguments)?;
        let folder = folder.path();
        let tls = tls(&Authority::in_folder(folder)?, arguments)?;
        let bound = TcpListener::bind((address(arguments), arguments.https_listen_port));
        let listener = Secure::new(bound.await.context("binding the API's port")?, tls)?;
        let nodes = folder.join("nodes");
        fs::create_dir_all(&nodes).with_context(|| format!("creating {}", nodes.display()))?;
        let shared = Arc::new(Shared {
            token: token.to_owned(),
            folder: nodes,
            kept_pods: folder.join("keep-pods"),
            lock: folder.join("nodes.lock"),
        });
        Ok(Self {
            listener,
            router: router(shared),
        })
    }

    /// Serves the API; returns only on an error.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        let service = self.router.into_make_service_with_connect_info::<Peer>();
        axum::serve(self.listener, service)
            .await
            .context("serving the API")
    }
}

/// The TLS settings: a server certificate, and optional client certificates of the authority.
fn tls(authority: &Authority, arguments: &Arguments) -> anyhow::Result<TlsAcceptor> {
    let mut names = arguments.tls_san.clone();
    names.push(address(arguments).to_string());
    let server = authority.server(names)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(server.key.as_bytes())?,
        )?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn router(shared: Arc<Shared>) -> Router {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    Router::new()
        .route("/readyz", get(async || "ok"))
        .route("/version", get(async || Json(json!({"gitVersion": VERSION}))))
        .route("/api/v1/nodes", get(list).post(register))
        .route("/api/v1/nodes/{name}", patch(change).delete(remove))
        .route("/api/v1/nodes/{name}/status", patch(renew))
        .route("/api/v1/pods", get(pods))
        .route("/api/v1/namespaces/{namespace}/pods/{name}/eviction", post(evict))
        // Leases are ignored, because the node's status is renewed at the same interval.
        .route(LEASES, post(async || StatusCode::CREATED))
        .route(&format!("{LEASES}/{{name}}"), patch(async || StatusCode::OK))
        .layer(from_fn_with_state(Arc::clone(&shared), authenticate))
        .with_state(shared)
}

async fn authenticate(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let is_authorized = authorization.is_some_and(|authorization| {
        authorization.as_bytes() == format!("Bearer {}", shared.token).as_bytes()
    });
    if is_authorized || peer.certified {
        next.run(request).await
    } else {
        println!("{}: neither a certificate nor the token", peer.address);
        StatusCode::UNAUTHORIZED.into_response()
    }
}

type Answer<T> = Result<T, Failure>;

/// A file error, or a node that does not exist.
enum Failure {
    File(io::Error),
    Name,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::File(error) if error.kind() == io::ErrorKind::NotFound => {
                StatusCode::NOT_FOUND.into_response()
            }
            Self::File(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
            Self::Name => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

async fn list(State(shared): State<Arc<Shared>>) -> Answer<Json<Value>> {
    let mut items = Vec::new();
    for entry in fs::read_dir(&shared.folder)? {
        let path = entry?.path();
        // Files with other extensions are being written.
        if path.extension().is_some_and(|extension| extension == "json") {
            match node_document(&path) {
                Ok(node) => items.push(node),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(Json(
        json!({"kind": "NodeList", "apiVersion": "v1", "items": items}),
    ))
}

async fn register(State(shared): State<Arc<Shared>>, Json(node): Json<Value>) -> Answer<StatusCode> {
    let _changing = shared.changing()?;
    let path = shared.path(node["metadata"]["name"].as_str().unwrap_or_default())?;
    if path.exists() {
        return Ok(StatusCode::CONFLICT);
    }
    write(&path, &node)?;
    Ok(StatusCode::CREATED)
}

async fn renew(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Json(mut change): Json<Value>,
) -> Answer<StatusCode> {
    shared.change(&name, |node| node["status"] = change["status"].take())
}

async fn change(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Json(mut change): Json<Value>,
) -> Answer<StatusCode> {
    let value = change["spec"]["unschedulable"].take();
    shared.change(&name, |node| {
        node["spec"]["unschedulable"] = value;
        // The cordon's annotation is the only one that clients set.
        if let Some(annotations) = change["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
            node["metadata"]["annotations"] = json!(annotations);
        }
    })
}

async fn remove(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answer<StatusCode> {
    let _changing = shared.changing()?;
    fs::remove_file(shared.path(&name)?)?;
    Ok(StatusCode::OK)
}

/// The pods of one node. Clients query only single nodes while pods are kept.
async fn pods(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Value> {
    let selector = query.get("fieldSelector");
    let node = selector.and_then(|selector| selector.strip_prefix("spec.nodeName="));
    let node = node.filter(|_| shared.kept_pods.exists());
    let pods: Vec<Value> = node
        .into_iter()
        .map(|node| {
            json!({
                "metadata": {"name": format!("kept-{node}"), "namespace": "default", "uid": node},
                "spec": {"nodeName": node}, "status": {"phase": "Running"},
            })
        })
        .collect();
    Json(json!({"kind": "PodList", "apiVersion": "v1", "items": pods}))
}

/// The status of the control plane while a disruption budget protects the pod.
async fn evict(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.kept_pods.exists() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::NOT_FOUND
    }
}

impl Shared {
    /// Locks the nodes until the file is dropped.
    fn changing(&self) -> io::Result<fs::File> {
        let file = fs::File::create(&self.lock)?;
        file.lock()?;
        Ok(file)
    }

    /// The file of a node.
    fn path(&self, name: &str) -> Answer<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(Failure::Name);
        }
        Ok(self.folder.join(format!("{name}.json")))
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) -> Answer<StatusCode> {
        let _changing = self.changing()?;
        let path = self.path(name)?;
        let mut node = read(&path)?;
        change(&mut node);
        write(&path, &node)?;
        Ok(StatusCode::OK)
    }
}

fn read(path: &std::path::Path) -> io::Result<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The file is replaced by a rename, because another server may read it at any time.
fn write(path: &std::path::Path, node: &Value) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, node.to_string())?;
    fs::rename(&temporary, path)
}

/// Reads a node; without recent renewals its conditions are unknown.
fn node_document(path: &std::path::Path) -> io::Result<Value> {
    let mut node = read(path)?;
    let conditions = node.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let renewed = condition["lastHeartbeatTime"].as_str();
        let renewed = renewed.and_then(|time| time.parse::<Timestamp>().ok());
        if renewed.is_none_or(|time| Timestamp::now().duration_since(time) > NODE_TIMEOUT) {
            condition["status"] = json!("Unknown");
        }
    }
    Ok(node)
}

/// Connections after their handshakes, which run concurrently.
struct Secure {
    connections: mpsc::Receiver<(TlsStream<TcpStream>, Peer)>,
    address: SocketAddr,
}

impl Secure {
    fn new(listener: TcpListener, tls: TlsAcceptor) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let (connected, connections) = mpsc::channel(MAX_WAITING_CONNECTIONS);
        tokio::spawn(async move {
            loop {
                // The error concerns only one connection, so the next one is accepted.
                let Ok((stream, address)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let (tls, connected) = (tls.clone(), connected.clone());
                tokio::spawn(async move {
                    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
                    let Ok(Ok(stream)) = handshake else { return };
                    let certified = stream.get_ref().1.peer_certificates().is_some();
                    // An error means that the program is ending.
                    let _ = connected.send((stream, Peer { address, certified })).await;
                });
            }
        });
        Ok(Self { connections, address })
    }
}

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Peer {
            address: self.address,
            certified: false,
        })
    }
}

impl Connected<IncomingStream<'_, Secure>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Secure>) -> Self {
        stream.remote_addr().clone()
    }
}
