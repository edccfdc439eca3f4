//! The site's name servers BIND, Unbound and dnsmasq, from Debian's packages, forward the zone to two
//! daemons with the configurations of `docs/discovery.md`.
//!
//! Only the addresses of the daemons differ. The name servers send nothing to other machines.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use transom_testkit::{eventually, free_port};
use transom_tests::master::{Master, MasterResponse};
use transom_tests::process::user;
use transom_tests::program::Program;

use super::{Lookups, STATE_A, WEB_ADDRESS_A};

const PAGE: &str = include_str!("../../../../docs/discovery.md");
/// The addresses of the daemons on the page.
const DAEMONS: &[&str] = &["10.0.0.7", "10.0.0.8"];
/// The key of the root zone as in Debian's package `dns-root-data`. With it, a name server validates
/// answers.
const ROOT_KEY: &str = "20326 8 2 \"E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D\"";

/// The lines of the page for this name server. The addresses are those of these daemons, in the form
/// that `address` returns.
fn lines(name: &str, daemons: &[Lookups; 2], address: impl Fn(SocketAddr) -> String) -> String {
    let begin = format!("# {name}");
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with(&begin));
    let heading = lines
        .next()
        .unwrap_or_else(|| panic!("{name} is not on the page"));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let mut lines = format!("{heading}\n{}\n", lines.join("\n"));
    for (on_page, daemon) in DAEMONS.iter().zip(daemons) {
        assert!(lines.contains(on_page), "{lines}");
        lines = lines.replace(on_page, &address(daemon.dns));
    }
    lines
}

fn bind(dir: &TempDir, port: u16, daemons: &[Lookups; 2]) -> Command {
    let lines = lines("BIND", daemons, |it| format!("{} port {}", it.ip(), it.port()));
    // The heading is a comment of the page, which contains one option.
    let (heading, zone) = lines.split_once('\n').expect("several lines");
    let (_, option) = heading.split_once("in its options: ").expect("an option");
    let path = dir.path().display();
    let config = format!(
        "options {{ directory \"{path}\"; pid-file none; session-keyfile none; listen-on port {port} {{ 127.0.0.1; }}; \
         listen-on-v6 {{ none; }}; query-source address 127.0.0.1; {option} }};\n\
         controls {{ }};\ntrust-anchors {{ . static-ds {ROOT_KEY}; }};\n{zone}"
    );
    let file = dir.path().join("named.conf");
    fs::write(&file, config).expect("written");
    let mut command = Command::new("/usr/sbin/named");
    command.args(["-g", "-4", "-n", "1", "-c"]).arg(file);
    command
}

fn unbound(dir: &TempDir, port: u16, daemons: &[Lookups; 2]) -> Command {
    let lines = lines("Unbound", daemons, |it| format!("{}@{}", it.ip(), it.port()));
    let path = dir.path().display();
    let key = ROOT_KEY.replace('"', "");
    let config = format!(
        "server:\n  directory: \"{path}\"\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  \
         interface: 127.0.0.1\n  port: {port}\n  outgoing-interface: 127.0.0.1\n  do-ip6: no\n  \
         do-not-query-localhost: no\n  trust-anchor: \". DS {key}\"\nremote-control:\n  control-enable: no\n{lines}"
    );
    let file = dir.path().join("unbound.conf");
    fs::write(&file, config).expect("written");
    let mut command = Command::new("/usr/sbin/unbound");
    command.args(["-d", "-c"]).arg(file);
    command
}

fn dnsmasq(dir: &TempDir, port: u16, daemons: &[Lookups; 2]) -> Command {
    let lines = lines("dnsmasq", daemons, |it| format!("{}#{}", it.ip(), it.port()));
    let config = format!(
        "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser={}\n{lines}",
        user()
    );
    let file = dir.path().join("dnsmasq.conf");
    fs::write(&file, config).expect("written");
    let mut command = Command::new("/usr/sbin/dnsmasq");
    command
        .args(["--keep-in-foreground", "--log-facility=-", "--pid-file="])
        .arg(format!("--conf-file={}", file.display()));
    command
}

/// The response code and the answers of `dig`.
fn dig(server: SocketAddr, name: &str) -> String {
    let output = Command::new("dig")
        .args([
            "@127.0.0.1",
            "-p",
            &server.port().to_string(),
            "+tries=1",
            "+time=5",
        ])
        .args([name, "A", "+noall", "+comments", "+answer"])
        .output()
        .expect("dig");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the name server answers with the address of the task `web`.
async fn wait_for_answer(server: SocketAddr, name: &str, dir: &TempDir) {
    eventually(&format!("the address of {name}"), || async {
        let answer = dig(server, name);
        if answer.contains("status: NOERROR") && answer.trim_end().ends_with(WEB_ADDRESS_A) {
            Ok(())
        } else {
            let log = fs::read_to_string(dir.path().join("server.log")).unwrap_or_default();
            Err(format!("{answer}\n{log}"))
        }
    })
    .await;
}

/// Names of the zone are resolved by the name server, also after the first daemon was killed.
async fn zone_is_forwarded(configured: impl FnOnce(&TempDir, u16, &[Lookups; 2]) -> Command) {
    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let keys = json!({"masters": [master.address.to_string()]});
    let daemons = [Lookups::start(&keys), Lookups::start(&keys)];
    for daemon in &daemons {
        daemon.wait_for_answer(WEB_ADDRESS_A).await;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let server = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let command = configured(&dir, server.port(), &daemons);
    let _program = Program::start(dir.path(), "server", command, [""; 0]).expect("the name server");
    wait_for_answer(server, "web.marathon.mesos.", &dir).await;
    let missing = dig(server, "missing.marathon.mesos.");
    assert!(missing.contains("status: NXDOMAIN"), "{missing}");

    let [first, _second] = daemons;
    drop(first);
    // The name server has no answer to this question yet.
    wait_for_answer(server, "web.marathon.slave.mesos.", &dir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bind_forwards_the_zone_with_the_documented_configuration() {
    zone_is_forwarded(bind).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unbound_forwards_the_zone_with_the_documented_configuration() {
    zone_is_forwarded(unbound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dnsmasq_forwards_the_zone_with_the_documented_configuration() {
    zone_is_forwarded(dnsmasq).await;
}
