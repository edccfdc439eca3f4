//! Access to the admin port.
//!
//! | request | credentials configured | none configured |
//! |---|---|---|
//! | `/health`, `/ready` | answered | answered |
//! | from `trusted_networks` | no credentials needed | answered |
//! | from this machine | credentials | answered |
//! | from elsewhere | credentials | 403 |
//!
//! Wrong credentials are rejected from any address. Host names and origins are checked first, on
//! every path.

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use transom_web::{AccessPolicy, AccessRules, ApiError, Denial, Requirement};

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Transom admin\"");

/// The paths for supervisors and load balancers, which have no credentials. Their responses only reveal
/// which services are ready and which daemon leads each framework.
const UNPROTECTED_PATHS: [&str; 2] = ["/health", "/ready"];

/// The rules of the port.
pub(super) const RULES: AccessRules = AccessRules {
    requirement,
    rejection,
    // The apps service sets this header, so audit events contain the id of the deployment.
    audited_header: Some("marathon-deployment-id"),
    ..AccessRules::DEFAULT
};

fn requirement(_: &Method, path: &str) -> Requirement {
    if UNPROTECTED_PATHS.contains(&path) {
        Requirement::Nothing
    } else {
        Requirement::NetworkOrCredentials
    }
}

/// The response names the environment variables of the commands that use this port, because they print it.
fn rejection(policy: &AccessPolicy, denial: Denial, _path: &str) -> Response {
    match denial {
        Denial::UntrustedNetwork | Denial::ReadOnly => policy.rejection(denial).into_response(),
        Denial::Unauthorized => {
            let text = "This port requires the user and the password of the configuration (`admin.username` \
                        and `admin.password`). The commands of transom read them from TRANSOM_ADMIN_USERNAME and \
                        TRANSOM_ADMIN_PASSWORD.";
            let rejected = ApiError::new(StatusCode::UNAUTHORIZED, text);
            rejected
                .header(header::WWW_AUTHENTICATE, CHALLENGE)
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use axum::Router;
    use axum::body::Body;
    use axum::extract::{ConnectInfo, Request};
    use axum::routing::any;
    use tokio_util::sync::CancellationToken;
    use transom_web::{Credentials, Limits, Listener, LoopbackTrust, PortConfig, serve};

    use super::*;

    fn allowed(port: &PortConfig, peer: &str, path: &str, authorization: Option<&str>) -> bool {
        let mut request = Request::builder().uri(path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let peer: IpAddr = peer.parse().expect("an address");
        let request = request.extension(ConnectInfo(SocketAddr::new(peer, 1)));
        let request = request.body(Body::empty()).expect("a request");
        let requirement = requirement(request.method(), path);
        port.policy().check(requirement, false, &request).is_ok()
    }

    #[test]
    fn health_and_readiness_need_no_credentials() {
        let credentials = Credentials {
            username: "u".to_owned(),
            password: "p".into(),
        };
        let valid_authorization = credentials.authorization();
        let port = PortConfig {
            credentials: Some(credentials),
            loopback_trust: LoopbackTrust::UnlessCredentials,
            ..PortConfig::new("admin", 0)
        };
        for peer in ["127.0.0.1", "192.0.2.1"] {
            for (authorization, expected) in [
                (None, false),
                (Some("Basic dTp4"), false),
                (Some(valid_authorization.as_str()), true),
            ] {
                assert_eq!(
                    allowed(&port, peer, "/v1/plugins", authorization),
                    expected,
                    "{authorization:?}"
                );
                assert!(allowed(&port, peer, "/health", authorization));
                assert!(allowed(&port, peer, "/ready", authorization));
            }
        }
    }

    /// Serves a port that is configured with the address `listener`, and returns the status of a
    /// request with another host name.
    async fn status_for_foreign_host(listener: &str) -> u16 {
        let config = PortConfig {
            listener: listener.parse().expect("an address"),
            read_only: true,
            ..PortConfig::new("admin", 0)
        };
        let router = Router::new().route("/metrics", any(async || "metrics"));
        let router = config.protect(router, RULES);
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
    async fn read_only_port_on_all_addresses_accepts_any_host_name() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_eq!(status_for_foreign_host("127.0.0.1").await, 421);
        assert_eq!(status_for_foreign_host("0.0.0.0").await, 200);
    }
}
