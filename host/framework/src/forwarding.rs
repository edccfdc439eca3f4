//! Requests to a daemon that does not lead.
//!
//! The policy of a service decides by method and path: a standby answers a request itself
//! ([`Route::Local`]), redirects it ([`Route::Redirect`]) or forwards it ([`Route::Forward`]). Some
//! reads can be answered completely only by the leader; while no leader answers, the standby
//! responds with the data that it has and their age ([`Route::ForwardOrLocal`]). A request to be
//! redirected or forwarded waits for a leader if there is none, and is rejected if none is elected in
//! time: with 503 while the store is unavailable, otherwise with 502. A request that did not reach a
//! leader is sent to the next one; a request whose outcome is unknown is not repeated.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{RequestExt, Router};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use tokio::time::{Instant, timeout};
use transom_common::error_chain;
use transom_web::{ApiError, Authority, Caller, Credentials, ForwardError, Forwarder};

use crate::{Leader, LeaderAddress, NoLeader};

/// How long a request waits for a leader: long enough for a lease of the usual length to expire.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the response to a forwarded write waits for the hook.
const AFTER_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// How a standby handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The standby answers it.
    Local,
    /// The standby redirects the client to the leader: for streams, which stay open.
    Redirect,
    /// The standby forwards it to the leader.
    Forward,
    /// The standby forwards it to the leader; while no leader answers, the standby answers it, with
    /// the header `Age`: the seconds since a leader last answered a read of this daemon. For reads
    /// without a body.
    ForwardOrLocal,
}

/// The URI as the client sent it, an extension of requests whose URI the service has rewritten.
#[derive(Clone, Debug)]
pub struct RequestedUri(pub Uri);

/// A hook that runs after a forwarded write.
type AfterWrite = dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// The middleware of a service. Clones share their state.
pub struct Forwarding<H> {
    leader: Leader<H>,
    forwarder: Forwarder,
    policy: fn(&Method, &str) -> Route,
    authorization: Option<HeaderValue>,
    after_write: Option<Arc<AfterWrite>>,
    last_read: Arc<LastRead>,
}

/// When a leader last answered a read.
struct LastRead {
    /// When this daemon started to forward.
    started_at: Instant,
    /// Milliseconds from `started_at` to the last answer.
    millis: AtomicU64,
}

impl LastRead {
    fn record(&self) {
        let millis = self
            .started_at
            .elapsed()
            .as_millis()
            .try_into()
            .unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn age(&self) -> Duration {
        let at = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        self.started_at.elapsed().saturating_sub(at)
    }
}

impl<H> Forwarding<H> {
    /// Forwards to `leader` by `policy`.
    pub fn new(leader: Leader<H>, forwarder: Forwarder, policy: fn(&Method, &str) -> Route) -> Self {
        Self {
            leader,
            forwarder,
            policy,
            authorization: None,
            after_write: None,
            last_read: Arc::new(LastRead {
                started_at: Instant::now(),
                millis: AtomicU64::new(0),
            }),
        }
    }

    /// Forwards with this daemon's credentials, so that a leader of an earlier version, which knows
    /// no proofs, accepts a request that this daemon has accepted, even if it does not trust this
    /// daemon's address. A request that needed nothing is forwarded without them, and one of the
    /// read-only user with that user's own.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Option<&Credentials>) -> Self {
        self.authorization = credentials.and_then(|credentials| {
            // Base64 is always a valid header value.
            let mut value = HeaderValue::from_str(&credentials.authorization()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        self
    }

    /// Waits for `hook`, at most two seconds, before the response to a successful write is returned:
    /// for example until the change is visible on this daemon.
    #[must_use]
    pub fn after_write<F>(mut self, hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.after_write = Some(Arc::new(move || Box::pin(hook())));
        self
    }
}

impl<H: Send + Sync + 'static> Forwarding<H> {
    /// Adds the middleware to the routes.
    pub fn wrap<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        router.layer(middleware::from_fn_with_state(self, route_request::<H>))
    }

