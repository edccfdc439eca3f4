//! The HTTP client of the commands that use a running daemon.
//!
//! * Bodies of responses are bounded.
//! * A standby redirects a request to the same path of its leader. Such a redirect is followed with the
//!   credentials. Every other redirect is returned as the response.
//! * No proxy is used: a daemon is addressed directly.

use std::time::Duration;

use anyhow::Context;
use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode, Url, header};

use crate::exit::Unavailable;

/// The largest body of a response, in bytes: a list of 10,000 apps with their tasks has about 40 MB.
const MAX_BODY: usize = 1 << 30;
/// Redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The daemon cannot be reached; a retry may help.
    Unreachable(String),
    /// The daemon rejected the request; a retry does not help.
    Rejected(String),
}

/// A port of the daemon, as errors name it.
pub(super) struct PortName {
    pub(super) service: &'static str,
    /// The setting of the daemon that chooses its number.
    pub(super) setting: &'static str,
    /// The option and the variable that name another address.
    pub(super) options: &'static str,
}

impl PortName {
    /// The error of a request without a response.
    pub(super) fn no_answer(&self, url: &Url, failure: Failure) -> anyhow::Error {
        let Self {
            service,
            setting,
            options,
        } = self;
        match failure {
            Failure::Unreachable(reason) => anyhow::anyhow!(
                "no daemon answers at {url}: {reason}\nIs one running (`transom dev` starts one to try things out), and is \
                 {url} its {service} port (`{setting}`)? {options} names another."
            )
            .context(Unavailable),
            Failure::Rejected(reason) => anyhow::anyhow!("{url}: {reason}"),
        }
    }
}

/// The daemon's address, and the credentials for it.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) credentials: Option<(String, String)>,
    /// The certificates to trust. None: those of the system.
    pub(super) certificates: Option<Vec<Certificate>>,
}

/// The client.
pub(super) struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    timeout: Duration,
}

/// Parses the URL in the option with the name `option`.
pub(super) fn url(option: &str, text: &str, example: &str) -> anyhow::Result<Url> {
    let invalid_url = || format!("{option} is {text:?}: expected an address such as {example}");
    let url = Url::parse(text).with_context(invalid_url)?;
    anyhow::ensure!(
        matches!(url.scheme(), "http" | "https") && url.has_host(),
        invalid_url()
    );
    Ok(url)
}

impl Client {
    /// A client whose requests may take `timeout` each.
    pub(super) fn new(endpoint: Endpoint, timeout: Duration) -> anyhow::Result<Self> {
        Self::build(endpoint, timeout, true)
    }

    /// A client that accepts any certificate. The caller warns the user about that.
    pub(super) fn unverified(endpoint: Endpoint, timeout: Duration) -> anyhow::Result<Self> {
        Self::build(endpoint, timeout, false)
    }

    fn build(endpoint: Endpoint, timeout: Duration, verify: bool) -> anyhow::Result<Self> {
        let builder = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        let builder = match &endpoint.certificates {
            _ if !verify => builder.tls_certs_only([]).tls_danger_accept_invalid_certs(true),
            Some(certificates) => builder.tls_certs_only(certificates.clone()),
            None if endpoint.url.scheme() == "http" => builder.tls_certs_only([]),
            None => builder,
        };
        Ok(Self {
            http: builder.build().context("the HTTP client")?,
            endpoint,
            timeout,
        })
    }

    /// The daemon's URL.
    pub(super) fn base_url(&self) -> &Url {
        &self.endpoint.url
    }

    /// A request to the path of these segments, with the credentials.
    pub(super) fn request<'a>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'a str>,
    ) -> RequestBuilder {
        self.streaming_request(method, path).timeout(self.timeout)
    }

    /// A request without a timeout, for a response that stays open.
    pub(super) fn streaming_request<'a>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'a str>,
    ) -> RequestBuilder {
        let mut url = self.endpoint.url.clone();
        // A URL with a host has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let request = self.http.request(method, url);
        match &self.endpoint.credentials {
            Some((username, password)) => request.basic_auth(username, Some(password)),
            None => request,
        }
    }

    /// Sends a request, and follows redirects to the leader.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let rejected = |error: reqwest::Error| Failure::Rejected(error_chain(&error));
        let mut request = request.build().map_err(rejected)?;
        for _ in 0..MAX_REDIRECTS {
            let mut retry = request.try_clone();
            let from = request.url().clone();
            let response = self.http.execute(request).await;
            let response = response.map_err(|error| Failure::Unreachable(error_chain(&error)))?;
            let target = redirect_target(&from, &response);
            match (target, retry.take()) {
                (Some(target), Some(mut retry)) => {
                    *retry.url_mut() = target;
                    request = retry;
                }
                _ => return Ok(response),
            }
        }
        Err(Failure::Rejected(format!("more than {MAX_REDIRECTS} redirects")))
    }
}

/// The target of a redirect to the same path of another daemon. That daemon receives the credentials,
/// so a redirect from `https` to `http` is not followed.
fn redirect_target(from: &Url, response: &Response) -> Option<Url> {
    if !matches!(
        response.status(),
        StatusCode::FOUND | StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    ) {
        return None;
    }
    let target = response.headers().get(header::LOCATION)?.to_str().ok()?;
    let target = from.join(target).ok()?;
    let is_same_path = target.path() == from.path() && target.query() == from.query();
    let is_secure = target.scheme() == from.scheme() || target.scheme() == "https";
    (is_same_path && is_secure && target != *from).then_some(target)
}

