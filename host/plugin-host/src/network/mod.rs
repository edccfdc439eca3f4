//! Network access of probes. Every destination is resolved and checked against the grants, and the
//! host connects to the address that it checked.

mod counted;
mod http;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use transom_common::text::clip;
use transom_registry::network::{Destination, LookupError, Reserved, Resolver};

use crate::{
    manifest::grants::{Grants, Rejection},
    worlds::{
        probe::{Endpoint, IoError},
        step::{HttpRequest, HttpResponse, Tls},
    },
};

pub(crate) use self::http::first_host_header;

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for T {}
pub(crate) type Connection = Box<dyn Stream>;

/// Maximum number of bytes of a destination in the log. The guest chooses its name.
const MAX_HOST_BYTES: usize = 300;

/// A denied connection: the destination and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// `host:port`, as the guest or a redirect named it.
    pub(crate) wanted: String,
    pub(crate) why: String,
}

/// Network access of one attempt: its grants, what it may still send and receive, and its deadline.
pub(crate) struct Network<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) names: &'a dyn Resolver,
    /// Destinations of the daemon itself, which are guarded.
    pub(crate) reserved: &'a Reserved,
    /// The task's own endpoints.
    pub(crate) task: Vec<Endpoint>,
    /// Host name of the task's agent.
    pub(crate) agent: &'a str,
    pub(crate) deadline: tokio::time::Instant,
    /// Number of bytes that may still be received.
    pub(crate) input: u64,
    /// Number of bytes that may still be sent.
    pub(crate) output: u64,
    pub(crate) connection: Option<Connection>,
    /// The last denied destination, until the caller logs it.
    pub(crate) denial: Option<Denial>,
}

