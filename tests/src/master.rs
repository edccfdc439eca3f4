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
pub struct Says {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The required value of `Authorization`; other requests receive 401.
    pub wants: Option<String>,
    /// Whether to send no response at all.
    pub silent: bool,
}

impl Says {
    /// A response with status 200 and this document.
    pub fn document(body: impl Into<String>) -> Says {
        Says {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
            wants: None,
            silent: false,
        }
    }

    /// The same response with another status.
    pub fn with_status(self, status: u16) -> Says {
        Says { status, ..self }
    }
}

/// The master; it stops when it is dropped.
pub struct Master {
    pub address: SocketAddr,
    says: Arc<Mutex<Says>>,
    asked: Arc<Mutex<usize>>,
    _task: JoinSet<()>,
}

impl Master {
    /// Starts a master on a free port of 127.0.0.1.
    pub async fn start(says: Says) -> Master {
        Master::start_at(([127, 0, 0, 1], 0).into(), says).await
    }

    pub async fn start_at(address: SocketAddr, says: Says) -> Master {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("an address");
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(Mutex::new(0)));
        let (saying, counting) = (says.clone(), asked.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, saying.clone(), counting.clone()));
            }
        });
        Master {
            address,
            says,
            asked,
            _task: task,
        }
    }

    /// Sets the response to later requests.
    pub fn say(&self, says: Says) {
        *self.says.lock().expect("a master") = says;
    }

    /// The number of requests for the state.
    pub fn asked(&self) -> usize {
        *self.asked.lock().expect("a master")
    }

    /// The document with `leader` in place of 127.0.0.1.
    pub fn led_by(document: &str, leader: IpAddr) -> String {
        document.replace("127.0.0.1", &leader.to_string())
    }
}

async fn converse(stream: TcpStream, says: Arc<Mutex<Says>>, asked: Arc<Mutex<usize>>) {
    let mut stream = BufReader::new(stream);
    while let Some((line, headers)) = request(&mut stream).await {
        let state = line.starts_with("GET /state ") || line.starts_with("GET /master/state ");
        let says = says.lock().expect("a master").clone();
        if state {
            *asked.lock().expect("a master") += 1;
        }
        if says.silent {
            return std::future::pending().await;
        }
        let allowed = says.wants.is_none() || headers.get("authorization") == says.wants.as_ref();
        let (status, headers, body) = match (state, allowed) {
            (true, true) => (says.status, says.headers, says.body),
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
