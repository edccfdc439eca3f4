//! A subscribed framework: its stream, its calls, and recorded requests that are adapted to the
//! cluster.

use crate::{
    client::{self, Head, Request, Response, Stream},
    run::Error,
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Timeout of an event.
const EVENT: Duration = Duration::from_secs(20);
/// The first port of the recorded agents.
const RECORDED_PORT: u64 = 31000;

/// A subscription with all events received so far.
pub(crate) struct Framework {
    master: SocketAddr,
    pub(crate) head: Head,
    pub(crate) id: String,
    stream_id: String,
    stream: Stream,
    events: Vec<Value>,
    /// Index of the next event to process.
    next: usize,
    /// The agent whose offers are used, because the recordings have one agent with every task on
    /// it. `None`: the agent of the first offer.
    offering_agent: Option<Value>,
}

impl Framework {
    /// Sends a SUBSCRIBE and awaits the first event.
    pub(crate) async fn subscribe(master: SocketAddr, body: &Value) -> Result<Self, Error> {
        let (head, stream) = client::open(master, &Request::post("/api/v1/scheduler", body)).await?;
        let stream_id = head.header("Mesos-Stream-Id").unwrap_or_default().to_owned();
        let mut framework = Self {
            master,
            head,
            id: String::new(),
            stream_id,
            stream,
            events: Vec::new(),
            next: 0,
            offering_agent: None,
        };
        let first = framework.any("a first event").await?;
        first["subscribed"]["framework_id"]["value"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut framework.id);
        Ok(framework)
    }

    /// The request of a call.
    pub(crate) fn request(&self, call: &Value) -> Request {
        let mut call = call.clone();
        call["framework_id"] = json!({"value": self.id});
        Request::post("/api/v1/scheduler", &call).with("Mesos-Stream-Id", &self.stream_id)
    }

    /// Sends a call.
    pub(crate) async fn call(&self, call: &Value) -> Result<Response, Error> {
        Ok(client::exchange(self.master, &self.request(call)).await?)
    }

    /// The next event of any type.
    pub(crate) async fn any(&mut self, what: &str) -> Result<Value, Error> {
        self.wait_for(what, |_| true).await
    }

    /// The index of the next event to process.
    pub(crate) fn mark(&self) -> usize {
        self.next
    }

    /// Processes the events from a mark on again, because their order does not matter.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.next = mark;
    }

    /// Waits for an event that `fits` accepts; skipped status updates are acknowledged.
    pub(crate) async fn wait_for(
        &mut self,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        let end = Instant::now() + EVENT;
        loop {
            while let Some(event) = self.events.get(self.next).cloned() {
                self.next += 1;
                if fits(&event) {
                    return Ok(event);
                }
            }
            let remaining = end.saturating_duration_since(Instant::now());
            let record = self
                .stream
                .record(remaining)
                .await
                .map_err(|error| Error::Missing(format!("no {what}: {error}")))?;
            let event = record.ok_or_else(|| Error::Missing(format!("the stream ended before {what}")))?;
            self.acknowledge(&event).await?;
            self.events.push(event);
        }
    }

    async fn acknowledge(&self, event: &Value) -> Result<(), Error> {
        let status = &event["update"]["status"];
        if status["uuid"].is_string() {
            let acknowledge =
                json!({"agent_id": status["agent_id"], "task_id": status["task_id"], "uuid": status["uuid"]});
            self.call(&json!({"type": "ACKNOWLEDGE", "acknowledge": acknowledge}))
                .await?;
        }
        Ok(())
    }

    /// Waits for the update with this state of the task, which may have arrived before events that
    /// were awaited earlier.
    pub(crate) async fn update(&mut self, task: &str, state: &str) -> Result<Value, Error> {
        let seen = self
            .events
            .iter()
            .find(|event| is_update(event, task, state))
            .cloned();
        match seen {
            Some(event) => Ok(event),
            None => {
                self.wait_for(&format!("{state} of {task}"), |event| {
                    is_update(event, task, state)
                })
                .await
            }
        }
    }

    /// Declines every offer and suppresses further ones, so that the whole cluster is free for the
    /// next framework.
    pub(crate) async fn decline_and_suppress(&mut self) -> Result<(), Error> {
        self.call(&json!({"type": "SUPPRESS"})).await?;
        // When this call is answered, every earlier offer has been received.
        let barrier = format!("barrier-{}", self.events.len());
        let tasks = json!([{"task_id": {"value": barrier}}]);
        self.call(&json!({"type": "RECONCILE", "reconcile": {"tasks": tasks}}))
            .await?;
        self.wait_for("the answer to a RECONCILE", |event| {
            event["update"]["status"]["task_id"]["value"] == barrier
        })
        .await?;
        let offers = self.events.iter().filter(|event| event["type"] == "OFFERS");
        let ids: Vec<&Value> = offers
            .flat_map(|event| event["offers"]["offers"].as_array().into_iter().flatten())
            .map(|offer| &offer["id"])
            .collect();
        // Used offers are unknown to the master by now; declining them has no effect.
        let decline = json!({"offer_ids": ids, "filters": {"refuse_seconds": 0}});
        self.call(&json!({"type": "DECLINE", "decline": decline})).await?;
        Ok(())
    }

    /// Revives offers and returns the first one.
    pub(crate) async fn offer(&mut self) -> Result<Value, Error> {
        self.decline_and_suppress().await?;
        self.call(&json!({"type": "REVIVE"})).await?;
        self.wait_for_offer().await
    }

    /// Waits for the next offer of this framework's agent; the first offer determines the agent.
    pub(crate) async fn wait_for_offer(&mut self) -> Result<Value, Error> {
        let offering_agent = self.offering_agent.clone();
        let event = self
            .wait_for("an offer", |event| {
                offer_of(event, offering_agent.as_ref()).is_some()
            })
            .await?;
        let offer = offer_of(&event, offering_agent.as_ref())
            .cloned()
            .unwrap_or_default();
        self.offering_agent = Some(offer["agent_id"].clone());
        Ok(offer)
    }

    /// From now on uses the offers of the agent on which another framework's tasks run.
    pub(crate) fn use_agent_of(&mut self, other: &Framework) {
        self.offering_agent.clone_from(&other.offering_agent);
    }

    /// Waits until the master ends the stream; earlier events are skipped.
    pub(crate) async fn wait_until_ended(&mut self) -> Result<(), Error> {
        let end = Instant::now() + EVENT;
        while let Some(event) = self
            .stream
            .record(end.saturating_duration_since(Instant::now()))
            .await?
        {
            self.events.push(event);
        }
        Ok(())
    }
}

