//! The state document of the leading master, from any master.
//!
//! Masters are tried in the order of the list; the first one is expected to lead. After any failure
//! the next one is tried. A master that does not lead may redirect or answer with its own document,
//! which names the leader. If the leader is at another address, a second request goes there, at the
//! port of the first one.

use super::Client;
use crate::error::{Error, Result};
use crate::http::{Http, MASTER, Request, address, answer_name};
use crate::lenient;
use crate::masters::{Candidates, Order};
use crate::state::{Document, State, pid_address};
use bytes::Bytes;
use std::net::IpAddr;
use transom_common::ambient;
use url::{Host, Url};

const PATH: &str = "/state";

impl Client {
    /// The state document of the leading master. Invalid agents, frameworks and tasks are omitted
    /// and counted, here as in the other requests.
    pub async fn state(&self) -> Result<State> {
        self.state_as().await
    }

    /// As [`Self::state`], parsed as the type that the caller needs.
    pub async fn state_as<T: Document>(&self) -> Result<T> {
        loop {
            let candidates = self.masters.candidates(self.config(), Order::AsListed).await?;
            let mut changes = candidates.changes.clone();
            let next_leader = async {
                match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                document = self.first_document(&candidates) => return document,
                leader = next_leader => {
                    tracing::debug!(%leader, "the leader changed; reading the state of the new one");
                }
            }
        }
    }

    async fn first_document<T: Document>(&self, candidates: &Candidates) -> Result<T> {
        let mut last = None;
        for (number, master) in &candidates.urls {
            match self.leaders_document(master).await {
                Ok(document) => {
                    self.masters.set_preferred(*number);
                    return Ok(document);
                }
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "cannot read the state document from this master; trying the next one"
                    );
                    last = Some(error);
                }
            }
        }
        Err(candidates.failed(last))
    }

    /// The document of a master, or of the leader that it names.
    async fn leaders_document<T: Document>(&self, master: &Url) -> Result<T> {
        let url = master.join(PATH).map_err(|_| Error::Config {
            what: format!("master {master}: expected host:port"),
        })?;
        let (url, document) = self.document_at::<T>(url).await?;
        let (url, document) = match other_leader(&document, &url) {
            None => (url, document),
            Some(leader) => {
                tracing::debug!(
                    asked = address(&url),
                    leader = address(&leader),
                    "the leader changed"
                );
                self.document_at::<T>(leader).await?
            }
        };
        match document.leader() {
            Some(leader) if !leader.is_empty() => Ok(document),
            _ => Err(Error::NotReady {
                address: address(&url),
                body: "its state document names no leader".to_owned(),
            }),
        }
    }

    /// Requests a document and returns it with the URL that it came from.
    async fn document_at<T: Document>(&self, url: Url) -> Result<(Url, T)> {
        let limit = self.config().state_timeout;
        let request = |url| {
            Ok(Request::get(url, MASTER, PATH)
                .with_timeout(limit)
                .on_new_connection())
        };
        let send: super::Exchange<Bytes> = |http: &Http, request| Box::pin(http.fetch(request));
        let (url, bytes) = self
            .follow(url, &request, send, super::VersionCheck::None)
            .await?;
        // A large document takes seconds to parse, which must not block this thread.
        let document = match ambient::blocking(move || T::read(&bytes)).await {
            Some(document) => document.map_err(|source| Error::decode(answer_name(&url, PATH), source))?,
            None => {
                return Err(Error::Incomplete {
                    what: answer_name(&url, PATH),
                    missing: "a parsed document: parsing panicked or was cancelled",
                });
            }
        };
        Ok((url, document))
    }
}

impl Document for State {
    fn read(document: &[u8]) -> serde_json::Result<Self> {
        lenient::parse(document)
    }

    fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    fn pid(&self) -> Option<&str> {
        Some(&self.pid)
    }
}

/// The URL of the leader that a document names, if the document came from another address. Only
/// addresses are compared: the port in a leader's id may differ from the reachable one. A host name
/// may stand for any address, and a master that names itself as the leader is not tried again,
/// whatever its address.
fn other_leader(document: &impl Document, from: &Url) -> Option<Url> {
    let leader = document.leader()?;
    if document.pid() == Some(leader) {
        return None;
    }
    let (host, _) = pid_address(leader)?;
    let leader = host.parse::<IpAddr>().ok()?.to_canonical();
    let requested_host = match from.host()? {
        Host::Ipv4(ip) => IpAddr::from(ip),
        Host::Ipv6(ip) => IpAddr::from(ip).to_canonical(),
        Host::Domain(_) => return None,
    };
    let mut url = from.clone();
    (leader != requested_host && url.set_ip_host(leader).is_ok()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_requested_from_another_leader_at_the_same_port() {
        for (from, leader, pid, expected) in [
            ("http://10.0.0.1:5050/state", "master@10.0.0.1:5050", "", None),
            ("http://10.0.0.1:5050/state", "master@10.0.0.1:6000", "", None),
            (
                "http://10.0.0.1:5050/state",
                "master@10.0.0.2:6000",
                "",
                Some("http://10.0.0.2:5050/state"),
            ),
            (
                "http://10.0.0.1:5050/state",
                "master@[2001:db8::1]:1",
                "",
                Some("http://[2001:db8::1]:5050/state"),
            ),
            (
                "http://10.0.0.1:5050/state",
                "master@[::ffff:10.0.0.1]:1",
                "",
                None,
            ),
            (
                "http://[::1]:5050/master/state",
                "master@[::2]:1",
                "",
                Some("http://[::2]:5050/master/state"),
            ),
            (
                "http://127.0.0.1:5050/state",
                "master@10.0.0.2:5050",
                "master@10.0.0.2:5050",
                None,
            ),
            ("http://leader.mesos:5050/state", "master@10.0.0.2:5050", "", None),
            ("http://10.0.0.1:5050/state", "master@name:5050", "", None),
            ("http://10.0.0.1:5050/state", "garbage", "", None),
            ("http://10.0.0.1:5050/state", "", "", None),
        ] {
            let state = State {
                leader: Some(leader.to_owned()),
                pid: pid.to_owned(),
                ..State::default()
            };
            let found = other_leader(&state, &Url::parse(from).unwrap());
            assert_eq!(
                found.as_ref().map(Url::as_str),
                expected,
                "{leader} known at {from}"
            );
        }
    }
}
