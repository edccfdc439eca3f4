//! The client: the choice of the master, and all requests other than streams.
//!
//! Requests may go to any master. A follower redirects (307) to the leader, and the client follows.
//! If a master is unreachable or knows of no leader, the next one is tried. The master that worked
//! last is the first one next time. With masters from ZooKeeper, the leader is tried first, and a
//! pending request to another master is sent again as soon as ZooKeeper names the leader.

mod document;
mod frameworks;

pub use frameworks::ListedFramework;

use crate::agent::Agents;
use crate::config::Config;
use crate::detector::Master;
use crate::error::{Error, Result};
use crate::http::{Http, MASTER, Request, address, answer_name};
use crate::leadership_guard::LeadershipGuard;
use crate::lenient;
use crate::masters::{Candidates, LeaderChanges, MasterChanges, Masters, Order};
use crate::operator::OperatorAnswer;
use crate::stream::{Opened, RecordStream};
use crate::v1::FrameworkInfo;
use crate::{operator, scheduler};
use bytes::Bytes;
use reqwest::Response;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

/// The maximum number of redirects of one request; one is enough while there is a leader.
const MAX_REDIRECTS: usize = 5;
/// The minimum version, which has all calls that are used here: 1.6.
const MIN_VERSION: (u32, u32) = (1, 6);
/// The maximum number of masters known to be new enough; beyond it all are checked again.
const MAX_CHECKED_MASTERS: usize = 64;

/// Builds the request for a URL.
type Prepare<'a> = &'a (dyn Fn(Url) -> Result<Request> + Sync);
/// Sends a request and reads the needed part of the answer.
type Exchange<T> = for<'a> fn(&'a Http, &'a Request) -> Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Whether a master's version is checked before the first request.
#[derive(Clone, Copy)]
enum VersionCheck {
    None,
    /// Once for each master.
    First,
}

/// A client of one cluster. Cloning is cheap; all clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    masters: Masters,
    /// The masters (scheme, host and port) that are new enough.
    checked: Arc<Mutex<BTreeSet<String>>>,
}

/// A result, and the URL that it came from.
struct LeaderResponse<T> {
    url: Url,
    value: T,
    candidates: Candidates,
}

impl Client {
    /// Checks the configuration. It sends no request yet, but with ZooKeeper the detector starts,
    /// for which this must be called within a Tokio runtime. Fails with [`Error::Config`] only.
    pub fn new(config: Config) -> Result<Self> {
        Ok(Self {
            masters: Masters::new(&config)?,
            http: Http::new(config)?,
            checked: Arc::default(),
        })
    }

    /// Returns this client with a guard: subscriptions and calls for a framework are sent only while
    /// the guard allows them, and cancelled when it ends: [`Error::NotFrameworkLeader`]. Read
    /// requests are not restricted.
    pub fn with_guard(&self, guard: Arc<dyn LeadershipGuard>) -> Self {
        let mut client = self.clone();
        client.http.guard = Some(guard);
        client
    }

    /// Stops the background task and waits until it has ended. Clones of this client then see no
    /// further leader changes.
    pub async fn close(&self) {
        self.masters.close().await;
    }

    /// Whether ZooKeeper names the leader.
    pub fn follows_zookeeper(&self) -> bool {
        self.masters.follow_zookeeper()
    }

    /// The leader as ZooKeeper named it; none when the masters are listed.
    pub fn leader(&self) -> Option<Arc<Master>> {
        self.masters.leader()
    }

    /// The masters that ZooKeeper names, the leader first; none when the masters are listed.
    pub fn registered_masters(&self) -> Vec<Arc<Master>> {
        self.masters.registered()
    }

    /// Later changes of the leader.
    pub fn leader_changes(&self) -> LeaderChanges {
        self.masters.changes()
    }

    /// Later changes of the registered masters.
    pub fn master_changes(&self) -> MasterChanges {
        self.masters.registrations()
    }

    /// The configuration of this client.
    pub fn config(&self) -> &Config {
        self.http.config()
    }

    /// A client of the cluster's agents, with the same credentials, TLS and timeouts.
    pub fn agents(&self) -> Agents {
        Agents::new(self.http.clone())
    }

    /// Subscribes a framework with the leading master: for the first time, or, when `info.id` is
    /// set, again. Returns when the master has accepted the request; the first event shows whether
    /// it accepted the framework.
    ///
    /// A missing `info.principal` is set from the configuration. Before the first subscription with
    /// a master its version is checked; an old master is rejected: [`Error::TooOld`].
    pub async fn subscribe(&self, info: &FrameworkInfo) -> Result<scheduler::Subscription> {
        let mut info = info.clone();
        if info.principal.is_none() {
            info.principal.clone_from(&self.config().principal);
        }
        let body = scheduler::subscribe_body(&info);
        let request = |url| {
            let request = Request::post(url, MASTER, "SUBSCRIBE", &body)?;
            Ok(request.for_framework().with_new_login())
        };
        let opened = self
            .open("/api/v1/scheduler", &request, VersionCheck::First)
            .await?;
        scheduler::Subscription::new(self.http.clone(), opened, info.id)
    }