/// The first offer in an event, of this agent or of any.
fn offer_of<'a>(event: &'a Value, agent: Option<&Value>) -> Option<&'a Value> {
    let mut offers = event["offers"]["offers"].as_array()?.iter();
    offers.find(|offer| agent.is_none_or(|agent| offer["agent_id"] == *agent))
}

fn is_update(event: &Value, task: &str, state: &str) -> bool {
    let status = &event["update"]["status"];
    event["type"] == "UPDATE" && status["task_id"]["value"] == task && status["state"] == state
}

/// Replaces the offer, agent, framework and ports of a recorded ACCEPT by those of this cluster.
pub(crate) fn adapt_to_offer(recorded: &Value, offer: &Value) -> Value {
    let ports = offer["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|resource| resource["name"] == "ports");
    let first = ports
        .and_then(|ports| ports["ranges"]["range"][0]["begin"].as_u64())
        .unwrap_or(RECORDED_PORT);
    let mut adapted = recorded.clone();
    if adapted["accept"]["offer_ids"][0]["value"] != "gone" {
        adapted["accept"]["offer_ids"] = json!([offer["id"]]);
    }
    replace_with_offer(&mut adapted, "", offer, first);
    adapted
}

fn replace_with_offer(value: &mut Value, key: &str, offer: &Value, first: u64) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object.iter_mut() {
                match key.as_str() {
                    "agent_id" => *inner = offer["agent_id"].clone(),
                    "framework_id" => *inner = offer["framework_id"].clone(),
                    _ => replace_with_offer(inner, key, offer, first),
                }
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_with_offer(item, key, offer, first)),
        Value::Number(number) if ["begin", "end", "number"].contains(&key) => {
            // Recorded tasks of different times use different ports; here the ports of each offer
            // are used from the first one on.
            if let Some(port) = number.as_u64().filter(|port| *port >= RECORDED_PORT) {
                *value = json!(first + (port - RECORDED_PORT) % 50);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_requests_are_adapted_to_the_cluster() {
        let recorded = json!({"accept": {"offer_ids": [{"value": "old"}], "operations": [{"launch": {"task_infos": [
            {"agent_id": {"value": "S9"}, "resources": [{"name": "ports", "ranges": {"range": [{"begin": 31001, "end": 31001}]}}]},
        ]}}]}});
        let offer = json!({
            "id": {"value": "new"}, "agent_id": {"value": "S1"}, "framework_id": {"value": "F"},
            "resources": [{"name": "ports", "ranges": {"range": [{"begin": 4000, "end": 4100}]}}],
        });
        let adapted = adapt_to_offer(&recorded, &offer);
        assert_eq!(adapted["accept"]["offer_ids"], json!([{"value": "new"}]));
        let task = &adapted["accept"]["operations"][0]["launch"]["task_infos"][0];
        assert_eq!(task["agent_id"]["value"], "S1");
        assert_eq!(
            task["resources"][0]["ranges"]["range"][0],
            json!({"begin": 4001, "end": 4001})
        );
    }
}
