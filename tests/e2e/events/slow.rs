//! Subscribers that cannot keep up: the daemon disconnects them, and other subscribers are not
//! affected.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use transom_testkit::{WAIT_TIMEOUT, usage};
use transom_tests::events::Events;
use transom_tests::site::Site;

/// Size in bytes of each app, and thus of several events about it.
const APP_BYTES: usize = 300_000;
/// Total size in bytes of the apps: more than a subscriber's queue and the buffers of its
/// connection can hold.
const TOTAL_BYTES: usize = 64 << 20;
/// Maximum of additional memory: two full queues, the ring of past events, and the apps.
const MAX_GROWTH_KIB: u64 = 192 << 10;

/// Opens a stream with a small receive buffer; the client reads nothing from it.
async fn subscribe(address: SocketAddr, name: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a buffer");
    let mut stream = socket.connect(address).await.expect("a connection");
    let request =
        format!("GET /v2/events?{name} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    stream
}

/// Reads slowly until the connection ends. Every write of the daemon makes progress, so that it can
/// disconnect this client only because its queue is full.
async fn read_slowly(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_that_read_nothing_or_slowly_are_disconnected_and_others_get_every_event() {
    let site = Site::start().await;
    let address = site.addresses["apps"];
    let url = "/v2/events?event_type=api_post_event&event_type=event_stream_attached\
               &event_type=event_stream_detached";
    let mut events = Events::open(&site.http, &site.apps(url)).await;
    let mut silent = subscribe(address, "silent").await;
    let slow = subscribe(address, "slow").await;
    for _ in 0..3 {
        events.next_of("event_stream_attached").await;
    }
    let slow = tokio::spawn(read_slowly(slow));
    let before = usage::resident_kib(site.daemon.as_ref().expect("a daemon").pid());

    let mut disconnected = Vec::new();
    for number in 0..TOTAL_BYTES / APP_BYTES {
        let id = format!("/large{number}");
        let app = json!({
            "id": id, "cmd": "exec sleep 1000", "instances": 0, "env": {"LARGE": "x".repeat(APP_BYTES)},
        });
        site.post_app(&app).await;
        // Other subscribers receive each event while these two are stuck.
        loop {
            let event = events.next().await.expect("an event");
            if event.event == "event_stream_detached" {
                disconnected.push(event.data["callbackUrl"].as_str().expect("a URL").to_owned());
                continue;
            }
            assert_eq!(event.data["appDefinition"]["id"], id.as_str());
            break;
        }
        if disconnected.len() == 2 {
            break;
        }
    }
    disconnected.sort();
    assert_eq!(disconnected, ["/v2/events?silent", "/v2/events?slow"]);
    let after = usage::resident_kib(site.daemon.as_ref().expect("a daemon").pid());
    assert!(
        after < before + MAX_GROWTH_KIB,
        "{before} KiB before, {after} KiB after"
    );

    // The connection was closed before all events were sent.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(WAIT_TIMEOUT, silent.read_to_end(&mut rest)).await;
    // An error means that the connection was reset.
    let _ = read.expect("the connection ends");
    assert!(rest.len() < TOTAL_BYTES, "{} bytes", rest.len());
    // The kernel still has data of the daemon for the slow client, which would take long to read
    // it.
    slow.abort();
    site.cluster.stop();
}