impl Network<'_> {
    /// Runs `operation` with a deadline, after which it does not start.
    async fn with_deadline<T>(
        deadline: tokio::time::Instant,
        operation: impl Future<Output = Result<T, IoError>>,
    ) -> Result<T, IoError> {
        check_time(deadline)?;
        tokio::time::timeout_at(deadline, operation)
            .await
            .unwrap_or(Err(IoError::TimedOut))
    }

    /// Opens the attempt's connection and closes the previous one.
    pub(crate) async fn connect(&mut self, to: &Endpoint, tls: Option<&Tls>) -> Result<Duration, IoError> {
        self.connection = None;
        let start = Instant::now();
        self.connection = Some(Self::with_deadline(self.deadline, self.open(to, tls)).await?);
        Ok(start.elapsed())
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        self.output = charge(self.output, bytes.len())?;
        let connection = self.connection.as_mut().ok_or(IoError::Closed)?;
        let write = async {
            connection
                .write_all(bytes)
                .await
                .map_err(|error| io_error(&error))?;
            connection.flush().await.map_err(|error| io_error(&error))
        };
        Self::with_deadline(self.deadline, write).await
    }

    /// Receives at most `max_bytes` bytes, and at least one.
    pub(crate) async fn receive(&mut self, max_bytes: u32) -> Result<Vec<u8>, IoError> {
        let connection = self.connection.as_mut().ok_or(IoError::Closed)?;
        let room = u64::from(max_bytes.max(1)).min(self.input).min(64 << 10) as usize;
        if room == 0 {
            return Err(over_limit());
        }
        let mut buffer = vec![0; room];
        let read = async {
            connection
                .read(&mut buffer)
                .await
                .map_err(|error| io_error(&error))
        };
        let count = Self::with_deadline(self.deadline, read).await?;
        if count == 0 {
            self.connection = None;
            return Err(IoError::Closed);
        }
        buffer.truncate(count);
        self.input = charge(self.input, count)?;
        Ok(buffer)
    }

    /// Makes one HTTP exchange. It follows redirects as far as the request and the grants allow.
    pub(crate) async fn http(&mut self, request: HttpRequest) -> Result<HttpResponse, IoError> {
        Self::with_deadline(self.deadline, http::exchange(self, request)).await
    }

    async fn open(&mut self, to: &Endpoint, tls: Option<&Tls>) -> Result<Connection, IoError> {
        if tls.is_some_and(|tls| !tls.verify) && !self.grants.tls_unverified {
            return Err(self.deny(
                to,
                "TLS without verification needs grants.tls-unverified".to_owned(),
            ));
        }
        let mut last = IoError::Unreachable;
        for address in self.resolve(to).await? {
            // A timeout alone would let one more connection start.
            check_time(self.deadline)?;
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Probes send little and wait for the answer, so that Nagle's algorithm would
                    // only delay them.
                    stream.set_nodelay(true).map_err(|error| io_error(&error))?;
                    return match tls {
                        None => Ok(Box::new(stream)),
                        Some(tls) => tls::handshake(stream, to, tls).await,
                    };
                }
                Err(error) => last = io_error(&error),
            }
        }
        Err(last)
    }

    /// Resolves `to` and returns the allowed addresses. The host connects only to these, even if
    /// the name resolves to others a moment later.
    async fn resolve(&mut self, to: &Endpoint) -> Result<Vec<SocketAddr>, IoError> {
        if !self.may_be_granted(to) {
            return Err(self.deny(to, Rejection::NotGranted.to_string()));
        }
        let found = self.lookup(to).await?;
        let task = self.task_addresses(to).await?;
        let mut allowed = Vec::new();
        let mut why = None;
        for ip in found {
            let guard = self.reserved.guard(ip, to.port, self.names).await;
            match self.grants.judge(to, ip, guard.as_ref(), &task) {
                Ok(()) => allowed.push(SocketAddr::new(ip, to.port)),
                Err(rejection) => why = Some(format!("{ip}: {rejection}")),
            }
        }
        if allowed.is_empty() {
            Err(self.deny(to, why.unwrap_or_default()))
        } else {
            Ok(allowed)
        }
    }

    fn deny(&mut self, to: &Endpoint, why: String) -> IoError {
        let wanted = format!("{}:{}", clip(&to.host, MAX_HOST_BYTES), to.port);
        self.denial = Some(Denial { wanted, why });
        IoError::Denied
    }

    /// Whether any grant could allow the destination. Otherwise the host does not resolve the name,
    /// because the query of a name can carry data to the name server of a stranger. `"task"` covers
    /// addresses and the names in the request. A network covers every name: whether an address of
    /// the name belongs to it is known only after the query, so such a grant lets data leave.
    fn may_be_granted(&self, to: &Endpoint) -> bool {
        self.grants.network.iter().any(|it| match it {
            Destination::Task => self.may_be_of_task(to),
            Destination::Name { host, port } => {
                port.is_none_or(|port| port == to.port) && host.eq_ignore_ascii_case(&to.host)
            }
            Destination::Network { port, .. } => port.is_none_or(|port| port == to.port),
        })
    }

    /// Whether the destination has a port of the task, and an address or a name in the request.
    fn may_be_of_task(&self, to: &Endpoint) -> bool {
        let mut hosts = self.task.iter().map(|it| it.host.as_str()).chain([self.agent]);
        self.task.iter().any(|it| it.port == to.port)
            && (address(&to.host).is_some() || hosts.any(|it| it.eq_ignore_ascii_case(&to.host)))
    }

    /// Returns the task's endpoints on the same port. Their hosts are resolved, unless the name
    /// equals that of `to`.
    async fn task_addresses(&self, to: &Endpoint) -> Result<Vec<(Endpoint, Vec<IpAddr>)>, IoError> {
        let mut found = Vec::new();
        if !self.grants.network.contains(&Destination::Task) {
            return Ok(found);
        }
        for task_endpoint in self
            .task
            .iter()
            .filter(|task_endpoint| task_endpoint.port == to.port)
        {
            let same = task_endpoint.host.eq_ignore_ascii_case(&to.host);
            let ips = if same {
                Vec::new()
            } else {
                match self.lookup(task_endpoint).await {
                    Err(IoError::Unresolved) => Vec::new(),
                    other => other?,
                }
            };
            found.push((task_endpoint.clone(), ips));
        }
        Ok(found)
    }

    async fn lookup(&self, to: &Endpoint) -> Result<Vec<IpAddr>, IoError> {
        if let Some(ip) = address(&to.host) {
            return Ok(vec![ip]);
        }
        check_time(self.deadline)?;
        let found = self.names.addresses(bare(&to.host)).await;
        let found = found.map_err(|error| match error {
            LookupError::Unresolved => IoError::Unresolved,
            LookupError::NotStarted => IoError::Unavailable(error.to_string()),
        })?;
        if found.is_empty() {
            Err(IoError::Unresolved)
        } else {
            Ok(found)
        }
    }
}

fn check_time(deadline: tokio::time::Instant) -> Result<(), IoError> {
    if tokio::time::Instant::now() < deadline {
        Ok(())
    } else {
        Err(IoError::TimedOut)
    }
}

/// A host without the brackets of IPv6 addresses.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The address that a host is, unless it is a name.
fn address(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

fn charge(budget: u64, bytes: usize) -> Result<u64, IoError> {
    budget.checked_sub(bytes as u64).ok_or_else(over_limit)
}

fn over_limit() -> IoError {
    IoError::Protocol(
        "more than an attempt may send or receive (limits.attempt-input, limits.attempt-output)".into(),
    )
}

fn io_error(error: &io::Error) -> IoError {
    use io::ErrorKind as K;
    match error.kind() {
        K::ConnectionRefused => IoError::Refused,
        K::TimedOut => IoError::TimedOut,
        K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::UnexpectedEof | K::NotConnected => {
            IoError::Closed
        }
        _ => IoError::Unreachable,
    }
}
