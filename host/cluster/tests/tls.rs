//! TLS to masters: trusted and unknown certificates, names, and verification that is switched off.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::json;
use support::{Server, config, error_text, json_answer};
use transom_cluster::{Client, Config, Credentials, Error, Tls};

/// The self-signed certificate of the test server, for 127.0.0.1.
const CERTIFICATE: &[u8] = include_bytes!("tls/cert.pem");
/// A certificate that no server of these tests uses.
const OTHER_CERTIFICATE: &[u8] = include_bytes!("tls/other-cert.pem");

async fn version_over_tls(
    verify: bool,
    authorities: Option<&[u8]>,
) -> (String, transom_cluster::Result<String>) {
    let server = Server::secured(|_| json_answer(&json!({"version": "1.11.0"}))).await;
    let tls = Some(Tls {
        verify,
        authorities: authorities.map(<[u8]>::to_vec),
        ..Tls::default()
    });
    let client = Client::new(Config {
        tls,
        ..config(&[server.name()])
    })
    .unwrap();
    (server.name(), client.version().await)
}

#[tokio::test]
async fn master_with_a_trusted_certificate_is_accepted() {
    let (_, version) = version_over_tls(true, Some(CERTIFICATE)).await;
    assert_eq!(version.unwrap(), "1.11.0");
}

#[tokio::test]
async fn master_with_an_untrusted_certificate_is_rejected() {
    let (name, version) = version_over_tls(true, Some(OTHER_CERTIFICATE)).await;
    let error = version.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { address, .. } if *address == format!("https://{name}")),
        "{error:?}"
    );
    assert!(
        error_text(&error).contains("certificate"),
        "{}",
        error_text(&error)
    );
}

#[tokio::test]
async fn verification_can_be_switched_off() {
    for authorities in [None, Some(OTHER_CERTIFICATE)] {
        let (_, version) = version_over_tls(false, authorities).await;
        assert_eq!(version.unwrap(), "1.11.0");
    }
}

/// A client with credentials that reaches the server by this host name.
fn client_with_credentials(server: &Server, host: &str, tls: Tls) -> Client {
    let credentials = Some(Credentials {
        username: "ops".into(),
        password: "s3cret".into(),
    });
    let tls = Some(tls);
    Client::new(Config {
        tls,
        credentials,
        ..config(&[format!("{host}:{}", server.address.port())])
    })
    .unwrap()
}

/// The certificate is trusted, but for another name, so the server is not the configured one.
#[tokio::test]
async fn certificate_for_another_name_is_rejected_before_credentials_are_sent() {
    let server =
        Server::secured(|_| json_answer(&json!({"version": "1.11.0", "leader": "master@127.0.0.1:1"}))).await;
    let trusting = |verify| Tls {
        verify,
        authorities: Some(CERTIFICATE.to_vec()),
        ..Tls::default()
    };
    let client = client_with_credentials(&server, "localhost", trusting(true));
    let info = transom_cluster::v1::FrameworkInfo::default();
    for error in [
        client.state().await.unwrap_err(),
        client.subscribe(&info).await.unwrap_err(),
        client.watch().await.unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Unreachable { .. }), "{error:?}");
        assert!(
            error_text(&error).contains("certificate"),
            "{}",
            error_text(&error)
        );
        assert!(error.is_transient(), "certificates may be renewed");
    }
    assert!(server.requests().is_empty(), "{:?}", server.requests().len());
    // The request succeeds with the right name, and with the wrong one without verification.
    for client in [
        client_with_credentials(&server, "127.0.0.1", trusting(true)),
        client_with_credentials(&server, "localhost", trusting(false)),
    ] {
        client.state().await.unwrap();
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == Some("Basic b3BzOnMzY3JldA=="))
    );
}

/// Without configuration, certificates are verified against the system's root certificates.
#[tokio::test]
async fn verification_is_on_unless_it_is_switched_off() {
    let server = Server::secured(|_| json_answer(&json!({"version": "1.11.0"}))).await;
    let tls = Some(Tls::default());
    let client = Client::new(Config {
        tls,
        ..config(&[server.name()])
    });
    // Without any root certificate in the system the error is immediate.
    let error = match client {
        Ok(client) => client.version().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(&error, Error::Unreachable { .. } | Error::Config { .. }),
        "{error:?}"
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn invalid_certificate_authorities_are_rejected() {
    let tls = Some(Tls {
        verify: true,
        authorities: Some(b"nothing".to_vec()),
        ..Tls::default()
    });
    let error = Client::new(Config {
        tls,
        ..config(&["h:1".to_owned()])
    })
    .unwrap_err();
    assert!(matches!(&error, Error::Config { .. }), "{error:?}");
}
