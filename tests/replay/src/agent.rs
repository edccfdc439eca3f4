//! The agent's part of the recordings: documents, operator calls, sandbox files.

use crate::{
    client::{self, Request},
    run::{Error, Run},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The address on which an agent listens, from its `pid` in `/slaves`, `slave(1)@host:port`.
fn addr_of(pid: &str) -> Option<SocketAddr> {
    pid.split_once('@')?.1.parse().ok()
}

async fn agents(run: &Run) -> Result<Vec<Value>, Error> {
    let slaves = client::exchange(run.master, &Request::get("/slaves"))
        .await?
        .json();
    Ok(slaves["slaves"].as_array().cloned().unwrap_or_default())
}

/// Compares the documents of the agent that ran `task-4` of this framework, and its sandbox.
pub(crate) async fn documents(run: &mut Run, framework: &str) -> Result<(), Error> {
    let state = client::exchange(run.master, &Request::get("/state"))
        .await?
        .json();
    let of_framework = |task: &&Value| task["framework_id"] == framework && task["id"] == "task-4";
    let task = state["frameworks"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|one| one["completed_tasks"].as_array().into_iter().flatten())
        .find(of_framework)
        .cloned();
    let slave = task.map(|task| task["slave_id"].clone()).unwrap_or_default();
    let addr = agents(run)
        .await?
        .iter()
        .find(|agent| agent["id"] == slave)
        .and_then(|agent| addr_of(agent["pid"].as_str()?));
    let addr = addr.ok_or_else(|| Error::Missing("no agent ran task-4".to_owned()))?;
    let documents = [
        ("agent_state", "/state"),
        ("agent_slave1_state", "/slave(1)/state"),
        ("agent_containers", "/containers"),
        ("agent_monitor_statistics", "/monitor/statistics"),
        ("agent_version", "/version"),
        ("agent_health", "/health"),
        ("agent_flags", "/flags"),
    ];
    for (name, path) in documents {
        run.ask_at(addr, &format!("1-main/06-{name}"), &Request::get(path))
            .await;
    }
    let calls = [
        "GET_HEALTH",
        "GET_VERSION",
        "GET_STATE",
        "GET_CONTAINERS",
        "GET_FRAMEWORKS",
        "GET_EXECUTORS",
        "GET_TASKS",
        "GET_AGENT",
    ];
    for kind in calls {
        run.ask_at(
            addr,
            &format!("1-main/06-agent-v1-{kind}"),
            &Request::post("/api/v1", &json!({"type": kind})),
        )
        .await;
    }
    let state = client::exchange(addr, &Request::get("/state")).await?.json();
    let sandbox = find_directory(&state, "task-4")
        .ok_or_else(|| Error::Missing("the agent does not know task-4's sandbox".to_owned()))?;
    files(run, addr, &sandbox).await;
    Ok(())
}

/// The directory of the executor with this id, at any depth of an agent's state.
fn find_directory(value: &Value, id: &str) -> Option<String> {
    match value {
        Value::Object(object) => {
            let own = object
                .get("id")
                .is_some_and(|own| own == id)
                .then(|| object.get("directory")?.as_str().map(str::to_owned));
            own.flatten()
                .or_else(|| object.values().find_map(|inner| find_directory(inner, id)))
        }
        Value::Array(items) => items.iter().find_map(|item| find_directory(item, id)),
        _ => None,
    }
}

async fn files(run: &mut Run, addr: SocketAddr, sandbox: &str) {
    let cases = [
        ("browse-ok", format!("/files/browse?path={sandbox}")),
        (
            "read-ok",
            format!("/files/read?path={sandbox}/stdout&offset=0&length=1000"),
        ),
        (
            "read-size",
            format!("/files/read?path={sandbox}/stdout&offset=-1"),
        ),
        (
            "read-past-end",
            format!("/files/read?path={sandbox}/stdout&offset=100000&length=10"),
        ),
        ("download", format!("/files/download?path={sandbox}/stdout")),
    ];
    for (name, target) in cases {
        run.ask_at(
            addr,
            &format!("1-main/06-agent-files-{name}"),
            &Request::get(target),
        )
        .await;
    }
    let list = json!({"type": "LIST_FILES", "list_files": {"path": sandbox}});
    run.ask_at(
        addr,
        "1-main/06-agent-v1-LIST_FILES",
        &Request::post("/api/v1", &list),
    )
    .await;
    let read = json!({"type": "READ_FILE", "read_file": {"path": format!("{sandbox}/stdout"), "offset": 0, "length": 100}});
    run.ask_at(
        addr,
        "1-main/06-agent-v1-READ_FILE",
        &Request::post("/api/v1", &read),
    )
    .await;
}

/// Compares responses for files that do not exist.
pub(crate) async fn unusual_requests(run: &mut Run) {
    let cases = [
        ("browse-missing", "/files/browse?path=/nope"),
        ("browse-nopath", "/files/browse"),
        ("browse-virtual", "/files/browse?path=/var/lib/mesos"),
        ("read-missing", "/files/read?path=/nope&offset=0"),
        ("download-missing", "/files/download?path=/nope"),
    ];
    let addr = match agents(run).await {
        Ok(agents) => agents.first().and_then(|agent| addr_of(agent["pid"].as_str()?)),
        Err(error) => return run.fail("1-main/06-agent-files", "GET /slaves", &error),
    };
    let Some(addr) = addr else {
        return run.fail(
            "1-main/06-agent-files",
            "GET /slaves",
            &Error::Missing("there is no agent".to_owned()),
        );
    };
    for (name, target) in cases {
        run.ask_at(
            addr,
            &format!("1-main/06-agent-files-{name}"),
            &Request::get(target),
        )
        .await;
    }
}
