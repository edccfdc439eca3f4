//! One HTTP exchange with a master or an agent: sending, timeouts, statuses, bounded bodies.
//!
//! There are two HTTP clients. The one for streams never reuses a connection, because the master would
//! write the answer to a call into the stream. The other one is for exchanges that end.

use crate::config::{Config, Tls};
use crate::error::{Error, Result, TransportError};
use crate::gzip::{self, BodyDecoder};
use crate::leadership_guard::LeadershipGuard;
use crate::login::{Login, TokenChoice};
use crate::transport;
use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
};
use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::{Position, Url};

/// The maximum size of a document: the state document, about 1.5 KiB for each task.
const MAX_DOCUMENT_BYTES: u64 = 4 << 30;
/// The maximum size of an error body.
const MAX_ERROR_BYTES: usize = 4096;
/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The kind of server at an address, for messages.
pub(crate) const MASTER: &str = "a master";
pub(crate) const AGENT: &str = "an agent";

/// A request: the kind of server, its name in messages, and its options.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) role: &'static str,
    /// A call's type (`ACCEPT`) or a path.
    pub(crate) call: String,
    /// A JSON body to POST; none: GET.
    pub(crate) body: Option<Bytes>,
    pub(crate) headers: HeaderMap,
    /// Whether it acts for a framework, so that it is sent only while the [`LeadershipGuard`] allows it.
    pub(crate) acts_for_framework: bool,
    /// The timeout, if it differs from that of calls.
    pub(crate) timeout: Option<Duration>,
    /// Whether a service account logs in again for it, or uses the present token.
    pub(crate) token: TokenChoice,
    /// Whether it is sent on a new connection.
    pub(crate) on_new_connection: bool,
}

impl Request {
    /// GET of a JSON document.
    pub(crate) fn get(url: Url, role: &'static str, call: impl Into<String>) -> Self {
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (ACCEPT_ENCODING, HeaderValue::from_static("gzip")),
        ]);
        Self {
            url,
            role,
            call: call.into(),
            body: None,
            headers,
            acts_for_framework: false,
            timeout: None,
            token: TokenChoice::New,
            on_new_connection: false,
        }
    }

    /// POST of a JSON body. The content type is exact: with a charset a master answers 415.
    pub(crate) fn post<T: Serialize>(url: Url, role: &'static str, call: &str, body: &T) -> Result<Self> {
        let body =
            serde_json::to_vec(body).map_err(|source| Error::decode(format!("the call {call}"), source))?;
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        Ok(Self {
            url,
            role,
            call: call.to_owned(),
            body: Some(body.into()),
            headers,
            acts_for_framework: false,
            timeout: None,
            token: TokenChoice::Current,
            on_new_connection: false,
        })
    }

    /// Marks the request as acting for a framework.
    pub(crate) fn for_framework(mut self) -> Self {
        self.acts_for_framework = true;
        self
    }

    /// Sets a timeout that differs from that of calls.
    pub(crate) fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sends the request on a new connection: a rare request must reach the process that listens now,
    /// and not an earlier process whose connection is still open.
    pub(crate) fn on_new_connection(mut self) -> Self {
        self.on_new_connection = true;
        self
    }

    /// Requires a new login of the service account for the request.
    pub(crate) fn with_new_login(mut self) -> Self {
        self.token = TokenChoice::New;
        self
    }

    fn limit(&self, config: &Config) -> Duration {
        self.timeout.unwrap_or(config.call_timeout)
    }

    pub(crate) fn address(&self) -> String {
        address(&self.url)
    }
}

/// Scheme, host and port.
pub(crate) fn address(url: &Url) -> String {
    url[..Position::BeforePath].to_owned()
}

/// The deadline of a request that acts for a framework; checked last before it is sent.
fn guard_deadline(guard: &dyn LeadershipGuard, request: &Request) -> Result<Instant> {
    let remaining = guard.remaining();
    if remaining.is_zero() {
        return Err(Error::NotFrameworkLeader {
            call: request.call.clone(),
        });
    }
    Ok(Instant::now() + remaining)
}

/// The name of an answer in messages.
pub(crate) fn answer_name(url: &Url, call: &str) -> String {
    format!("the answer of {} to {call}", address(url))
}

/// Sends requests.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    calls: reqwest::Client,
    streams: reqwest::Client,
    login: Option<Arc<Login>>,
    config: Config,
    /// The guard of a framework's calls; without one they are always allowed.
    pub(crate) guard: Option<Arc<dyn LeadershipGuard>>,
}

