//! A real Prometheus server for one test.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use transom_testkit::{eventually, free_port};

/// A program of Debian's package `prometheus`.
pub fn program(name: &str) -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/usr/bin");
    [Path::new("/usr/bin").join(name), unpacked.join(name)]
        .into_iter()
        .find(|program| program.exists())
        .unwrap_or_else(|| panic!("{name} is not installed: `cargo xtask test` installs it"))
}

/// A running Prometheus server; killed when dropped.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    http: reqwest::Client,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts a server that scrapes `target` every second, as the job `transom`, and evaluates the
    /// rules in the files.
    pub async fn start(target: SocketAddr, rules: &[PathBuf], http: &reqwest::Client) -> Prometheus {
        let dir = tempfile::tempdir().expect("a directory");
        let rules: Vec<String> = rules.iter().map(|it| format!("  - {}\n", it.display())).collect();
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files:\n{}scrape_configs:\n  - job_name: \
             transom\n    static_configs:\n      - targets: [\"{target}\"]\n",
            rules.concat()
        );
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, config).expect("written");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a Prometheus");
        let prometheus = Prometheus {
            child,
            address,
            http: http.clone(),
            _dir: dir,
        };
        eventually("Prometheus to scrape the daemon", || async {
            let up = prometheus.query("up{job=\"transom\"} == 1").await?;
            let found = up.as_array().is_some_and(|series| !series.is_empty());
            found.then_some(()).ok_or_else(|| up.to_string())
        })
        .await;
        prometheus
    }

    /// The field `data` of a response of the HTTP API.
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = reqwest::Url::parse_with_params(&format!("http://{}/api/v1/{path}", self.address), query);
        let answer = self.http.get(url.expect("a URL")).send().await;
        let text = answer.map_err(|error| error.to_string())?.text().await;
        let text = text.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        if answer["status"] == "success" {
            Ok(answer["data"].clone())
        } else {
            Err(text)
        }
    }

    /// The current result of a query.
    pub async fn query(&self, query: &str) -> Result<Value, String> {
        let data = self.get("query", &[("query", query)]).await?;
        Ok(data["result"].clone())
    }

    /// All rules with their state.
    pub async fn rules(&self) -> Result<Vec<Value>, String> {
        let data = self.get("rules", &[]).await?;
        let groups = data["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
