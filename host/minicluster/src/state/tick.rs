//! Changes caused by time alone.

use super::{FrameworkId, State};
use serde_json::json;
use std::time::Instant;

impl State {
    /// Performs what is due: heartbeats, retries, failover timeouts, deadlines of executors,
    /// timeouts of agents, and the periodic allocation.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.heartbeats(now);
        self.watcher_heartbeats(now);
        self.retry_updates(now);
        self.retry_operations(now);
        let expired: Vec<FrameworkId> = self
            .frameworks
            .values()
            .filter(|framework| {
                framework
                    .failover_deadline
                    .is_some_and(|deadline| deadline <= now)
            })
            .map(|framework| framework.id.clone())
            .collect();
        for id in expired {
            self.remove_framework(&id);
        }
        self.run_executor_timers(now);
        self.mark_unreachable_agents(now);
        self.recover(now);
        if self.next_allocation <= now {
            self.allocate(now);
        }
    }

    fn heartbeats(&mut self, now: Instant) {
        let interval = self.config.heartbeat;
        let mut due = Vec::new();
        for framework in self.frameworks.values_mut() {
            if let Some(stream) = &mut framework.stream
                && stream.next_heartbeat <= now
            {
                stream.next_heartbeat = now + interval;
                due.push(framework.id.clone());
            }
        }
        for id in due {
            self.send(&id, &json!({"type": "HEARTBEAT"}));
        }
    }
}
