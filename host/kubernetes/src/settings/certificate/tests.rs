use axum::Router;
use axum::routing::get;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use tokio_util::sync::CancellationToken;

use super::*;

/// A certificate for 127.0.0.1 and its key, PEM.
fn certify() -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned()];
    let params = rcgen::CertificateParams::new(names).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

fn section(certificate: Option<&str>, key: Option<&str>) -> Settings {
    Settings {
        port: 0,
        ssl_crt_base64: certificate.map(Secret::from),
        ssl_key_base64: key.map(Secret::from),
        ..Settings::default()
    }
}

#[tokio::test]
async fn port_serves_https_with_the_certificate_of_the_settings() {
    let (certificate, key) = certify();
    let wrapped: Vec<String> = STANDARD
        .encode(&certificate)
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    for (crt, key) in [
        (wrapped.join("\n"), STANDARD.encode(&key)),
        (URL_SAFE_NO_PAD.encode(&certificate), URL_SAFE_NO_PAD.encode(&key)),
    ] {
        let section = section(Some(&crt), Some(&key));
        assert_eq!(section.problems(), [""; 0]);
        let json = serde_json::to_string(&section).expect("JSON");
        assert!(!json.contains(&key) && !format!("{section:?}").contains(&key));
        let settings = section.http_port();
        assert_eq!(settings.scheme(), "https");
        let port = settings.config().bind().await.expect("bound");
        let address = port.advertised();
        let token = CancellationToken::new();
        let router = Router::new().route("/", get(async || "hello"));
        let served = tokio::spawn(port.serve(router, transom_web::AccessRules::default(), token.clone()));
        let client = |trusted: &str| {
            let trusted = reqwest::Certificate::from_pem(trusted.as_bytes()).expect("PEM");
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]);
            builder.build().expect("a client")
        };
        let get = async |trusted: &str| client(trusted).get(format!("https://{address}/")).send().await;
        let answer = get(&certificate).await.expect("an answer");
        assert_eq!(answer.text().await.expect("a text"), "hello");
        assert!(get(&certify().0).await.is_err());
        token.cancel();
        served.await.expect("ended").expect("served");
    }
}

#[test]
fn faults_of_the_certificate_are_listed_with_other_faults() {
    let ((certificate, key), (_, stranger)) = (certify(), certify());
    let [certificate, key, stranger, text] =
        [certificate, key, stranger, "text".to_owned()].map(|text| STANDARD.encode(text));
    let (certificate, key) = (certificate.as_str(), key.as_str());
    for (crt, key, expected) in [
        (
            Some("%"),
            Some(key),
            &["`kubernetes.ssl_crt_base64` is not base64"][..],
        ),
        (
            Some("%"),
            Some("/w=="),
            &[
                "`kubernetes.ssl_crt_base64` is not base64",
                "`kubernetes.ssl_key_base64` is not PEM",
            ],
        ),
        (
            Some(text.as_str()),
            Some(text.as_str()),
            &[
                "`kubernetes.ssl_crt_base64`: has no certificate",
                "`kubernetes.ssl_key_base64`: has no private key",
            ],
        ),
        (None, Some(key), &["`kubernetes.ssl_crt_base64` is missing"]),
        (
            Some(certificate),
            None,
            &["`kubernetes.ssl_key_base64` is missing"],
        ),
        (
            Some(certificate),
            Some(stranger.as_str()),
            &["`kubernetes.ssl_key_base64`: is not the key of the certificate"],
        ),
    ] {
        let section = Settings {
            max_scale: 100,
            framework_name: String::new(),
            ..section(crt, key)
        };
        let problems = section.problems();
        let all = problems.join("\n");
        assert_eq!(problems.len(), expected.len() + 1, "{all}");
        assert!(all.contains("`kubernetes.framework_name`"), "{all}");
        for fault in expected {
            assert!(all.contains(fault), "{fault} is not in {all}");
        }
    }
}

#[test]
fn files_and_texts_together_are_a_fault() {
    let (certificate, key) = certify();
    let section = Settings {
        tls_certificate: Some("c.pem".into()),
        tls_key: Some("k.pem".into()),
        ..section(Some(&STANDARD.encode(certificate)), Some(&STANDARD.encode(key)))
    };
    let problems = section.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("are both set"), "{problems:?}");
}
