//! The API over a real port, against a scripted cluster and scripted components.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod apps;
mod bounds;
mod canaries;
mod checks;
mod definitions;
mod deployments;
mod events;
mod failing;
mod groups;
mod growth;
mod health;
mod kill_choices;
mod large_changes;
mod limits;
mod metrics;
mod openapi;
mod pods;
mod port;
mod residents;
mod responses;
mod routes;
mod tasks;
mod ui;

use serde_json::{Value, json};
use transom_testkit::wait_for;

use crate::testing::World;

fn sleeper(id: &str) -> Value {
    json!({"id": id, "cmd": "sleep 1000"})
}

impl World {
    /// Waits until an app has `running` running tasks and no deployment.
    async fn settled(&self, app: &str, running: u64) -> Value {
        wait_for(&format!("{app} has {running} running tasks"), async || {
            let shown = &self.get(&format!("/v2/apps{app}")).await["app"];
            shown["tasksRunning"] == running
                && shown["deployments"] == json!([])
                && shown["tasks"].as_array().unwrap().len() as u64 == running
        })
        .await;
        self.get(&format!("/v2/apps{app}")).await["app"].clone()
    }
}
