//! A proxy between a daemon and its master that records calls and can delay calls of one type.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use transom_testkit::eventually;

/// A call of a framework that the gate delayed.
#[derive(Clone, Debug)]
pub struct DelayedCall {
    pub call: Value,
    /// The first line of the master's answer, once the call was forwarded.
    pub answer: Option<String>,
}

/// A running gate. It forwards everything except delayed calls, including streams.
pub struct Gate {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    master: SocketAddr,
    /// The type of the calls to delay; `None`: no call is delayed.
    delayed_type: watch::Sender<Option<&'static str>>,
    calls: Mutex<Vec<String>>,
    delayed_calls: Mutex<Vec<DelayedCall>>,
}

impl Gate {
    /// Starts listening in front of `master`.
    pub async fn before(master: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            master,
            delayed_type: watch::Sender::new(None),
            calls: Mutex::default(),
            delayed_calls: Mutex::default(),
        });
        let shared_in_task = Arc::clone(&shared);
        // The task ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward_connection(client, Arc::clone(&shared_in_task)));
            }
        });
        Gate { address, shared }
    }

    /// Delays all later calls of this type.
    pub fn delay(&self, kind: &'static str) {
        self.shared.delayed_type.send_replace(Some(kind));
    }

    /// Forwards the delayed calls, and stops delaying.
    pub fn release(&self) {
        self.shared.delayed_type.send_replace(None);
    }

    /// The types of the calls that arrived here, in order.
    pub fn calls(&self) -> Vec<String> {
        self.shared.calls.lock().expect("calls").clone()
    }

    /// Waits until `accept` accepts the first delayed call, which may have been forwarded since.
    pub async fn wait_for_delayed_call(
        &self,
        what: &str,
        accept: impl Fn(&DelayedCall) -> bool,
    ) -> DelayedCall {
        eventually(what, || async {
            let delayed = self.shared.delayed_calls.lock().expect("held").first().cloned();
            match delayed {
                Some(delayed) if accept(&delayed) => Ok(delayed),
                seen => Err(format!("{seen:?}")),
            }
        })
        .await
    }
}

/// Forwards one connection, request by request.
async fn forward_connection(client: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let master = TcpStream::connect(shared.master).await.ok()?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_master, mut to_master) = master.into_split();
    let (first_lines, mut answers) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_master.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..count]);
            if text.starts_with("HTTP/") {
                first_lines.send_replace(text.lines().next().unwrap_or_default().to_owned());
            }
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
        let _ = to_client.shutdown().await;
    });
    let mut buffer = Vec::new();
    loop {
        let (request, call) = request(&mut from_client, &mut buffer).await?;
        let kind = call["type"].as_str().unwrap_or_default().to_owned();
        if !kind.is_empty() {
            shared.calls.lock().expect("calls").push(kind.clone());
        }
        let mut gate = shared.delayed_type.subscribe();
        let number = if gate.borrow().is_some_and(|delayed| delayed == kind) {
            let number = {
                let mut delayed = shared.delayed_calls.lock().expect("held");
                delayed.push(DelayedCall { call, answer: None });
                delayed.len() - 1
            };
            gate.wait_for(Option::is_none).await.ok()?;
            Some(number)
        } else {
            None
        };
        answers.borrow_and_update();
        to_master.write_all(&request).await.ok()?;
        if let Some(number) = number {
            answers.changed().await.ok()?;
            let line = answers.borrow_and_update().clone();
            shared.delayed_calls.lock().expect("held")[number].answer = Some(line);
        }
    }
}

/// The next complete request, and its body if it is JSON; `None` at the end of the connection.
async fn request(from: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Option<(Vec<u8>, Value)> {
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
                .unwrap_or(0_usize);
            let end = head + 4 + length;
            if buffer.len() >= end {
                let request: Vec<u8> = buffer.drain(..end).collect();
                let body = serde_json::from_slice(&request[head + 4..]).unwrap_or_default();
                return Some((request, body));
            }
        }
        if from.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