    /// Subscribes to the cluster's events. The first event contains the initial state.
    pub async fn watch(&self) -> Result<operator::Stream> {
        let body = json!({"type": "SUBSCRIBE"});
        let request = |url| Ok(Request::post(url, MASTER, "SUBSCRIBE", &body)?.with_new_login());
        let opened = self.open("/api/v1", &request, VersionCheck::None).await?;
        let records = RecordStream::new(opened, operator::MAX_RECORD_BYTES);
        Ok(operator::Stream::new(records))
    }

    /// Tasks, executors, frameworks and agents.
    pub async fn get_state(&self) -> Result<operator::GetState> {
        self.call("GET_STATE", |answer: OperatorAnswer| answer.get_state)
            .await
    }

    /// The agents as [`Client::get_agents`] returns them, and host and port of the master that
    /// answered, which leads.
    pub async fn get_agents_of_leader(&self) -> Result<(String, operator::GetAgents)> {
        let (url, agents) = self
            .call_at("GET_AGENTS", |answer: OperatorAnswer| answer.get_agents)
            .await?;
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        Ok((format!("{host}:{port}"), agents))
    }

    /// Agents, and those that the master remembers but has not seen since its restart.
    pub async fn get_agents(&self) -> Result<operator::GetAgents> {
        self.call("GET_AGENTS", |answer: OperatorAnswer| answer.get_agents)
            .await
    }

    /// Tasks: running, unreachable and, for a while, completed ones.
    pub async fn get_tasks(&self) -> Result<operator::GetTasks> {
        self.call("GET_TASKS", |answer: OperatorAnswer| answer.get_tasks)
            .await
    }

    /// The version of a master (a follower answers as well), such as `1.11.0`.
    pub async fn version(&self) -> Result<String> {
        let (url, bytes) = self.document("/version").await?;
        read_version(&url, &bytes)
    }

    /// The version, unless it is below the minimum: [`Error::TooOld`].
    pub async fn supported_version(&self) -> Result<String> {
        let (url, bytes) = self.document("/version").await?;
        supported(&url, read_version(&url, &bytes)?)
    }

    /// Requests a document and returns it with the URL that it came from.
    async fn document(&self, path: &str) -> Result<(Url, Bytes)> {
        let request = |url| Ok(Request::get(url, MASTER, path));
        let send: Exchange<Bytes> = |http, request| Box::pin(http.fetch(request));
        let found = self.at_leader(path, &request, send, VersionCheck::None).await?;
        Ok((found.url, found.value))
    }

    /// Makes a call of the operator API; `part` selects the field of the answer that is named like the
    /// call.
    async fn call<T>(&self, call: &'static str, part: fn(OperatorAnswer) -> Option<T>) -> Result<T> {
        self.call_at(call, part).await.map(|(_, value)| value)
    }

    /// As [`Self::call`], and returns the URL that the answer came from.
    async fn call_at<T>(
        &self,
        call: &'static str,
        part: fn(OperatorAnswer) -> Option<T>,
    ) -> Result<(Url, T)> {
        let request = |url| Request::post(url, MASTER, call, &json!({"type": call}));
        let send: Exchange<Bytes> = |http, request| Box::pin(http.fetch(request));
        let found = self
            .at_leader("/api/v1", &request, send, VersionCheck::None)
            .await?;
        let what = || answer_name(&found.url, call);
        let value = part(lenient::read(&found.value, what)?);
        let value = value.ok_or_else(|| Error::Incomplete {
            what: what(),
            missing: "the field named like the call",
        })?;
        Ok((found.url, value))
    }

    /// Opens the stream of a subscription.
    async fn open(&self, path: &str, request: Prepare<'_>, version_check: VersionCheck) -> Result<Opened> {
        let send: Exchange<Response> = |http, request| Box::pin(http.open(request));
        let found = self.at_leader(path, request, send, version_check).await?;
        Ok(Opened {
            url: found.url,
            response: found.value,
            changes: found.candidates.changes,
        })
    }

