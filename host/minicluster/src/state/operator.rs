//! The operators' event streams. Draining, deactivating and removing agents is in
//! [`super::agents`].

use super::{FrameworkId, MAX_STREAM_EVENTS, MAX_WATCHERS, State, TaskState, Watcher};
use crate::{
    state::{operator_views, visibility},
    wire::{
        json as doc,
        recordio::{self, Event},
    },
};
use serde_json::{Value, json};
use std::time::Instant;
use tokio::sync::mpsc;

impl State {
    /// SUBSCRIBE of the operator API: sends the whole state, then every change. If there are too
    /// many streams, the oldest one ends.
    pub(crate) fn subscribe_operator(&mut self, sees_tasks: bool, now: Instant) -> mpsc::Receiver<Event> {
        let (events, receiver) = mpsc::channel(MAX_STREAM_EVENTS);
        let mut snapshot = operator_views::state(self);
        if !sees_tasks {
            visibility::hide_tasks(&mut snapshot);
        }
        let subscribed = json!({"type": "SUBSCRIBED", "subscribed": {
            "get_state": snapshot,
            "heartbeat_interval_seconds": self.config.heartbeat.as_secs_f64(),
        }});
        // The queue is new, so both events fit.
        let _ = events.try_send(Ok(recordio::record(&subscribed)));
        let _ = events.try_send(Ok(recordio::record(&json!({"type": "HEARTBEAT"}))));
        if self.watchers.len() >= MAX_WATCHERS {
            self.watchers.remove(0);
        }
        self.watchers.push(Watcher {
            events,
            next_heartbeat: now + self.config.heartbeat,
            sees_tasks,
        });
        receiver
    }

    /// Sends an event to every operator stream; closed and full ones are dropped.
    pub(super) fn announce(&mut self, event: &Value) {
        if self.watchers.is_empty() {
            return;
        }
        let record = recordio::record(event);
        let of_tasks = visibility::is_of_tasks(event);
        self.watchers.retain(|watcher| {
            let hidden = of_tasks && !watcher.sees_tasks;
            hidden || watcher.events.try_send(Ok(record.clone())).is_ok()
        });
    }

    pub(super) fn announce_framework(&mut self, id: &FrameworkId, kind: &str, field: &str) {
        if let Some(framework) = self.frameworks.get(id) {
            let framework = operator_views::framework_of_event(framework);
            self.announce(&json!({"type": kind, field: {"framework": framework}}));
        }
    }

    /// `TASK_UPDATED`: the forwarded status and the latest state.
    pub(super) fn announce_update(&mut self, framework: &FrameworkId, status: &Value, latest: TaskState) {
        self.announce(&json!({"type": "TASK_UPDATED", "task_updated": {
            "framework_id": doc::id(framework.as_str()),
            "status": status,
            "state": latest.as_str(),
        }}));
    }

    pub(super) fn watcher_heartbeats(&mut self, now: Instant) {
        let interval = self.config.heartbeat;
        let record = recordio::record(&json!({"type": "HEARTBEAT"}));
        self.watchers.retain_mut(|watcher| {
            if watcher.next_heartbeat > now {
                return !watcher.events.is_closed();
            }
            watcher.next_heartbeat = now + interval;
            watcher.events.try_send(Ok(record.clone())).is_ok()
        });
    }
}
