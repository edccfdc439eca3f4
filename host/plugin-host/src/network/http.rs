//! HTTP/1.1 requests of probes: one connection each; every redirect is checked like the first
//! destination.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use transom_common::text::{clip, one_line};
use url::Url;

use super::{
    Network, charge,
    counted::{Counted, ReceivedBytes, is_exceeded},
    over_limit,
};
use crate::worlds::{
    probe::{Endpoint, IoError},
    step::{HttpRequest, HttpResponse, Tls},
};

/// Maximum size in bytes of a response's head.
const MAX_HEAD: usize = 64 << 10;
const MAX_REDIRECTS: u8 = 10;
/// Maximum number of headers of a request, and of a response.
const MAX_HEADERS: usize = 100;

pub(super) async fn exchange(
    network: &mut Network<'_>,
    request: HttpRequest,
) -> Result<HttpResponse, IoError> {
    let mut hop = Hop::from_request(&request)?;
    let mut redirects_left = request.redirects.min(MAX_REDIRECTS);
    let start = Instant::now();
    loop {
        let sent = hop.body.len() + hop.target.as_str().len() + header_bytes(&hop.headers);
        network.output = charge(network.output, sent)?;
        let connection = network.open(&hop.endpoint, hop.tls.as_ref()).await?;
        let received = ReceivedBytes::default();
        let counted = Counted {
            connection,
            received: received.clone(),
            // A response that fits has at most this much besides its headers and its body.
            limit: network.input.saturating_add(MAX_HEAD as u64),
        };
        let sent = hop.send(counted).await;
        if sent.is_err() {
            network.input = network.input.saturating_sub(received.get());
        }
        let (response, driver) = sent?;
        let elapsed = start.elapsed();
        network.input = charge(network.input, header_bytes(response.headers()))?;
        // Informational responses came before this one. What the connection has read of the body is
        // charged below, when it is used.
        let unseen = received.get().saturating_sub(MAX_HEAD as u64);
        network.input = charge(network.input, usize::try_from(unseen).unwrap_or(usize::MAX))?;
        if redirects_left > 0
            && let Some(next) = hop.redirected(&response)?
        {
            redirects_left -= 1;
            hop = next;
            continue;
        }
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        let body = read_body(network, response.into_body(), request.max_body).await?;
        drop(driver);
        return Ok(HttpResponse {
            status,
            headers,
            body,
            elapsed,
        });
    }
}

/// Shortens a text of a guest or a peer for a message.
fn clipped(text: &str) -> String {
    clip(text, 200)
}

/// One request in a chain of redirects.
struct Hop {
    method: Method,
    endpoint: Endpoint,
    tls: Option<Tls>,
    target: Url,
    headers: HeaderMap,
    body: Bytes,
}

/// The task that drives a connection. Dropping it closes the connection.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Hop {
    fn from_request(request: &HttpRequest) -> Result<Hop, IoError> {
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| IoError::Protocol(format!("{:?} is not a method", clipped(&request.method))))?;
        if method == Method::CONNECT {
            return Err(IoError::Protocol("CONNECT is not allowed".into()));
        }
        if !request.path.starts_with('/') {
            return Err(IoError::Protocol(format!(
                "the path {:?} does not start with /",
                clipped(&request.path)
            )));
        }
        let endpoint = request.endpoint.clone();
        let target = url(&endpoint, request.tls.is_some(), &request.path)?;
        Ok(Hop {
            method,
            endpoint,
            tls: request.tls.clone(),
            target,
            headers: headers(&request.headers)?,
            body: Bytes::from(request.body.clone()),
        })
    }

    async fn send(&self, connection: Counted) -> Result<(Response<Incoming>, Driver), IoError> {
        let (mut sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(connection))
            .await
            .map_err(|error| http_error(&error))?;
        // The exchange owns this task, which ends with it.
        let driver = Driver(tokio::spawn(async move {
            // The request that uses the connection fails with the same error, so it is not reported
            // here.
            drop(driver.await);
        }));
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path_and_query(&self.target)?;
        *request.headers_mut() = self.headers.clone();
        let host = HeaderValue::from_str(&authority(&self.target))
            .map_err(|_| IoError::Protocol("the host is not valid in a header".into()))?;
        request.headers_mut().insert(header::HOST, host);
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| http_error(&error))?;
        Ok((response, driver))
    }

    /// Returns the next request if the response is a redirect.
    fn redirected(&self, response: &Response<Incoming>) -> Result<Option<Hop>, IoError> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(header::LOCATION) else {
            return Ok(None);
        };
        let target = location
            .to_str()
            .ok()
            .and_then(|text| self.target.join(text).ok())
            .ok_or_else(|| IoError::Protocol("a redirect without a usable Location".into()))?;
        let encrypted = match target.scheme() {
            "http" => false,
            "https" => true,
            other => {
                return Err(IoError::Protocol(format!(
                    "a redirect to the scheme {:?}",
                    clipped(other)
                )));
            }
        };
        let endpoint = Endpoint {
            host: target
                .host_str()
                .unwrap_or_default()
                .trim_matches(['[', ']'])
                .to_owned(),
            port: target.port_or_known_default().unwrap_or(80),
        };
        let is_other_server = endpoint != self.endpoint || encrypted != self.tls.is_some();
        let verify = self.tls.as_ref().is_none_or(|tls| tls.verify);
        let tls = match &self.tls {
            Some(tls) if !is_other_server => Some(tls.clone()),
            _ => encrypted.then(|| Tls {
                server_name: String::new(),
                verify,
            }),
        };
        let mut headers = self.headers.clone();
        if is_other_server {
            for name in [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION] {
                headers.remove(name);
            }
        }
        let (method, body) = self.method_and_body_after(status, &mut headers);
        Ok(Some(Hop {
            method,
            endpoint,
            tls,
            target,
            headers,
            body,
        }))
    }

    /// Returns the method and the body after a redirect. As in browsers, a 303 becomes a GET, and
    /// so does a POST that is answered with 301 or 302.
    fn method_and_body_after(&self, status: StatusCode, headers: &mut HeaderMap) -> (Method, Bytes) {
        let becomes_get = status == StatusCode::SEE_OTHER
            || (matches!(status.as_u16(), 301 | 302) && self.method == Method::POST);
        if !becomes_get || self.method == Method::HEAD {
            return (self.method.clone(), self.body.clone());
        }
        headers.remove(header::CONTENT_TYPE);
        (Method::GET, Bytes::new())
    }
}

