//! HTTP client for registries: sends credentials only to their server and bounds every response.
//!
//! Pulls do not use `oci-client`, which reads manifests of any length, follows redirects from TLS
//! to plain HTTP, and sends passwords to any token server that the registry names. With signatures
//! the registry is untrusted and must not control any of this.
//!
//! Nor may it control which local services are contacted: each server, including targets of
//! redirects and token servers, is resolved once, its addresses are checked (`servers`), and the
//! client connects to one of the checked addresses.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use oci_client::errors::OciEnvelope;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, LINK, LOCATION, WWW_AUTHENTICATE},
    redirect,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use transom_common::text::one_line;

use super::{
    auth::{self, Challenge, authority},
    fetch_error::FetchError,
    link,
    servers::Destinations,
    source::Source,
};
use crate::{
    error::Error,
    network::Reserved,
    settings::{Login, Registries},
};

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// Maximum bytes of an error response or a token response.
const MAX_MESSAGE_BYTES: u64 = 64 << 10;
/// Maximum number of repositories whose tokens are remembered.
const MAX_TOKENS: usize = 256;
/// Maximum number of servers with open connections.
const MAX_CLIENTS: usize = 32;

/// The HTTP client for registries. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RegistryClient {
    tls: ClientConfig,
    registries: Arc<Registries>,
    reserved: Reserved,
    /// Authorization headers by registry and repository.
    authorizations: Arc<Mutex<BTreeMap<(String, String), HeaderValue>>>,
    /// A client for each server, which connects only to checked addresses.
    clients: Arc<Mutex<Clients>>,
}

/// Clients by server and its checked addresses.
type Clients = BTreeMap<(String, Vec<SocketAddr>), Client>;

/// A file to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'a> {
    pub(crate) what: &'static str,
    /// The path after `/v2/REPOSITORY/`.
    pub(crate) path: &'a str,
    pub(crate) accept: &'static str,
    /// Maximum bytes.
    pub(crate) max_bytes: u64,
}

/// The link to the next page of a list that a registry sends in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextPage {
    /// This was the last page.
    None,
    /// The next page is at this address of the same registry.
    At(Url),
    /// The next page is on another server, which is not contacted. The link is as the registry sent
    /// it.
    Elsewhere(String),
}

impl RegistryClient {
    /// Reads the certificate authorities, which blocks.
    pub(crate) fn new(registries: Arc<Registries>, reserved: Reserved) -> Result<RegistryClient, Error> {
        let failed = |message: String| Error::Settings { message };
        let client = RegistryClient {
            tls: tls(&registries.authorities).map_err(failed)?,
            registries,
            reserved,
            authorizations: Arc::default(),
            clients: Arc::default(),
        };
        // An invalid setting would fail for every server, so it is reported at startup.
        client
            .build("registry.invalid", &[])
            .map_err(|error| failed(causes(&error)))?;
        Ok(client)
    }

