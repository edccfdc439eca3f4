//! The route of a request: a pure function of its method, path and headers, with mesos-dns's rules.
//!
//! Paths are decoded first. A path with doubled slashes is redirected (301) to its clean form; it may
//! end with one slash. Dot segments are rejected before (`transom_web::check_target`). An unknown path
//! is 404, a wrong method 405, a body that is not JSON 415, and an `Accept` without the offered type
//! 406.

use ::http::{HeaderMap, Method, header};

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Version,
    Config,
    Enumerate,
    /// The zone with all records.
    Axfr,
    OpenApi,
    /// The addresses of a host.
    Hosts(String),
    /// Not implemented in mesos-dns either.
    HostPorts,
    /// The targets of a service.
    Services(String),
    WatchHosts(String),
    WatchServices(String),
}

impl Route {
    /// Its name in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Config => "config",
            Self::Enumerate => "enumerate",
            Self::Axfr => "axfr",
            Self::OpenApi => "openapi",
            Self::Hosts(_) | Self::HostPorts => "hosts",
            Self::Services(_) => "services",
            Self::WatchHosts(_) | Self::WatchServices(_) => "watch",
        }
    }
}

/// Why a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The path has an invalid encoding.
    Malformed,
    /// The path has a clean form.
    Redirect(String),
    NotFound,
    WrongMethod,
    WrongBody,
    NotAcceptable,
}

/// Finds the route. `enumeration`: whether enumeration is on.
pub(super) fn route(
    method: &Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    enumeration: bool,
) -> Result<Route, Rejection> {
    let path = percent_decoded(path).ok_or(Rejection::Malformed)?;
    let clean = without_doubled_slashes(&path);
    if clean != path {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        return Err(Rejection::Redirect(percent_encoded(&clean) + &query));
    }
    let route = find_route(&path, enumeration).ok_or(Rejection::NotFound)?;
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Rejection::WrongMethod);
    }
    if !is_json(headers) {
        return Err(Rejection::WrongBody);
    }
    let kind = match route {
        Route::WatchHosts(_) | Route::WatchServices(_) => "text/event-stream",
        _ => "application/json",
    };
    if accepts(headers, kind) {
        Ok(route)
    } else {
        Err(Rejection::NotAcceptable)
    }
}

fn find_route(path: &str, enumeration: bool) -> Option<Route> {
    let path = path.strip_prefix("/v1/")?;
    let parts: Vec<_> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Some(match parts[..] {
        ["version"] => Route::Version,
        ["config"] => Route::Config,
        ["enumerate"] if enumeration => Route::Enumerate,
        ["axfr"] if enumeration => Route::Axfr,
        ["openapi.json"] => Route::OpenApi,
        ["hosts", host] => Route::Hosts(name(host)?),
        ["hosts", _, "ports"] => Route::HostPorts,
        ["services", service] => Route::Services(name(service)?),
        ["watch", "hosts", host] => Route::WatchHosts(name(host)?),
        ["watch", "services", service] => Route::WatchServices(name(service)?),
        _ => return None,
    })
}

/// Whether the body is JSON, absent, or without a content type.
fn is_json(headers: &HeaderMap) -> bool {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    match (length, kind) {
        (None | Some(0), _) | (_, None | Some("")) => true,
        (_, Some(kind)) => kind.split(',').any(|kind| media_type(kind) == "application/json"),
    }
}

/// Whether a client accepts this type. As in mesos-dns, `application/*` does not match.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let mut kinds = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        kinds.extend(value.to_str().unwrap_or_default().split(','));
    }
    kinds.is_empty()
        || kinds
            .into_iter()
            .map(media_type)
            .any(|accepted| matches!(accepted, "" | "*/*") || accepted == kind)
}

/// A media type without its parameters.
fn media_type(kind: &str) -> &str {
    kind.split(';').next().unwrap_or_default().trim()
}

/// Percent-decodes a path; none if the encoding is invalid.
fn percent_decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest
            .get(..2)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The path with single slashes, of which the first is never missing.
fn without_doubled_slashes(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    clean
}

