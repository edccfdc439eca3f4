//! Discovery, tested at its ports, while the cluster changes, fails and returns.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod answers;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod recovery;
mod source;

use serde_json::{Value, json};
use transom_discovery::{Config, Settings};

use common::{Followed, Master, MasterScript};

fn agent(n: u32) -> Value {
    let id = format!("c1d2-S{n}");
    json!({"agent_info": {"hostname": "a", "id": {"value": id}}, "active": true, "pid": format!("slave(1)@10.0.0.1{n}:5051")})
}

fn task(n: u32, state: &str) -> Value {
    json!({
        "name": "web", "task_id": {"value": format!("web.{n}")}, "framework_id": {"value": "F"},
        "agent_id": {"value": "c1d2-S0"}, "state": state,
        "resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000 + n, "end": 31000 + n}]}}],
    })
}

fn updated(n: u32, state: &str) -> Value {
    let status = json!({"task_id": {"value": format!("web.{n}")}, "state": state, "timestamp": 1.0});
    json!({"type": "TASK_UPDATED", "task_updated": {"framework_id": {"value": "F"}, "status": status, "state": state}})
}

fn snapshot(agents: u32, tasks: &[Value]) -> Value {
    json!({
        "get_agents": {"agents": (0..agents).map(agent).collect::<Vec<_>>()},
        "get_frameworks": {"frameworks": [{"framework_info": {"user": "u", "name": "marathon", "id": {"value": "F"}, "hostname": "10.9.9.9"}}]},
        "get_tasks": {"tasks": tasks},
    })
}

fn document() -> Value {
    json!({"leader": "master@127.0.0.1:5050", "pid": "master@127.0.0.1:5050", "slaves": [], "frameworks": []})
}

/// With full comparisons and polls once per second.
fn every_second() -> Settings {
    Settings {
        refresh_seconds: 1,
        ..Settings::default()
    }
}

async fn started(snapshot: Value, config: impl Into<Config>) -> (Master, Followed) {
    let script = MasterScript {
        document: Some(document()),
        snapshot: Some(snapshot),
        ..MasterScript::default()
    };
    let master = Master::start(script).await;
    let followed = master.followed(config).await;
    followed.ready().await;
    (master, followed)
}