/// Reads at most `max_bytes` bytes of the body; the rest is not read.
async fn read_body(
    network: &mut Network<'_>,
    mut body: Incoming,
    max_bytes: u32,
) -> Result<Vec<u8>, IoError> {
    let max_bytes = max_bytes as usize;
    let mut read = Vec::new();
    while read.len() < max_bytes {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| http_error(&error))?;
        if let Some(data) = frame.data_ref() {
            network.input = charge(network.input, data.len())?;
            read.extend_from_slice(&data[..data.len().min(max_bytes - read.len())]);
        }
    }
    Ok(read)
}

/// Converts a probe's headers. It must not set those for framing and for the connection, which the
/// host sets.
fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, IoError> {
    if pairs.len() > MAX_HEADERS {
        return Err(IoError::Protocol(format!(
            "{} headers, {MAX_HEADERS} are allowed",
            pairs.len()
        )));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| IoError::Protocol(format!("{:?} is not a header name", clipped(name))))?;
        if is_host_header(&name) {
            return Err(IoError::Protocol(format!(
                "the host sets the header {name}: remove it"
            )));
        }
        let value = HeaderValue::from_str(value)
            .map_err(|_| IoError::Protocol(format!("the value of {name} is not valid in a header")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether only the host may set this header. These headers name the receiver of a request or
/// decide how the request and its connection are framed: with them a guest could reach another
/// virtual host than the granted one, or smuggle a second request behind the first.
fn is_host_header(name: &HeaderName) -> bool {
    let own = [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
    ];
    own.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Returns the first header of a request that only the host may set.
pub(crate) fn first_host_header(request: &HttpRequest) -> Option<HeaderName> {
    let names = request.headers.iter();
    names
        .filter_map(|(name, _)| HeaderName::from_bytes(name.as_bytes()).ok())
        .find(is_host_header)
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum()
}

fn url(endpoint: &Endpoint, encrypted: bool, path: &str) -> Result<Url, IoError> {
    let scheme = if encrypted { "https" } else { "http" };
    let bare = endpoint.host.trim_matches(['[', ']']);
    let host = if bare.contains(':') {
        format!("[{bare}]")
    } else {
        bare.to_owned()
    };
    Url::parse(&format!("{scheme}://{host}:{}{path}", endpoint.port)).map_err(|error| {
        let text = format!("{host}:{}{path}", endpoint.port);
        IoError::Protocol(format!("{} is not an address: {error}", clipped(&text)))
    })
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn path_and_query(url: &Url) -> Result<http::Uri, IoError> {
    let text = url.query().map_or_else(
        || url.path().to_owned(),
        |query| format!("{}?{query}", url.path()),
    );
    text.parse()
        .map_err(|_| IoError::Protocol(format!("{:?} is not a path", clipped(&text))))
}

fn http_error(error: &hyper::Error) -> IoError {
    if error.is_parse_too_large() {
        return over_limit();
    }
    if error.is_parse() {
        return IoError::Protocol(one_line(&error.to_string()));
    }
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match io {
        Some(io) if is_exceeded(io) => over_limit(),
        Some(io) => super::io_error(io),
        None => IoError::Closed,
    }
}
