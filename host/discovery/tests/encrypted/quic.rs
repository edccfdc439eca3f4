//! DNS over QUIC: answers to a real client, and the limits that protect the port from its clients.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use transom_discovery::Config;
use transom_discovery::dns::listeners::connection::ConnectionLimits;
use transom_discovery::dns::listeners::quic::{LIMITS, serve};
use transom_discovery::dns::listeners::tls::{Certificate, ListenerLimits, Protocol};

use crate::common::{WAIT_TIMEOUT, query};
use crate::same_answers::{discovery, queries};
use crate::{FixedResponder, certify, client_config, run};

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

struct Port {
    addr: SocketAddr,
    trusted: CertificateDer<'static>,
    responder: Arc<FixedResponder>,
    token: CancellationToken,
    serving: JoinHandle<()>,
    dir: TempDir,
}

impl Port {
    async fn open(limits: ListenerLimits, connection: ConnectionLimits) -> Self {
        let dir = TempDir::new().unwrap();
        let trusted = certify(dir.path());
        let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let certificate = Certificate::read(&cert, &key, Protocol::Quic).await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (addr, token) = (socket.local_addr().unwrap(), CancellationToken::new());
        let (responder, stopping) = (Arc::new(FixedResponder::default()), token.clone());
        let answers = Arc::clone(&responder);
        let serving = tokio::spawn(async move {
            serve(socket, certificate, limits, connection, answers, stopping)
                .await
                .unwrap();
        });
        Self {
            addr,
            trusted,
            responder,
            token,
            serving,
            dir,
        }
    }

    async fn connect(&self) -> Result<Connection, ConnectionError> {
        connect(self.addr, &self.trusted).await
    }

    async fn close(self) {
        self.token.cancel();
        timeout(WAIT_TIMEOUT, self.serving).await.unwrap().unwrap();
    }
}

async fn connect(addr: SocketAddr, trusted: &CertificateDer<'static>) -> Result<Connection, ConnectionError> {
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let tls = client_config(trusted, &[b"doq"]);
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let connecting = endpoint.connect_with(config, addr, "dns.test").unwrap();
    timeout(WAIT_TIMEOUT, connecting).await.unwrap()
}

/// A query with the id 0, which QUIC requires, and a length prefix.
fn framed(mut query: Message) -> Vec<u8> {
    query.metadata.id = 0;
    let query = query.to_vec().unwrap();
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

/// Opens a stream and sends bytes on it.
async fn send(connection: &Connection, bytes: &[u8], finish: bool) -> RecvStream {
    let opening = connection.open_bi();
    let (mut send, receive) = timeout(WAIT_TIMEOUT, opening).await.unwrap().unwrap();
    send.write_all(bytes).await.unwrap();
    if finish {
        send.finish().unwrap();
    } else {
        // Dropping the stream would finish it.
        std::mem::forget(send);
    }
    receive
}

/// All messages on a stream.
async fn messages(mut stream: RecvStream) -> Vec<Message> {
    let read = timeout(WAIT_TIMEOUT, stream.read_to_end(1 << 20)).await;
    let bytes = read.unwrap().unwrap();
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (message, tail) = tail.split_at(u16::from_be_bytes(*length).into());
        messages.push(Message::from_vec(message).unwrap());
        rest = tail;
    }
    messages
}

