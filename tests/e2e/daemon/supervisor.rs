//! The interface to a supervisor such as systemd: the daemon receives open sockets and sends
//! notifications.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use transom_testkit::{WAIT_TIMEOUT, eventually, free_port, free_ports};
use transom_tests::http;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{addresses, copy_components};

/// Opens the ports in `NAME=ADDRESS:PORT`, passes the sockets as systemd does, and replaces itself
/// by the program.
const SUPERVISOR: &str = r#"
import os, socket, sys
count = int(sys.argv[1])
pairs, program = sys.argv[2:2 + count], sys.argv[2 + count:]
sockets = []
for pair in pairs:
    host, port = pair.split("=")[1].rsplit(":", 1)
    sockets.append(socket.create_server((host, int(port))))
# First out of the way of the numbers that begin with 3.
high = [os.dup2(opened.fileno(), 100 + index) for index, opened in enumerate(sockets)]
for index, number in enumerate(high):
    os.dup2(number, 3 + index, inheritable=True)
os.environ["LISTEN_FDS"] = str(count)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDNAMES"] = ":".join(pair.split("=")[0] for pair in pairs)
os.execv(program[0], program)
"#;

/// A daemon with an admin port on `configured`, started with these sockets.
fn start_supervised(dir: &Path, configured: u16, sockets: &[String], notify: &Path) -> Transom {
    copy_components(&dir.join("plugins"));
    let settings = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"127.0.0.1:1\"\n[plugins]\ndir = \"plugins\"\n\
         [admin]\nport = {configured}\n"
    );
    fs::write(dir.join("transom.toml"), settings).expect("written");
    let mut command = Command::new("python3");
    command
        .args(["-c", SUPERVISOR, &sockets.len().to_string()])
        .args(sockets)
        .arg(binary())
        .args(["serve", "--config", "transom.toml"])
        .current_dir(dir)
        .env("NOTIFY_SOCKET", notify);
    Transom::spawn(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_the_supervisor_is_served_and_readiness_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let notify = dir.path().join("notify");
    let notifications = UnixDatagram::bind(&notify).expect("bound");
    notifications.set_read_timeout(Some(WAIT_TIMEOUT)).expect("set");
    let port = free_ports(2);
    let sockets = [
        format!("admin=127.0.0.1:{port}"),
        format!("unknown=127.0.0.1:{}", port + 1),
    ];
    let mut daemon = start_supervised(dir.path(), port, &sockets, &notify);
    let mut message = [0; 64];
    let length = notifications.recv(&mut message).expect("a notification");
    assert_eq!(String::from_utf8_lossy(&message[..length]).trim(), "READY=1");
    let admin = addresses(&mut daemon)["admin"];
    assert_eq!(admin.port(), port);
    // The supervisor has opened the port: without the passed socket, the daemon would find it in
    // use.
    let answer = http()
        .get(format!("http://{admin}/health"))
        .send()
        .await
        .expect("an answer");
    assert!(answer.status().is_success());
    daemon.wait_for_line("the unused socket", |line| {
        (line.contains("a socket that the supervisor passed is not used") && line.contains("unknown"))
            .then_some(())
    });
    let (status, log) = daemon.terminate();
    assert!(status.success(), "{log}");
    let length = notifications.recv(&mut message).expect("a notification");
    assert_eq!(String::from_utf8_lossy(&message[..length]).trim(), "STOPPING=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_with_another_address_than_the_settings_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_ports(2);
    let sockets = [format!("admin=127.0.0.1:{port}")];
    let mut daemon = start_supervised(dir.path(), port + 1, &sockets, &dir.path().join("none"));
    let status = daemon.wait();
    assert_eq!(status.code(), Some(3), "{}", daemon.output());
    let expected = format!("set ListenStream=127.0.0.1:{}", port + 1);
    assert!(daemon.output().contains(&expected), "{}", daemon.output());
}

/// Starts a daemon with an admin port on `port`, by a shell command in which `"$@"` is the daemon's.
fn start_by_shell(dir: &Path, port: u16, shell_command: &str) -> Transom {
    copy_components(&dir.join("plugins"));
    let settings = format!(
        "[cluster]\nmaster = \"127.0.0.1:1\"\n[plugins]\ndir = \"plugins\"\n[admin]\nport = {port}\n"
    );
    fs::write(dir.join("transom.toml"), settings).expect("written");
    let mut command = Command::new("sh");
    command
        .args(["-c", shell_command, "sh"])
        .arg(binary())
        .args(["serve", "--config", "transom.toml"])
        .current_dir(dir);
    Transom::spawn(command)
}

/// Waits until the daemon with this admin port answers.
async fn wait_until_alive(port: u16) {
    let url = format!("http://127.0.0.1:{port}/health");
    eventually("the daemon to answer", || async {
        let answer = http().get(&url).send().await;
        answer.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_serves_without_a_log_if_the_disk_is_full() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let daemon = start_by_shell(dir.path(), port, "exec \"$@\" 2>/dev/full");
    wait_until_alive(port).await;
    let (status, output) = daemon.terminate();
    assert!(status.success(), "{status} {output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_stops_in_order_when_its_terminal_is_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    // The caller of the tests may ignore SIGHUP, which its child processes inherit.
    let mut daemon = start_by_shell(dir.path(), port, "exec env --default-signal=HUP \"$@\"");
    wait_until_alive(port).await;
    daemon.hang_up();
    let status = daemon.wait();
    assert!(status.success(), "{status} {}", daemon.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_that_was_started_with_nohup_ignores_a_closed_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let daemon = start_by_shell(dir.path(), port, "exec nohup \"$@\"");
    wait_until_alive(port).await;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("a process");
    let signals = |mask: &str| {
        let text = status
            .lines()
            .find_map(|line| line.strip_prefix(mask))
            .expect(mask);
        u64::from_str_radix(text.trim(), 16).expect("hexadecimal")
    };
    // The lowest bit is SIGHUP.
    assert_eq!(
        (signals("SigIgn:") & 1, signals("SigCgt:") & 1),
        (1, 0),
        "{status}"
    );
    let (status, output) = daemon.terminate();
    assert!(status.success(), "{status} {output}");
}
