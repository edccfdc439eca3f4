//! A cluster under test and a framework on it, over plain HTTP.

#![allow(dead_code, reason = "every test file uses a part")]

use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_minicluster::{AgentConfig, Config, Minicluster};
use transom_replay::client::{self, Request, Response, Stream};
use transom_testkit::free_ports;

pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// A running cluster in its own temporary directory.
pub(crate) struct Cluster {
    pub(crate) minicluster: Minicluster,
    pub(crate) dir: TempDir,
    token: CancellationToken,
}

impl Cluster {
    /// Agents on 127.0.0.1 with eight ports each, with shorter intervals than a real master.
    pub(crate) async fn start(agents: u16, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path());
        config.allocation_interval = Duration::from_millis(100);
        let base = free_ports(agents * 8);
        config.agents = (0..agents)
            .map(|index| AgentConfig {
                ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                port: 0,
                hostname: format!("a{index}"),
                cpus: 2.0,
                mem: 1024.0,
                disk: 1024.0,
                disks: Vec::new(),
                ports: (base + index * 8, base + index * 8 + 7),
                attributes: vec![("rack".to_owned(), format!("r{index}"))],
            })
            .collect();
        change(&mut config);
        let token = CancellationToken::new();
        let minicluster = config.start(token.clone()).await.unwrap();
        Self {
            minicluster,
            dir,
            token,
        }
    }

    pub(crate) fn master(&self) -> SocketAddr {
        self.minicluster.master()
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(EVENT_TIMEOUT, self.minicluster.stopped())
            .await
            .expect("the cluster stops");
    }

    /// Stops the cluster, but keeps the directory for inspection.
    pub(crate) async fn stop_keeping_dir(self) -> TempDir {
        self.token.cancel();
        tokio::time::timeout(EVENT_TIMEOUT, self.minicluster.stopped())
            .await
            .expect("the cluster stops");
        self.dir
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = client::exchange(self.master(), &Request::get(path))
            .await
            .unwrap();
        assert_eq!(response.head.code(), 200, "{path}: {}", response.text());
        response.json()
    }

    /// Injects a fault and returns the active ones.
    pub(crate) async fn fault(&self, fault: Value) -> Value {
        let response = client::exchange(self.master(), &Request::post("/minicluster/faults", &fault))
            .await
            .unwrap();
        assert_eq!(response.head.code(), 200, "{fault}: {}", response.text());
        response.json()["in_force"].clone()
    }

    /// Waits until the master's document at `path` satisfies `condition`, and returns it.
    pub(crate) async fn wait_until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            let document = self.get(path).await;
            if condition(&document) {
                return document;
            }
            assert!(Instant::now() < end, "{path} stays {document}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn operator_call(&self, call: Value) -> Response {
        client::exchange(self.master(), &Request::post("/api/v1", &call))
            .await
            .unwrap()
    }
}

/// The updates that a framework acknowledges automatically.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    All,
    None,
}

/// A subscribed framework.
pub(crate) struct Framework {
    pub(crate) master: SocketAddr,
    pub(crate) id: String,
    pub(crate) stream_id: String,
    pub(crate) stream: Stream,
    pub(crate) acknowledge: Acknowledge,
}

/// A framework with all capabilities.
pub(crate) fn framework_info() -> Value {
    json!({
        "user": "root", "name": "test", "roles": ["test"], "checkpoint": true, "failover_timeout": 60.0,
        "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}, {"type": "TASK_KILLING_STATE"},
                         {"type": "RESERVATION_REFINEMENT"}],
    })
}

