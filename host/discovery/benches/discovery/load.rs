//! Load from dnsperf and wrk, and the CPU time that it costs the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::site::Names;
use transom_testkit::usage;

/// dnsperf options: UDP, two clients.
pub(crate) const UDP_ARGS: &[&str] = &["-m", "udp", "-c", "2"];
/// Names of one kind to query in turn; a much longer list is thinned out.
const MAX_NAMES: usize = 20_000;

pub(crate) struct Load {
    dir: TempDir,
    seconds: Duration,
    service: String,
}

impl Load {
    pub(crate) fn new(names: &Names, seconds: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, lines: Vec<String>| {
            std::fs::write(dir.path().join(file), lines.join("\n") + "\n").unwrap();
        };
        let asked = |names: &[String], kind: &str| {
            let step = (names.len() / MAX_NAMES).max(1);
            names
                .iter()
                .step_by(step)
                .map(|name| format!("{name} {kind}"))
                .collect()
        };
        write("a", asked(&names.a, "A"));
        write("srv", asked(&names.srv, "SRV"));
        write(
            "nxdomain",
            (0..MAX_NAMES)
                .map(|n| format!("no-{n}.marathon.mesos. A"))
                .collect(),
        );
        Self {
            service: names.srv[names.srv.len() / 2].clone(),
            dir,
            seconds,
        }
    }

    /// A, SRV and missing names over UDP, and A over TCP.
    pub(crate) async fn dns(&self, server: SocketAddr, pid: u32) -> Value {
        json!({
            "a": self.queries("a", UDP_ARGS, server, pid).await,
            "srv": self.queries("srv", UDP_ARGS, server, pid).await,
            "nxdomain": self.queries("nxdomain", UDP_ARGS, server, pid).await,
            "a_tcp": self.queries("a", &["-m", "tcp", "-c", "2"], server, pid).await,
        })
    }

    /// A over HTTPS, on one connection.
    pub(crate) async fn over_https(&self, server: SocketAddr, pid: u32) -> Value {
        self.queries("a", &["-m", "doh", "-c", "1"], server, pid).await
    }

    /// Runs dnsperf with the queries in `file`. `mode`: the transport and the number of clients.
    pub(crate) async fn queries(&self, file: &str, mode: &[&str], server: SocketAddr, pid: u32) -> Value {
        let before = usage::cpu(pid);
        let file: PathBuf = self.dir.path().join(file);
        let output = Command::new("dnsperf")
            .args(["-s", &server.ip().to_string(), "-p", &server.port().to_string()])
            .args(mode)
            .args(["-q", "200", "-e"])
            .args(["-l", &self.seconds.as_secs().to_string(), "-d"])
            .arg(file)
            .output()
            .await
            .expect("cannot start dnsperf; is the Debian package `dnsperf` installed?");
        let used = usage::cpu(pid).saturating_sub(before);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // The last number of the line, without the percentage in parentheses.
        let number = |label: &str| -> f64 {
            let line = text.lines().find(|line| line.trim().starts_with(label));
            let said = line.and_then(|line| line.split(':').nth(1)?.split('(').next());
            let last = said.and_then(|said| said.split_whitespace().rev().find_map(|word| word.parse().ok()));
            last.unwrap_or_else(|| panic!("no `{label}` in the output of dnsperf: {text}"))
        };
        let completed = number("Queries completed");
        json!({
            "per_second": number("Queries per second").round(),
            "per_core_second": (completed / used.as_secs_f64()).round(),
            "lost": number("Queries lost"),
            "mean_bytes": number("Average packet size").round(),
            "latency_mean_us": (number("Average Latency (s)") * 1e6).round(),
        })
    }

    /// Lookups of services over HTTP, on 16 connections.
    pub(crate) async fn services(&self, server: SocketAddr, pid: u32) -> Value {
        let before = usage::cpu(pid);
        let output = Command::new("wrk")
            .args([
                "-t",
                "1",
                "-c",
                "16",
                "-d",
                &format!("{}s", self.seconds.as_secs()),
            ])
            .arg(format!("http://{server}/v1/services/{}", self.service))
            .output()
            .await
            .expect("cannot start wrk; is the Debian package `wrk` installed?");
        let used = usage::cpu(pid).saturating_sub(before);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("Requests/sec:"));
        let per_second: f64 = line.and_then(|line| line[13..].trim().parse().ok()).unwrap();
        json!({
            "per_second": per_second.round(),
            "per_core_second": (per_second * self.seconds.as_secs_f64() / used.as_secs_f64()).round(),
        })
    }
}
