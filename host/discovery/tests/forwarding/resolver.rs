//! A fake resolver with configurable behaviour: it answers, answers late or not at all, or sends
//! forged replies.
#![allow(clippy::unwrap_used, dead_code)] // Tests fail by panicking; not every test uses all.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A query that the resolver received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedQuery {
    pub(crate) name: String,
    pub(crate) kind: RecordType,
    pub(crate) tcp: bool,
    pub(crate) id: u16,
    pub(crate) from: SocketAddr,
    pub(crate) query: Message,
}

/// A resolver on its own port, over UDP and TCP. The first label of a name selects the behaviour.
pub(crate) struct Resolver {
    pub(crate) addr: SocketAddr,
    pub(crate) script: Arc<ResolverScript>,
    token: CancellationToken,
    tasks: TaskTracker,
    _cancel_on_drop: DropGuard,
}

#[derive(Default)]
pub(crate) struct ResolverScript {
    /// The last byte of its addresses.
    pub(crate) tag: u8,
    pub(crate) log: Mutex<Vec<ReceivedQuery>>,
    /// Whether it receives queries without answering them.
    pub(crate) silent: Mutex<bool>,
    /// Whether its replies over UDP have the name in lower case.
    pub(crate) lowercases: Mutex<bool>,
    /// Milliseconds before each answer.
    pub(crate) delay: AtomicU64,
    times: Mutex<HashMap<String, u32>>,
}

impl Resolver {
    pub(crate) async fn start(tag: u8) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), tag).await
    }

    /// Starts a resolver on an unused address; port 0 selects a port that is free for both transports.
    pub(crate) async fn start_at(addr: SocketAddr, tag: u8) -> Self {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind(addr).await.unwrap();
            match UdpSocket::bind(tcp.local_addr().unwrap()).await {
                Ok(udp) => break (udp, tcp),
                Err(error) => assert_eq!(addr.port(), 0, "{error}"),
            }
        };
        Self::serve(udp, Some(tcp), tag)
    }

    /// Starts a resolver that rejects connections.
    pub(crate) async fn start_udp_only(tag: u8) -> Self {
        Self::serve(UdpSocket::bind("127.0.0.1:0").await.unwrap(), None, tag)
    }

    fn serve(udp: UdpSocket, tcp: Option<TcpListener>, tag: u8) -> Self {
        let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
        let script = Arc::new(ResolverScript {
            tag,
            ..ResolverScript::default()
        });
        let resolver = Self {
            addr: udp.local_addr().unwrap(),
            script: Arc::clone(&script),
            token: token.clone(),
            tasks: tasks.clone(),
            _cancel_on_drop: token.clone().drop_guard(),
        };
        if let Some(tcp) = tcp {
            let tcp = serve_tcp(tcp, Arc::clone(&script), tasks.clone(), token.clone());
            let stopping = token.clone();
            tasks.spawn(async move { stopping.run_until_cancelled(tcp).await });
        }
        let udp = serve_udp(Arc::new(udp), script, tasks.clone(), token.clone());
        tasks.spawn(async move { token.run_until_cancelled(udp).await });
        resolver
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        *self.script.silent.lock().unwrap() = silent;
    }

    pub(crate) fn set_lowercases(&self, lowercases: bool) {
        *self.script.lowercases.lock().unwrap() = lowercases;
    }

    pub(crate) fn delay(&self, by: Duration) {
        self.script.delay.store(by.as_millis() as u64, Ordering::Relaxed);
    }

    /// The queries for names with this prefix, whose names are in lower case.
    pub(crate) fn queries(&self, prefix: &str) -> Vec<ReceivedQuery> {
        let log = self.script.log.lock().unwrap();
        log.iter()
            .filter(|query| query.name.starts_with(prefix))
            .cloned()
            .collect()
    }
}