/// Percent-encodes a path for `Location`.
fn percent_encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            text.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
            text.extend(['%', digit(byte >> 4), digit(byte)]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use super::*;

    fn get(path: &str) -> Result<Route, Rejection> {
        route(&Method::GET, path, None, &HeaderMap::new(), true)
    }

    #[test]
    fn route_finds_paths_like_mesos_dns() {
        let host = |name: &str| Ok(Route::Hosts(name.to_owned()));
        let redirect = |path: &str| Err(Rejection::Redirect(path.to_owned()));
        for (path, expected) in [
            ("/v1/version", Ok(Route::Version)),
            ("/v1/version/", Ok(Route::Version)),
            ("/v1/config", Ok(Route::Config)),
            ("/v1/enumerate", Ok(Route::Enumerate)),
            ("/v1/axfr", Ok(Route::Axfr)),
            ("/v1/hosts/leader.mesos", host("leader.mesos")),
            ("/v1/hosts/leader.mesos/", host("leader.mesos")),
            ("/v1/hosts/leader%2Emesos%2e", host("leader.mesos.")),
            ("/v1/hosts/le%61der", host("leader")),
            ("/v1/hosts/a%20b%00", host("a b\0")),
            ("/v1/hosts/%FF", host("\u{fffd}")),
            ("/v1/hosts/x;y=1,z", host("x;y=1,z")),
            ("/v1/hosts/.*", host(".*")),
            ("/v1/hosts/a/ports", Ok(Route::HostPorts)),
            ("/v1/hosts/a/ports/", Ok(Route::HostPorts)),
            (
                "/v1/services/_a._tcp.b.",
                Ok(Route::Services("_a._tcp.b.".into())),
            ),
            ("/v1/watch/hosts/a", Ok(Route::WatchHosts("a".into()))),
            (
                "/v1/watch/services/_a._tcp",
                Ok(Route::WatchServices("_a._tcp".into())),
            ),
            ("/v1/hosts/a%2Fb", Err(Rejection::NotFound)),
            ("/v1/services/a/ports", Err(Rejection::NotFound)),
            ("/v1/hosts/", Err(Rejection::NotFound)),
            ("/v1/hosts", Err(Rejection::NotFound)),
            ("/v1", Err(Rejection::NotFound)),
            ("/", Err(Rejection::NotFound)),
            ("/V1/version", Err(Rejection::NotFound)),
            ("/metrics", Err(Rejection::NotFound)),
            ("/v1/hosts/%zz", Err(Rejection::Malformed)),
            ("/v1/hosts/%4", Err(Rejection::Malformed)),
            ("//v1/version", redirect("/v1/version")),
            ("/v1//version", redirect("/v1/version")),
            ("/v1/hosts//", redirect("/v1/hosts/")),
            ("/v1/hosts//%20%3F", redirect("/v1/hosts/%20%3F")),
            ("//", redirect("/")),
        ] {
            assert_eq!(get(path), expected, "{path}");
        }
        let found = route(&Method::PUT, "//v1", Some("x=1"), &HeaderMap::new(), true);
        assert_eq!(found, redirect("/v1?x=1"));
        for path in ["/v1/enumerate", "/v1/axfr"] {
            let found = route(&Method::GET, path, None, &HeaderMap::new(), false);
            assert_eq!(found, Err(Rejection::NotFound));
        }
    }

    #[test]
    fn route_checks_the_method_after_the_path() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let of = |path| route(&method, path, None, &HeaderMap::new(), true);
            assert_eq!(of("/v1/version"), Err(Rejection::WrongMethod), "{method}");
            assert_eq!(of("/nope"), Err(Rejection::NotFound), "{method}");
        }
        let head = route(&Method::HEAD, "/v1/version", None, &HeaderMap::new(), true);
        assert_eq!(head, Ok(Route::Version));
    }

    fn with(path: &str, headers: &[(header::HeaderName, &str)]) -> Result<(), Rejection> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        route(&Method::GET, path, None, &headers.collect(), true).map(drop)
    }

    #[test]
    fn route_checks_accept_for_json_and_events() {
        for (path, accept, expected) in [
            ("/v1/version", "application/json", true),
            ("/v1/version", "application/json;q=0.1", true),
            ("/v1/version", "text/html, application/json", true),
            ("/v1/version", "text/html,*/*;q=0.8", true),
            ("/v1/version", "", true),
            ("/v1/version", "text/html", false),
            ("/v1/version", "application/*", false),
            ("/v1/version", "application/xml", false),
            ("/v1/watch/hosts/a", "text/event-stream", true),
            ("/v1/watch/hosts/a", "*/*", true),
            ("/v1/watch/hosts/a", "application/json", false),
        ] {
            let found = with(path, &[(header::ACCEPT, accept)]);
            assert_eq!(found.is_ok(), expected, "{path} {accept:?}");
            assert!(expected || found == Err(Rejection::NotAcceptable));
        }
    }

    #[test]
    fn route_rejects_bodies_with_another_content_type() {
        for (length, kind, expected) in [
            ("1", "text/plain", false),
            ("1", "application/json", true),
            ("1", "application/json; charset=utf-8", true),
            ("1", "", true),
            ("0", "text/plain", true),
        ] {
            let found = with(
                "/v1/version",
                &[(header::CONTENT_LENGTH, length), (header::CONTENT_TYPE, kind)],
            );
            assert_eq!(found.is_ok(), expected, "{length} {kind:?}");
            assert!(expected || found == Err(Rejection::WrongBody));
        }
        assert!(with("/v1/version", &[(header::CONTENT_TYPE, "text/plain")]).is_ok());
    }
}
