//! Tests of TLS with a self-signed certificate, and of host names whose addresses change.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use transom_registry::network::SystemResolver;

use super::*;

/// A TLS server that answers one request for each connection, until it is aborted.
async fn server() -> (Endpoint, JoinHandle<()>) {
    let certificate =
        CertificateDer::from_pem_slice(include_bytes!("../../tests/data/self-signed.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../tests/data/self-signed.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The handshake fails here if the client does not trust the certificate.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    (endpoint, task)
}

fn network(grants: &Grants) -> Network<'_> {
    static NAMES: LazyLock<SystemResolver> = LazyLock::new(SystemResolver::default);
    network_with(grants, &*NAMES)
}

fn network_with<'a>(grants: &'a Grants, names: &'a dyn Resolver) -> Network<'a> {
    Network {
        grants,
        names,
        reserved: nothing_reserved(),
        task: vec![],
        agent: "",
        deadline: tokio::time::Instant::now() + Duration::from_secs(30),
        input: 1 << 20,
        output: 1 << 20,
        connection: None,
        denial: None,
    }
}

fn nothing_reserved() -> &'static Reserved {
    static NOTHING: LazyLock<Reserved> = LazyLock::new(Reserved::default);
    &NOTHING
}

fn get(endpoint: &Endpoint, verify: bool) -> HttpRequest {
    HttpRequest {
        method: "GET".into(),
        endpoint: endpoint.clone(),
        tls: Some(Tls {
            server_name: String::new(),
            verify,
        }),
        path: "/".into(),
        headers: vec![],
        body: vec![],
        max_body: 100,
        redirects: 0,
    }
}

/// A server that answers with informational responses and never with a final one.
#[tokio::test]
async fn endless_informational_responses_exceed_the_input() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            while stream
                .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
                .await
                .is_ok()
            {}
        }
    });
    let grants = reach(&["127.0.0.0/8"]);
    let mut network = network(&grants);
    let request = || HttpRequest {
        tls: None,
        ..get(&endpoint, true)
    };
    for _ in 0..2 {
        let found = network.http(request()).await;
        assert_eq!(found.unwrap_err(), over_limit());
    }
    assert_eq!(network.input, 0, "they count");
    server.abort();
}

#[tokio::test]
async fn certificates_are_verified_unless_that_is_granted() {
    let (endpoint, server) = server().await;
    let reach = vec![Destination::parse("127.0.0.0/8").unwrap()];
    let strict = Grants {
        network: reach.clone(),
        ..Grants::default()
    };
    let loose = Grants {
        network: reach,
        tls_unverified: true,
        ..Grants::default()
    };

    let found = network(&strict).http(get(&endpoint, false)).await;
    assert_eq!(found.map(|it| it.status), Err(IoError::Denied));
    for grants in [&strict, &loose] {
        let found = network(grants).http(get(&endpoint, true)).await;
        assert!(matches!(found, Err(IoError::Tls(_))), "{found:?}");
    }
    let found = network(&loose).http(get(&endpoint, false)).await.unwrap();
    assert_eq!((found.status, found.body.as_slice()), (200, &b"fine"[..]));

    let mut network = network(&loose);
    let tls = Tls {
        server_name: "localhost".into(),
        verify: false,
    };
    network.connect(&endpoint, Some(&tls)).await.unwrap();
    network.send(b"hello").await.unwrap();
    assert!(network.receive(8).await.unwrap().starts_with(b"HTTP"));
    server.abort();
}