async fn serve_udp(
    socket: Arc<UdpSocket>,
    script: Arc<ResolverScript>,
    tasks: TaskTracker,
    token: CancellationToken,
) {
    let mut packet = vec![0; 65535];
    loop {
        let Ok((size, client)) = socket.recv_from(&mut packet).await else {
            continue;
        };
        let (socket, script, query) = (Arc::clone(&socket), Arc::clone(&script), packet[..size].to_vec());
        let token = token.clone();
        tasks.spawn(async move {
            let answering = async {
                for answer in script.answers(&query, client, false).await {
                    socket.send_to(&answer, client).await.unwrap();
                }
            };
            token.run_until_cancelled(answering).await;
        });
    }
}

async fn serve_tcp(
    listener: TcpListener,
    script: Arc<ResolverScript>,
    tasks: TaskTracker,
    token: CancellationToken,
) {
    loop {
        let (stream, client) = listener.accept().await.unwrap();
        let (script, token) = (Arc::clone(&script), token.clone());
        tasks.spawn(async move {
            let conversing = async {
                let _ = converse(stream, client, &script).await;
            };
            token.run_until_cancelled(conversing).await;
        });
    }
}

async fn converse(mut stream: TcpStream, client: SocketAddr, script: &ResolverScript) -> std::io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        for answer in script.answers(&query, client, true).await {
            stream.write_u16(answer.len() as u16).await?;
            stream.write_all(&answer).await?;
        }
    }
}

impl ResolverScript {
    async fn answers(&self, packet: &[u8], from: SocketAddr, tcp: bool) -> Vec<Vec<u8>> {
        let query = Message::from_vec(packet).unwrap();
        let question = query.queries[0].clone();
        let name = question.name().to_string();
        self.log.lock().unwrap().push(ReceivedQuery {
            name: name.to_ascii_lowercase(),
            kind: question.query_type(),
            tcp,
            id: query.metadata.id,
            from,
            query: query.clone(),
        });
        let delay = self.delay.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if *self.silent.lock().unwrap() {
            return Vec::new();
        }
        let times = {
            let mut times = self.times.lock().unwrap();
            let times = times.entry(name.to_ascii_lowercase()).or_default();
            *times += 1;
            *times
        };
        let reply = self.reply(&query, times, tcp);
        let mut bytes = reply.to_vec().unwrap();
        if !tcp && *self.lowercases.lock().unwrap() {
            lowercase_question(&mut bytes);
        }
        let label = name.split('.').next().unwrap().to_ascii_lowercase();
        match label.as_str() {
            "silent" => Vec::new(),
            // The first query is lost, and the resent one is answered.
            "lost" if times == 1 => Vec::new(),
            // Replies with other ids and with another question, then the valid reply.
            "forged" => {
                let mut forged: Vec<_> = (0..5).map(|n| self.forged(&query, n)).collect();
                forged.push(bytes);
                forged
            }
            "wrongid" => vec![self.forged(&query, 0)],
            // A forged reply with the right id and port, which does not know the case of the name. Over
            // TCP it could not be sent.
            "guessed" | "alone" if !tcp => {
                let mut forged = self.forged_id(&query);
                lowercase_question(&mut forged);
                if label == "alone" {
                    vec![forged]
                } else {
                    vec![forged, bytes]
                }
            }
            "noise" => vec![
                [
                    &bytes[..2],
                    &[0x80, 0, 0, 1, 255, 255, 0, 0, 0, 0],
                    &bytes[12..20],
                ]
                .concat(),
            ],
            // More records than the client's size limit allows.
            "boast" | "flood" => {
                let mut large = reply;
                large.answers = self.addresses(&question, if label == "boast" { 100 } else { 255 });
                vec![large.to_vec().unwrap()]
            }
            _ => vec![bytes],
        }
    }

    /// A reply with a forged address.
    fn forged_id(&self, query: &Message) -> Vec<u8> {
        let mut forged = self.forged(query, 0);
        forged[..2].copy_from_slice(&query.metadata.id.to_be_bytes());
        forged
    }

