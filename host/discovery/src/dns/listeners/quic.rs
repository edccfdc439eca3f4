//! DNS over QUIC (RFC 9250): a query and its answers on each stream of a connection.
//!
//! Connections, streams of a connection, buffered bytes and every wait are limited. While more than
//! half of the connections are in use, a client first has to prove its address (RFC 9000, section
//! 8.1.2); at the limit, its connection replaces an idle one. The certificate is reloaded as for [TLS](super::tls).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{
    Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use transom_web::{ConnectionSlot, Connections};

use super::connection::ConnectionLimits;
use super::tls::{Certificate, ListenerLimits};
use crate::dns::respond::{Client, Reply, Respond, Transport};

/// The limits of a connection; `max_inflight` is for its open streams. Clients of DNS over QUIC, as
/// those of DNS over HTTPS, send more queries at a time than those of TCP.
pub const LIMITS: ConnectionLimits = super::https::LIMITS;

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TLS library has no cipher suite for QUIC.
    #[error("the certificate cannot be used for QUIC")]
    Certificate(#[source] NoInitialCipherSuite),
    /// The socket cannot be used.
    #[error("the socket cannot be used for QUIC")]
    Socket(#[source] std::io::Error),
}

/// The maximum size of a query with its length prefix.
const MAX_QUERY_BYTES: usize = 2 + u16::MAX as usize;
/// Received bytes of all streams of a connection that are buffered until they are read, and answers
/// that are buffered until the client acknowledges them.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 18;
/// Bytes of all handshakes that wait to be accepted.
const INCOMING_BUFFER_BYTES: u64 = 1 << 20;

/// Error codes (RFC 9250, section 4.3).
mod code {
    use quinn::VarInt;

    pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0);
    pub(super) const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
    pub(super) const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);
}

/// How a stream ended.
enum StreamOutcome {
    /// Answered, or cancelled by the client.
    Done,
    /// The client broke a rule that makes the whole connection unusable.
    ProtocolError,
}

/// Serves until the token is cancelled; open streams finish their answers.
///
/// # Errors
/// [`Error`] if QUIC cannot be served at all.
pub async fn serve<R: Respond>(
    socket: UdpSocket,
    mut certificate: Certificate,
    limits: ListenerLimits,
    connection_limits: ConnectionLimits,
    respond: Arc<R>,
    token: CancellationToken,
) -> Result<(), Error> {
    let config = server_config(&certificate, limits, connection_limits).map_err(Error::Certificate)?;
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket,
        Arc::new(TokioRuntime),
    );
    let endpoint = endpoint.map_err(Error::Socket)?;
    tokio::join!(
        certificate.keep_current(limits.reload_interval, &token),
        serve_endpoint(endpoint, limits, connection_limits, respond, &token),
    );
    Ok(())
}

async fn serve_endpoint<R: Respond>(
    endpoint: Endpoint,
    limits: ListenerLimits,
    connection_limits: ConnectionLimits,
    respond: Arc<R>,
    token: &CancellationToken,
) {
    let places = Connections::new("dns-quic", limits.max_connections);
    let mut connections = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            () = token.cancelled() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "panic while answering a DNS query; connection closed");
                }
                continue;
            }
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        if places.count() >= limits.max_connections.div_ceil(2) && incoming.may_retry() {
            if let Err(error) = incoming.retry() {
                tracing::debug!(%error, "cannot send a QUIC Retry packet for address validation");
            }
        } else if let Some(slot) = places.admit(incoming.remote_address()).await {
            let (respond, token) = (Arc::clone(&respond), token.clone());
            connections.spawn(async move {
                let connection = tokio::select! {
                    connection = shake_hands(incoming, limits, &token) => connection,
                    () = slot.evicted() => None,
                };
                if let Some(connection) = connection {
                    serve_streams(connection, &*respond, connection_limits, &slot, &token).await;
                }
            });
        } else {
            incoming.refuse();
        }
    }
    endpoint.set_server_config(None);
    while connections.join_next().await.is_some() {}
    // Waits until the last packets of each connection have been sent.
    let _ = timeout(connection_limits.write_timeout, endpoint.wait_idle()).await;
}

fn server_config(
    certificate: &Certificate,
    limits: ListenerLimits,
    connection_limits: ConnectionLimits,
) -> Result<ServerConfig, NoInitialCipherSuite> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(connection_limits.max_inflight as u32))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(MAX_QUERY_BYTES as u32))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(CONNECTION_WINDOW_BYTES.into())
        .max_idle_timeout(connection_limits.query_timeout.try_into().ok());
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(certificate.config())?));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(limits.max_connections)
        .incoming_buffer_size(MAX_QUERY_BYTES as u64)
        .incoming_buffer_size_total(INCOMING_BUFFER_BYTES)
        .migration(false);
    Ok(config)
}

