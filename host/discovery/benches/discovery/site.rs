//! A master with a number of tasks, and discovery in a separate process that follows it.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use transom_discovery::{Config, Settings};

use crate::common::{Master, MasterScript};
use transom_testkit::usage;

/// The environment variable that makes this executable serve.
pub(crate) const MASTER: &str = "TRANSOM_BENCH_MASTER";
/// The environment variable with the address of its DNS listener.
const LISTENER: &str = "TRANSOM_BENCH_LISTENER";
/// Instances of one app, and therefore SRV records of one service.
const INSTANCES: u32 = 8;
const AGENTS: u32 = 200;

/// Serves until the standard input ends; first prints the addresses, and the time until the first
/// zone.
pub(crate) async fn serve(master: String) {
    let start = Instant::now();
    let client = transom_cluster::Client::new(transom_cluster::Config {
        masters: vec![master],
        ..transom_cluster::Config::default()
    })
    .unwrap();
    let loopback = [127, 0, 0, 1].into();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let listener = std::env::var(LISTENER).unwrap().parse().unwrap();
    let settings = Settings {
        listener,
        http_listener: loopback,
        port: 0,
        http_port: 0,
        external_on: false,
        // No full comparison during a measurement.
        refresh_seconds: 3600,
        allow_transfer: vec!["127.0.0.0/8".parse().unwrap()],
        https_port: Some(0),
        tls_certificate: Some(certificate),
        tls_key: Some(key),
        ..Settings::default()
    };
    let (token, mut registry) = (CancellationToken::new(), Registry::default());
    let discovery = Config::from(settings)
        .start(client, &mut registry, token.clone())
        .await
        .unwrap();
    while !discovery.is_ready() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let built = start.elapsed().as_millis();
    println!(
        "{} {} {} {built}",
        discovery.dns_addr().unwrap(),
        discovery.https_addr().unwrap(),
        discovery.http_addr().unwrap()
    );
    let mut rest = String::new();
    let waiting = tokio::task::spawn_blocking(move || std::io::stdin().read_to_string(&mut rest));
    waiting.await.unwrap().unwrap();
    token.cancel();
    discovery.stopped().await;
}

/// The zone, and the names in it that the load queries.
pub(crate) struct Names {
    /// The text of a zone file.
    pub(crate) zone: String,
    pub(crate) records: usize,
    pub(crate) a: Vec<String>,
    pub(crate) srv: Vec<String>,
}

pub(crate) struct Site {
    pub(crate) master: Master,
    child: Child,
    dns: SocketAddr,
    https: SocketAddr,
    http: SocketAddr,
    built: u64,
    cpu: Duration,
}

impl Site {
    pub(crate) async fn start(tasks: u32, listener: IpAddr) -> Self {
        let all: Vec<Value> = (0..tasks).map(|n| task(n, "TASK_RUNNING")).collect();
        let document = json!({"leader": "master@127.0.0.1:5050", "slaves": [], "frameworks": []});
        let master = Master::start(MasterScript {
            document: Some(document),
            snapshot: Some(snapshot(&all)),
            ..MasterScript::default()
        })
        .await;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(MASTER, master.addr.to_string())
            .env(LISTENER, listener.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.as_mut().unwrap());
        output.read_line(&mut line).await.unwrap();
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap();
        Self {
            dns: word().parse().unwrap(),
            https: word().parse().unwrap(),
            http: word().parse().unwrap(),
            built: word().parse().unwrap(),
            cpu: usage::cpu(child.id().unwrap()),
            master,
            child,
        }
    }

    /// The address that clients query: loopback if the listener is on all addresses.
    pub(crate) fn dns(&self) -> SocketAddr {
        if self.dns.ip().is_unspecified() {
            (Ipv4Addr::LOCALHOST, self.dns.port()).into()
        } else {
            self.dns
        }
    }

    /// DNS over HTTPS.
    pub(crate) fn https(&self) -> SocketAddr {
        self.https
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Milliseconds from the start to the first zone, including the master's answer, and the CPU
    /// time used until then.
    pub(crate) fn built(&self) -> (u64, Duration) {
        (self.built, self.cpu)
    }

    pub(crate) fn resident(&self) -> u64 {
        usage::resident_kib(self.pid())
    }

    /// The whole zone, read with a zone transfer.
    pub(crate) async fn names(&self) -> Names {
        let port = self.dns.port().to_string();
        let arguments = [
            "@127.0.0.1",
            "-p",
            &port,
            "mesos.",
            "AXFR",
            "+noall",
            "+answer",
            "+onesoa",
        ];
        let output = Command::new("dig").args(arguments).output().await.unwrap();
        let zone = String::from_utf8(output.stdout).unwrap();
        let of = |kind: &'static str, wanted: fn(&str) -> bool| {
            let lines = zone.lines().filter_map(move |line| {
                let mut words = line.split_whitespace();
                let (name, found) = (words.next()?, words.nth(2)?);
                (found == kind && wanted(name)).then(|| name.to_owned())
            });
            let mut names: Vec<_> = lines.collect();
            names.dedup();
            names
        };
        Names {
            a: of("A", |name| {
                name.starts_with("app-") && name.ends_with(".marathon.mesos.")
            }),
            srv: of("SRV", |name| {
                name.starts_with("_app-") && name.contains("._tcp.marathon.mesos.")
            }),
            records: zone.lines().count(),
            zone,
        }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().await.unwrap();
    }
}

/// A task of an app with eight instances, with one port.
pub(crate) fn task(n: u32, state: &str) -> Value {
    named(&format!("app-{}", n / INSTANCES), n, state)
}

pub(crate) fn named(name: &str, n: u32, state: &str) -> Value {
    let port = 31000 + n % 1000;
    json!({
        "name": name, "task_id": {"value": format!("{name}.{n}")}, "framework_id": {"value": "F"},
        "agent_id": {"value": format!("c1d2-S{}", n % AGENTS)}, "state": state,
        "resources": [
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
            {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": port, "end": port}]}},
        ],
        "statuses": [{
            "task_id": {"value": format!("{name}.{n}")}, "state": state, "timestamp": 1.0,
            "container_status": {"network_infos": [{"ip_addresses": [{"ip_address": format!("10.{}.{}.{}", 1 + n / 65536, n / 256 % 256, n % 256)}]}]},
        }],
    })
}

fn snapshot(tasks: &[Value]) -> Value {
    let agent = |n: u32| {
        json!({
            "agent_info": {"hostname": "a", "id": {"value": format!("c1d2-S{n}")}}, "active": true,
            "pid": format!("slave(1)@10.200.{}.{}:5051", n / 250, 1 + n % 250),
        })
    };
    let framework = json!({"user": "u", "name": "marathon", "id": {"value": "F"}, "hostname": "10.9.9.9"});
    json!({
        "get_agents": {"agents": (0..AGENTS).map(agent).collect::<Vec<_>>()},
        "get_frameworks": {"frameworks": [{"framework_info": framework}]},
        "get_tasks": {"tasks": tasks},
    })
}
