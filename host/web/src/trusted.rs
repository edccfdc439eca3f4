//! Networks whose requests are answered by a port that asks nobody for credentials.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipnet::IpNet;

use crate::ApiError;

/// Answers requests from this machine and from `networks`, all others with 403. A router that is not served by
/// [`crate::serve`] does not know who asks, and refuses everybody.
pub fn trusted(router: Router, networks: Arc<[IpNet]>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let networks = Arc::clone(&networks);
        async move { look(&networks, request, next).await }
    }))
}

async fn look(networks: &[IpNet], request: Request, next: Next) -> Response {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip().to_canonical());
    match peer {
        Some(peer) if peer.is_loopback() || is_within(networks, peer) => next.run(request).await,
        peer => {
            tracing::warn!(?peer, "a request from a network that is not trusted was refused");
            let text = "Requests from this network are not answered. The configuration names those that are, as trusted_networks.";
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
    async fn only_this_machine_and_the_networks_named_are_answered() {
        let networks: Vec<IpNet> = vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let router = trusted(Router::new().route("/", get(async || "hello")), networks.into());
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