    async fn forward(&self, request: Request, next: Next) -> Result<Response, ApiError> {
        let deadline = Instant::now() + ELECTION_TIMEOUT;
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let mut leader = self.leader.wait(deadline, None).await?;
        if leader == LeaderAddress::Here {
            return Ok(next.run(request).await);
        }
        let (head, body) = request.into_parts();
        // The body is buffered, because the request may have to be sent twice.
        let body: Bytes = Request::from_parts(head.clone(), body)
            .extract()
            .await
            .map_err(|rejected: BytesRejection| ApiError::new(rejected.status(), rejected.body_text()))?;
        let forwarded_head = self.forwarded_head(&head);
        loop {
            let LeaderAddress::Other(address) = leader else {
                // This daemon was elected in the meantime.
                return Ok(next.run(Request::from_parts(head, body.into())).await);
            };
            match self
                .forwarder
                .forward(&address, &forwarded_head, body.clone())
                .await
            {
                Ok(response) => {
                    if writes && response.status().is_success() {
                        self.run_after_write_hook().await;
                    }
                    return Ok(response);
                }
                // The request did not arrive, so it can be sent to the next leader.
                Err(unreachable @ ForwardError::Unreachable(_)) => {
                    leader = match self.leader.wait(deadline, Some(&address)).await {
                        Ok(leader) => leader,
                        Err(NoLeader::StoreUnavailable) => return Err(NoLeader::StoreUnavailable.into()),
                        Err(NoLeader::NotElected) => return Err(unreachable.into()),
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The head of a request as the standby sends it to the leader.
    fn forwarded_head(&self, head: &Parts) -> Parts {
        let mut forwarded_head = head.clone();
        if let Some(RequestedUri(uri)) = head.extensions.get() {
            forwarded_head.uri = uri.clone();
        }
        let is_authorized = |caller: &Caller| caller.authority != Authority::Nothing && !caller.read_only;
        if let Some(authorization) = &self.authorization
            && head.extensions.get().is_some_and(is_authorized)
        {
            forwarded_head
                .headers
                .insert(header::AUTHORIZATION, authorization.clone());
        }
        forwarded_head
    }

    /// Never waits for an election, because this daemon can answer the request as well.
    async fn forward_or_local(&self, request: Request, next: Next) -> Response {
        let (head, body) = request.into_parts();
        if let Some(address) = self.leader.address() {
            let forwarded_head = self.forwarded_head(&head);
            match self
                .forwarder
                .forward(&address, &forwarded_head, Bytes::new())
                .await
            {
                // A daemon that stops leading responds with 503.
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(answer) => {
                    self.last_read.record();
                    return answer;
                }
                Err(error) => tracing::debug!(
                    error = error_chain(&error),
                    "the leader did not answer a read; answering with this daemon's own data"
                ),
            }
        }
        let mut answer = next.run(Request::from_parts(head, body)).await;
        let age = HeaderValue::from(self.last_read.age().as_secs());
        answer.headers_mut().insert(header::AGE, age);
        answer
    }

    async fn redirect(&self, request: Request, next: Next) -> Result<Response, ApiError> {
        let deadline = Instant::now() + ELECTION_TIMEOUT;
        match self.leader.wait(deadline, None).await? {
            LeaderAddress::Here => Ok(next.run(request).await),
            LeaderAddress::Other(leader) => {
                let requested = request.extensions().get().map(|RequestedUri(uri)| uri);
                let uri = requested.unwrap_or_else(|| request.uri());
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                let location = format!("{}://{leader}{path}", self.forwarder.scheme());
                Ok((StatusCode::FOUND, [(header::LOCATION, location)]).into_response())
            }
        }
    }

    async fn run_after_write_hook(&self) {
        if let Some(hook) = &self.after_write
            && timeout(AFTER_WRITE_TIMEOUT, hook()).await.is_err()
        {
            tracing::info!("a change forwarded to the leader is not visible here yet");
        }
    }
}

async fn route_request<H: Send + Sync + 'static>(
    State(forwarding): State<Forwarding<H>>,
    request: Request,
    next: Next,
) -> Response {
    if forwarding.leader.is_here() {
        return next.run(request).await;
    }
    let outcome = match (forwarding.policy)(request.method(), request.uri().path()) {
        Route::Local => return next.run(request).await,
        Route::Redirect => forwarding.redirect(request, next).await,
        Route::Forward => forwarding.forward(request, next).await,
        Route::ForwardOrLocal => return forwarding.forward_or_local(request, next).await,
    };
    outcome.unwrap_or_else(IntoResponse::into_response)
}

impl<H> Clone for Forwarding<H> {
    fn clone(&self) -> Self {
        Self {
            leader: self.leader.clone(),
            forwarder: self.forwarder.clone(),
            policy: self.policy,
            authorization: self.authorization.clone(),
            after_write: self.after_write.clone(),
            last_read: Arc::clone(&self.last_read),
        }
    }
}

#[cfg(test)]
mod tests;
