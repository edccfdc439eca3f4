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
const UNPROTECTED_PATHS: &[&str] = &["/health", "/ready"];

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

    use axum::body::Body;
    use axum::extract::{ConnectInfo, Request};
    use transom_web::{Credentials, LoopbackTrust, PortConfig};

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
}
