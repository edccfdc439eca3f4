//! A small HTTP/1.1 client that exposes the wire format: status line, header names, chunks.
//!
//! It sends one request per connection, without redirects or retries, so it is not for use
//! elsewhere.

use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Timeout of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection was possible, or it was closed.
    #[error("the connection to {addr} failed")]
    Connection {
        /// The peer.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The peer sent nothing in time.
    #[error("{addr} did not answer within {after:?}")]
    Silent {
        /// The peer.
        addr: SocketAddr,
        /// The elapsed time.
        after: Duration,
    },
    /// The response is not valid HTTP or RecordIO.
    #[error("{addr} sent something unexpected: {what}")]
    Malformed {
        /// The peer.
        addr: SocketAddr,
        /// Why it is invalid.
        what: String,
    },
}

/// A result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Status line and headers.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// `HTTP/1.1 200 OK`.
    pub status: String,
    /// Names as sent, values trimmed.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head without its last empty line.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Self { status, headers }
    }

    /// The status code; 0 if the line contains none.
    pub fn code(&self) -> u16 {
        self.status
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0)
    }

    /// The value of a header, whose name is compared without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn is_chunked(&self) -> bool {
        self.header("Transfer-Encoding") == Some("chunked")
    }
}

/// A complete response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Its head.
    pub head: Head,
    /// Its body, without chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A request that is sent unchanged.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`.
    pub method: String,
    /// `/state?x=y`.
    pub target: String,
    /// Headers other than Host and Content-Length.
    pub headers: Vec<(String, String)>,
    /// May be empty.
    pub body: Vec<u8>,
}

