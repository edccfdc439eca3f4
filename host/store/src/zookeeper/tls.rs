//! TLS to the servers. The client library's own would bring a second crypto library, so its
//! connections go to ports on loopback, from where this process forwards them in TLS. Another
//! program of the machine that connects there reaches the servers as over the network: without the
//! store's user.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use transom_common::ambient::blocking;
use transom_common::error_chain;

use crate::Cause;

/// Forwards connections until it is dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    /// A port on loopback for each server, as `host:port` separated by commas.
    pub(super) addresses: String,
    _tasks: JoinSet<()>,
}

impl Forwarder {
    /// `authorities`: the root certificates to trust, as PEM; without them those of the system.
    pub(super) async fn start(
        servers: impl Iterator<Item = (String, u16)>,
        authorities: Option<&[u8]>,
    ) -> Result<Self, Cause> {
        let connector = TlsConnector::from(Arc::new(config(authorities).await?));
        let (mut addresses, mut tasks) = (Vec::new(), JoinSet::new());
        for (host, port) in servers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?.to_string());
            let name = ServerName::try_from(host.clone())?;
            tasks.spawn(forward(listener, (host, port), name, connector.clone()));
        }
        Ok(Self {
            addresses: addresses.join(","),
            _tasks: tasks,
        })
    }
}

async fn config(authorities: Option<&[u8]>) -> Result<ClientConfig, Cause> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = authorities {
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate?)?;
        }
    } else if let Some(system) = blocking(rustls_native_certs::load_native_certs).await {
        roots.add_parsable_certificates(system.certs);
    }
    if roots.is_empty() {
        return Err("there is no root certificate to verify the servers of ZooKeeper with".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

async fn forward(
    listener: TcpListener,
    server: (String, u16),
    name: ServerName<'static>,
    connector: TlsConnector,
) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (server, name, connector) = (server.clone(), name.clone(), connector.clone());
        connections.spawn(async move {
            let forwarded = async {
                let far = TcpStream::connect((server.0.as_str(), server.1)).await?;
                far.set_nodelay(true)?;
                near.set_nodelay(true)?;
                let mut far = connector.connect(name, far).await?;
                copy_bidirectional(&mut near, &mut far).await
            };
            // The client finds out from the end of its connection, and tries the next server.
            if let Err(error) = forwarded.await {
                let (host, port) = &server;
                tracing::debug!(
                    "TLS to the ZooKeeper server {host}:{port}: {}",
                    error_chain(&error)
                );
            }
        });
    }
}
