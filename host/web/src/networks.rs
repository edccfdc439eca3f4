//! Restricts a port without credentials to certain networks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipnet::IpNet;

use crate::ApiError;

/// Allows requests from this machine and from `networks`; others get 403. A router that is not served by
/// [`crate::serve`] has no peer address, so all its requests get 403.
pub fn allow_networks(router: Router, networks: Arc<[IpNet]>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let networks = Arc::clone(&networks);
        async move { check_peer(&networks, request, next).await }
    }))
}

async fn check_peer(networks: &[IpNet], request: Request, next: Next) -> Response {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip().to_canonical());
    match peer {
        Some(peer) if peer.is_loopback() || is_within(networks, peer) => next.run(request).await,
        peer => {
            tracing::warn!(?peer, "request from an untrusted network refused");
            let text = "Requests from this network are not allowed. Add it to trusted_networks in the configuration.";
            ApiError::new(StatusCode::FORBIDDEN, text).into_response()
        }
    }
}

/// Whether an address belongs to one of the networks. An IPv4 address that is written as IPv6 counts as IPv4.
pub fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn allow_networks_refuses_other_peers() {
        let networks: Vec<IpNet> = vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let router = allow_networks(Router::new().route("/", get(async || "hello")), networks.into());
        for (peer, status) in [
            (Some("127.0.0.1"), 200),
            (Some("::1"), 200),
            (Some("::ffff:127.0.0.1"), 200),
            (Some("10.1.255.255"), 200),
            (Some("::ffff:10.1.0.1"), 200),
            (Some("fd12::1"), 200),
            (Some("10.2.0.1"), 403),
            (Some("2001:db8::1"), 403),
            (None, 403),
        ] {
            let mut request = Request::new(Body::empty());
            if let Some(peer) = peer {
                let peer = SocketAddr::new(peer.parse().unwrap(), 1);
                request.extensions_mut().insert(ConnectInfo(peer));
            }
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{peer:?}");
        }
    }
}
