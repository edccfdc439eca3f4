//! Protection against web pages: which host names and origins a port accepts.
//!
//! A browser on an operator's machine can reach ports that other machines cannot, loopback
//! included. A page of any site could make it send requests there (cross-site request forgery), or
//! point the page's own host name at this port's address and also read the answers (DNS rebinding).
//! [`guarded`] rejects both, on every path and for every method:
//!
//! | request | answer |
//! |---|---|
//! | `Host` is not a name of this port | 421 |
//! | `Origin` is neither this port nor in `allowed_origins` | 403 |
//! | `Sec-Fetch-Site` is not `same-origin` or `none`, without an allowed `Origin` | 403 |
//! | neither of these headers, for a `GET` that changes something ([`Access::with_changes`]): `Referer` is another site, or there is none and the client is a browser | 403 |
//! | a body whose content type is not JSON, which a browser may send without a preflight | 415 |
//!
//! A port through which nothing can be changed may apply this to connections that arrive on loopback
//! only ([`Access::on_loopback`]).
//!
//! Names of the port are `localhost` and names below it, loopback addresses, the address that the
//! client connected to, the configured host name, and `allowed_hosts`. The port in `Host` is
//! ignored, because of tunnels. Requests without `Host` or `Origin` pass: browsers always send the
//! former, and the latter with every method but `GET` and `HEAD`. For these they send
//! `Sec-Fetch-Site` instead, but only over TLS and to loopback, and a page may suppress `Referer`. So
//! a `GET` that changes something needs one of the three from a browser, whose `User-Agent` begins
//! with `Mozilla/`. A link to a port (a `GET` that the browser marks as a navigation) is allowed
//! from any site if it changes nothing.
//!
//! Pages of `allowed_origins` may also read the answers: preflights are answered here, and answers
//! carry CORS headers.
//!
//! Users are not authenticated here. Programs that choose their own headers pass; see
//! [`crate::AccessPolicy`].
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod name;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body::Body as _;

use super::policy::AccessRules;
use crate::ApiError;
use crate::connections::LocalAddr;
use crate::text::truncated;
use crate::throttle::Throttle;
pub use name::{AllowedHost, Origin};
use name::{Authority, Host};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Headers by which a port checks a browser's request. They mean nothing to the daemon that
/// receives a forwarded request.
pub(crate) const CHECKED_HEADERS: [HeaderName; 6] = [
    header::ORIGIN,
    header::REFERER,
    header::USER_AGENT,
    SEC_FETCH_SITE,
    SEC_FETCH_MODE,
    SEC_FETCH_DEST,
];

/// The beginning of every browser's `User-Agent`.
const BROWSER: &[u8] = b"Mozilla/";

/// How long a browser may cache the answer to a preflight, in seconds.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// The host names and origins of one port.
#[derive(Clone, Debug)]
pub struct Access {
    section: &'static str,
    hosts: Vec<AllowedHost>,
    origins: Vec<Origin>,
    changes: fn(&Method, &str) -> bool,
    only_on_loopback: bool,
    only_hosts: bool,
}

/// Why a request may have been sent by a web page of another site, with the beginning of the text
/// that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignSite {
    /// This host is not one of the port.
    Host(String),
    /// This header names another site.
    Header(String),
    /// A browser names no site for a `GET` that changes something.
    Unnamed,
}

impl Access {
    /// Accepts loopback, the address connected to, `hosts` and `origins`. Error texts name the
    /// settings of `[section]`.
    pub fn new(section: &'static str, hosts: Vec<AllowedHost>, origins: Vec<Origin>) -> Self {
        Self {
            section,
            hosts,
            origins,
            changes: AccessRules::DEFAULT.changes,
            only_on_loopback: false,
            only_hosts: false,
        }
    }

    /// Checks only connections that arrive on a loopback address, where nobody but this machine is
    /// meant to read. Connections to other addresses may use any host name.
    #[must_use]
    pub fn on_loopback(mut self) -> Self {
        self.only_on_loopback = true;
        self
    }

    /// Sets which requests may change something; see [`AccessRules::changes`].
    #[must_use]
    pub fn with_changes(mut self, changes: fn(&Method, &str) -> bool) -> Self {
        self.changes = changes;
        self
    }

    /// Adds a configured host name of this machine. An invalid host name is ignored.
    #[must_use]
    pub fn named(mut self, host: &str) -> Self {
        self.hosts.extend(host.parse::<AllowedHost>());
        self
    }