impl Request {
    /// A GET.
    pub fn get(target: impl Into<String>) -> Self {
        Self {
            method: "GET".to_owned(),
            target: target.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A POST of JSON that accepts JSON.
    pub fn post(target: impl Into<String>, body: &Value) -> Self {
        Self {
            method: "POST".to_owned(),
            target: target.into(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
        .with("Content-Type", "application/json")
        .with("Accept", "application/json")
    }

    /// Sets a header; an empty value removes it.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    fn bytes(&self, addr: SocketAddr) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {}\r\n",
            self.method,
            self.target,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// Sends a request and reads the complete response.
pub async fn exchange(addr: SocketAddr, request: &Request) -> Result<Response> {
    let head_only = request.method == "HEAD";
    let (head, mut stream) = open(addr, request).await?;
    let body = if head_only {
        Vec::new()
    } else {
        stream.rest().await?
    };
    Ok(Response { head, body })
}

/// Sends a request and reads the head of the response; the body is streamed.
pub async fn open(addr: SocketAddr, request: &Request) -> Result<(Head, Stream)> {
    let failed = |source| Error::Connection { addr, source };
    let timed_out = |_| Error::Silent {
        addr,
        after: ANSWER_TIMEOUT,
    };
    let mut socket = timeout(ANSWER_TIMEOUT, TcpStream::connect(addr))
        .await
        .map_err(timed_out)?
        .map_err(failed)?;
    socket.write_all(&request.bytes(addr)).await.map_err(failed)?;
    let mut stream = Stream {
        addr,
        socket,
        raw: Vec::new(),
        body: Vec::new(),
        remaining: RemainingBody::Unknown,
        ended: false,
    };
    let end = loop {
        if let Some(end) = find(&stream.raw, b"\r\n\r\n") {
            break end;
        }
        timeout(ANSWER_TIMEOUT, stream.read())
            .await
            .map_err(timed_out)??;
        if stream.ended {
            return Err(Error::Malformed {
                addr,
                what: "it closed the connection before the end of the head".to_owned(),
            });
        }
    };
    let head = Head::parse(&String::from_utf8_lossy(&stream.raw[..end]));
    stream.raw.drain(..end + 4);
    let length = head
        .header("Content-Length")
        .and_then(|length| length.parse().ok());
    stream.remaining = match length {
        _ if head.is_chunked() => RemainingBody::Chunks,
        Some(length) => RemainingBody::Bytes(length),
        None => RemainingBody::UntilClose,
    };
    Ok((head, stream))
}

/// The remaining part of a body.
#[derive(Debug)]
enum RemainingBody {
    Unknown,
    Bytes(usize),
    Chunks,
    UntilClose,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Stream {
    addr: SocketAddr,
    socket: TcpStream,
    raw: Vec<u8>,
    body: Vec<u8>,
    remaining: RemainingBody,
    ended: bool,
}

impl Stream {
    async fn read(&mut self) -> Result<()> {
        let read = self
            .socket
            .read_buf(&mut self.raw)
            .await
            .map_err(|source| Error::Connection {
                addr: self.addr,
                source,
            })?;
        self.ended = read == 0;
        Ok(())
    }

    /// Moves complete chunks from the connection's bytes to the body's. Returns whether the body
    /// has ended.
    fn unwrap_body(&mut self) -> Result<bool> {
        loop {
            match self.remaining {
                RemainingBody::Bytes(remaining) => {
                    let take = remaining.min(self.raw.len());
                    self.body.extend(self.raw.drain(..take));
                    self.remaining = RemainingBody::Bytes(remaining - take);
                    return Ok(remaining == take);
                }
                RemainingBody::Chunks => {
                    let Some(line) = find(&self.raw, b"\r\n") else {
                        return Ok(false);
                    };
                    let size = String::from_utf8_lossy(&self.raw[..line]).into_owned();
                    let size = usize::from_str_radix(size.trim(), 16).map_err(|_| Error::Malformed {
                        addr: self.addr,
                        what: format!("chunk size {size:?}"),
                    })?;
                    if self.raw.len() < line + 2 + size + 2 {
                        return Ok(false);
                    }
                    self.body.extend_from_slice(&self.raw[line + 2..line + 2 + size]);
                    self.raw.drain(..line + 2 + size + 2);
                    if size == 0 {
                        // The body has ended; the connection may stay open.
                        self.remaining = RemainingBody::Bytes(0);
                        return Ok(true);
                    }
                }
                RemainingBody::UntilClose | RemainingBody::Unknown => {
                    self.body.append(&mut self.raw);
                    return Ok(self.ended);
                }
            }
        }
    }

    /// Reads the complete body.
    async fn rest(&mut self) -> Result<Vec<u8>> {
        while !self.unwrap_body()? {
            if self.ended {
                return Err(Error::Malformed {
                    addr: self.addr,
                    what: "the connection ended within the body".to_owned(),
                });
            }
            let after = ANSWER_TIMEOUT;
            timeout(after, self.read()).await.map_err(|_| Error::Silent {
                addr: self.addr,
                after,
            })??;
        }
        Ok(std::mem::take(&mut self.body))
    }

    /// The next RecordIO record, as JSON. `None` when the body has ended.
    pub async fn record(&mut self, within: Duration) -> Result<Option<Value>> {
        let addr = self.addr;
        timeout(within, self.next_record())
            .await
            .map_err(|_| Error::Silent { addr, after: within })?
    }

    /// Whether the connection ended before the body did, as when the server process is killed.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.ended && matches!(self.remaining, RemainingBody::Chunks)
    }

    /// The bytes at the end of the body that are no complete record.
    #[must_use]
    pub fn fragment(&self) -> &[u8] {
        &self.body
    }

    async fn next_record(&mut self) -> Result<Option<Value>> {
        loop {
            let ended = self.unwrap_body()?;
            if let Some(record) = self.take_record()? {
                return Ok(Some(record));
            }
            if ended || self.ended {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    fn take_record(&mut self) -> Result<Option<Value>> {
        let Some(line) = find(&self.body, b"\n") else {
            return Ok(None);
        };
        let malformed = |what: String| Error::Malformed {
            addr: self.addr,
            what,
        };
        let length = String::from_utf8_lossy(&self.body[..line]).into_owned();
        let length: usize = length
            .parse()
            .map_err(|_| malformed(format!("record length {length:?}")))?;
        if self.body.len() < line + 1 + length {
            return Ok(None);
        }
        let record = serde_json::from_slice(&self.body[line + 1..line + 1 + length])
            .map_err(|error| malformed(error.to_string()))?;
        self.body.drain(..line + 1 + length);
        Ok(Some(record))
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
