//! A framework's calls to the master.

use super::STREAM_ID;
use crate::error::{Error, Result};
use crate::http::{Http, MASTER, Request, address};
use crate::ids::{AgentId, FrameworkId, OfferId, TaskId};
use crate::v1::{DurationInfo, Filters, FrameworkInfo, KillPolicy, Operation, TaskStatus};
use reqwest::header::HeaderValue;
use serde::Serialize;
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

/// Makes calls for one subscription. Cloning is cheap.
///
/// A call succeeds when the master has accepted it (202; `UPDATE_FRAMEWORK`: 200). Its effects
/// arrive as events; an outdated offer, for example, causes updates of the tasks that were to be
/// launched with it. Calls fail with [`Error::Rejected`] (400 after the subscription is over or for
/// a malformed call, 403 while the stream is closed), with [`Error::NotLeader`] when the master no
/// longer leads, with [`Error::NotSubscribed`] before the framework's id is known, and with the
/// errors of any request. They end within the configured call timeout.
#[derive(Clone, Debug)]
pub struct Caller {
    http: Http,
    url: Url,
    stream_id: HeaderValue,
    framework: Arc<OnceLock<FrameworkId>>,
}

/// A call; the member of `body` has the name of the call.
#[derive(Serialize)]
struct Call<'a, B> {
    #[serde(rename = "type")]
    kind: &'static str,
    framework_id: &'a FrameworkId,
    #[serde(flatten)]
    body: B,
}

/// An ACCEPT, the largest call: it contains every task that is launched with an offer.
#[derive(Serialize)]
struct AcceptBody {
    accept: Accept,
}

#[derive(Serialize)]
struct Accept {
    offer_ids: Vec<OfferId>,
    operations: Vec<Operation>,
    filters: Filters,
}

/// One task of a RECONCILE.
#[derive(Serialize)]
struct TaskRef {
    task_id: TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
}

impl Caller {
    pub(crate) fn new(http: Http, url: Url, stream_id: HeaderValue) -> Self {
        Self {
            http,
            url,
            stream_id,
            framework: Arc::default(),
        }
    }

    /// Sets the framework's id. The first id stays; the stream sets it when SUBSCRIBED arrives.
    pub fn set_framework_id(&self, id: FrameworkId) {
        let _ = self.framework.set(id);
    }

    /// The framework's id, once known.
    pub fn framework_id(&self) -> Option<&FrameworkId> {
        self.framework.get()
    }

    /// The principal that the configuration sets for frameworks.
    pub fn principal(&self) -> Option<&str> {
        self.http.config().principal.as_deref()
    }

    /// The leading master, as scheme, host and port.
    pub fn master(&self) -> String {
        address(&self.url)
    }

    /// Accepts offers of one agent with operations. Without operations: declines them.
    pub async fn accept(
        &self,
        offers: Vec<OfferId>,
        operations: Vec<Operation>,
        filters: Filters,
    ) -> Result<()> {
        let accept = Accept {
            offer_ids: offers,
            operations,
            filters,
        };
        self.call("ACCEPT", AcceptBody { accept }).await
    }

    /// Declines offers.
    pub async fn decline(&self, offers: Vec<OfferId>, filters: Filters) -> Result<()> {
        self.call(
            "DECLINE",
            json!({"decline": {"offer_ids": offers, "filters": filters}}),
        )
        .await
    }

    /// Accepts inverse offers: the framework intends to leave their agents before the maintenance.
    /// Those of agents that it still uses are repeated after the filter has expired.
    pub async fn accept_inverse_offers(&self, offers: Vec<OfferId>, filters: Filters) -> Result<()> {
        let accept = json!({"inverse_offer_ids": offers, "filters": filters});
        self.call(
            "ACCEPT_INVERSE_OFFERS",
            json!({ "accept_inverse_offers": accept }),
        )
        .await
    }

    /// Declines inverse offers: the framework does not leave their agents. They are repeated after
    /// the filter has expired.
    pub async fn decline_inverse_offers(&self, offers: Vec<OfferId>, filters: Filters) -> Result<()> {
        let decline = json!({"inverse_offer_ids": offers, "filters": filters});
        self.call(
            "DECLINE_INVERSE_OFFERS",
            json!({ "decline_inverse_offers": decline }),
        )
        .await
    }

