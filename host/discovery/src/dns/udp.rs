//! Lookups over UDP. A packet is answered by the worker that received it before that takes the next one: what comes faster
//! waits in the system's buffer, which is bounded, and nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, Transport};

/// More than any query has; the rest of a longer one is lost, and it is answered as one that cannot be read.
const LARGEST: usize = 4096;
/// Nobody waits longer for a socket whose buffer is full; who asked will ask again.
const SEND_WITHIN: Duration = Duration::from_secs(1);
/// Pause after a packet could not be received; retrying at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers until the token is cancelled.
pub(super) async fn serve(socket: UdpSocket, handler: Arc<Handler>, token: CancellationToken) {
    let socket = Arc::new(socket);
    let answering = || {
        let (socket, handler, token) = (Arc::clone(&socket), Arc::clone(&handler), token.clone());
        async move {
            token.run_until_cancelled(answer(&socket, &handler)).await;
        }
    };
    let mut workers = JoinSet::new();
    for _ in 0..Handle::current().metrics().num_workers() {
        workers.spawn(answering());
    }
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a packet was too much; going on with the next one");
            workers.spawn(answering());
        }
    }
}

async fn answer(socket: &UdpSocket, handler: &Handler) {
    let mut packet = vec![0; LARGEST];
    loop {
        match socket.recv_from(&mut packet).await {
            Ok((size, client)) => {
                if let Some(reply) = handler.reply(&packet[..size], Transport::Udp) {
                    send(socket, &reply, client).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot receive DNS packets for the moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn send(socket: &UdpSocket, reply: &[u8], client: SocketAddr) {
    match tokio::time::timeout(SEND_WITHIN, socket.send_to(reply, client)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, %client, "an answer was not sent"),
        Err(_) => tracing::debug!(%client, "an answer was not sent in time"),
    }
}