impl Framework {
    pub(crate) async fn subscribe(master: SocketAddr, info: &Value) -> Self {
        let mut call = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}});
        if let Some(id) = info.get("id") {
            call["framework_id"] = id.clone();
        }
        let (head, stream) = client::open(master, &Request::post("/api/v1/scheduler", &call))
            .await
            .unwrap();
        assert_eq!(head.code(), 200);
        let stream_id = head.header("Mesos-Stream-Id").expect("a stream id").to_owned();
        let mut framework = Self {
            master,
            id: String::new(),
            stream_id,
            stream,
            acknowledge: Acknowledge::All,
        };
        let first = framework.next_event().await;
        assert_eq!(first["type"], "SUBSCRIBED", "{first}");
        first["subscribed"]["framework_id"]["value"]
            .as_str()
            .unwrap()
            .clone_into(&mut framework.id);
        framework
    }

    /// The next event. Panics if there is none in time.
    pub(crate) async fn next_event(&mut self) -> Value {
        let event = self
            .stream
            .record(EVENT_TIMEOUT)
            .await
            .unwrap()
            .expect("the stream is open");
        if self.acknowledge == Acknowledge::All {
            self.acknowledge(&event).await;
        }
        event
    }

    pub(crate) async fn wait_until(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + EVENT_TIMEOUT;
        while Instant::now() < end {
            let event = self.next_event().await;
            if condition(&event) {
                return event;
            }
        }
        panic!("the event does not arrive")
    }

    pub(crate) async fn acknowledge(&self, event: &Value) {
        let status = &event["update"]["status"];
        if status["uuid"].is_string() {
            let part =
                json!({"agent_id": status["agent_id"], "task_id": status["task_id"], "uuid": status["uuid"]});
            self.expect_accepted(json!({"type": "ACKNOWLEDGE", "acknowledge": part}))
                .await;
        }
    }

    pub(crate) async fn call(&self, mut call: Value) -> Response {
        call["framework_id"] = json!({"value": self.id});
        let request = Request::post("/api/v1/scheduler", &call).with("Mesos-Stream-Id", &self.stream_id);
        client::exchange(self.master, &request).await.unwrap()
    }

    pub(crate) async fn expect_accepted(&self, call: Value) {
        let response = self.call(call.clone()).await;
        assert_eq!(response.head.code(), 202, "{call}: {}", response.text());
    }

    pub(crate) async fn offers(&mut self) -> Vec<Value> {
        let event = self.wait_until(|event| event["type"] == "OFFERS").await;
        event["offers"]["offers"].as_array().unwrap().clone()
    }

    pub(crate) async fn offer(&mut self) -> Value {
        self.offers().await.remove(0)
    }

    /// Waits for the task's update with this state, and drops the events before it.
    pub(crate) async fn wait_for_state(&mut self, task: &str, state: &str) -> Value {
        let event = self
            .wait_until(|event| {
                let status = &event["update"]["status"];
                status["task_id"]["value"] == task && status["state"] == state
            })
            .await;
        event["update"]["status"].clone()
    }

    pub(crate) async fn accept(&self, offer: &Value, operations: Value) {
        let accept =
            json!({"offer_ids": [offer["id"]], "operations": operations, "filters": {"refuse_seconds": 0}});
        self.expect_accepted(json!({"type": "ACCEPT", "accept": accept}))
            .await;
    }

    pub(crate) async fn launch(&self, offer: &Value, tasks: Value) {
        self.accept(
            offer,
            json!([{"type": "LAUNCH", "launch": {"task_infos": tasks}}]),
        )
        .await;
    }

    pub(crate) async fn kill(&self, task: &str) {
        self.expect_accepted(json!({"type": "KILL", "kill": {"task_id": {"value": task}}}))
            .await;
    }
}

/// Restarts the master, which then answers immediately, unlike a real one.
pub(crate) fn immediate_restart() -> Value {
    json!({"fault": "restart-master", "down_ms": 0, "starting_ms": 0, "recovery_ms": 0})
}

/// A small shell task on the offer's agent.
pub(crate) fn task(id: &str, offer: &Value, command: &str) -> Value {
    json!({
        "name": id,
        "task_id": {"value": id},
        "agent_id": offer["agent_id"],
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)],
        "command": {"value": command},
    })
}

pub(crate) fn scalar(name: &str, value: f64) -> Value {
    json!({"name": name, "type": "SCALAR", "scalar": {"value": value}})
}

pub(crate) fn ports(begin: u64, end: u64) -> Value {
    json!({"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": begin, "end": end}]}})
}

/// The first offered port.
pub(crate) fn first_port(offer: &Value) -> u64 {
    let ports = offer["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|resource| resource["name"] == "ports")
        .unwrap();
    ports["ranges"]["range"][0]["begin"].as_u64().unwrap()
}

/// Whether a process of that group is still running. Zombies do not count.
pub(crate) fn is_group_alive(leader: u64) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .any(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let state = fields.next().unwrap_or("Z");
            let group = fields.nth(1).and_then(|group| group.parse::<u64>().ok());
            group == Some(leader) && state != "Z"
        })
}

/// All lines of all agents' journals.
pub(crate) fn journal(dir: &TempDir) -> Vec<Value> {
    let agents = std::fs::read_dir(dir.path().join("agents")).unwrap();
    let files = agents.map(|agent| agent.unwrap().path().join("journal.jsonl"));
    files
        .flat_map(|file: PathBuf| {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect::<Vec<Value>>()
        })
        .collect()
}