    /// Requests offers again: removes all filters and ends SUPPRESS.
    pub async fn revive(&self) -> Result<()> {
        self.call("REVIVE", json!({})).await
    }

    /// As [`Self::revive`], for some of the framework's roles; without roles for all.
    pub async fn revive_roles(&self, roles: &[String]) -> Result<()> {
        self.call("REVIVE", json!({"revive": {"roles": roles}})).await
    }

    /// Stops offers until REVIVE.
    pub async fn suppress(&self) -> Result<()> {
        self.call("SUPPRESS", json!({})).await
    }

    /// As [`Self::suppress`], for some of the framework's roles; without roles for all.
    pub async fn suppress_roles(&self, roles: &[String]) -> Result<()> {
        self.call("SUPPRESS", json!({"suppress": {"roles": roles}})).await
    }

    /// Replaces the framework's description, roles included, without a new subscription. Offers for
    /// `suppressed` stay suppressed, and those of all other roles are sent. Id and principal are set
    /// as in [`Client::subscribe`](crate::Client::subscribe). Fails with [`Error::Rejected`] if the
    /// master does not allow the change.
    pub async fn update_framework(&self, info: &FrameworkInfo, suppressed: &[String]) -> Result<()> {
        let mut info = info.clone();
        info.id = self.framework.get().cloned();
        if info.principal.is_none() {
            info.principal = self.principal().map(str::to_owned);
        }
        let update = json!({"framework_info": info, "suppressed_roles": suppressed});
        self.call("UPDATE_FRAMEWORK", json!({ "update_framework": update }))
            .await
    }

    /// Removes the framework and all its tasks; no updates follow for these.
    pub async fn teardown(&self) -> Result<()> {
        self.call("TEARDOWN", json!({})).await
    }

    /// Kills a task, with `grace` between SIGTERM and SIGKILL instead of its own kill policy's. For
    /// an unknown task the master sends the update `TASK_UNKNOWN`.
    pub async fn kill(&self, task: TaskId, agent: Option<AgentId>, grace: Option<Duration>) -> Result<()> {
        let mut kill = json!({ "task_id": task });
        if let Some(agent) = agent {
            kill["agent_id"] = json!(agent);
        }
        if let Some(grace) = grace {
            kill["kill_policy"] = json!(KillPolicy {
                grace_period: Some(DurationInfo::from(grace))
            });
        }
        self.call("KILL", json!({ "kill": kill })).await
    }

    /// Acknowledges an update, so that it is not repeated and the task's next one can follow. No
    /// effect for an update without uuid: the master made it and expects no acknowledgement.
    pub async fn acknowledge(&self, status: &TaskStatus) -> Result<()> {
        let Some(uuid) = &status.uuid else { return Ok(()) };
        let Some(agent) = &status.agent_id else {
            let what = format!("the update of task {}", status.task_id);
            return Err(Error::Incomplete {
                what,
                missing: "an agent_id, without which it cannot be acknowledged",
            });
        };
        let acknowledge = json!({"agent_id": agent, "task_id": status.task_id, "uuid": uuid});
        self.call("ACKNOWLEDGE", json!({ "acknowledge": acknowledge }))
            .await
    }

    /// Requests the state of these tasks, or, with none, of all known to the master; it arrives as
    /// updates.
    pub async fn reconcile(&self, tasks: Vec<(TaskId, Option<AgentId>)>) -> Result<()> {
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|(task_id, agent_id)| TaskRef { task_id, agent_id })
            .collect();
        self.call("RECONCILE", json!({"reconcile": {"tasks": tasks}}))
            .await
    }

    async fn call<B: Serialize>(&self, call: &'static str, body: B) -> Result<()> {
        let framework_id = self.framework.get().ok_or(Error::NotSubscribed { call })?;
        let body = Call {
            kind: call,
            framework_id,
            body,
        };
        let mut request = Request::post(self.url.clone(), MASTER, call, &body)?.for_framework();
        request.headers.insert(STREAM_ID, self.stream_id.clone());
        self.http.execute(&request).await.map_err(|error| match error {
            Error::Redirect {
                address, location, ..
            } => Error::NotLeader {
                address,
                leader: location,
            },
            error => error,
        })
    }
}
