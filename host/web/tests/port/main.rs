//! What a port does around its router, over real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod compression;
mod concurrency;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use reqwest::{Client, RequestBuilder};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_web::{AccessRules, BoundPort, PortConfig};

/// The timeout of everything that a test waits for.
const LONG: Duration = Duration::from_secs(20);

/// A served port.
struct Port {
    addr: SocketAddr,
    http: Client,
    token: CancellationToken,
    task: JoinHandle<transom_web::Result<()>>,
}

impl Port {
    async fn start(config: PortConfig, router: Router) -> Self {
        Self::serve(config.bind().await.unwrap(), router, AccessRules::default())
    }

    fn serve(port: BoundPort, router: Router, rules: AccessRules) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().tls_certs_only([]).timeout(LONG);
        let (addr, token) = (port.addr(), CancellationToken::new());
        Self {
            addr,
            http: client.build().unwrap(),
            task: tokio::spawn(port.serve(router, rules, token.clone())),
            token,
        }
    }

    fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.addr);
        self.http.request(method.parse().unwrap(), url)
    }

    async fn stop(self) {
        self.token.cancel();
        let ended = tokio::time::timeout(LONG, self.task).await;
        ended.unwrap().unwrap().unwrap();
    }
}