/// A resolver whose answer changes with every query. The last answer is repeated.
struct Fickle {
    answers: Vec<Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl Fickle {
    fn new(answers: &[&[&str]]) -> Fickle {
        let answers = answers
            .iter()
            .map(|it| it.iter().map(|ip| ip.parse().unwrap()).collect());
        Fickle {
            answers: answers.collect(),
            lookups: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Resolver for Fickle {
    async fn addresses(&self, _host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let lookups = self.lookups.fetch_add(1, Relaxed);
        Ok(self.answers[lookups.min(self.answers.len() - 1)].clone())
    }
}

fn reach(patterns: &[&str]) -> Grants {
    let network = patterns.iter().map(|it| Destination::parse(it).unwrap());
    Grants {
        network: network.collect(),
        ..Grants::default()
    }
}

/// Accepts connections one after the other and counts them. Each is answered with a redirect to
/// `other.test`.
async fn listener(address: &str) -> (u16, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Relaxed);
            let _ = stream.read(&mut [0; 1024]).await;
            let location = format!("http://other.test:{port}/");
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, taken, task)
}

/// The name resolves to an allowed address when it is checked. The host connects to that address,
/// even if the name then resolves to another one.
#[tokio::test]
async fn the_host_connects_to_the_address_that_was_checked() {
    let (port, taken, task) = listener("127.0.0.2").await;
    let to = |host: &str| Endpoint {
        host: host.into(),
        port,
    };
    let names = Fickle::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let grants = reach(&["127.0.0.2/32"]);
    network_with(&grants, &names)
        .connect(&to("a.test"), None)
        .await
        .unwrap();
    assert_eq!(names.lookups.load(Relaxed), 1, "resolved once");
    assert_eq!(
        network_with(&grants, &names).connect(&to("a.test"), None).await,
        Err(IoError::Denied)
    );

    // Addresses that are not granted are skipped if the name has several. A guarded address is
    // denied, whatever name resolves to it.
    let mixed = Fickle::new(&[&["169.254.169.254", "127.0.0.3", "127.0.0.2"]]);
    network_with(&grants, &mixed)
        .connect(&to("a.test"), None)
        .await
        .unwrap();
    let metadata = Fickle::new(&[&["169.254.169.254"]]);
    for grants in [reach(&["a.test:*"]), reach(&["0.0.0.0/0"])] {
        let found = network_with(&grants, &metadata)
            .connect(&to("a.test"), None)
            .await;
        assert_eq!(found, Err(IoError::Denied), "{grants:?}");
    }
    let taken = || taken.load(Relaxed);
    tokio::time::timeout(Duration::from_secs(30), async {
        while taken() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    task.abort();
}

/// The grant for the task does not let a plugin send data in the names that it connects to.
#[tokio::test]
async fn the_task_grant_resolves_only_names_of_the_request() {
    let (port, _taken, task) = listener("127.0.0.2").await;
    for (grants, host, expected, lookups) in [
        (&["task"][..], "task.test", Ok(()), 1),
        (&["task"], "TASK.test", Ok(()), 1),
        // The addresses of the agent are compared with those of the task's endpoints.
        (&["task"], "agent.test", Ok(()), 2),
        // The endpoint's name is resolved, for the comparison.
        (&["task"], "127.0.0.2", Ok(()), 1),
        (&["task"], "data.test", Err(IoError::Denied), 0),
        (&["task"], "data.task.test", Err(IoError::Denied), 0),
        (&["task"], "task.test.", Err(IoError::Denied), 0),
        (&["task"], "", Err(IoError::Denied), 0),
        (&["task", "data.test:1"], "data.test", Err(IoError::Denied), 0),
        // Another grant covers the name.
        (&["task", "data.test:*", "127.0.0.2:*"], "data.test", Ok(()), 2),
        (&["task", "127.0.0.0/8"], "data.test", Ok(()), 2),
    ] {
        let names = Fickle::new(&[&["127.0.0.2"]]);
        let grants = reach(grants);
        let mut network = network_with(&grants, &names);
        network.task = vec![Endpoint {
            host: "task.test".into(),
            port,
        }];
        network.agent = "agent.test";
        let to = Endpoint {
            host: host.into(),
            port,
        };
        let found = network.connect(&to, None).await.map(drop);
        assert_eq!(found, expected, "{host} {grants:?}");
        assert_eq!(names.lookups.load(Relaxed), lookups, "{host} {grants:?}");
        let elsewhere = Endpoint { port: 1, ..to };
        if grants.network == [Destination::Task] {
            let found = network.connect(&elsewhere, None).await;
            assert_eq!(found.map(drop), Err(IoError::Denied), "{host} {grants:?}");
            assert_eq!(names.lookups.load(Relaxed), lookups, "{host} {grants:?}");
        }
    }
    task.abort();
}

/// A resolver that answers when the deadline has passed.
struct Slow(tokio::time::Instant);

#[async_trait]
impl Resolver for Slow {
    async fn addresses(&self, _host: &str) -> Result<Vec<IpAddr>, LookupError> {
        while tokio::time::Instant::now() < self.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(vec!["127.0.0.2".parse().unwrap()])
    }
}

#[tokio::test]
async fn no_lookup_and_no_connection_starts_after_the_deadline() {
    let listener = std::net::TcpListener::bind(("127.0.0.2", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = Endpoint {
        host: "a.test".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let grants = reach(&["127.0.0.0/8"]);
    let names = Fickle::new(&[&["127.0.0.2"]]);
    let mut late = network_with(&grants, &names);
    late.deadline = tokio::time::Instant::now();
    assert_eq!(late.connect(&to, None).await, Err(IoError::TimedOut));
    let mut request = get(&to, true);
    request.tls = None;
    let found = late.http(request).await;
    assert_eq!(found.map(|it| it.status), Err(IoError::TimedOut));
    assert_eq!(names.lookups.load(Relaxed), 0);

    let deadline = tokio::time::Instant::now() + Duration::from_millis(100);
    let slow = Slow(deadline);
    let mut late = network_with(&grants, &slow);
    late.deadline = deadline;
    assert_eq!(late.connect(&to, None).await, Err(IoError::TimedOut));
    let waiting = listener.accept().map(|(_, peer)| peer);
    assert_eq!(waiting.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// A redirect to a name is resolved and checked like the first destination.
#[tokio::test]
async fn the_target_of_a_redirect_is_checked() {
    let (port, taken, task) = listener("127.0.0.2").await;
    let names = Fickle::new(&[&["127.0.0.2"], &["169.254.169.254"]]);
    let endpoint = Endpoint {
        host: "a.test".into(),
        port,
    };
    let mut request = get(&endpoint, true);
    request.tls = None;
    request.redirects = 1;
    let grants = reach(&["a.test:*", "other.test:*", "127.0.0.0/8"]);
    let found = network_with(&grants, &names).http(request).await;
    assert_eq!(found.map(|it| it.status), Err(IoError::Denied));
    assert_eq!((taken.load(Relaxed), names.lookups.load(Relaxed)), (1, 2));
    task.abort();
}

#[tokio::test]
async fn send_and_receive_fail_without_a_connection() {
    let grants = Grants::default();
    let mut network = network(&grants);
    assert_eq!(network.send(b"x").await, Err(IoError::Closed));
    assert_eq!(network.receive(1).await, Err(IoError::Closed));
}

#[tokio::test]
async fn a_request_with_too_many_headers_is_not_sent() {
    let grants = Grants::default();
    let endpoint = Endpoint {
        host: "127.0.0.1".into(),
        port: 1,
    };
    // There are no grants, so a request that passes this check is denied when the host connects.
    for (headers, error) in [
        (100, IoError::Denied),
        (101, IoError::Protocol("101 headers, 100 are allowed".into())),
        (40_000, IoError::Protocol("40000 headers, 100 are allowed".into())),
    ] {
        let mut request = get(&endpoint, true);
        request.headers = (0..headers).map(|n| (format!("x-{n}"), String::new())).collect();
        let found = network(&grants).http(request).await;
        assert_eq!(found.map(|it| it.status), Err(error));
    }
}
