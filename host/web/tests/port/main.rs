//! The layers that a port adds around its router, over real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod audit;
mod browsers;
mod compression;
mod concurrency;
mod folder;
mod guessing;
mod quotas;
mod reader;
mod request_metrics;
mod targets;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::HeaderName;
use reqwest::{Client, RequestBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_web::{AccessRules, ApiError, BoundPort, Credentials, PortConfig};

const VIA: HeaderName = HeaderName::from_static("x-via");

/// The timeout of everything that a test waits for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

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
        let client = Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(WAIT_TIMEOUT);
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

    /// Sends the head of a request as it is and returns the whole answer.
    async fn send_line(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let head = format!("{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(WAIT_TIMEOUT, read).await.unwrap().unwrap();
        answer
    }

    async fn stop(self) {
        self.token.cancel();
        let ended = tokio::time::timeout(WAIT_TIMEOUT, self.task).await;
        ended.unwrap().unwrap().unwrap();
    }
}

fn user(name: &str) -> Credentials {
    Credentials {
        username: name.to_owned(),
        password: format!("password of {name}").into(),
    }
}

/// A standby: all requests are forwarded to `leader`.
async fn standby(config: PortConfig, leader: SocketAddr) -> Port {
    let bound = config.bind().await.unwrap();
    let (forwarder, leader) = (bound.forwarder(VIA).unwrap(), leader.to_string());
    let router = Router::new().fallback(async move |request: axum::extract::Request| {
        let (head, _) = request.into_parts();
        let answer = forwarder.forward(&leader, &head, Bytes::new()).await;
        answer.map_err(ApiError::from)
    });
    Port::serve(bound, router, AccessRules::default())
}
