use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::*;
use crate::{
    attestations::Attestations,
    signatures::{PublicKey, SignatureError, Signatures, Trust},
};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/signing/", $name)).as_slice()
    };
}

const STATEMENT: &str = "application/vnd.in-toto+json";

fn trust() -> Trust {
    let keys = vec![PublicKey {
        name: "team.pub".to_owned(),
        pem: file!("p256.pub").to_vec(),
    }];
    Trust::new(&Signatures { keys, required: true }).unwrap()
}

fn sign(key: &[u8], message: &[u8]) -> String {
    let key = PrivatePkcs8KeyDer::from_pem_slice(key).unwrap();
    let random = SystemRandom::new();
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_pkcs8_der(), &random).unwrap();
    BASE64_STANDARD.encode(key.sign(&random, message).unwrap())
}

fn image(bundles: Vec<String>) -> Image {
    Image {
        source: "oci://r.example/probe:1".to_owned(),
        manifest: "{}".to_owned(),
        signatures: Vec::new(),
        bundles,
        attestations: Attestations::default(),
    }
}

/// A bundle as `cosign sign --key` and `cosign attest --key` write it.
fn statement(key: &[u8], subject: &str, predicate_type: &str) -> Value {
    let payload = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": subject.strip_prefix("sha256:").unwrap()}}],
        "predicateType": predicate_type,
        "predicate": {},
    })
    .to_string();
    let signed = format!("DSSEv1 28 {STATEMENT} {} {payload}", payload.len());
    json!({
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "k"}, "tlogEntries": []},
        "dsseEnvelope": {
            "payloadType": STATEMENT,
            "payload": BASE64_STANDARD.encode(&payload),
            "signatures": [{"sig": sign(key, signed.as_bytes())}],
        },
    })
}

/// A bundle with a signature of the manifest itself.
fn message(key: &[u8], manifest: &str) -> Value {
    let digest = ring::digest::digest(&ring::digest::SHA256, manifest.as_bytes());
    json!({
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "k"}},
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA2_256", "digest": BASE64_STANDARD.encode(digest)},
            "signature": sign(key, manifest.as_bytes()),
        },
    })
}

fn check(bundles: &[&Value]) -> Result<Option<String>, SignatureError> {
    trust().of_image(&image(bundles.iter().map(ToString::to_string).collect()))
}

#[test]
fn bundle_signature_by_a_configured_key_is_enough() {
    let own = image(Vec::new()).digest();
    let good = statement(file!("p256.key"), &own, SIGNED);
    let wrong = statement(file!("other.key"), &own, SIGNED);
    let plain = message(file!("p256.key"), "{}");
    for bundles in [&[&good][..], &[&wrong, &good], &[&plain]] {
        let signer = check(bundles).unwrap().unwrap();
        assert!(signer.starts_with("team.pub (sha256:"), "{signer}");
    }
}

#[test]
fn bundle_written_by_sigstores_library_is_verified() {
    let recorded = include_str!("../../tests/data/sigstore/text.sigstore.json");
    let of = |manifest: &str| Image {
        manifest: manifest.to_owned(),
        ..image(vec![recorded.to_owned()])
    };
    let keys = vec![PublicKey {
        name: "sigstore.pub".to_owned(),
        pem: include_bytes!("../../tests/data/sigstore/text.pub").to_vec(),
    }];
    let recorded_key = Trust::new(&Signatures { keys, required: true }).unwrap();
    let signer = recorded_key.of_image(&of("hello world")).unwrap().unwrap();
    assert!(signer.starts_with("sigstore.pub (sha256:"), "{signer}");
    for (keys, text, expected) in [
        (recorded_key, "hello, world", "another image"),
        (trust(), "hello world", "none of the configured keys"),
    ] {
        let error = keys.of_image(&of(text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn bundle_with_another_key_image_or_kind_is_rejected() {
    let own = image(Vec::new()).digest();
    let other_digest = digest_of(b"another");
    let mut changed = statement(file!("p256.key"), &own, SIGNED);
    let other = statement(file!("p256.key"), &own, "https://slsa.dev/provenance/v1");
    changed["dsseEnvelope"]["signatures"] = other["dsseEnvelope"]["signatures"].clone();
    let mut renamed = message(file!("p256.key"), "another");
    renamed["messageSignature"]["messageDigest"] =
        message(file!("p256.key"), "{}")["messageSignature"]["messageDigest"].clone();
    for (bundle, expected) in [
        (
            statement(file!("other.key"), &own, SIGNED),
            "none of the configured keys",
        ),
        (
            statement(file!("p256.key"), &other_digest, SIGNED),
            "another image",
        ),
        (message(file!("other.key"), "{}"), "none of the configured keys"),
        (message(file!("p256.key"), "another"), "another image"),
        (changed, "none of the configured keys"),
        (renamed, "none of the configured keys"),
        // An attestation by a configured key is not a signature.
        (other, "none of the configured keys"),
    ] {
        let error = check(&[&bundle]).unwrap_err().to_string();
        assert!(error.contains(expected), "{bundle}: {error}");
    }
    assert_eq!(check(&[]), Err(SignatureError::NoSignature));
}

#[test]
fn parts_that_are_not_verified_are_named() {
    let own = image(Vec::new());
    let signer = |message: &[u8], signature: &[u8]| trust().signer(message, signature);
    let mut bundle = statement(
        file!("other.key"),
        &own.digest(),
        "https://slsa.dev/provenance/v1",
    );
    let read = |bundle: &Value| {
        let bundle = Bundle::read(bundle.to_string().as_bytes()).unwrap();
        bundle.attestation(&own, signer).unwrap()
    };
    assert_eq!(read(&bundle).not_verified, [""; 0]);
    bundle["verificationMaterial"] = json!({
        "certificate": {"rawBytes": "AAAA"},
        "tlogEntries": [{"logIndex": "1"}],
        "timestampVerificationData": {"rfc3161Timestamps": [{"signedTimestamp": "AAAA"}]},
    });
    let found = read(&bundle);
    assert_eq!(found.signed_by, None);
    assert_eq!(
        found.not_verified,
        ["certificate", "transparency log", "timestamp"]
    );
    assert_eq!(found.kind, "https://slsa.dev/provenance/v1");
}

#[test]
fn malformed_bundles_are_errors_with_the_reason() {
    let good = statement(file!("p256.key"), &digest_of(b"{}"), SIGNED);
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let mut both = good.clone();
    both["messageSignature"] = message(file!("p256.key"), "{}")["messageSignature"].clone();
    let mut algorithm = message(file!("p256.key"), "{}");
    algorithm["messageSignature"]["messageDigest"]["algorithm"] = json!("SHA2_512");
    let text = good.to_string();
    for (bundle, expected) in [
        ("7".to_owned(), "it is not a sigstore bundle"),
        (text[..text.len() / 2].to_owned(), "EOF"),
        ("[".repeat(100_000), "it is not a sigstore bundle"),
        (
            with(
                "/mediaType",
                json!("application/vnd.dev.sigstore.bundle+json;version=0.1"),
            ),
            "version=0.1; expected application/vnd.dev.sigstore.bundle.v0.3+json",
        ),
        (with("/dsseEnvelope", Value::Null), "expected one of"),
        (both.to_string(), "expected one of"),
        (algorithm.to_string(), "SHA2_512, expected SHA2_256"),
    ] {
        let error = Bundle::read(bundle.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
