//! A fake master on a loopback address. It serves a state document given by the test and answers
//! 404 to everything else, as old and restricted masters do.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The response to requests for the state.
#[derive(Clone, Debug)]
pub struct MasterResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The required value of `Authorization`; other requests receive 401.
    pub required_authorization: Option<String>,
    /// Whether to send no response at all.
    pub never_responds: bool,
}

impl MasterResponse {
    /// A response with status 200 and this document.
    pub fn document(body: impl Into<String>) -> MasterResponse {
        MasterResponse {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
            required_authorization: None,
            never_responds: false,
        }
    }

    /// The same response with another status.
    pub fn with_status(self, status: u16) -> MasterResponse {
        MasterResponse { status, ..self }
    }
}

/// The master; it stops when it is dropped.
pub struct Master {
    pub address: SocketAddr,
    response: Arc<Mutex<MasterResponse>>,
    state_requests: Arc<Mutex<usize>>,
    _task: JoinSet<()>,
}

impl Master {
    /// Starts a master on a free port of 127.0.0.1.
    pub async fn start(response: MasterResponse) -> Master {
        Master::start_at(([127, 0, 0, 1], 0).into(), response).await
    }

    pub async fn start_at(address: SocketAddr, response: MasterResponse) -> Master {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("an address");
        let (response, state_requests) = (Arc::new(Mutex::new(response)), Arc::new(Mutex::new(0)));
        let (shared_response, request_count) = (response.clone(), state_requests.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve_connection(
                    stream,
                    shared_response.clone(),
                    request_count.clone(),
                ));
            }
        });
        Master {
            address,
            response,
            state_requests,
            _task: task,
        }
    }

    /// Sets the response to later requests.
    pub fn set_response(&self, response: MasterResponse) {
        *self.response.lock().expect("a master") = response;
    }

    /// The number of requests for the state.
    pub fn state_requests(&self) -> usize {
        *self.state_requests.lock().expect("a master")
    }

    /// The document with `leader` in place of 127.0.0.1.
    pub fn with_leader(document: &str, leader: IpAddr) -> String {
        document.replace("127.0.0.1", &leader.to_string())
    }
}

async fn serve_connection(
    stream: TcpStream,
    response: Arc<Mutex<MasterResponse>>,
    state_requests: Arc<Mutex<usize>>,
) {
    let mut stream = BufReader::new(stream);
    while let Some((line, headers)) = request(&mut stream).await {
        let state = line.starts_with("GET /state ") || line.starts_with("GET /master/state ");
        let response = response.lock().expect("a master").clone();
        if state {
            *state_requests.lock().expect("a master") += 1;
        }
        if response.never_responds {
            return std::future::pending().await;
        }
        let allowed = response.required_authorization.is_none()
            || headers.get("authorization") == response.required_authorization.as_ref();
        let (status, headers, body) = match (state, allowed) {
            (true, true) => (response.status, response.headers, response.body),
            (_, false) => (401, Vec::new(), String::new()),
            (false, true) => (404, Vec::new(), "there is nothing else".to_owned()),
        };
        let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.extend([name, ": ", &value, "\r\n"]);
        }
        let answer = head + "\r\n" + &body;
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The first line and the headers, with names in lower case; the body is read and dropped.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, BTreeMap<String, String>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream
            .read_line(&mut line)
            .await
            .ok()
            .filter(|length| *length > 0)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: BTreeMap<_, _> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).await.ok()?;
    Some((lines.into_iter().next()?, headers))
}
