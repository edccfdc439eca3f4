//! Large and invalid bodies: while two connections send them in a loop, the daemon answers DNS
//! queries and other requests, and its answers to them stay small.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hickory_proto::rr::RecordType;
use transom_tests::dns;
use transom_tests::site::Site;

/// The maximum bytes of an answer, with its head.
const MAX_ANSWER: usize = (64 << 10) + 4096;
/// The number of times that each connection sends all documents.
const ROUNDS: usize = 2;

/// Documents with as many invalid elements as fit: of about 80 KB, 2 MB and 8 MB.
fn documents() -> Vec<(&'static str, &'static str, String)> {
    let list = |element: &str, bytes: usize| vec![element; bytes / (element.len() + 1)].join(",");
    let app =
        |member: &str, elements: String| format!(r#"{{"id":"/a","cmd":"sleep 1",{member}:[{elements}]}}"#);
    let volumes = |bytes| app(r#""container":{"volumes""#, list("{}", bytes)) + "}";
    let group = |bytes| {
        format!(
            r#"{{"id":"/g","apps":[{}]}}"#,
            list(r#"{"id":"a","cpus":"x","healthChecks":[{}]}"#, bytes)
        )
    };
    vec![
        ("POST", "/v2/apps", app(r#""healthChecks""#, list("{}", 80_000))),
        ("POST", "/v2/apps", app(r#""portDefinitions""#, list("7", 80_000))),
        ("POST", "/v2/groups", group(900_000)),
        ("PUT", "/v2/apps", format!("[{}]", list("{}", 2_000_000))),
        ("POST", "/v2/apps", volumes(8_000_000)),
    ]
}

/// Sends one request on a connection of its own, and returns the whole answer.
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connected");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_and_other_requests_are_answered_while_large_invalid_bodies_arrive() {
    let site = Site::start().await;
    let (apps, dns_port) = (site.addresses["apps"], site.addresses["dns"]);
    let sent = Arc::new(AtomicUsize::new(0));
    let attackers: Vec<_> = (0..2)
        .map(|_| {
            let sent = Arc::clone(&sent);
            thread::spawn(move || {
                for (method, path, body) in vec![documents(); ROUNDS].into_iter().flatten() {
                    let answer = send(apps, method, path, &body);
                    let begin = String::from_utf8_lossy(&answer[..answer.len().min(500)]);
                    assert!(begin.starts_with("HTTP/1.1 422 "), "{method} {path}: {begin}");
                    assert!(
                        answer.len() <= MAX_ANSWER,
                        "{method} {path}: {} bytes",
                        answer.len()
                    );
                    sent.fetch_add(body.len(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut answered = 0;
    while !attackers.iter().all(thread::JoinHandle::is_finished) {
        let answer = dns::ask(dns_port, "leader.mesos.", RecordType::A).await;
        assert!(answer.is_ok(), "{answer:?}");
        let ping = site.http.get(site.apps("/ping")).send().await.expect("an answer");
        assert_eq!(ping.text().await.expect("a text").trim(), "pong");
        answered += 1;
    }
    for attacker in attackers {
        attacker.join().expect("all documents are rejected");
    }
    // If the threads that serve parsed these bodies, little else would be answered meanwhile.
    let megabytes = sent.load(Ordering::Relaxed) / 1_000_000;
    assert!(megabytes > 30, "{megabytes}");
    assert!(
        answered >= 4 * megabytes,
        "{answered} queries and pings while {megabytes} MB of documents were rejected"
    );
}