    /// Sends the request to `path` at the leader, and again to the next leader if the leader changes
    /// meanwhile.
    async fn at_leader<T>(
        &self,
        path: &str,
        request: Prepare<'_>,
        send: Exchange<T>,
        version_check: VersionCheck,
    ) -> Result<LeaderResponse<T>> {
        loop {
            let candidates = self
                .masters
                .candidates(self.config(), Order::LastWorkingFirst)
                .await?;
            let mut changes = candidates.changes.clone();
            let next_leader = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                result = self.try_candidates(&candidates, path, request, send, version_check) => {
                    return result.map(|(url, value)| LeaderResponse { url, value, candidates });
                }
                leader = next_leader => {
                    tracing::debug!(%leader, path, "the leader changed; connecting to the new one");
                }
            }
        }
    }

    /// Tries the masters in turn until one works. If all fail, the error that a master answered
    /// with is preferred to a connection error.
    async fn try_candidates<T>(
        &self,
        candidates: &Candidates,
        path: &str,
        request: Prepare<'_>,
        send: Exchange<T>,
        version_check: VersionCheck,
    ) -> Result<(Url, T)> {
        let mut failed: Option<Error> = None;
        for (number, master) in &candidates.urls {
            let Ok(url) = master.join(path) else {
                continue;
            };
            match self.follow(url, request, send, version_check).await {
                Ok(found) => {
                    self.masters.set_preferred(*number);
                    return Ok(found);
                }
                Err(error) if error.is_transient() => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "trying the next master");
                    let rank = |error: &Error| (error.is_not_ready(), error.is_not_found());
                    if failed.as_ref().is_none_or(|before| rank(&error) >= rank(before)) {
                        failed = Some(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(candidates.failed(failed))
    }

    /// Sends the request to `url`, then to the target of each redirect.
    async fn follow<T>(
        &self,
        mut url: Url,
        request: Prepare<'_>,
        send: Exchange<T>,
        version_check: VersionCheck,
    ) -> Result<(Url, T)> {
        for _ in 0..=MAX_REDIRECTS {
            if let VersionCheck::First = version_check {
                self.check_version(&url).await?;
            }
            match send(&self.http, &request(url.clone())?).await {
                Ok(found) => return Ok((url, found)),
                Err(Error::Redirect {
                    address,
                    call,
                    location,
                    ..
                }) => {
                    url = target(&url, &location).map_err(|why| Error::Redirect {
                        address,
                        call,
                        location,
                        why,
                    })?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NotReady {
            address: address(&url),
            body: format!("more than {MAX_REDIRECTS} redirects: the masters name each other as leader"),
        })
    }

    /// Checks a master's version once, and rejects an old master.
    async fn check_version(&self, url: &Url) -> Result<()> {
        let master = address(url);
        if self.checked_masters().contains(&master) {
            return Ok(());
        }
        let Ok(url) = url.join("/version") else {
            return Ok(());
        };
        let bytes = self
            .http
            .fetch(&Request::get(url.clone(), MASTER, "/version"))
            .await?;
        let version = supported(&url, read_version(&url, &bytes)?)?;
        tracing::info!(master, version, "version of the cluster manager checked");
        let mut checked = self.checked_masters();
        if checked.len() >= MAX_CHECKED_MASTERS {
            checked.clear();
        }
        checked.insert(master);
        Ok(())
    }

    fn checked_masters(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_version(url: &Url, document: &[u8]) -> Result<String> {
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    let version: Version = serde_json::from_slice(document)
        .map_err(|source| Error::decode(answer_name(url, "/version"), source))?;
    Ok(version.version)
}

fn supported(url: &Url, version: String) -> Result<String> {
    if is_older(&version, MIN_VERSION) {
        return Err(Error::TooOld {
            address: address(url),
            version,
            oldest: format!("{}.{}.0", MIN_VERSION.0, MIN_VERSION.1),
        });
    }
    Ok(version)
}

/// Whether a version is older than the minimum. A version that is not numbers and dots counts as
/// new.
fn is_older(version: &str, than: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < than,
        _ => false,
    }
}

/// The target of a `Location` (scheme-relative, as masters write it, or any other form).
/// Credentials are sent along, so the scheme must stay the same.
fn target(from: &Url, location: &str) -> std::result::Result<Url, &'static str> {
    let to = from.join(location).map_err(|_| "it is not a URL")?;
    if to.scheme() != from.scheme() {
        return Err("it would change between http and https");
    }
    if !to.has_host() || !to.username().is_empty() || to.password().is_some() {
        return Err("it must name a host and no credentials");
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_known_by_their_numbers() {
        for (version, older) in [
            ("1.11.0", false),
            ("1.12.0-rc1", false),
            ("1.6.0", false),
            ("1.5.9", true),
            ("0.28.2", true),
            ("2.0", false),
            ("2", false),
            ("", false),
            ("main", false),
        ] {
            assert_eq!(is_older(version, MIN_VERSION), older, "{version:?}");
        }
    }

    #[test]
    fn redirect_locations_are_resolved_and_invalid_ones_rejected() {
        let from = Url::parse("http://a:5050/api/v1/scheduler").unwrap();
        for (location, expected) in [
            (
                "//localhost:5060/master/api/v1/scheduler",
                Ok("http://localhost:5060/master/api/v1/scheduler"),
            ),
            ("http://b:5050/x?y=1", Ok("http://b:5050/x?y=1")),
            ("/master/x", Ok("http://a:5050/master/x")),
            ("https://b:5050/x", Err("it would change between http and https")),
            ("//u:p@b:5050/x", Err("it must name a host and no credentials")),
            ("http://", Err("it is not a URL")),
            ("//:99999/", Err("it is not a URL")),
        ] {
            let found = target(&from, location).map(|url| url.to_string());
            assert_eq!(found.as_deref().map_err(|why| *why), expected, "{location}");
        }
    }
}
