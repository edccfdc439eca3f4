//! Notifies secondaries of changes (NOTIFY, RFC 1996), with retries until they acknowledge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, ZoneAuthority};

/// Changes within this time cause one notification.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The timeout of the first answer; it doubles with each retry.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_ATTEMPTS: u32 = 5;

/// Notifies all secondaries of every change until the token is cancelled.
pub(super) async fn serve(secondaries: Vec<SocketAddr>, handler: Arc<Handler>, token: CancellationToken) {
    if secondaries.is_empty() {
        return;
    }
    let (mut serials, zone_authority) = (handler.serials(), handler.zone_authority());
    let notifying = async {
        while serials.wait_for(|serial| *serial != 0).await.is_ok() {
            let serial = *serials.borrow_and_update();
            let mut round: JoinSet<_> = secondaries
                .iter()
                .map(|secondary| notify(*secondary, serial, zone_authority.clone()))
                .collect();
            sleep(DEBOUNCE).await;
            // The next round starts when all secondaries have answered or failed; it sends the
            // latest serial.
            while round.join_next().await.is_some() {}
            if serials.changed().await.is_err() {
                return;
            }
        }
    };
    token.run_until_cancelled(notifying).await;
}

async fn notify(secondary: SocketAddr, serial: u32, zone_authority: ZoneAuthority) {
    let mut wait = FIRST_ANSWER_TIMEOUT;
    for _ in 0..MAX_ATTEMPTS {
        match timeout(wait, send_notify(secondary, serial, &zone_authority)).await {
            Ok(Ok(())) => return tracing::debug!(%secondary, serial, "secondary acknowledged NOTIFY"),
            Ok(Err(error)) => {
                tracing::debug!(%secondary, %error, "sending NOTIFY to a secondary failed; retrying");
                sleep(wait).await;
            }
            Err(_) => {}
        }
        wait *= 2;
    }
    tracing::warn!(%secondary, serial, "no answer to NOTIFY from a secondary; giving up until the next change");
}

/// Sends the request and waits for the answer.
async fn send_notify(
    secondary: SocketAddr,
    serial: u32,
    zone_authority: &ZoneAuthority,
) -> std::io::Result<()> {
    let from: IpAddr = if secondary.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect(secondary).await?;
    let mut request = Message::new(rand::random(), MessageType::Query, OpCode::Notify);
    request.metadata.authoritative = true;
    let mut question = Query::query(zone_authority.apex().clone(), RecordType::SOA);
    question.set_query_class(DNSClass::IN);
    request.add_query(question);
    request.answers = vec![zone_authority.soa_of(serial)];
    let packet = request.to_vec().map_err(std::io::Error::other)?;
    socket.send(&packet).await?;
    let mut answer = [0; 512];
    loop {
        let size = socket.recv(&mut answer).await?;
        let reply = Message::from_vec(&answer[..size]);
        let is_ours = |reply: Message| {
            reply.metadata.id == request.metadata.id && reply.metadata.message_type == MessageType::Response
        };
        if reply.is_ok_and(is_ours) {
            return Ok(());
        }
    }
}