    fn knows(&self, host: &Host, local: Option<SocketAddr>) -> bool {
        let is_local = |address| local.is_some_and(|local| local.ip().to_canonical() == address);
        host.is_loopback()
            || matches!(host, Host::Address(address) if is_local(*address))
            || self.hosts.iter().any(|allowed| allowed.matches(host))
    }

    /// Checks host names only: pages of other sites may send requests, whose answers they cannot read,
    /// to a port through which nothing can be changed.
    #[must_use]
    pub fn only_hosts(mut self) -> Self {
        self.only_hosts = true;
        self
    }

    /// Whether connections to this address of this machine are checked.
    fn applies_to(&self, local: Option<SocketAddr>) -> bool {
        !self.only_on_loopback || local.is_none_or(|local| local.ip().to_canonical().is_loopback())
    }

    /// Checks a request. `Ok(Some(_))`: it comes from an allowed page of another site.
    fn check(&self, request: &Request) -> Result<Option<Origin>, ApiError> {
        let local = request.extensions().get::<LocalAddr>().map(|local| local.0);
        if !self.applies_to(local) {
            return Ok(None);
        }
        if self.only_hosts {
            let checked = self.check_host(request.uri(), request.headers(), local);
            return checked.map(|_| None).map_err(|foreign| self.error(&foreign));
        }
        let origin = self
            .check_site(request.method(), request.uri(), request.headers(), local)
            .map_err(|foreign| self.error(&foreign))?;
        check_content_type(request)?;
        Ok(origin)
    }

    /// Checks host names and origin of a request to `local`, an address of this machine.
    /// `Ok(Some(_))`: it comes from an allowed page of another site.
    ///
    /// # Errors
    /// Why the request may come from a page that is not allowed.
    pub fn check_site(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        local: Option<SocketAddr>,
    ) -> Result<Option<Origin>, ForeignSite> {
        let authority = self.check_host(uri, headers, local)?;
        self.check_origin(method, uri, headers, authority.as_ref())
    }

    /// Checks every host name that the request contains, in `Host` and in its target, and returns
    /// the last one.
    fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        local: Option<SocketAddr>,
    ) -> Result<Option<Authority>, ForeignSite> {
        let in_headers = headers.get_all(header::HOST).iter();
        let texts = in_headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // An absolute-form request, as for a proxy, names the host a second time.
        let in_target = uri.authority().map(ToString::to_string);
        let mut last = None;
        for text in texts.chain(in_target).filter(|text| !text.is_empty()) {
            match Authority::parse(&text) {
                Some(authority) if self.knows(&authority.host, local) => last = Some(authority),
                _ => return Err(ForeignSite::Host(truncated(&text).to_owned())),
            }
        }
        Ok(last)
    }

    fn check_origin(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        authority: Option<&Authority>,
    ) -> Result<Option<Origin>, ForeignSite> {
        let mut allowed = None;
        for value in headers.get_all(header::ORIGIN) {
            let text = String::from_utf8_lossy(value.as_bytes());
            match text.parse::<Origin>() {
                Ok(origin) if authority.is_some_and(|authority| origin.is_of(authority)) => {}
                Ok(origin) if self.origins.contains(&origin) => allowed = Some(origin),
                _ => return Err(foreign_header("Origin", &text)),
            }
        }
        let changes = (self.changes)(method, uri.path());
        if allowed.is_some() || (!changes && is_followed_link(method, headers)) {
            return Ok(allowed);
        }
        for value in headers.get_all(SEC_FETCH_SITE) {
            if !matches!(value.as_bytes(), b"same-origin" | b"none") {
                let text = String::from_utf8_lossy(value.as_bytes());
                return Err(foreign_header(SEC_FETCH_SITE.as_str(), &text));
            }
        }
        let names_site = headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE);
        if changes && !names_site && matches!(*method, Method::GET | Method::HEAD) {
            self.check_referer(headers, authority)?;
        }
        Ok(None)
    }

    /// Checks a request that names its site in no other header.
    fn check_referer(&self, headers: &HeaderMap, authority: Option<&Authority>) -> Result<(), ForeignSite> {
        let referers = headers.get_all(header::REFERER).iter();
        let mut referers = referers.filter(|value| !value.is_empty()).peekable();
        let mut agents = headers.get_all(header::USER_AGENT).iter();
        if referers.peek().is_none() && agents.any(|agent| agent.as_bytes().starts_with(BROWSER)) {
            return Err(ForeignSite::Unnamed);
        }
        for value in referers {
            let text = String::from_utf8_lossy(value.as_bytes());
            let is_allowed = |origin: &Origin| {
                authority.is_some_and(|authority| origin.is_of(authority)) || self.origins.contains(origin)
            };
            if !Origin::of_page(&text).is_some_and(|origin| is_allowed(&origin)) {
                return Err(foreign_header(header::REFERER.as_str(), &text));
            }
        }
        Ok(())
    }

    fn error(&self, foreign: &ForeignSite) -> ApiError {
        let section = self.section;
        match foreign {
            ForeignSite::Host(host) => {
                let text = format!(
                    "{host:?} is not a host name of this port, so a web page may have sent the request (DNS rebinding). \
                     If clients reach this port by that name, add it to `{section}.allowed_hosts` in the configuration."
                );
                ApiError::new(StatusCode::MISDIRECTED_REQUEST, text)
            }
            ForeignSite::Header(header) => {
                let text = format!(
                    "A web page of another site sent this request ({header:?}). If pages of that site may use this port, \
                     add its origin to `{section}.allowed_origins` in the configuration."
                );
                ApiError::new(StatusCode::FORBIDDEN, text)
            }
            ForeignSite::Unnamed => {
                let text = "A browser sent this request, which changes something, without the site of the page that caused \
                            it (no Origin, Sec-Fetch-Site or Referer), so a page of another site may have. Use the method \
                            that the API has for changes, such as PUT, or a client whose User-Agent does not begin with \
                            \"Mozilla/\", such as curl.";
                ApiError::new(StatusCode::FORBIDDEN, text)
            }
        }
    }
}

