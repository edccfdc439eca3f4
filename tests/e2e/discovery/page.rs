//! Executes `docs/discovery.md` literally: its configuration file, its commands, and their output.
//!
//! Only the ports differ, so that tests can run concurrently.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use transom_testkit::eventually;
use transom_tests::master::{Master, MasterResponse};
use transom_tests::process::{Transom, binary};
use transom_tests::{http, set_proxies};

const PAGE: &str = include_str!("../../../docs/discovery.md");
const STATE: &str = include_str!("../../fixtures/discovery/small-a.json");
/// The ports of the page: DNS, HTTP, admin, DNS over TLS and over HTTPS, and the master's port.
const PORTS: &[u16] = &[8053, 8123, 9990, 8853, 8443, 5050];

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

/// Runs a block in a shell with `transom` in its `PATH`; returns the output.
fn run(dir: &Path, block: &str) -> String {
    let tools = binary().parent().expect("a folder").to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = set_proxies(&mut Command::new("bash"))
        .args(["-c", block])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", tools.display()))
        .output()
        .expect("bash");
    let (printed, complaint) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{block}\n{printed}{complaint}");
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_discovery_page_give_the_shown_output() {
    let master = Master::start(MasterResponse::document(STATE)).await;
    let free: Vec<_> = (1..PORTS.len())
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let mut ports: Vec<_> = free
        .iter()
        .map(|it| it.local_addr().expect("an address").port())
        .collect();
    drop(free);
    ports.push(master.address.port());
    let mut page = PAGE.to_owned();
    for (printed, taken) in PORTS.iter().zip(&ports) {
        page = page.replace(&printed.to_string(), &taken.to_string());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let blocks = blocks(&page);
    let mut daemon = None;
    let (mut ran, mut compared) = (0, 0);
    for (at, (language, block)) in blocks.iter().enumerate() {
        match language.as_str() {
            "json" => fs::write(dir.path().join("config.json"), block).expect("written"),
            "sh" if block.starts_with("transom discovery ") => {
                let flags = block.split_whitespace().skip(1);
                // The next daemon uses the same ports.
                drop(daemon.take());
                daemon = Some(Transom::start(dir.path(), flags));
                let ready = format!("http://127.0.0.1:{}/ready", ports[2]);
                eventually("discovery to be ready", || async {
                    let answer = http()
                        .get(&ready)
                        .send()
                        .await
                        .map_err(|error| error.to_string())?;
                    if answer.status().is_success() {
                        Ok(())
                    } else {
                        Err(answer.status().to_string())
                    }
                })
                .await;
            }
            "sh" => {
                let dir = dir.path().to_owned();
                let block_run = block.clone();
                let printed = tokio::task::spawn_blocking(move || run(&dir, &block_run))
                    .await
                    .expect("a shell");
                ran += 1;
                if let Some((_, expected)) = blocks.get(at + 1).filter(|(language, _)| language == "text") {
                    // The page's ports are defaults, which are not printed; the ports of this test
                    // are others and are printed.
                    let same =
                        |line: &&str| !line.starts_with("http_port =") && !line.starts_with("master =");
                    let printed: Vec<_> = printed.trim_end().lines().filter(same).collect();
                    assert_eq!(printed.join("\n"), expected.trim_end(), "{block}");
                    compared += 1;
                }
            }
            "text" => {}
            other => panic!("unexpected block of {other:?}"),
        }
    }
    assert!(ran >= 12 && compared >= 11, "{ran} run, {compared} compared");
    let (status, output) = daemon.expect("it was started").interrupt();
    assert!(status.success(), "{output}");
}
