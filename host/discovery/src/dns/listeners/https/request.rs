//! Decodes a request into a query, or rejects it with a status.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::DNS_MESSAGE;

/// The path of queries.
const PATH: &str = "/dns-query";
/// The maximum of a DNS message.
const MAX_QUERY_BYTES: usize = u16::MAX as usize;
/// The maximum of a body that is read to its end before it is rejected as too large.
const MAX_BODY_BYTES: usize = 256 << 10;

/// Why a request has no DNS message as its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The path is one that is rejected on every port.
    Target,
    Path,
    Method,
    MediaType,
    TooLarge,
    Slow,
    /// The parameter `dns` is missing, given twice, or no base64url.
    Parameter,
    /// The body ended early.
    Body,
    /// It is no message, or a response.
    NoQuery,
    Transfer,
    /// Rate limiting.
    TooMany,
}

impl Rejection {
    /// The status, and what the client can do about it.
    fn explained(self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::Target => (
                S::BAD_REQUEST,
                "the path contains a backslash, a dot segment, a control character, or an encoded dot or slash",
            ),
            Self::Path => (S::NOT_FOUND, "DNS queries are answered at /dns-query"),
            Self::Method => (S::METHOD_NOT_ALLOWED, "use GET or POST"),
            Self::MediaType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "the content type of a query is application/dns-message",
            ),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "a query has at most 65535 bytes"),
            Self::Slow => (S::REQUEST_TIMEOUT, "timeout reading the query"),
            Self::Parameter => (
                S::BAD_REQUEST,
                "GET needs one parameter `dns`, a query in base64url without padding",
            ),
            Self::Body => (S::BAD_REQUEST, "the body ended early"),
            Self::NoQuery => (S::BAD_REQUEST, "this is not a DNS query"),
            Self::Transfer => (S::BAD_REQUEST, "zone transfers need TCP or TLS"),
            Self::TooMany => (
                S::TOO_MANY_REQUESTS,
                "too many answers for this network in this second",
            ),
        }
    }

    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let (status, text) = self.explained();
        let mut response = Response::new(Full::from(format!("{text}\n")));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let mut insert = |name, value| headers.insert(name, HeaderValue::from_static(value));
        insert(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        insert(header::CACHE_CONTROL, "no-store");
        match self {
            Self::Method => drop(insert(header::ALLOW, "GET, POST")),
            Self::TooMany => drop(insert(header::RETRY_AFTER, "1")),
            _ => {}
        }
        response
    }
}

/// The query of a request, whose body has to arrive within `time_limit`.
pub(super) async fn query(request: Request<Incoming>, time_limit: Duration) -> Result<Bytes, Rejection> {
    let (head, body) = request.into_parts();
    let checked = check(&head);
    // The body of a rejected request is read as well: without that the connection is reset, and some
    // clients do not show the status.
    let body = timeout(time_limit, from_body(body))
        .await
        .unwrap_or(Err(Rejection::Slow));
    match checked? {
        Source::Parameter => from_parameter(head.uri.query().unwrap_or_default()),
        Source::Body => body,
    }
}

/// Where a request has its query.
enum Source {
    Parameter,
    Body,
}

fn check(head: &Parts) -> Result<Source, Rejection> {
    if transom_web::check_target(&head.uri).is_err() {
        return Err(Rejection::Target);
    }
    if head.uri.path() != PATH {
        return Err(Rejection::Path);
    }
    match head.method {
        Method::GET => Ok(Source::Parameter),
        Method::POST if is_dns_message(&head.headers) => Ok(Source::Body),
        Method::POST => Err(Rejection::MediaType),
        _ => Err(Rejection::Method),
    }
}

fn from_parameter(parameters: &str) -> Result<Bytes, Rejection> {
    let mut queries = parameters.split('&').filter_map(|pair| pair.strip_prefix("dns="));
    let (Some(query), None) = (queries.next(), queries.next()) else {
        return Err(Rejection::Parameter);
    };
    let query = URL_SAFE_NO_PAD.decode(query).map_err(|_| Rejection::Parameter)?;
    Ok(query.into())
}

fn is_dns_message(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(DNS_MESSAGE))
}

async fn from_body(mut body: Incoming) -> Result<Bytes, Rejection> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(Rejection::TooLarge);
    }
    let (mut query, mut size) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(|_| Rejection::Body)?.into_data() else {
            continue;
        };
        size += data.len();
        if size > MAX_BODY_BYTES {
            return Err(Rejection::TooLarge);
        }
        if size <= MAX_QUERY_BYTES {
            query.extend_from_slice(&data);
        }
    }
    if size > MAX_QUERY_BYTES {
        return Err(Rejection::TooLarge);
    }
    Ok(query.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_the_parameter_in_base64url_without_padding() {
        for (parameters, expected) in [
            ("dns=AAE", Ok(&[0, 1][..])),
            ("dns=-_8", Ok(&[0xfb, 0xff])),
            ("ct=&dns=AAE&x", Ok(&[0, 1])),
            ("dns=", Ok(&[])),
            ("", Err(Rejection::Parameter)),
            ("DNS=AAE", Err(Rejection::Parameter)),
            ("dns=AAE&dns=AAE", Err(Rejection::Parameter)),
            ("dns=AAE=", Err(Rejection::Parameter)),
            ("dns=+/8", Err(Rejection::Parameter)),
            ("dns=AAF", Err(Rejection::Parameter)),
            ("dns=A", Err(Rejection::Parameter)),
            ("dns=%41AE", Err(Rejection::Parameter)),
        ] {
            let expected = expected.map(Bytes::from_static);
            assert_eq!(from_parameter(parameters), expected, "{parameters}");
        }
    }

    #[test]
    fn media_type_may_have_parameters() {
        for (kind, expected) in [
            ("application/dns-message", true),
            ("Application/DNS-Message; charset=x", true),
            ("application/dns-json", false),
            ("application/dns-messages", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            assert_eq!(is_dns_message(&headers), expected, "{kind}");
        }
        assert!(!is_dns_message(&HeaderMap::new()));
    }
}
