//! The guard of the masters' and agents' ports against web pages, which real ones do not have.
//!
//! A page that an operator opens could otherwise subscribe a framework at a known port and run
//! commands, although the port is on loopback. Host names and origins are checked as on the
//! daemon's ports ([`Access`]); other sites are never allowed. Request targets with a second
//! meaning are rejected before anything else reads them. Clients other than browsers notice the
//! host name only.

use crate::config::Config;
use http::{Request, StatusCode};
use std::net::SocketAddr;
use transom_web::{Access, ForeignSite, check_target};

/// The host names of the cluster: loopback, the address connected to, the configured names of its
/// machines, and [`Config::allowed_hosts`].
pub(crate) fn access(config: &Config) -> Access {
    let access = Access::new("cluster", config.allowed_hosts.clone(), Vec::new());
    let agents = config.agents.iter().map(|agent| agent.hostname.as_str());
    std::iter::once(config.hostname.as_str())
        .chain(agents)
        .fold(access, Access::named)
}

/// Checks a request that arrived at `local`; the error is the status and the text of
/// the response.
pub(crate) fn check<B>(
    access: &Access,
    request: &Request<B>,
    local: Option<SocketAddr>,
) -> Result<(), (StatusCode, String)> {
    let (status, why) = if let Err(error) = check_target(request.uri()) {
        (StatusCode::BAD_REQUEST, error.to_string())
    } else {
        match access.check_site(request.method(), request.uri(), request.headers(), local) {
            Ok(_) => return Ok(()),
            Err(foreign) => describe(&foreign),
        }
    };
    tracing::warn!(status = status.as_u16(), reason = why, "request rejected");
    Err((status, why))
}

fn describe(foreign: &ForeignSite) -> (StatusCode, String) {
    match foreign {
        ForeignSite::Host(host) => {
            let text = format!(
                "{host:?} is not a host name of this cluster, so a web page may have sent the request (DNS \
                 rebinding). If clients reach the cluster by that name, start it with --allowed-host and the name."
            );
            (StatusCode::MISDIRECTED_REQUEST, text)
        }
        ForeignSite::Header(header) => {
            let text = format!(
                "A web page of another site sent this request ({header:?}). Pages cannot use this cluster; use a \
                 program such as curl."
            );
            (StatusCode::FORBIDDEN, text)
        }
        ForeignSite::Unnamed => {
            let text =
                "A browser sent this request without the site of its page; use a program such as curl.";
            (StatusCode::FORBIDDEN, text.to_owned())
        }
    }
}
