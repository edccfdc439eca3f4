//! The client: which master to ask, and the questions that end by themselves.
//!
//! Any master will do to begin with. One that does not lead answers with a redirect (307) to the one that does, which
//! is followed; one that is not there, or knows of no leader yet, makes the next one in the list be asked. The master
//! that worked last is asked first the next time.

use crate::agent::Agents;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::http::{Http, MASTER, Request, address, answer};
use crate::lenient;
use crate::operator::Answer;
use crate::stream::RecordStream;
use crate::v1::FrameworkInfo;
use crate::{operator, scheduler, state};
use bytes::Bytes;
use reqwest::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use url::Url;

/// So many redirects are followed for one request; one is enough while there is a leader.
const MAX_REDIRECTS: usize = 5;
/// The oldest version that has all that is used here: 1.6.
const OLDEST: (u32, u32) = (1, 6);

/// Makes the request for a URL.
type Prepare<'a> = &'a (dyn Fn(Url) -> Result<Request> + Sync);
/// Sends a request and reads of the answer what is wanted of it.
type Exchange<T> = for<'a> fn(&'a Http, &'a Request) -> Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A client of one cluster. Cloning is cheap; all clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    masters: Arc<[Url]>,
    /// The index of the master that worked last.
    preferred: Arc<AtomicUsize>,
}

impl Client {
    /// Checks the configuration; nothing is sent yet. Fails with [`Error::Config`] only.
    pub fn new(config: Config) -> Result<Self> {
        let masters = config.urls()?.into();
        Ok(Self {
            http: Http::new(config)?,
            masters,
            preferred: Arc::default(),
        })
    }

    /// The configuration this client was made with.
    pub fn config(&self) -> &Config {
        self.http.config()
    }

    /// A client of the cluster's agents, with the same credentials, TLS and timeouts.
    pub fn agents(&self) -> Agents {
        Agents::new(self.http.clone())
    }

    /// Subscribes a framework with the leading master: for the first time, or, when `info.id` is set, again. Returns
    /// when the master has accepted the request; whether it accepted the framework is told by the first event.
    ///
    /// `info.principal` is filled in from the configuration when it is missing.
    pub async fn subscribe(&self, info: &FrameworkInfo) -> Result<scheduler::Subscription> {
        let mut info = info.clone();
        if info.principal.is_none() {
            info.principal.clone_from(&self.config().principal);
        }
        let body = scheduler::subscribe_body(&info);
        let (url, response) = self.open("/api/v1/scheduler", "SUBSCRIBE", &body).await?;
        scheduler::Subscription::new(self.http.clone(), url, response, info.id)
    }

    /// Subscribes to what happens in the cluster. The first event holds everything that is there already.
    pub async fn watch(&self) -> Result<operator::Stream> {
        let (url, response) = self
            .open("/api/v1", "SUBSCRIBE", &json!({"type": "SUBSCRIBE"}))
            .await?;
        Ok(operator::Stream::new(RecordStream::new(
            address(&url),
            response,
            operator::MAX_RECORD,
        )))
    }

    /// Tasks, executors, frameworks and agents.
    pub async fn get_state(&self) -> Result<operator::GetState> {
        self.call("GET_STATE", |answer: Answer| answer.get_state).await
    }

    /// Agents, and those the master remembers but has not seen since it restarted.
    pub async fn get_agents(&self) -> Result<operator::GetAgents> {
        self.call("GET_AGENTS", |answer: Answer| answer.get_agents).await
    }

    /// Tasks: running, unreachable and, for a while, completed ones.
    pub async fn get_tasks(&self) -> Result<operator::GetTasks> {
        self.call("GET_TASKS", |answer: Answer| answer.get_tasks).await
    }

    /// The state document of the leading master. Agents, frameworks and tasks that cannot be read are left out and
    /// counted, here as in the other questions.
    pub async fn state(&self) -> Result<state::State> {
        let (url, bytes) = self.document("/state").await?;
        lenient::read(&bytes, || answer(&url, "/state"))
    }

    /// The version of a master (one that does not lead answers as well), such as `1.11.0`.
    pub async fn version(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let (url, bytes) = self.document("/version").await?;
        let version: Version = serde_json::from_slice(&bytes)
            .map_err(|source| Error::decode(answer(&url, "/version"), source))?;
        Ok(version.version)
    }