async fn shake_hands(
    incoming: Incoming,
    limits: ListenerLimits,
    token: &CancellationToken,
) -> Option<Connection> {
    let handshake = timeout(limits.handshake_timeout, async { incoming.accept()?.await });
    match token.run_until_cancelled(handshake).await? {
        Ok(Ok(connection)) => Some(connection),
        Ok(Err(error)) => {
            tracing::debug!(%error, "QUIC handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("QUIC handshake timeout");
            None
        }
    }
}

/// Answers queries until the client closes the connection, is idle or breaks the protocol, the
/// connection has to make room for another one, or the token is cancelled. Streams that are open by then are still answered.
async fn serve_streams<R: Respond>(
    connection: Connection,
    respond: &R,
    limits: ConnectionLimits,
    slot: &ConnectionSlot,
    token: &CancellationToken,
) {
    let client = connection.remote_address();
    let mut answering = FuturesUnordered::new();
    let mut deadline = Instant::now() + limits.query_timeout;
    let code = loop {
        tokio::select! {
            () = token.cancelled() => break code::NO_ERROR,
            () = slot.evicted() => break code::EXCESSIVE_LOAD,
            Some(outcome) = answering.next() => {
                if answering.is_empty() {
                    slot.end();
                }
                deadline = Instant::now() + limits.query_timeout;
                if matches!(outcome, StreamOutcome::ProtocolError) {
                    break code::PROTOCOL_ERROR;
                }
            }
            stream = connection.accept_bi() => match stream {
                Ok((send, receive)) => {
                    slot.begin();
                    answering.push(serve_stream(send, receive, client, respond, limits));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection of DNS over QUIC ended");
                    return;
                }
            },
            () = sleep_until(deadline), if answering.is_empty() => break code::NO_ERROR,
        }
    };
    if code == code::NO_ERROR {
        while answering.next().await.is_some() {}
    }
    connection.close(code, b"");
}

/// Answers the query of a stream.
async fn serve_stream<R: Respond>(
    mut send: SendStream,
    mut receive: RecvStream,
    client: SocketAddr,
    respond: &R,
    limits: ConnectionLimits,
) -> StreamOutcome {
    let received = match timeout(limits.query_timeout, receive.read_to_end(MAX_QUERY_BYTES)).await {
        Ok(Ok(received)) => received,
        Ok(Err(quinn::ReadToEndError::TooLong)) => return StreamOutcome::ProtocolError,
        Ok(Err(quinn::ReadToEndError::Read(_))) => return StreamOutcome::Done,
        Err(_) => {
            // Ends only this stream; the client can go on using the connection.
            let _ = receive.stop(code::EXCESSIVE_LOAD);
            let _ = send.reset(code::EXCESSIVE_LOAD);
            return StreamOutcome::Done;
        }
    };
    let Some(query) = query(&received) else {
        return StreamOutcome::ProtocolError;
    };
    let client = Client::new(client.ip(), Transport::Tcp);
    let mut answer = Vec::new();
    let mut messages: Box<dyn FnMut() -> Option<Vec<u8>> + Send> =
        match respond.respond(query, client, &mut answer) {
            Reply::Written | Reply::Last => once(answer),
            Reply::Later(later) => once(later.await),
            Reply::Messages(next) => next,
            Reply::Silence => return StreamOutcome::ProtocolError,
        };
    while let Some(message) = messages() {
        // Messages have at most 65535 bytes.
        let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
        if !matches!(
            timeout(limits.write_timeout, send.write_all(&framed)).await,
            Ok(Ok(()))
        ) {
            let _ = send.reset(code::EXCESSIVE_LOAD);
            return StreamOutcome::Done;
        }
    }
    // Waits until the client has received everything, so that closing the connection does not
    // truncate the answer.
    if send.finish().is_ok() {
        let _ = timeout(limits.write_timeout, send.stopped()).await;
    }
    StreamOutcome::Done
}

/// One message and no more.
fn once(message: Vec<u8>) -> Box<dyn FnMut() -> Option<Vec<u8>> + Send> {
    let mut message = Some(message);
    Box::new(move || message.take())
}

/// The query of a stream: its length, then a message whose id is 0, and nothing else (RFC 9250,
/// section 4.2).
fn query(received: &[u8]) -> Option<&[u8]> {
    let (length, query) = received.split_first_chunk()?;
    let is_query = usize::from(u16::from_be_bytes(*length)) == query.len() && query.starts_with(&[0, 0]);
    is_query.then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_one_message_with_id_0() {
        for (received, expected) in [
            (&[0, 3, 0, 0, 7][..], Some(&[0, 0, 7][..])),
            (&[0, 2, 0, 0], Some(&[0, 0])),
            (&[0, 3, 0, 1, 7], None),
            (&[0, 2, 0, 0, 7], None),
            (&[0, 4, 0, 0, 7], None),
            (&[0, 0], None),
            (&[0], None),
            (&[], None),
        ] {
            assert_eq!(query(received), expected, "{received:?}");
        }
    }
}