/// The body of a response as text.
pub(super) async fn body_text(response: Response) -> Result<String, Failure> {
    Ok(match String::from_utf8(body_bytes(response).await?) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The body of a response.
pub(super) async fn body_bytes(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| Failure::Unreachable(error_chain(&error)))? else {
            return Ok(body);
        };
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Failure::Rejected(format!(
                "the response has more than {} MB",
                MAX_BODY >> 20
            )));
        }
        body.extend_from_slice(&chunk);
    }
}

/// The body of a successful response.
pub(super) async fn success_text(response: Response) -> Result<String, Failure> {
    let status = response.status();
    let text = body_text(response).await?;
    match status {
        status if status.is_success() => Ok(text),
        // The daemon is starting, or a proxy in front of it is.
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Err(Failure::Unreachable(format!("{status}: {text}")))
        }
        status => Err(Failure::Rejected(format!("{status}: {text}"))),
    }
}

/// An error with its whole chain. If nothing listens at the address, that is all.
pub(super) fn error_chain(error: &reqwest::Error) -> String {
    let sources = std::iter::successors(std::error::Error::source(error), |inner| inner.source());
    let refused = sources
        .filter_map(|inner| inner.downcast_ref::<std::io::Error>())
        .any(|inner| inner.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused {
        return "Connection refused".to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(location: &str) -> Response {
        let mut answer = axum::http::Response::new(String::new());
        *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        let location = location.parse().expect("a header");
        answer.headers_mut().insert(header::LOCATION, location);
        answer.into()
    }

    #[test]
    fn redirect_is_followed_to_the_same_path_and_never_from_https_to_http() {
        let insecure: Url = "http://a:1/v2/events?ids=true".parse().expect("a URL");
        let secure: Url = "https://a:1/v2/events?ids=true".parse().expect("a URL");
        for (from, location, followed) in [
            (&insecure, "http://b:2/v2/events?ids=true", true),
            (&insecure, "https://b:2/v2/events?ids=true", true),
            (&secure, "http://b:2/v2/events?ids=true", false),
            (&insecure, "http://b:2/v2/apps?ids=true", false),
            (&insecure, "http://b:2/v2/events", false),
            (&insecure, "/v2/events?ids=true", false),
        ] {
            let target = redirect_target(from, &answer(location));
            assert_eq!(target.is_some(), followed, "{from} {location}");
        }
    }

    #[test]
    fn url_needs_scheme_and_host() {
        for text in ["127.0.0.1:8080", "ftp://a", "data:x", "", "http://"] {
            let error = url("--url", text, "http://127.0.0.1:8080").expect_err(text);
            assert!(format!("{error:#}").contains("--url is"), "{error:#}");
        }
    }

    /// A server that answers every request with `answer`.
    async fn server<T: axum::response::IntoResponse>(
        answer: impl Fn(axum::extract::Request) -> T + Clone + Send + Sync + 'static,
    ) -> (Url, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let routes =
            axum::Router::new().fallback(async move |request: axum::extract::Request| answer(request));
        let serving = tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
        (format!("http://{address}").parse().expect("a URL"), serving)
    }

    fn client(url: Url) -> Client {
        // `main` installs the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = Endpoint {
            url,
            credentials: Some(("ops".to_owned(), "secret".to_owned())),
            certificates: None,
        };
        Client::new(endpoint, Duration::from_secs(30)).expect("a client")
    }

    #[tokio::test]
    async fn credentials_are_sent_to_the_leader_after_a_redirect_by_a_standby() {
        let (leader, serving) = server(|request: axum::extract::Request| {
            let authorization = request.headers().get(header::AUTHORIZATION);
            format!("{} {authorization:?}", request.uri())
        })
        .await;
        let (standby, redirecting) = server(move |request: axum::extract::Request| {
            let target = leader.join(&request.uri().to_string()).expect("a URL");
            (
                StatusCode::TEMPORARY_REDIRECT,
                [(header::LOCATION, target.to_string())],
            )
        })
        .await;
        let client = client(standby);
        let request = client
            .request(Method::POST, ["v2", "a b"])
            .query(&[("force", "true")])
            .body("x");
        let answer = client.send(request).await.expect("an answer");
        let text = success_text(answer).await.expect("a success");
        assert!(text.starts_with("/v2/a%20b?force=true"), "{text}");
        assert!(text.contains("Basic ") || text.contains("Sensitive"), "{text}");
        serving.abort();
        redirecting.abort();
    }

    #[tokio::test]
    async fn redirect_loop_is_an_error() {
        let (url, serving) = server(|request: axum::extract::Request| {
            let host = request.headers().get(header::HOST).cloned();
            let host = host
                .and_then(|host| host.to_str().map(str::to_owned).ok())
                .unwrap_or_default();
            // Another name of the same server.
            let other = if host.starts_with("127") {
                host.replace("127.0.0.1", "localhost")
            } else {
                host.replace("localhost", "127.0.0.1")
            };
            let target = format!("http://{other}{}", request.uri());
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target)])
        })
        .await;
        let client = client(url);
        let ended = client.send(client.request(Method::GET, ["v2"])).await;
        assert!(matches!(ended, Err(Failure::Rejected(reason)) if reason.contains("redirects")));
        serving.abort();
    }
}