    /// The version, unless it is older than what this daemon is made for: [`Error::TooOld`]. To be asked before the
    /// first subscription.
    pub async fn supported_version(&self) -> Result<String> {
        let version = self.version().await?;
        if is_older(&version, OLDEST) {
            let oldest = format!("{}.{}.0", OLDEST.0, OLDEST.1);
            return Err(Error::TooOld { version, oldest });
        }
        Ok(version)
    }

    /// A document, and who gave it.
    async fn document(&self, path: &str) -> Result<(Url, Bytes)> {
        let request = |url| Ok(Request::get(url, MASTER, path));
        self.at_leader(path, &request, |http, request| Box::pin(http.fetch(request)))
            .await
    }

    /// A call of the operator API; `part` takes the field named like the call out of the answer.
    async fn call<T>(&self, call: &'static str, part: fn(Answer) -> Option<T>) -> Result<T> {
        let request = |url| Request::post(url, MASTER, call, &json!({"type": call}));
        let (url, bytes) = self
            .at_leader("/api/v1", &request, |http, request| Box::pin(http.fetch(request)))
            .await?;
        part(lenient::read(&bytes, || answer(&url, call))?).ok_or_else(|| Error::Incomplete {
            what: answer(&url, call),
            missing: "the field named like the call",
        })
    }

    /// A call that is answered with a stream; tells also who answers it.
    async fn open(&self, path: &str, call: &'static str, body: &Value) -> Result<(Url, Response)> {
        let request = |url| Request::post(url, MASTER, call, body);
        self.at_leader(path, &request, |http, request| Box::pin(http.open(request)))
            .await
    }

    /// Sends the request for the leader's URL of `path`, beginning with the master that worked last.
    async fn at_leader<T>(&self, path: &str, request: Prepare<'_>, send: Exchange<T>) -> Result<(Url, T)> {
        let count = self.masters.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for index in (first..first + count).map(|index| index % count) {
            let Some(url) = self.masters.get(index).and_then(|master| master.join(path).ok()) else {
                continue;
            };
            match self.follow(url, request, send).await {
                Ok(found) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(error) if error.is_transient() => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "trying the next master");
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.nobody(last))
    }

    /// Sends the request to `url`, then to wherever it is redirected.
    async fn follow<T>(&self, mut url: Url, request: Prepare<'_>, send: Exchange<T>) -> Result<(Url, T)> {
        for _ in 0..=MAX_REDIRECTS {
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
            body: "the masters point to each other as leader".to_owned(),
        })
    }

    /// The error when no master could be used.
    fn nobody(&self, last: Option<Error>) -> Error {
        match last {
            Some(source) if self.masters.len() > 1 => {
                let masters: Vec<_> = self.masters.iter().map(address).collect();
                Error::NoMaster {
                    masters: masters.join(", "),
                    source: Box::new(source),
                }
            }
            Some(error) => error,
            None => Error::Config {
                what: "no master is named; expected host:port".to_owned(),
            },
        }
    }
}

/// Whether a version is known to be older. One that is not written as numbers and dots is not.
fn is_older(version: &str, than: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < than,
        _ => false,
    }
}

/// Where a `Location` (scheme-relative, as masters write it, or any other form) leads from `from`. Credentials go
/// along, so the scheme must stay.
fn target(from: &Url, location: &str) -> std::result::Result<Url, &'static str> {
    let to = from.join(location).map_err(|_| "it is not a URL")?;
    if to.scheme() != from.scheme() {
        return Err("it would change between http and https");
    }
    if !to.has_host() || !to.username().is_empty() || to.password().is_some() {
        return Err("it must name a host and nobody's credentials");
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
            assert_eq!(is_older(version, OLDEST), older, "{version:?}");
        }
    }

    #[test]
    fn locations_are_resolved_like_a_browser_would() {
        let from = Url::parse("http://a:5050/api/v1/scheduler").unwrap();
        for (location, expected) in [
            (
                "//localhost:5060/master/api/v1/scheduler",
                Ok("http://localhost:5060/master/api/v1/scheduler"),
            ),
            ("http://b:5050/x?y=1", Ok("http://b:5050/x?y=1")),
            ("/master/x", Ok("http://a:5050/master/x")),
            ("https://b:5050/x", Err("it would change between http and https")),
            (
                "//u:p@b:5050/x",
                Err("it must name a host and nobody's credentials"),
            ),
            ("http://", Err("it is not a URL")),
            ("//:99999/", Err("it is not a URL")),
        ] {
            let found = target(&from, location).map(|url| url.to_string());
            assert_eq!(found.as_deref().map_err(|why| *why), expected, "{location}");
        }
    }
}