    /// Builds a client for `host`. Without `addresses` a proxy resolves the name. Loopback is reached
    /// directly: for a proxy it would be another machine.
    fn build(&self, host: &str, addresses: &[SocketAddr]) -> reqwest::Result<Client> {
        let builder = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .user_agent(concat!("transom/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.registries.idle_timeout)
            .read_timeout(self.registries.idle_timeout)
            // `send` checks each redirect before it follows it.
            .redirect(redirect::Policy::none());
        let on_loopback = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        let builder = match addresses {
            [] => return builder.build(),
            _ if addresses.iter().all(on_loopback) => builder.no_proxy(),
            _ => builder,
        };
        builder.resolve_to_addrs(host, addresses).build()
    }

    /// A client for the server of this URL, if it may be contacted.
    async fn client(&self, source: &Source, url: &Url) -> Result<Client, FetchError> {
        let destinations = Destinations {
            reserved: &self.reserved,
            registries: &self.registries,
        };
        let mut addresses = destinations.check(source, url).await?;
        // Sorted, because name servers return them in any order.
        addresses.sort_unstable();
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&(host.clone(), addresses.clone())) {
            return Ok(client.clone());
        }
        let client = self
            .build(&host, &addresses)
            .map_err(|error| FetchError::Unreachable {
                host: authority(url),
                message: causes(&error),
            })?;
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert((host, addresses), client.clone());
        Ok(client)
    }

    /// Fetches a file; fails if it is longer than `request` allows.
    pub(crate) async fn get(&self, source: &Source, request: FileRequest<'_>) -> Result<Bytes, FetchError> {
        let url = self.address(source, request.path)?;
        let response = self.get_authorized(source, &url, request.accept).await?;
        body(response, request.what, request.max_bytes).await
    }

    /// Fetches one page of a list, of at most `max_bytes` bytes, with the link to the next one. `page`:
    /// the [`address`](Self::address) of the list, or an earlier [`NextPage`].
    pub(crate) async fn page(
        &self,
        source: &Source,
        page: &Url,
        list: FileRequest<'_>,
    ) -> Result<(Bytes, NextPage), FetchError> {
        let response = self.get_authorized(source, page, list.accept).await?;
        let next = next_page(page, &response);
        let body = body(response, list.what, list.max_bytes).await?;
        Ok((body, next))
    }

    /// The address of a path after `/v2/REPOSITORY/`.
    pub(crate) fn address(&self, source: &Source, path: &str) -> Result<Url, FetchError> {
        let registry = source.registry();
        let scheme = if self.registries.is_plain(registry) {
            "http"
        } else {
            "https"
        };
        let text = format!("{scheme}://{registry}/v2/{}/{path}", source.repository());
        Url::parse(&text).map_err(|error| FetchError::InvalidAnswer {
            what: "the address",
            host: registry.to_owned(),
            message: error.to_string(),
        })
    }

    async fn get_authorized(
        &self,
        source: &Source,
        url: &Url,
        accept: &'static str,
    ) -> Result<Response, FetchError> {
        let registry = source.registry();
        let repository = (registry.to_owned(), source.repository().to_owned());
        let authorizations = self.authorizations().get(&repository).cloned();
        let mut response = self.send(source, url, accept, authorizations).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(authorization) = self.authenticate(source, &response).await?
        {
            response = self
                .send(source, url, accept, Some(authorization.clone()))
                .await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                self.remember_authorization(repository, authorization);
            }
        }
        if response.status() == StatusCode::OK {
            Ok(response)
        } else {
            Err(rejection(registry, response).await)
        }
    }

