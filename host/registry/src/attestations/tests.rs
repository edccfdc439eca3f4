use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::*;
use crate::signatures::{PublicKey, Signatures, Trust};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/", $name)).as_slice()
    };
}

const IMAGE: &str = "sha256:6c6fd6a4115c6e998ff357cd914680931bb9a6c1a7cd5f5cb2f5e1c0932ab6ed";

/// Returns the name of the key of `signing` if it signed the message.
fn signer(message: &[u8], signature: &[u8]) -> Option<String> {
    let keys = vec![PublicKey {
        name: "team.pub".to_owned(),
        pem: file!("signing/p256.pub").to_vec(),
    }];
    let trust = Trust::new(&Signatures { keys, required: true }).unwrap();
    trust.signer(message, signature)
}

fn statement(predicate_type: &str, predicate: &Value) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "team/probe", "digest": {"sha256": IMAGE.strip_prefix("sha256:").unwrap()}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    })
}

/// An envelope with a signature as DSSE specifies it.
fn envelope(statement: &Value) -> Value {
    let key = PrivatePkcs8KeyDer::from_pem_slice(file!("signing/p256.key")).unwrap();
    let random = SystemRandom::new();
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_pkcs8_der(), &random).unwrap();
    let payload = statement.to_string();
    let signed = format!("DSSEv1 28 {STATEMENT} {} {payload}", payload.len());
    let signature = key.sign(&random, signed.as_bytes()).unwrap();
    json!({
        "payloadType": STATEMENT,
        "payload": BASE64_STANDARD.encode(&payload),
        "signatures": [{"keyid": "", "sig": BASE64_STANDARD.encode(signature)}],
    })
}

fn read(envelope: &Value) -> Result<Attestation, String> {
    from_envelope(envelope.to_string().as_bytes(), IMAGE, signer).map_err(|error| error.to_string())
}

