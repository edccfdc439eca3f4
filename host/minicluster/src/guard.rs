//! The guard of the masters' and agents' ports against web pages, which real ones do not have.
//!
//! A page that an operator opens could otherwise subscribe a framework at a known port and run
//! commands, although the port is on loopback. Host names and origins are checked as on the
//! daemon's ports ([`Access`]); other sites are never allowed. Request targets with a second
//! meaning are rejected before anything else reads them. Clients other than browsers notice the
//! host name only.

use crate::{
    config::Config,
    http::{Refusal, refusal},
};
use http::{Request, StatusCode};
use std::net::SocketAddr;
use transom_web::{Access, ForeignSite, truncated};

/// The host names of the cluster: loopback, the address connected to, the configured names of its
/// machines, and [`Config::allowed_hosts`].
pub(crate) fn access(config: &Config) -> Access {
    let access = Access::new("cluster", config.allowed_hosts.clone(), Vec::new());
    let agents = config.agents.iter().map(|agent| agent.hostname.as_str());
    std::iter::once(config.hostname.as_str())
        .chain(agents)
        .fold(access, Access::named)
}

/// Checks a request that arrived at `local`; the error is the response to send.
pub(crate) fn check<B>(
    access: &Access,
    request: &Request<B>,
    local: Option<SocketAddr>,
) -> Result<(), Refusal> {
    let (status, why) = if is_ambiguous(request.uri().path()) {
        let path = truncated(request.uri().path());
        let text = format!(
            "The path {path:?} contains a backslash, a control character, a dot segment, or an encoded dot or \
             slash: expecting the plain path of a route"
        );
        (StatusCode::BAD_REQUEST, text)
    } else {
        match access.check_site(request.method(), request.uri(), request.headers(), local) {
            Ok(_) => return Ok(()),
            Err(foreign) => describe(&foreign),
        }
    };
    tracing::warn!(status = status.as_u16(), reason = why, "request rejected");
    Err(refusal(status, why))
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

/// Whether programs may disagree about the meaning of a path.
fn is_ambiguous(path: &str) -> bool {
    let is_odd = |byte: u8| byte == b'\\' || byte.is_ascii_control();
    let encoded = |at: usize| {
        let digits = path.get(at + 1..at + 3)?;
        u8::from_str_radix(digits, 16).ok()
    };
    let hides = |at: usize| encoded(at).is_some_and(|byte| is_odd(byte) || matches!(byte, b'.' | b'/'));
    path.bytes().any(is_odd)
        || path.match_indices('%').any(|(at, _)| hides(at))
        || path.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_a_second_meaning_are_rejected() {
        for (path, expected) in [
            ("/", false),
            ("//version", false),
            ("/slave(1)/state", false),
            ("/a.b/..c/%41", false),
            ("/a%2", false),
            ("/master/../minicluster/faults", true),
            ("/./state", true),
            ("/state/..", true),
            ("/master\\state", true),
            ("/master%5cstate", true),
            ("/%2e%2E/state", true),
            ("/master%2fstate", true),
            ("/state%00", true),
            ("/state%0a", true),
            ("/state%7F", true),
        ] {
            assert_eq!(is_ambiguous(path), expected, "{path}");
        }
    }
}
