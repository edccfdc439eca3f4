//! Executes the commands of `docs/diagnosis.md` and compares their output with what the page shows.
//!
//! Ports and figures differ. For each line of the page, the output must contain a line that begins
//! with the same word.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use transom_testkit::eventually;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Cluster, copy_components};
use transom_tests::{http, set_proxies};

const PAGE: &str = include_str!("../../../docs/diagnosis.md");
/// The ports of the page: apps, DNS, discovery, admin.
const PORTS: [&str; 4] = ["8080", "8053", "8123", "9990"];
const MASTER: &str = "127.0.0.1:5050";

/// The page's blocks: their language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), text.join("\n")));
        }
    }
    blocks
}

/// The first word of a line without digits; of a path only the last component.
fn beginning(line: &str) -> String {
    let word = line.split_whitespace().next().unwrap_or_default();
    let word = word.rsplit('/').next().unwrap_or(word);
    word.chars().filter(|char| !char.is_ascii_digit()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_diagnosis_page_give_the_shown_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path());
    copy_components(&dir.path().join("plugins"));
    let free = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let ports = free
        .iter()
        .map(|listener| listener.local_addr().expect("an address").port().to_string());
    let ports: Vec<String> = ports.collect();
    drop(free);
    let replace = |text: &str| {
        let text = text.replace(MASTER, &cluster.master.to_string());
        PORTS
            .iter()
            .zip(&ports)
            .fold(text, |text, (page, ours)| text.replace(page, ours))
    };
    let blocks = blocks(PAGE);
    let (_, configuration) = blocks
        .iter()
        .find(|(language, _)| language == "toml")
        .expect("a configuration");
    fs::write(dir.path().join("transom.toml"), replace(configuration)).expect("written");
    let daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let url = format!("http://127.0.0.1:{}/v1/overview", ports[3]);
    eventually("the daemon to have seen the cluster", || async {
        let answer = http().get(&url).send().await.map_err(|error| error.to_string())?;
        let text = answer.text().await.unwrap_or_default();
        let overview: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let seen = overview["cluster"]["agents"]["active"] == 3 && overview["process"].is_object();
        if seen && overview["ready"] == true {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;

    let path = std::env::var("PATH").unwrap_or_default();
    let tools = binary().parent().expect("a folder").to_owned();
    let mut printed = String::new();
    let mut compared = 0;
    for (language, text) in &blocks {
        match language.as_str() {
            "sh" => {
                let mut command = Command::new("bash");
                set_proxies(&mut command)
                    .args(["-ec", &replace(text)])
                    .current_dir(dir.path())
                    .stdin(Stdio::null());
                for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
                    command.env_remove(name);
                }
                let output = command
                    .env("PATH", format!("{}:{path}", tools.display()))
                    .output();
                let output = output.expect("bash");
                printed = String::from_utf8_lossy(&output.stdout).into_owned();
                let complaint = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{text}\n{printed}{complaint}");
            }
            "text" => {
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    let found = printed.lines().any(|other| beginning(other) == beginning(line));
                    assert!(found, "no line begins like {line:?} in\n{printed}");
                    compared += 1;
                }
            }
            _ => {}
        }
    }
    assert!(compared > 20, "the page shows {compared} lines of output");
    daemon.terminate();
    cluster.stop();
}
