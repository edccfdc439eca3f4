//! A proxy in front of the workflow port that drops responses: the daemon processes a request, and
//! the client cannot know it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A running proxy. It drops the response to the first request that queues a job, once for each
/// job.
pub struct LossyProxy {
    pub address: SocketAddr,
    queued: Arc<Mutex<HashMap<String, usize>>>,
}

impl LossyProxy {
    /// Starts listening in front of `daemon`.
    pub async fn before(daemon: SocketAddr) -> LossyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let queued = Arc::<Mutex<HashMap<String, usize>>>::default();
        let seen = Arc::clone(&queued);
        // The task ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward_request(client, daemon, Arc::clone(&seen)));
            }
        });
        LossyProxy { address, queued }
    }

    /// The number of requests to queue each job.
    pub fn queued(&self) -> HashMap<String, usize> {
        self.queued.lock().expect("jobs").clone()
    }
}

/// Forwards one request, and its response unless it is dropped. The connection is then closed; the
/// client connects again for the next request.
async fn forward_request(
    mut client: TcpStream,
    daemon: SocketAddr,
    queued: Arc<Mutex<HashMap<String, usize>>>,
) -> Option<()> {
    let mut request = Vec::new();
    let (head, body) = loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().ok()).flatten()
            });
            if request.len() >= end + 4 + length.unwrap_or(0) {
                break (head, request.split_off(end + 4));
            }
        }
        if client.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    };
    let mut upstream = TcpStream::connect(daemon).await.ok()?;
    let forwarded_headers = head
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head: Vec<&str> = forwarded_headers.chain(["Connection: close", "", ""]).collect();
    let is_job = head[0].starts_with("POST /v0/queue_command");
    upstream.write_all(head.join("\r\n").as_bytes()).await.ok()?;
    upstream.write_all(&body).await.ok()?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await.ok()?;
    if is_job {
        let job: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = job["airflow_task_id"].as_str().unwrap_or_default().to_owned();
        let mut queued = queued.lock().expect("jobs");
        let attempts = queued.entry(id).or_default();
        *attempts += 1;
        if *attempts == 1 {
            return None;
        }
    }
    client.write_all(&answer).await.ok()?;
    client.shutdown().await.ok()
}