impl Http {
    pub(crate) fn new(config: Config) -> Result<Self> {
        // Fails if a provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let calls = builder(&config, config.tls.as_ref())?.pool_idle_timeout(IDLE_TIMEOUT);
        let streams = builder(&config, config.tls.as_ref())?.pool_max_idle_per_host(0);
        let account = config.service_account.as_ref();
        let login = account.map(|account| {
            let client = builder(&config, Some(&account.tls))?.pool_max_idle_per_host(0);
            Login::new(account, build(client)?, config.call_timeout).map(Arc::new)
        });
        Ok(Self {
            calls: build(calls)?,
            streams: build(streams)?,
            login: login.transpose()?,
            config,
            guard: None,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Sends a request and waits for the answer's head; the body must be read with [`Body`] within
    /// the same deadline.
    async fn send(&self, client: &reqwest::Client, request: &Request, deadline: Instant) -> Result<Response> {
        let mut sending = match &request.body {
            Some(body) => client.post(request.url.clone()).body(body.clone()),
            None => client.get(request.url.clone()),
        };
        sending = sending.headers(request.headers.clone());
        if let Some(login) = &self.login {
            sending = sending.header(AUTHORIZATION, login.header(request.token, deadline).await?);
        } else if let Some(credentials) = &self.config.credentials {
            sending = sending.basic_auth(&credentials.username, Some(credentials.password.reveal()));
        }
        let deadline = match &self.guard {
            Some(guard) if request.acts_for_framework => {
                deadline.min(guard_deadline(guard.as_ref(), request)?)
            }
            _ => deadline,
        };
        let sending = transport::send(sending, self.config.transport.as_deref());
        match tokio::time::timeout_at(deadline, sending).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(Error::Unreachable {
                address: request.address(),
                role: request.role,
                source,
            }),
            Err(_) if self.guard_expired(request) => Err(Error::NotFrameworkLeader {
                call: request.call.clone(),
            }),
            Err(_) => Err(self.timed_out(request)),
        }
    }

    fn guard_expired(&self, request: &Request) -> bool {
        let guard = self.guard.as_ref().filter(|_| request.acts_for_framework);
        guard.is_some_and(|guard| guard.remaining().is_zero())
    }

    fn timed_out(&self, request: &Request) -> Error {
        Error::TimedOut {
            address: request.address(),
            call: request.call.clone(),
            after: request.limit(&self.config),
        }
    }

    /// Sends a request whose answer has no relevant content: only success matters (202, 200).
    pub(crate) async fn execute(&self, request: &Request) -> Result<()> {
        let deadline = Instant::now() + request.limit(&self.config);
        let response = self.send(&self.calls, request, deadline).await?;
        let body = self.check_status(request, response, deadline).await?;
        body.read(deadline).await.map(drop)
    }

    /// Sends a request for a document and returns the whole document.
    pub(crate) async fn fetch(&self, request: &Request) -> Result<Bytes> {
        let deadline = Instant::now() + request.limit(&self.config);
        let client = if request.on_new_connection {
            &self.streams
        } else {
            &self.calls
        };
        let response = self.send(client, request, deadline).await?;
        self.check_status(request, response, deadline)
            .await?
            .read(deadline)
            .await
    }

    /// Sends a request for a JSON document and parses it.
    pub(crate) async fn fetch_json<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        let bytes = self.fetch(request).await?;
        serde_json::from_slice(&bytes)
            .map_err(|source| Error::decode(answer_name(&request.url, &request.call), source))
    }

    /// Sends a request for a stream and returns when the answer's head has arrived.
    pub(crate) async fn open(&self, request: &Request) -> Result<Response> {
        let deadline = Instant::now() + request.limit(&self.config);
        let response = self.send(&self.streams, request, deadline).await?;
        self.check_status(request, response, deadline)
            .await
            .map(|body| body.response)
    }

    /// Turns every status that is not a success into its error.
    async fn check_status<'a>(
        &'a self,
        request: &'a Request,
        response: Response,
        deadline: Instant,
    ) -> Result<Body<'a>> {
        let status = response.status();
        let location = response
            .headers()
            .get(LOCATION)
            .map(|value| value.as_bytes().escape_ascii().to_string());
        let body = Body {
            http: self,
            request,
            response,
        };
        if status.is_success() {
            return Ok(body);
        }
        if let Some(location) = location.filter(|_| status.is_redirection()) {
            return Err(redirect(request, location));
        }
        let address = request.address();
        Err(match status {
            StatusCode::UNAUTHORIZED => {
                if let Some(login) = &self.login {
                    login.forget();
                }
                Error::Unauthorized {
                    address,
                    call: request.call.clone(),
                    sent: self.login.is_some() || self.config.credentials.is_some(),
                    keys: self.config.credential_keys.clone(),
                }
            }
            StatusCode::SERVICE_UNAVAILABLE => Error::NotReady {
                address,
                body: body.text(deadline).await,
            },
            // Every call exists on every supported master.
            StatusCode::NOT_FOUND if request.role == MASTER => Error::NotFound {
                address,
                call: request.call.clone(),
            },
            _ => Error::Rejected {
                call: request.call.clone(),
                status: status.as_u16(),
                body: body.text(deadline).await,
            },
        })
    }
}