    /// Sends one request and follows redirects to allowed servers. Only the first server receives
    /// the authorization.
    async fn send(
        &self,
        source: &Source,
        first: &Url,
        accept: &'static str,
        authorization: Option<HeaderValue>,
    ) -> Result<Response, FetchError> {
        let failed = |message: String| FetchError::Unreachable {
            host: authority(first),
            message,
        };
        let mut url = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            let client = self.client(source, &url).await?;
            let mut request = client.get(url.clone()).header(ACCEPT, accept);
            if let Some(authorization) = authorization.as_ref().filter(|_| url.origin() == first.origin()) {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|error| failed(causes(&error)))?;
            let Some(next) = redirect_target(&response) else {
                return Ok(response);
            };
            if !auth::is_contact_allowed(&next, &self.registries) {
                return Err(failed(
                    "it redirects to a server without TLS, which is not in plugins.oci.insecure_registries"
                        .to_owned(),
                ));
            }
            url = next;
        }
        Err(failed("too many redirects".to_owned()))
    }

    /// Returns the authorization header for a challenge, after requesting a token if necessary;
    /// `None` without credentials.
    async fn authenticate(
        &self,
        source: &Source,
        rejected: &Response,
    ) -> Result<Option<HeaderValue>, FetchError> {
        let registry = source.registry();
        // The challenge comes from the target of a redirect, which must not receive the registry's
        // password.
        if authority(rejected.url()) != registry
            && authority(rejected.url()) != without_default_port(registry)
        {
            return Ok(None);
        }
        let header = rejected.headers().get(WWW_AUTHENTICATE);
        let challenge = header.and_then(|it| it.to_str().ok()).and_then(Challenge::parse);
        let login = self.registries.login(registry);
        match (challenge, login) {
            (Some(Challenge::Basic), Some(login)) => Ok(basic_auth(login)),
            (Some(Challenge::Bearer { realm, service }), _) => {
                let realm = auth::token_server(&realm, registry, &self.registries)?;
                self.token(source, realm, service).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn token(
        &self,
        source: &Source,
        realm: Url,
        service: Option<String>,
    ) -> Result<HeaderValue, FetchError> {
        let host = authority(&realm);
        let mut url = realm;
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("scope", &format!("repository:{}:pull", source.repository()));
            if let Some(service) = &service {
                query.append_pair("service", service);
            }
        }
        let login = self.registries.login(source.registry());
        let response = self
            .send(source, &url, "application/json", login.and_then(basic_auth))
            .await?;
        if response.status() != StatusCode::OK {
            return Err(rejection(&host, response).await);
        }
        let answer = body(response, "the token", MAX_MESSAGE_BYTES).await?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let token = answer["token"].as_str().or(answer["access_token"].as_str());
        let mut header = token
            .and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok())
            .ok_or_else(|| FetchError::InvalidAnswer {
                what: "the token",
                host,
                message: "expected a JSON object with `token`".to_owned(),
            })?;
        header.set_sensitive(true);
        Ok(header)
    }

    fn remember_authorization(&self, repository: (String, String), authorization: HeaderValue) {
        let mut authorizations = self.authorizations();
        if authorizations.len() >= MAX_TOKENS {
            // Tokens are requested again when needed.
            authorizations.clear();
        }
        authorizations.insert(repository, authorization);
    }

    fn authorizations(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), HeaderValue>> {
        self.authorizations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// User and password as a header.
fn basic_auth(login: &Login) -> Option<HeaderValue> {
    let text = BASE64_STANDARD.encode(format!("{}:{}", login.user, login.password));
    let mut header = HeaderValue::from_str(&format!("Basic {text}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The target of a redirect; none for other responses.
fn redirect_target(response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let mut next = response.url().join(location).ok()?;
    // A registry must not choose credentials for another server.
    let _ = next.set_username("");
    let _ = next.set_password(None);
    Some(next)
}

/// Reads the link to the page after `page`. A link to another server is not followed, because only
/// the registry of the source may receive its credentials.
fn next_page(page: &Url, response: &Response) -> NextPage {
    let mut headers = response.headers().get_all(LINK).iter();
    let Some(link) = headers.find_map(|it| link::next(it.to_str().ok()?)) else {
        return NextPage::None;
    };
    match response.url().join(link) {
        Ok(next) if next.origin() == page.origin() => NextPage::At(next),
        _ => NextPage::Elsewhere(one_line(link)),
    }
}

fn without_default_port(registry: &str) -> &str {
    let plain = registry.strip_suffix(":443");
    plain.or_else(|| registry.strip_suffix(":80")).unwrap_or(registry)
}

async fn body(mut response: Response, what: &'static str, max_bytes: u64) -> Result<Bytes, FetchError> {
    let host = authority(response.url());
    let too_long = || FetchError::TooLong {
        what,
        host: host.clone(),
        limit: max_bytes,
    };
    if response.content_length().is_some_and(|it| it > max_bytes) {
        return Err(too_long());
    }
    let mut body = BytesMut::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| FetchError::Unreachable {
            host: host.clone(),
            message: causes(&error),
        })?;
        let Some(chunk) = chunk else {
            return Ok(body.freeze());
        };
        if (body.len() + chunk.len()) as u64 > max_bytes {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
}

/// The error text of a registry.
async fn rejection(host: &str, response: Response) -> FetchError {
    let status = response.status();
    let text = body(response, "the error", MAX_MESSAGE_BYTES)
        .await
        .unwrap_or_default();
    let message = match serde_json::from_slice::<OciEnvelope>(&text) {
        Ok(envelope) => envelope
            .errors
            .iter()
            .map(|it| it.message.as_str())
            .collect::<Vec<_>>()
            .join("; "),
        Err(_) => String::new(),
    };
    let message = if message.is_empty() {
        status.canonical_reason().unwrap_or_default().to_owned()
    } else {
        one_line(&message)
    };
    let host = host.to_owned();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FetchError::Denied { host, message },
        StatusCode::NOT_FOUND => FetchError::NotFound { host, message },
        _ => FetchError::Status {
            host,
            status: status.as_u16(),
            message,
        },
    }
}

/// An error with its causes, without the address: the caller names the server.
fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() {
        let plain = if error.is_timeout() {
            "timeout"
        } else {
            "no answer"
        };
        plain.clone_into(&mut text);
    }
    one_line(&text)
}

fn tls(authorities: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        certificate
            .map_err(|error| error.to_string())
            .and_then(|it| roots.add(it).map_err(|error| error.to_string()))
            .map_err(|error| format!("invalid certificate authority for registries: {error}"))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