/// The code with which the server closes a connection.
async fn closed(connection: &Connection) -> u64 {
    match timeout(WAIT_TIMEOUT, connection.closed()).await.unwrap() {
        ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn kdig_gets_answers_over_quic() {
    let port = Port::open(ListenerLimits::default(), LIMITS).await;
    let number = port.addr.port().to_string();
    let mut args: Vec<String> = ["@127.0.0.1", "-p", &number, "+time=10", "+retry=0"]
        .map(str::to_owned)
        .into();
    let ca = port.dir.path().join("cert.pem");
    args.push(format!("+tls-ca={}", ca.display()));
    // `+quic` is last, because kdig's TLS options reset it.
    args.extend(["+tls-hostname=dns.test", "+quic", "web.marathon.mesos", "A"].map(str::to_owned));
    let printed = run("kdig", "the package knot-dnsutils", &args).await;
    assert!(
        printed.contains("NOERROR") && printed.contains("10.0.0.1") && printed.contains("QUIC"),
        "{printed}"
    );
    port.close().await;
}

#[tokio::test]
async fn answers_over_quic_are_those_over_tcp() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let config = Config {
        quic_port: Some(0),
        ..Config::default()
    };
    let followed = discovery(dir.path(), config).await;
    let queries = queries();
    let over_tcp = followed.tcp(&queries).await;
    let connection = connect(followed.discovery.quic_addr().unwrap(), &trusted)
        .await
        .unwrap();
    for (query, mut expected) in queries.into_iter().zip(over_tcp) {
        expected.metadata.id = 0;
        let stream = send(&connection, &framed(query.clone()), true).await;
        assert_eq!(messages(stream).await, [expected], "{query}");
    }
    followed.stop().await;
}

#[tokio::test]
async fn streams_do_not_wait_for_each_other() {
    let port = Port::open(ListenerLimits::default(), LIMITS).await;
    let connection = port.connect().await.unwrap();
    let gated = send(&connection, &framed(query("slow.mesos.", RecordType::A)), true).await;
    let transfer = send(
        &connection,
        &framed(query("transfer.mesos.", RecordType::AXFR)),
        true,
    )
    .await;
    assert_eq!(messages(transfer).await.len(), 3);
    // Queries that were received are answered when the daemon stops.
    port.token.cancel();
    port.responder.gate.add_permits(1);
    assert_eq!(messages(gated).await.len(), 1);
    assert_eq!(closed(&connection).await, 0);
    port.close().await;
}

#[tokio::test]
async fn protocol_errors_close_the_connection() {
    let port = Port::open(ListenerLimits::default(), LIMITS).await;
    let valid = framed(query("web.mesos.", RecordType::A));
    let mut with_id = valid.clone();
    with_id[2] = 1;
    let mut response = valid.clone();
    response[4] |= 0x80;
    for broken in [
        &valid[..valid.len() - 1],
        &[&valid[..], &[0]].concat(),
        &with_id,
        &[0, 3, 0, 0, 7],
        &vec![0; 70_000],
        &[],
    ] {
        let connection = port.connect().await.unwrap();
        let _stream = send(&connection, broken, true).await;
        assert_eq!(closed(&connection).await, 2, "{} bytes", broken.len());
    }
    port.close().await;
}

#[tokio::test]
async fn slow_and_idle_clients_are_disconnected() {
    let port = Port::open(
        ListenerLimits::default(),
        ConnectionLimits {
            query_timeout: SHORT_TIMEOUT,
            ..ConnectionLimits::default()
        },
    )
    .await;
    let idle = port.connect().await.unwrap();
    match timeout(WAIT_TIMEOUT, idle.closed()).await.unwrap() {
        // Closed by the server, or by the idle timeout of QUIC.
        ConnectionError::ApplicationClosed(_) | ConnectionError::TimedOut => {}
        other => panic!("{other}"),
    }
    let gated = port.connect().await.unwrap();
    let mut stream = send(&gated, &[0], false).await;
    let ended = timeout(WAIT_TIMEOUT, stream.read_to_end(100)).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    port.close().await;
}

#[tokio::test]
async fn streams_of_a_connection_are_bounded() {
    let port = Port::open(
        ListenerLimits::default(),
        ConnectionLimits {
            max_inflight: 2,
            ..ConnectionLimits::default()
        },
    )
    .await;
    let connection = port.connect().await.unwrap();
    let gated = framed(query("slow.mesos.", RecordType::A));
    let waiting = [
        send(&connection, &gated, true).await,
        send(&connection, &gated, true).await,
    ];
    let third = timeout(SHORT_TIMEOUT, connection.open_bi()).await;
    assert!(third.is_err(), "a third stream is opened");
    port.responder.gate.add_permits(2);
    for stream in waiting {
        assert_eq!(messages(stream).await.len(), 1);
    }
    let stream = send(&connection, &framed(query("web.mesos.", RecordType::A)), true).await;
    assert_eq!(messages(stream).await.len(), 1);
    port.close().await;
}

#[tokio::test]
async fn connection_beyond_the_limit_replaces_the_oldest_idle_one() {
    let port = Port::open(
        ListenerLimits {
            max_connections: 2,
            ..ListenerLimits::default()
        },
        LIMITS,
    )
    .await;
    // The client of the second connection has to prove its address.
    let (first, second) = (port.connect().await.unwrap(), port.connect().await.unwrap());
    let third = port.connect().await.unwrap();
    let closed = timeout(WAIT_TIMEOUT, first.closed()).await.unwrap();
    assert!(
        matches!(closed, ConnectionError::ApplicationClosed(_)),
        "{closed}"
    );
    for connection in [&second, &third] {
        let stream = send(connection, &framed(query("web.mesos.", RecordType::A)), true).await;
        assert_eq!(messages(stream).await.len(), 1);
    }
    port.close().await;
}