/// A redirect as an error; one that may be followed has its target in `location`.
fn redirect(request: &Request, location: String) -> Error {
    Error::Redirect {
        address: request.address(),
        call: request.call.clone(),
        location,
        why: "redirects are not followed for this request",
    }
}

fn builder(config: &Config, tls: Option<&Tls>) -> Result<reqwest::ClientBuilder> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true);
    match tls {
        // Without TLS no certificates are needed, and the machine may have none.
        None => Ok(builder.tls_certs_only([])),
        Some(tls) => with_tls(builder, tls),
    }
}

fn with_tls(mut builder: reqwest::ClientBuilder, tls: &Tls) -> Result<reqwest::ClientBuilder> {
    let invalid_setting = |what: String| Error::Config { what };
    if let Some(pem) = &tls.identity {
        let identity = reqwest::Identity::from_pem(pem).map_err(|error| {
            invalid_setting(format!(
                "the client certificate or its key cannot be read: {error}"
            ))
        })?;
        builder = builder.identity(identity);
    }
    let authorities = match &tls.authorities {
        Some(pem) => {
            let authorities = reqwest::Certificate::from_pem_bundle(pem).map_err(|error| {
                invalid_setting(format!("the certificates in the CA file cannot be read: {error}"))
            })?;
            if authorities.is_empty() {
                return Err(invalid_setting(
                    "the CA file contains no PEM certificate".to_owned(),
                ));
            }
            Some(authorities)
        }
        None => None,
    };
    Ok(match authorities {
        _ if !tls.verify => builder.tls_certs_only([]).tls_danger_accept_invalid_certs(true),
        Some(authorities) => builder.tls_certs_only(authorities),
        None => builder,
    })
}

impl Tls {
    /// Checks that certificates and keys are valid, for a caller that uses them later. Fails with
    /// [`Error::Config`].
    pub fn check(&self) -> Result<()> {
        // Fails if a provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Only configured certificates are read, not those of the system.
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        build(with_tls(builder, self)?).map(drop)
    }
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client> {
    builder.build().map_err(|error| Error::Config {
        what: format!("TLS cannot be set up: {error:?}"),
    })
}

/// An answer whose body has not been read.
struct Body<'a> {
    http: &'a Http,
    request: &'a Request,
    response: Response,
}

impl Body<'_> {
    /// Reads the whole body, up to the limit, and decompresses it.
    async fn read(mut self, deadline: Instant) -> Result<Bytes> {
        let gzip = self
            .response
            .headers()
            .get(CONTENT_ENCODING)
            .is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let mut received = BodyDecoder::new(gzip, MAX_DOCUMENT_BYTES);
        let broken = |error| Error::Broken {
            address: self.request.address(),
            source: TransportError::new(error),
        };
        loop {
            let received_chunk = match tokio::time::timeout_at(deadline, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => received.push(&chunk),
                Ok(Ok(None)) => return received.finish().map_err(|failed| self.unreadable(failed)),
                Ok(Err(error)) => return Err(broken(error)),
                Err(_) => return Err(self.http.timed_out(self.request)),
            };
            received_chunk.map_err(|failed| self.unreadable(failed))?;
        }
    }

    fn unreadable(&self, failed: gzip::DecodeError) -> Error {
        match failed {
            gzip::DecodeError::TooLong => Error::BodyTooLarge {
                call: self.request.call.clone(),
                limit: MAX_DOCUMENT_BYTES,
            },
            gzip::DecodeError::Corrupt(source) => Error::Corrupt {
                what: answer_name(&self.request.url, &self.request.call),
                source,
            },
        }
    }

    /// Reads the beginning as text, best-effort, because it only explains an error.
    async fn text(mut self, deadline: Instant) -> String {
        let mut bytes = BytesMut::new();
        while bytes.len() < MAX_ERROR_BYTES {
            match tokio::time::timeout_at(deadline, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
                _ => break,
            }
        }
        bytes.truncate(MAX_ERROR_BYTES);
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}
