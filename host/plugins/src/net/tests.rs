//! TLS towards a server with a certificate of its own making.

use std::{sync::Arc, time::Duration};

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

use super::*;

/// Answers one request a connection, over TLS, until it is aborted.
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
            // Clients that do not trust the certificate leave here.
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
    Network {
        grants,
        task: vec![],
        deadline: tokio::time::Instant::now() + Duration::from_secs(30),
        input: 1 << 20,
        output: 1 << 20,
        connection: None,
    }
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

#[tokio::test]
async fn nothing_is_sent_or_received_without_a_connection() {
    let grants = Grants::default();
    let mut network = network(&grants);
    assert_eq!(network.send(b"x").await, Err(IoError::Closed));
    assert_eq!(network.receive(1).await, Err(IoError::Closed));
}

#[tokio::test]
async fn a_request_of_too_many_headers_is_not_sent() {
    let grants = Grants::default();
    let endpoint = Endpoint {
        host: "127.0.0.1".into(),
        port: 1,
    };
    // Nothing is granted: what may be sent is denied when it comes to connecting.
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
