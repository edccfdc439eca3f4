//! What listeners and the handler share: clients, replies, and the trait between them.

use std::net::IpAddr;

use futures::future::BoxFuture;

/// The transport of a query and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A packet.
    Udp = 0,
    /// A connection, encrypted or not.
    Tcp = 1,
}

impl Transport {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// The client of a query, and the transport that it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address; IPv4 addresses are never mapped into IPv6.
    pub ip: IpAddr,
    /// The transport.
    pub transport: Transport,
}

impl Client {
    /// A client with this source address, which may be a mapped IPv4 address.
    pub fn new(ip: IpAddr, transport: Transport) -> Self {
        Self {
            ip: ip.to_canonical(),
            transport,
        }
    }
}

/// The result of a query.
pub enum Reply {
    /// The answer was written.
    Written,
    /// The answer was written, and the connection ends: the query was malformed, so the framing may
    /// be too.
    Last,
    /// No answer: the packet is not a query.
    Silence,
    /// The answer needs resolvers. The future has its own deadlines.
    Later(BoxFuture<'static, Vec<u8>>),
    /// The answer is a series of messages, until `None`.
    Messages(Box<dyn FnMut() -> Option<Vec<u8>> + Send>),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Written => "Written",
            Self::Last => "Last",
            Self::Silence => "Silence",
            Self::Later(_) => "Later",
            Self::Messages(_) => "Messages",
        })
    }
}

/// Answers the queries of connections.
pub trait Respond: Send + Sync + 'static {
    /// Appends the answer to a packet of this client to `out`, or returns how to get it. The
    /// connection ends after a packet that is not a query.
    fn respond(&self, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply;

    /// Whether rate limiting allows an answer over HTTPS, where the client gets status 429 otherwise.
    /// Over TCP and TLS every answer is sent.
    fn is_within_rate(&self, _client: Client, _answer: &[u8]) -> bool {
        true
    }
}