    /// A reply with a forged address and the wrong id or another question.
    fn forged(&self, query: &Message, n: u16) -> Vec<u8> {
        let mut forged = self.reply(query, 1, false);
        let name = forged.queries[0].name().clone();
        forged.answers = vec![Record::from_rdata(
            name,
            300,
            RData::A(A([203, 0, 113, 66].into())),
        )];
        if n == 4 {
            let other = Name::from_ascii("forged.elsewhere.").unwrap();
            forged.queries = vec![Query::query(other, RecordType::A)];
        } else {
            forged.metadata.id = query.metadata.id.wrapping_add(n + 1);
        }
        forged.to_vec().unwrap()
    }

    fn addresses(&self, question: &Query, count: u8) -> Vec<Record> {
        let address = |n: u8| {
            let ip = if count == 1 {
                [192, 0, 2, self.tag]
            } else {
                [198, 51, 100, n]
            };
            Record::from_rdata(question.name().clone(), 30, RData::A(A(ip.into())))
        };
        (0..count).map(address).collect()
    }

    fn reply(&self, query: &Message, times: u32, tcp: bool) -> Message {
        let question = query.queries[0].clone();
        let mut reply = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
        reply.add_query(question.clone());
        reply.metadata.recursion_available = true;
        reply.metadata.recursion_desired = query.metadata.recursion_desired;
        let mut limit = 512;
        if let Some(query_edns) = &query.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(1232)
                .set_dnssec_ok(query_edns.flags().dnssec_ok);
            limit = query_edns.max_payload().max(512);
            reply.set_edns(edns);
        }
        let name = question.name().clone();
        let label = name.iter().next().unwrap_or_default().to_ascii_lowercase();
        let soa = |ttl, minimum| {
            let zone = Name::from_ascii("example.").unwrap();
            let soa = SOA::new(zone.clone(), zone.clone(), 7, 60, 60, 60, minimum);
            Record::from_rdata(zone, ttl, RData::SOA(soa))
        };
        match &label[..] {
            b"nx" => {
                reply.metadata.response_code = ResponseCode::NXDomain;
                reply.authorities.push(soa(300, 60));
            }
            b"nodata" => reply.authorities.push(soa(300, 1)),
            b"servfail" => reply.metadata.response_code = ResponseCode::ServFail,
            b"refused" => reply.metadata.response_code = ResponseCode::Refused,
            b"aa" => {
                reply.metadata.authoritative = true;
                reply.answers = self.addresses(&question, 1);
            }
            b"cname" => {
                let target = Name::from_ascii("target.example.").unwrap();
                reply.answers = vec![
                    Record::from_rdata(name, 30, RData::CNAME(CNAME(target.clone()))),
                    Record::from_rdata(target, 30, RData::A(A([192, 0, 2, self.tag].into()))),
                ];
            }
            b"brief" => {
                reply.answers = self.addresses(&question, 1);
                reply.answers[0].ttl = 1;
            }
            b"never" => {
                reply.answers = self.addresses(&question, 1);
                reply.answers[0].ttl = 0;
            }
            b"many" => reply.answers = self.addresses(&question, 60),
            b"echo" => {
                let metadata = &query.metadata;
                let edns = query.edns.as_ref();
                let text = format!(
                    "tcp={tcp} rd={} cd={} payload={:?} do={} times={times}",
                    metadata.recursion_desired,
                    metadata.checking_disabled,
                    edns.map(Edns::max_payload),
                    edns.is_some_and(|edns| edns.flags().dnssec_ok),
                );
                reply.answers = vec![Record::from_rdata(name, 30, RData::TXT(TXT::new(vec![text])))];
            }
            _ if question.query_type() == RecordType::A => reply.answers = self.addresses(&question, 1),
            _ => {}
        }
        if !tcp && reply.to_vec().unwrap().len() > limit.into() {
            reply.metadata.truncation = true;
            while reply.to_vec().unwrap().len() > limit.into() {
                reply.answers.pop();
            }
        }
        reply
    }
}

fn lowercase_question(message: &mut [u8]) {
    let end = 12 + message[12..].iter().position(|byte| *byte == 0).unwrap();
    message[12..end].make_ascii_lowercase();
}