fn foreign_header(name: &str, value: &str) -> ForeignSite {
    ForeignSite::Header(truncated(&format!("{name}: {value}")).to_owned())
}

/// Whether a user follows a link to this port. The linking page never sees the answer.
fn is_followed_link(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name, value: &str| {
        let found = headers.get(name);
        found.is_some_and(|found: &HeaderValue| found.as_bytes() == value.as_bytes())
    };
    matches!(*method, Method::GET | Method::HEAD)
        && is(SEC_FETCH_MODE, "navigate")
        && is(SEC_FETCH_DEST, "document")
}

/// Rejects bodies that are not JSON: a page can post forms and plain text without a preflight.
fn check_content_type(request: &Request) -> Result<(), ApiError> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || request.body().is_end_stream() {
        return Ok(());
    }
    for value in request.headers().get_all(header::CONTENT_TYPE) {
        if !is_json(value) {
            let found = String::from_utf8_lossy(value.as_bytes());
            let found = truncated(&found);
            let text = format!(
                "The body's content type is {found:?}; expected `Content-Type: application/json`, or no Content-Type"
            );
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
    }
    Ok(())
}

fn is_json(value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Passes only requests that `access` accepts, and answers browsers of its origins with CORS
/// headers. The address connected to is known if `serve` serves the router.
pub fn guarded(router: Router, access: Access) -> Router {
    let site = Arc::new((access, Throttle::of_rejections()));
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let site = Arc::clone(&site);
        async move { guard(&site.0, &site.1, request, next).await }
    }))
}

async fn guard(access: &Access, log: &Throttle, request: Request, next: Next) -> Response {
    let origin = match access.check(&request) {
        Ok(None) => return next.run(request).await,
        Ok(Some(origin)) => origin,
        Err(rejected) => {
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
            if let Some(suppressed) = log.pass() {
                tracing::warn!(
                    port = access.section,
                    peer = peer.map(|peer| tracing::field::display(peer.0)),
                    status = rejected.status().as_u16(),
                    reason = rejected.message(),
                    suppressed,
                    "request rejected"
                );
            }
            return rejected.into_response();
        }
    };
    if let Some(mut response) = preflight(&request) {
        readable_by(&origin, response.headers_mut());
        return response;
    }
    let mut response = next.run(request).await;
    readable_by(&origin, response.headers_mut());
    response
}

/// The answer to a preflight.
fn preflight(request: &Request) -> Option<Response> {
    let request_headers = request.headers();
    if request.method() != Method::OPTIONS
        || !request_headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    {
        return None;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
    if let Some(wanted) = request_headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    Some(response)
}

/// Allows pages of `origin` to read the answer, with all of its headers.
fn readable_by(origin: &Origin, headers: &mut HeaderMap) {
    let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    let exposed = HeaderValue::from_str(&names.join(", "));
    let origin = HeaderValue::from_str(&origin.to_string());
    for (name, value) in [
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
    ] {
        // Header names and parsed origins are always valid header values.
        if let Ok(value) = value {
            headers.insert(name, value);
        }
    }
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        HeaderValue::from_static("true"),
    );
    headers.append(header::VARY, HeaderValue::from_name(header::ORIGIN));
}

#[cfg(test)]
mod tests;
