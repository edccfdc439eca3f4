//! Clients that try to use up the connections of a running daemon: half requests without credentials
//! on an HTTP port, idle connections on the DNS port.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transom_testkit::{WAIT_TIMEOUT, eventually};
use transom_tests::process::Transom;
use transom_tests::site::{addresses, copy_components};

/// A query for `x.mesos`, with its length.
const QUERY: &[u8] = b"\0\x19\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01x\x05mesos\0\0\x01\0\x01";

/// More connections than an HTTP port accepts.
const HALF_REQUESTS: usize = 4200;

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    _dir: tempfile::TempDir,
}

/// A daemon with credentials on its ports and without a cluster, which these requests do not need.
fn start() -> Daemon {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"127.0.0.1:1\"\n[store]\nserver = \"file:{}\"\n[plugins]\ndir = \"plugins\"\n\
         [apps]\nport = 0\napi_username = \"full\"\napi_password = \"secret\"\ntrusted_networks = []\n\
         [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_listener = \"127.0.0.1\"\nhttp_port = 0\n\
         [admin]\nport = 0\n",
        dir.path().join("store").display(),
    );
    fs::write(dir.path().join("transom.toml"), configuration).expect("written");
    let mut process = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let addresses = addresses(&mut process);
    Daemon {
        process,
        addresses,
        _dir: dir,
    }
}

/// The status line of a request to the apps port with the password.
async fn status(address: SocketAddr) -> String {
    let request = format!(
        "GET /ping HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic ZnVsbDpzZWNyZXQ=\r\nConnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = timeout(WAIT_TIMEOUT, stream.read_to_string(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// The length of the answer to a DNS query on a new connection.
async fn dns_answer(address: SocketAddr) -> u16 {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(QUERY).await.expect("sent");
    let read = timeout(WAIT_TIMEOUT, stream.read_u16()).await;
    read.expect("an answer in time").expect("an answer")
}

async fn evicted(admin: SocketAddr, port: &str) -> bool {
    let url = format!("http://{admin}/metrics");
    let answer = transom_tests::http().get(url).send().await.expect("metrics");
    let page = answer.text().await.expect("text");
    let series = format!("transom_web_connections_over_limit_total{{port=\"{port}\",action=\"evicted\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.expect("the series of the port") != "0"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_clients_are_served_while_one_client_holds_all_connections() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit of open files");
    let daemon = start();
    let (apps, dns) = (daemon.addresses["apps"], daemon.addresses["dns"]);
    eventually("the apps port to answer", || async {
        let status = status(apps).await;
        status.contains("200").then_some(()).ok_or(status)
    })
    .await;
    let mut open = Vec::new();
    // The test and the daemon share no limit of open files, but it may be low.
    let count = HALF_REQUESTS.min(usize::try_from(hard).unwrap_or(usize::MAX) - 500);
    for _ in 0..count {
        let mut stream = TcpStream::connect(apps).await.expect("a connection");
        let half = format!("GET /v2/apps HTTP/1.1\r\nHost: {apps}\r\n");
        stream.write_all(half.as_bytes()).await.expect("sent");
        open.push(stream);
    }
    for _ in 0..300 {
        open.push(TcpStream::connect(dns).await.expect("a connection"));
    }
    assert!(status(apps).await.contains("200"));
    assert!(dns_answer(dns).await > 12);
    let admin = daemon.addresses["admin"];
    assert!(evicted(admin, "dns").await);
    assert!(count < HALF_REQUESTS || evicted(admin, "apps").await);
    drop(open);
    let (status, output) = daemon.process.interrupt();
    assert!(status.success(), "{output}");
}
