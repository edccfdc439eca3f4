#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::Settings;
use crate::dns::Handler;
use crate::dns::forward;
use crate::metrics::Metrics;
use crate::shared::Shared;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a port with these limits and without a zone: every query is answered with SERVFAIL.
async fn started(limits: ListenerLimits) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, token) = (listener.local_addr().unwrap(), CancellationToken::new());
    let settings = Settings::default().checked().unwrap();
    let handler = Handler::new(
        &settings,
        Arc::new(Shared::new()),
        Metrics::default(),
        forward::Metrics::register(&mut Registry::default()),
    );
    let serving = tokio::spawn(serve(listener, Arc::new(handler), limits, token.clone()));
    (addr, token, serving)
}

async fn stopped(token: CancellationToken, serving: JoinHandle<()>) {
    token.cancel();
    timeout(WAIT_TIMEOUT, serving).await.unwrap().unwrap();
}

fn query() -> Vec<u8> {
    let mut query = Message::new(7, hickory_proto::op::MessageType::Query, OpCode::Query);
    let label = [b'x'; 60];
    let name = Name::from_labels([&label[..], &label, &label, b"mesos"]).unwrap();
    query.add_query(Query::query(name, RecordType::A));
    let query = query.to_vec().unwrap();
    let size = u16::try_from(query.len()).unwrap();
    [&size.to_be_bytes()[..], &query].concat()
}

async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut answer).await.unwrap();
    answer
}

async fn is_answered(stream: &mut TcpStream) {
    let answer = timeout(WAIT_TIMEOUT, read(stream)).await.unwrap();
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
}

async fn is_ended(stream: &mut TcpStream) {
    // Closing a connection with unread bytes resets it, which is an end as well.
    let end = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
    assert!(end.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn idle_connections_keep_no_other_client_out() {
    let limits = ListenerLimits {
        connection: ConnectionLimits {
            query_timeout: WAIT_TIMEOUT * 3,
            ..ConnectionLimits::default()
        },
        ..ListenerLimits::default()
    };
    let (addr, token, serving) = started(limits).await;
    let mut idle = Vec::new();
    for number in 0..limits.max_connections + 50 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // Nothing, a part of a query, a whole one.
        match number % 3 {
            0 => {}
            1 => stream.write_all(&query()[..20]).await.unwrap(),
            _ => {
                stream.write_all(&query()).await.unwrap();
                is_answered(&mut stream).await;
            }
        }
        idle.push(stream);
    }
    let mut other = TcpStream::connect(addr).await.unwrap();
    other.write_all(&query()).await.unwrap();
    is_answered(&mut other).await;
    // The oldest one has been closed, the newest one is still served.
    is_ended(&mut idle[0]).await;
    let newest = idle.last_mut().unwrap();
    newest.write_all(&query()).await.unwrap();
    drop(idle);
    stopped(token, serving).await;
    is_ended(&mut other).await;
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let limits = ListenerLimits {
        connection: ConnectionLimits {
            query_timeout: Duration::from_millis(50),
            write_timeout: Duration::from_millis(50),
            ..ConnectionLimits::default()
        },
        ..ListenerLimits::default()
    };
    let (addr, token, serving) = started(limits).await;
    let query = query();
    // Nothing, half a length prefix, only the length prefix, half a query.
    for sent in [0, 1, 2, query.len() / 2] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&query[..sent]).await.unwrap();
        is_ended(&mut stream).await;
    }
    // A client that sends queries and never reads an answer.
    let mut slow_reader = TcpStream::connect(addr).await.unwrap();
    let sending = async { while slow_reader.write_all(&query).await.is_ok() {} };
    timeout(WAIT_TIMEOUT, sending).await.unwrap();
    stopped(token, serving).await;
}

#[tokio::test]
async fn malformed_query_ends_only_its_connection() {
    let (addr, token, serving) = started(ListenerLimits::default()).await;
    let mut other = TcpStream::connect(addr).await.unwrap();
    // A packet shorter than a header is answered with an error; a response is not answered.
    for (bytes, is_told) in [
        (&[0, 0][..], true),
        (&[0, 3, 1, 2, 3], true),
        (&[0, 12, 0, 7, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0], false),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        if is_told {
            let answer = Message::from_vec(&timeout(WAIT_TIMEOUT, read(&mut stream)).await.unwrap()).unwrap();
            assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
        }
        is_ended(&mut stream).await;
    }
    other.write_all(&query()).await.unwrap();
    is_answered(&mut other).await;
    stopped(token, serving).await;
}
