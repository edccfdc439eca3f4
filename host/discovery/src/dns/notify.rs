//! Telling secondaries that there is something new (NOTIFY, RFC 1996): each is told until it says that it heard, or it is
//! clear that it does not hear.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Terms;
use super::handler::Handler;

/// Between two rounds: changes within it are one piece of news.
const GATHER: Duration = Duration::from_secs(1);
/// For the first answer; twice as long for each further one.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 5;

/// Tells all secondaries of every change until the token is cancelled.
pub(super) async fn serve(secondaries: Vec<SocketAddr>, handler: Arc<Handler>, token: CancellationToken) {
    if secondaries.is_empty() {
        return;
    }
    let (mut serials, terms) = (handler.serials(), handler.terms());
    let telling = async {
        while serials.wait_for(|serial| *serial != 0).await.is_ok() {
            let serial = *serials.borrow_and_update();
            let mut round: JoinSet<_> = secondaries
                .iter()
                .map(|secondary| tell(*secondary, serial, terms.clone()))
                .collect();
            sleep(GATHER).await;
            // Who does not hear gets no more news until it was given up on; the last serial is always told.
            while round.join_next().await.is_some() {}
            if serials.changed().await.is_err() {
                return;
            }
        }
    };
    token.run_until_cancelled(telling).await;
}

async fn tell(secondary: SocketAddr, serial: u32, terms: Terms) {
    let mut wait = ANSWER_WITHIN;
    for _ in 0..TRIES {
        match timeout(wait, ask(secondary, serial, &terms)).await {
            Ok(Ok(())) => return tracing::debug!(%secondary, serial, "a secondary has heard"),
            Ok(Err(error)) => {
                tracing::debug!(%secondary, %error, "a secondary was not told");
                sleep(wait).await;
            }
            Err(_) => {}
        }
        wait *= 2;
    }
    tracing::warn!(%secondary, serial, "a secondary does not hear that the zone has changed");
}

/// Sends the news and waits for the answer.
async fn ask(secondary: SocketAddr, serial: u32, terms: &Terms) -> std::io::Result<()> {
    let from: IpAddr = if secondary.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect(secondary).await?;
    let mut news = Message::new(rand::random(), MessageType::Query, OpCode::Notify);
    news.metadata.authoritative = true;
    let mut question = Query::query(terms.apex().clone(), RecordType::SOA);
    question.set_query_class(DNSClass::IN);
    news.add_query(question);
    news.answers = vec![terms.soa_of(serial)];
    let packet = news.to_vec().map_err(std::io::Error::other)?;
    socket.send(&packet).await?;
    let mut answer = [0; 512];
    loop {
        let size = socket.recv(&mut answer).await?;
        let heard = Message::from_vec(&answer[..size]);
        let ours = |heard: Message| {
            heard.metadata.id == news.metadata.id && heard.metadata.message_type == MessageType::Response
        };
        if heard.is_ok_and(ours) {
            return Ok(());
        }
    }
}