#[test]
fn provenance_and_sboms_are_summarized() {
    for (kind, predicate, expected) in [
        (
            "https://slsa.dev/provenance/v1",
            json!({
                "buildDefinition": {"resolvedDependencies": [{"uri": "git+https://example.com/probe@main"}]},
                "runDetails": {"builder": {"id": "https://example.com/builder"}},
            }),
            (
                Some("https://example.com/builder"),
                Some("git+https://example.com/probe@main"),
                None,
            ),
        ),
        (
            "https://slsa.dev/provenance/v0.2",
            json!({
                "builder": {"id": "old"},
                "invocation": {"configSource": {"uri": "git+https://example.com/old"}},
            }),
            (Some("old"), Some("git+https://example.com/old"), None),
        ),
        (
            "https://spdx.dev/Document",
            json!({"packages": [{}, {}]}),
            (None, None, Some(2)),
        ),
        (
            "https://cyclonedx.org/bom",
            json!({"components": [{}]}),
            (None, None, Some(1)),
        ),
        ("https://example.com/other", json!("text"), (None, None, None)),
    ] {
        let found = read(&envelope(&statement(kind, &predicate))).unwrap();
        assert_eq!(found.kind, kind);
        assert!(found.signed_by.is_some(), "{kind}");
        let summary = (found.builder.as_deref(), found.source.as_deref(), found.packages);
        assert_eq!(summary, expected, "{kind}");
    }
    let attached = from_sbom("text/spdx+json", br#"{"packages": [{}]}"#);
    assert_eq!(
        (attached.kind.as_str(), attached.packages),
        ("text/spdx+json", Some(1))
    );
    assert_eq!(from_sbom("text/spdx", b"SPDXVersion: SPDX-2.3").packages, None);
}

#[test]
fn signature_by_another_key_or_of_another_payload_is_not_shown() {
    let good = envelope(&statement("x", &Value::Null));
    assert!(read(&good).unwrap().signed_by.is_some());
    let mut changed = good.clone();
    changed["payload"] = json!(BASE64_STANDARD.encode(statement("y", &Value::Null).to_string()));
    assert_eq!(read(&changed).unwrap().signed_by, None);
    let mut unsigned = good.clone();
    unsigned["signatures"] = json!([]);
    assert_eq!(read(&unsigned).unwrap().signed_by, None);
    // Without a known key the attestation is still read.
    let keyless = from_envelope(good.to_string().as_bytes(), IMAGE, |_, _| None).unwrap();
    assert_eq!(keyless.signed_by, None);
}

#[test]
fn envelope_has_at_most_sixteen_signatures() {
    let mut envelope = envelope(&statement("x", &Value::Null));
    let good = envelope["signatures"][0].take();
    let other = json!({"sig": ""});
    let mut signatures = vec![other; MAX_SIGNATURES - 1];
    signatures.push(good);
    envelope["signatures"] = json!(signatures);
    assert!(read(&envelope).unwrap().signed_by.is_some());
    signatures.push(json!({"sig": ""}));
    envelope["signatures"] = json!(signatures);
    let error = read(&envelope).unwrap_err();
    assert!(error.contains("17 signatures, at most 16"), "{error}");
}

#[test]
fn wrong_attestations_are_reported() {
    let good = envelope(&statement("x", &Value::Null));
    let changed = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let about = |statement: &Value| changed("/payload", json!(BASE64_STANDARD.encode(statement.to_string())));
    let mut other = statement("x", &Value::Null);
    other["subject"][0]["digest"]["sha256"] = json!("0".repeat(64));
    for (envelope, expected) in [
        (json!(7), "it is not a DSSE envelope"),
        (changed("/payload", json!("%")), "it is not a DSSE envelope"),
        (
            changed("/payloadType", json!("text/\u{1b}[31mplain")),
            "its payload is of type text/\\u{1b}[31mplain; expected application/vnd.in-toto+json",
        ),
        (about(&json!("x")), "it is not an in-toto statement"),
        (
            about(&json!({"_type": "other", "predicateType": "x"})),
            "expected `_type`",
        ),
        (about(&other), "it is about another image"),
        (
            about(&json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": "x"})),
            "another image",
        ),
    ] {
        let error = read(&envelope).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let deep = "[".repeat(100_000);
    assert!(from_envelope(deep.as_bytes(), IMAGE, signer).is_err());
}

#[test]
fn parts_of_another_form_are_skipped() {
    let uri = "git+https://example.com/probe";
    for (predicate, builder, source, packages) in [
        (json!([]), None, None, None),
        (
            json!({"packages": 7, "components": [1, [2]]}),
            None,
            None,
            Some(2),
        ),
        (
            json!({"runDetails": [], "builder": {"id": "b"}}),
            Some("b"),
            None,
            None,
        ),
        (
            json!({
                "buildDefinition": {"resolvedDependencies": []},
                "invocation": {"configSource": {"uri": 7}},
                "materials": [{"uri": uri}, 7],
            }),
            None,
            Some(uri),
            None,
        ),
    ] {
        let found = read(&envelope(&statement("x", &predicate))).unwrap();
        let summary = (found.builder.as_deref(), found.source.as_deref(), found.packages);
        assert_eq!(summary, (builder, source, packages), "{predicate}");
    }
    let mut mixed = statement("x", &Value::Null);
    let own = mixed["subject"][0].take();
    mixed["subject"] = json!([7, {"digest": {"sha1": ""}}, own, {}]);
    assert!(read(&envelope(&mixed)).is_ok());
}

/// The tree of this SBOM would take more than a gigabyte.
#[test]
fn large_and_deep_sboms_are_counted() {
    let packages = "{\"\":0},".repeat(2 << 20);
    let large = format!(r#"{{"packages":[{packages}0]}}"#);
    let found = from_sbom("text/spdx+json", large.as_bytes());
    assert_eq!(found.packages, Some((2 << 20) + 1));
    let depth = 1 << 20;
    let deep = format!(r#"{{"packages":[{}{}]}}"#, "[".repeat(depth), "]".repeat(depth));
    let found = from_sbom("text/spdx+json", deep.as_bytes());
    assert_eq!(found.packages, Some(1));
}

#[test]
fn texts_are_bounded_and_on_one_line() {
    let long = format!("\u{1b}[2J\n{}", "x".repeat(1 << 20));
    let found = read(&envelope(&statement(&long, &json!({"builder": {"id": long}})))).unwrap();
    for text in [&found.kind, found.builder.as_ref().unwrap()] {
        assert!(
            text.chars().count() <= MAX_TEXT && !text.contains(['\n', '\u{1b}']),
            "{text}"
        );
    }
}

/// A recording of `cosign attest`. Its key is in a certificate, so no configured key matches.
#[test]
fn attestation_by_cosign_is_read() {
    let found = from_envelope(file!("cosign/attestation.json"), IMAGE, signer).unwrap();
    assert_eq!(
        found,
        Attestation {
            kind: "cosign.sigstore.dev/attestation/v1".to_owned(),
            ..Attestation::default()
        }
    );
    let other = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        from_envelope(file!("cosign/attestation.json"), &other, signer),
        Err(AttestationError::OtherImage)
    );
}
