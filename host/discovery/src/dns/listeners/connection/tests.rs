#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::DuplexStream;
use tokio::sync::Semaphore;
use transom_web::Connections;

use super::*;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Echoes every query. A query that begins with `w` is answered after the gate has a permit, one
/// that begins with `z` with three messages; `x` is not a query.
struct Echo {
    gate: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Respond for Echo {
    fn respond(&self, packet: &[u8], _: Client, out: &mut Vec<u8>) -> Reply {
        match packet.first() {
            Some(b'x') => return Reply::Silence,
            Some(b'w') => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let (gate, packet) = (Arc::clone(&self.gate), packet.to_vec());
                return Reply::Later(Box::pin(async move {
                    gate.acquire().await.unwrap().forget();
                    packet
                }));
            }
            Some(b'z') => {
                let mut remaining = 3;
                return Reply::Messages(Box::new(move || {
                    remaining -= 1;
                    (remaining >= 0).then(|| format!("message {remaining}").into_bytes())
                }));
            }
            _ => out.extend_from_slice(packet),
        }
        Reply::Written
    }
}

fn echo() -> Echo {
    Echo {
        gate: Arc::new(Semaphore::new(0)),
        waiting: AtomicUsize::new(0),
    }
}

/// Serves a connection while `script` acts as its client. Both have to end in time.
async fn conversation(
    respond: &Echo,
    limits: ConnectionLimits,
    token: &CancellationToken,
    script: impl AsyncFnOnce(DuplexStream),
) {
    let (client, server) = tokio::io::duplex(100_000);
    let addr = "127.0.0.1:9".parse().unwrap();
    let slot = Connections::new("test", 1).admit(addr).await.unwrap();
    let serving = serve_connection(server, addr, respond, limits, &slot, token);
    let conversation_end = async { tokio::join!(serving, script(client)) };
    timeout(WAIT_TIMEOUT, conversation_end).await.unwrap();
}

async fn ask(stream: &mut DuplexStream, queries: &[&[u8]]) {
    for query in queries {
        stream.write_u16(query.len().try_into().unwrap()).await.unwrap();
        stream.write_all(query).await.unwrap();
    }
}

async fn answer(stream: &mut DuplexStream) -> String {
    let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn at_its_end(mut stream: DuplexStream) {
    assert!(timeout(WAIT_TIMEOUT, stream.read_u8()).await.unwrap().is_err());
}

#[tokio::test]
async fn slow_queries_do_not_delay_others_on_a_connection() {
    let (respond, token) = (echo(), CancellationToken::new());
    conversation(
        &respond,
        ConnectionLimits::default(),
        &token,
        async |mut stream| {
            ask(&mut stream, &[b"1", b"2", b"3"]).await;
            for expected in ["1", "2", "3"] {
                assert_eq!(answer(&mut stream).await, expected);
            }
            ask(&mut stream, &[b"wait", b"4", b"5"]).await;
            assert_eq!(answer(&mut stream).await, "4");
            assert_eq!(answer(&mut stream).await, "5");
            respond.gate.add_permits(1);
            assert_eq!(answer(&mut stream).await, "wait");
        },
    )
    .await;
}

#[tokio::test]
async fn connection_bounds_queries_in_flight() {
    let (respond, token) = (echo(), CancellationToken::new());
    let limits = ConnectionLimits {
        max_inflight: 2,
        ..ConnectionLimits::default()
    };
    conversation(&respond, limits, &token, async |mut stream| {
        ask(&mut stream, &[b"w1", b"w2", b"3"]).await;
        while respond.waiting.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        // The third query has not been read; otherwise it would have been answered.
        assert!(
            timeout(Duration::from_millis(50), stream.read_u8())
                .await
                .is_err()
        );
        respond.gate.add_permits(2);
        let mut answers = [
            answer(&mut stream).await,
            answer(&mut stream).await,
            answer(&mut stream).await,
        ];
        answers.sort();
        assert_eq!(answers, ["3", "w1", "w2"]);
    })
    .await;
}

#[tokio::test]
async fn connection_ends_when_the_client_is_too_slow() {
    let (respond, token) = (echo(), CancellationToken::new());
    let limits = ConnectionLimits {
        query_timeout: Duration::from_millis(50),
        write_timeout: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    // The client sends nothing, half a query, or an invalid query.
    for input in [&b""[..], b"\x00\x05abc", b"\x00\x01x"] {
        conversation(&respond, limits, &token, async |mut stream| {
            stream.write_all(input).await.unwrap();
            at_its_end(stream).await;
        })
        .await;
    }
    // The client reads none of its answers.
    let large = vec![b'l'; 60_000];
    conversation(&respond, limits, &token, async |stream| {
        let (mut reader, mut writer) = tokio::io::split(stream);
        for _ in 0..4 {
            let framed = [&60_000u16.to_be_bytes()[..], &large].concat();
            if writer.write_all(&framed).await.is_err() {
                break;
            }
        }
        // The connection ends after the answers that were already in the pipe.
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn received_queries_are_answered_before_shutdown() {
    let (respond, token) = (echo(), CancellationToken::new());
    conversation(
        &respond,
        ConnectionLimits::default(),
        &token,
        async |mut stream| {
            ask(&mut stream, &[b"wait"]).await;
            while respond.waiting.load(Ordering::Relaxed) < 1 {
                tokio::task::yield_now().await;
            }
            token.cancel();
            tokio::task::yield_now().await;
            respond.gate.add_permits(1);
            assert_eq!(answer(&mut stream).await, "wait");
            at_its_end(stream).await;
        },
    )
    .await;
    // Also when the client has closed its sending direction.
    let token = CancellationToken::new();
    conversation(
        &respond,
        ConnectionLimits::default(),
        &token,
        async |mut stream| {
            ask(&mut stream, &[b"wait", b"more"]).await;
            stream.shutdown().await.unwrap();
            assert_eq!(answer(&mut stream).await, "more");
            respond.gate.add_permits(1);
            assert_eq!(answer(&mut stream).await, "wait");
            at_its_end(stream).await;
        },
    )
    .await;
}

#[tokio::test]
async fn reply_with_many_messages_is_sent_completely() {
    let (respond, token) = (echo(), CancellationToken::new());
    conversation(
        &respond,
        ConnectionLimits::default(),
        &token,
        async |mut stream| {
            ask(&mut stream, &[b"1", b"zone", b"2"]).await;
            for expected in ["1", "message 2", "message 1", "message 0", "2"] {
                assert_eq!(answer(&mut stream).await, expected);
            }
        },
    )
    .await;
}
