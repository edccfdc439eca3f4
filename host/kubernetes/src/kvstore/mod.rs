//! The client of a kvstore: calls the members of an etcd cluster through etcd's JSON gateway.
//!
//! Answers have limits of time and size. A member that does not answer does not make the answers of
//! the others unusable.

mod record;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use transom_cluster::TaskId;
use transom_common::HostPort;

use crate::secrets::DatastoreTls;
use crate::{Error, Result};

pub(crate) use record::{KvstoreRecord, Voter};

/// Functions of a shell for the folder with the data of a member.
pub(crate) const DATA_FUNCTIONS: &str = include_str!("data.sh");
/// The timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Why a call of a member of the kvstore failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KvstoreError {
    #[error("request to {url} failed")]
    Call { url: String, source: reqwest::Error },
    #[error("{url} answered with status {status}: {message}")]
    Rejected {
        url: String,
        status: u16,
        message: String,
    },
    #[error("{url} answered with more than {MAX_ANSWER_BYTES} bytes")]
    TooLarge { url: String },
    #[error("{url} answered with an invalid document")]
    Invalid { url: String, source: serde_json::Error },
}

/// A member of the etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdMember {
    pub(crate) id: u64,
    /// Its name; empty until the member has started for the first time.
    pub(crate) name: String,
    /// Whether it is a learner, which is catching up and has no vote.
    pub(crate) learner: bool,
}

/// The status that a member reports about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberStatus {
    pub(crate) id: u64,
    /// Whether it knows a leader. Without a quorum the cluster has none.
    pub(crate) has_leader: bool,
}

/// The state of the cluster, according to the answers of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EtcdState {
    /// The members of the etcd cluster.
    pub(crate) members: Vec<EtcdMember>,
    /// The status of each member that answered, by its task.
    pub(crate) answers: BTreeMap<TaskId, MemberStatus>,
}

/// The API of a kvstore.
#[async_trait]
pub(crate) trait Kvstore: Debug + Send + Sync {
    /// The status of the member at this address.
    async fn status(&self, address: &HostPort) -> Result<MemberStatus, KvstoreError>;

    /// The members of the cluster, according to the member at this address.
    async fn members(&self, address: &HostPort) -> Result<Vec<EtcdMember>, KvstoreError>;

    /// Removes a member from the cluster. It is no error if the cluster has no such member.
    async fn remove(&self, address: &HostPort, id: u64) -> Result<(), KvstoreError>;

    /// The API of a kvstore with these certificates.
    fn with_tls(&self, tls: &DatastoreTls) -> Result<Arc<dyn Kvstore>>;
}

/// Queries the status of all members concurrently, and the list of members from the first one that
/// knows a leader and returns the list.
///
/// # Errors
/// The error of the last call that failed, if no member has returned the list.
pub(crate) async fn observe(
    kvstore: &dyn Kvstore,
    addresses: &[(TaskId, HostPort)],
) -> Result<EtcdState, KvstoreError> {
    let statuses = join_all(addresses.iter().map(|(_, address)| kvstore.status(address))).await;
    let (mut state, mut listed, mut failure) = (EtcdState::default(), false, None);
    for ((task, address), status) in addresses.iter().zip(statuses) {
        match status {
            Ok(status) => {
                state.answers.insert(task.clone(), status);
                if status.has_leader && !listed {
                    match kvstore.members(address).await {
                        Ok(members) => (state.members, listed) = (members, true),
                        // A learner rejects this call.
                        Err(error) => failure = Some(error),
                    }
                }
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if !listed => Err(error),
        _ => Ok(state),
    }
}

/// Calls real members.
#[derive(Clone, Debug)]
pub(crate) struct EtcdGateway {
    client: Client,
    scheme: &'static str,
}

impl EtcdGateway {
    /// A client of members without TLS.
    ///
    /// # Errors
    /// [`Error::Client`] if the HTTP client cannot be created.
    pub(crate) fn new() -> Result<Self> {
        // The machine may have no certificates.
        let client = Self::builder().tls_certs_only([]).build();
        Ok(Self {
            client: client.map_err(Error::Client)?,
            scheme: "http",
        })
    }

    fn builder() -> ClientBuilder {
        // This fails if a provider is already installed; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALL_TIMEOUT)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        address: &HostPort,
        path: &str,
        document: &Value,
    ) -> Result<T, KvstoreError> {
        let url = format!("{}://{address}/v3/{path}", self.scheme);
        let failed = |source: reqwest::Error| KvstoreError::Call {
            url: url.clone(),
            source: source.without_url(),
        };
        let mut answer = self
            .client
            .post(&url)
            .json(document)
            .send()
            .await
            .map_err(failed)?;
        let (status, mut body) = (answer.status(), Vec::new());
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(KvstoreError::TooLarge { url });
            }
        }
        if !status.is_success() {
            let rejection: Option<Rejection> = serde_json::from_slice(&body).ok();
            return Err(KvstoreError::Rejected {
                url,
                status: status.as_u16(),
                message: rejection.unwrap_or_default().message,
            });
        }
        serde_json::from_slice(&body).map_err(|source| KvstoreError::Invalid { url, source })
    }
}

/// The format of the gateway, which writes 64-bit numbers as strings, and omits zero and false.
mod wire {
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[derive(Default, Deserialize)]
struct Rejection {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "wire::number")]
    member_id: u64,
}

#[derive(Deserialize)]
struct StatusAnswer {
    header: Header,
    #[serde(default = "zero", deserialize_with = "wire::number")]
    leader: u64,
}

fn zero() -> u64 {
    0
}

#[derive(Deserialize)]
struct ListAnswer {
    members: Vec<ListedMember>,
}

#[derive(Deserialize)]
struct ListedMember {
    #[serde(rename = "ID", deserialize_with = "wire::number")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(rename = "isLearner", default)]
    learner: bool,
}

#[async_trait]
impl Kvstore for EtcdGateway {
    async fn status(&self, address: &HostPort) -> Result<MemberStatus, KvstoreError> {
        let answer: StatusAnswer = self.call(address, "maintenance/status", &json!({})).await?;
        Ok(MemberStatus {
            id: answer.header.member_id,
            has_leader: answer.leader != 0,
        })
    }

    async fn members(&self, address: &HostPort) -> Result<Vec<EtcdMember>, KvstoreError> {
        let answer: ListAnswer = self.call(address, "cluster/member/list", &json!({})).await?;
        let member = |member: ListedMember| EtcdMember {
            id: member.id,
            name: member.name,
            learner: member.learner,
        };
        Ok(answer.members.into_iter().map(member).collect())
    }

    async fn remove(&self, address: &HostPort, id: u64) -> Result<(), KvstoreError> {
        let document = json!({"ID": id.to_string()});
        let removed = self
            .call::<Value>(address, "cluster/member/remove", &document)
            .await;
        match removed {
            Err(KvstoreError::Rejected { status: 404, .. }) => Ok(()),
            removed => removed.map(drop),
        }
    }

    fn with_tls(&self, tls: &DatastoreTls) -> Result<Arc<dyn Kvstore>> {
        let authority = Certificate::from_pem(tls.authority.certificate.as_bytes());
        let identity = format!("{}{}", tls.client.certificate, tls.client.key.reveal());
        let client = authority.and_then(|authority| {
            let identity = Identity::from_pem(identity.as_bytes())?;
            let builder = Self::builder().tls_certs_only([authority]);
            builder.identity(identity).build()
        });
        Ok(Arc::new(Self {
            client: client.map_err(Error::Client)?,
            scheme: "https",
        }))
    }
}

#[cfg(test)]
mod tests;
