//! Access to the admin port.
//!
//! | request | credentials configured | none configured |
//! |---|---|---|
//! | `/health`, `/ready` | everybody | everybody |
//! | from `trusted_networks` | no credentials needed | answered |
//! | from this machine | credentials | answered |
//! | from elsewhere | credentials | 403 |
//!
//! Wrong credentials are rejected from any address. Host names and origins are checked first, on
//! every path.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use transom_web::{Access, ApiError, Credentials, Presented, is_within};

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Transom admin\"");

/// The paths for supervisors and load balancers, which have no credentials. They only reveal which
/// services are ready.
const UNPROTECTED_PATHS: [&str; 2] = ["/health", "/ready"];

/// The access rules of the admin port.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// `None`: every host name is accepted.
    access: Option<Access>,
    credentials: Option<Credentials>,
    networks: Vec<IpNet>,
}

impl Guard {
    pub(crate) fn new(access: Access, credentials: Option<Credentials>, networks: Vec<IpNet>) -> Guard {
        Guard {
            access: Some(access),
            credentials,
            networks,
        }
    }

    /// For a port that can change nothing and has a configured address, as discovery's: every
    /// client may read. On loopback the host name is checked all the same, because only this
    /// machine is meant to read there.
    pub(crate) fn read_only(listener: IpAddr) -> Guard {
        let everybody: [IpNet; 2] = [Ipv4Net::default().into(), Ipv6Net::default().into()];
        Guard {
            access: listener
                .is_loopback()
                .then(|| Access::new("admin", Vec::new(), Vec::new())),
            credentials: None,
            networks: everybody.into(),
        }
    }

    /// The router behind the guard.
    pub(super) fn protect(self, router: Router) -> Router {
        let access = self.access.clone();
        let guard = Arc::new(self);
        let router = router.layer(middleware::from_fn(move |request: Request, next: Next| {
            let guard = Arc::clone(&guard);
            async move {
                match guard.check(&request) {
                    Ok(()) => next.run(request).await,
                    Err(refused) => refused.into_response(),
                }
            }
        }));
        match access {
            Some(access) => transom_web::guarded(router, access),
            None => router,
        }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        if UNPROTECTED_PATHS.contains(&request.uri().path()) {
            return Ok(());
        }
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map(|peer| peer.0.ip().to_canonical());
        let trusted = peer.is_some_and(|peer| is_within(&self.networks, peer));
        let here = peer.is_some_and(|peer| peer.is_loopback());
        let presented = self
            .credentials
            .as_ref()
            .map(|credentials| credentials.presented(request.headers()));
        match presented {
            Some(Presented::Valid) => Ok(()),
            Some(Presented::Nothing) if trusted => Ok(()),
            Some(Presented::Nothing | Presented::Invalid) => {
                tracing::warn!(
                    ?peer,
                    ?presented,
                    path = request.uri().path(),
                    "admin: request without valid credentials refused"
                );
                let text = "This port needs the user and the password of the configuration (`admin.username` and \
                            `admin.password`). `transom plugin` takes them from TRANSOM_ADMIN_USERNAME and \
                            TRANSOM_ADMIN_PASSWORD.";
                let refused = ApiError::new(StatusCode::UNAUTHORIZED, text);
                Err(refused.header(header::WWW_AUTHENTICATE, CHALLENGE))
            }
            None if trusted || here => Ok(()),
            None => {
                tracing::warn!(?peer, "admin: request from an untrusted network refused");
                let text = "Requests from this network are not allowed. Add it to `admin.trusted_networks` in the \
                            configuration, or set `admin.username` and `admin.password`.";
                Err(ApiError::new(StatusCode::FORBIDDEN, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::any;
    use tokio_util::sync::CancellationToken;
    use transom_web::{Limits, Listener, serve};

    use super::*;

    fn status(guard: &Guard, peer: &str, path: &str, authorization: Option<&str>) -> u16 {
        let mut request = Request::builder().uri(path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let peer: IpAddr = peer.parse().expect("an address");
        let request = request.extension(ConnectInfo(SocketAddr::new(peer, 1)));
        let request = request.body(Body::empty()).expect("a request");
        guard
            .check(&request)
            .map_or_else(|refused| refused.status().as_u16(), |()| 200)
    }

    #[test]
    fn requests_are_answered_by_credentials_and_network() {
        let credentials = Credentials {
            username: "u".to_owned(),
            password: "p".to_owned(),
        };
        let right = credentials.authorization();
        let (right, wrong) = (Some(right.as_str()), Some("Basic dTp4"));
        let (here, near, far) = ("127.0.0.1", "::ffff:10.0.0.1", "192.0.2.1");
        let none: &[IpNet] = &[];
        let some: &[IpNet] = &["10.0.0.0/8".parse().expect("a network")];
        // Credentials, networks; peer, credentials of the request: status.
        for (with, networks, cases) in [
            (
                false,
                none,
                [
                    (here, None, 200),
                    (near, None, 403),
                    (far, right, 403),
                    (here, wrong, 200),
                ],
            ),
            (
                false,
                some,
                [
                    (here, None, 200),
                    (near, None, 200),
                    (far, None, 403),
                    (far, right, 403),
                ],
            ),
            (
                true,
                none,
                [
                    (here, None, 401),
                    (here, right, 200),
                    (far, right, 200),
                    (far, wrong, 401),
                ],
            ),
            (
                true,
                some,
                [
                    (here, None, 401),
                    (near, None, 200),
                    (near, wrong, 401),
                    (far, right, 200),
                ],
            ),
        ] {
            let access = Access::new("admin", Vec::new(), Vec::new());
            let guard = Guard::new(access, with.then(|| credentials.clone()), networks.to_vec());
            for (peer, shown, expected) in cases {
                let found = status(&guard, peer, "/v1/plugins", shown);
                assert_eq!(
                    found, expected,
                    "credentials: {with}, {networks:?}, {peer}, {shown:?}"
                );
                assert_eq!(status(&guard, peer, "/health", shown), 200);
                assert_eq!(status(&guard, peer, "/ready", shown), 200);
            }
        }
    }

    /// A port whose guard assumes the address `listener`: the status for a client that uses another
    /// host name.
    async fn status_by_another_name(listener: &str) -> u16 {
        let guard = Guard::read_only(listener.parse().expect("an address"));
        let router = guard.protect(Router::new().route("/metrics", any(async || "metrics")));
        let port = Listener::bind("admin", SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let (url, token) = (
            format!("http://{}/metrics", port.local_addr()),
            CancellationToken::new(),
        );
        let grace = std::time::Duration::from_secs(5);
        let serving = tokio::spawn(serve(port, router, Limits::default(), token.clone(), grace));
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        let request = client.build().expect("a client").get(url);
        let answer = request.header("host", "prometheus.test").send().await;
        token.cancel();
        serving.await.expect("it ends").expect("in order");
        answer.expect("an answer").status().as_u16()
    }

    #[tokio::test]
    async fn a_port_that_only_reads_answers_other_machines_by_any_name() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_eq!(status_by_another_name("127.0.0.1").await, 421);
        assert_eq!(status_by_another_name("0.0.0.0").await, 200);
        let guard = Guard::read_only(IpAddr::from([0, 0, 0, 0]));
        assert_eq!(status(&guard, "192.0.2.1", "/metrics", None), 200);
    }
}
