use std::sync::Arc;

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::json;
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::*;
use crate::{
    attestations::Attestations,
    oci::{CONFIG, LAYER, Signature},
};

/// Files that `openssl` created: keys by `ecparam -name prime256v1` and `genpkey -algorithm
/// ed25519`, signatures of `message` by `dgst -sha256 -sign` and `pkeyutl -sign -rawin`.
macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/signing/", $name)).as_slice()
    };
}

fn trust(keys: &[&[u8]], required: bool) -> Trust {
    let keys = keys.iter().map(|pem| PublicKey {
        name: "team.pub".to_owned(),
        pem: pem.to_vec(),
    });
    let keys = keys.collect();
    Trust::new(&Signatures { keys, required }).unwrap()
}

/// A component and its origin.
struct Files {
    component: Vec<u8>,
    origin: Origin,
}

fn file(component: &[u8], signature: Option<&[u8]>) -> Files {
    Files {
        component: component.to_vec(),
        origin: Origin::File {
            signature: signature.map(<[u8]>::to_vec),
        },
    }
}

fn check(trust: &Trust, files: &Files) -> Result<Option<String>, String> {
    let digest = hex(&Sha256::digest(files.component.as_slice()));
    trust
        .check("probe", &files.component, &files.origin, &digest)
        .map_err(|error| error.to_string())
}

/// Signs with ECDSA on P-256; base64.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn parse(pem: &[u8]) -> Signer {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        let key = key.secret_pkcs8_der();
        Signer(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &SystemRandom::new()).unwrap())
    }

    fn sign(&self, message: &[u8]) -> String {
        BASE64_STANDARD.encode(self.0.sign(&SystemRandom::new(), message).unwrap())
    }
}

/// A case: its name, the keys, the component, and its signature file if there is one.
type Bad<'a> = (&'a str, &'a [&'a [u8]], &'a [u8], Option<&'a [u8]>);

#[test]
fn a_file_needs_a_signature_of_its_bytes_by_a_key() {
    let (p256, ed25519, other) = (file!("p256.pub"), file!("ed25519.pub"), file!("other.pub"));
    let message = file!("message");
    let (of_p256, of_ed25519) = (file!("message.p256.sig"), file!("message.ed25519.sig"));
    let base64 = format!("{}\n", BASE64_STANDARD.encode(of_p256));
    let wrapped = format!("{}\n{}\r\n", &base64[..40], &base64[40..]);
    let mut changed = of_p256.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let good: &[(&[&[u8]], &[u8])] = &[
        (&[p256], of_p256),
        (&[p256], base64.as_bytes()),
        (&[p256], wrapped.as_bytes()),
        (&[ed25519], of_ed25519),
        (&[other, ed25519, p256], of_p256),
    ];
    for (keys, signature) in good {
        let signer = check(&trust(keys, true), &file(message, Some(signature)));
        let signer = signer.unwrap().unwrap();
        assert!(signer.starts_with("team.pub (sha256:"), "{signer}");
    }
    let bad: &[Bad<'_>] = &[
        ("nothing", &[p256], message, None),
        ("empty", &[p256], message, Some(b"")),
        ("words", &[p256], message, Some(b"signed, honestly")),
        ("another key's", &[other], message, Some(of_p256)),
        ("of the other kind", &[ed25519], message, Some(of_p256)),
        ("of the other kind", &[p256], message, Some(of_ed25519)),
        ("changed", &[p256], message, Some(&changed)),
        ("cut", &[p256], message, Some(&of_p256[..40])),
        ("of other bytes", &[p256], b"another component", Some(of_p256)),
        ("of fewer bytes", &[p256], &message[1..], Some(of_p256)),
    ];
    for (what, keys, component, signature) in bad {
        let found = check(&trust(keys, true), &file(component, *signature));
        let why = found.expect_err(what);
        let expected = if signature.is_none() {
            "probe.wasm.sig is missing"
        } else {
            "invalid signature"
        };
        assert!(why.contains(expected), "{what}: {why}");
        // A wrong signature is rejected even if signatures are optional.
        let found = check(&trust(keys, false), &file(component, *signature));
        assert_eq!(found.is_ok(), signature.is_none(), "{what}");
    }
    assert_eq!(check(&trust(&[], true), &file(message, None)), Ok(None));
}

#[test]
fn an_image_needs_a_signature_that_names_it() {
    let (p256, other) = (
        Signer::parse(file!("p256.key")),
        Signer::parse(file!("other.key")),
    );
    let component = file!("message");
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": CONFIG, "digest": digest_of(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER, "digest": digest_of(component), "size": component.len()}],
    })
    .to_string();
    let payload = |kind: &str, digest: &str| {
        json!({"critical": {"type": kind, "image": {"docker-manifest-digest": digest}}}).to_string()
    };
    let kind = "cosign container image signature";
    let own = payload(kind, &digest_of(manifest.as_bytes()));
    let signed = |signer: &Signer, payload: &str| Signature {
        payload: payload.to_owned(),
        signature: signer.sign(payload.as_bytes()),
    };
    let image = |component: &[u8], signatures: Vec<Signature>| Files {
        origin: Origin::Image(Arc::new(Image {
            source: "oci://r.example/probe:1".to_owned(),
            manifest: manifest.clone(),
            signatures,
            bundles: Vec::new(),
            attestations: Attestations::default(),
        })),
        ..file(component, None)
    };
    let trust = trust(&[file!("p256.pub")], true);
    let good = signed(&p256, &own);
    let wrong = signed(&other, &own);
    for signatures in [vec![good.clone()], vec![wrong.clone(), good.clone()]] {
        assert!(check(&trust, &image(component, signatures)).unwrap().is_some());
    }
    let other_image = signed(&p256, &payload(kind, &digest_of(b"another")));
    let other_kind = signed(&p256, &payload("something", &digest_of(manifest.as_bytes())));
    let moved = Signature {
        payload: own.clone(),
        ..other_image.clone()
    };
    let plain = Signature {
        payload: own.clone(),
        signature: "not base64".to_owned(),
    };
    let of_component = signed(&p256, std::str::from_utf8(component).unwrap());
    for (what, component, signatures, expected) in [
        ("none", component, vec![], "the registry has no signature"),
        ("another key's", component, vec![wrong], "invalid signature"),
        (
            "of another image",
            component,
            vec![other_image],
            "the signature is for another image",
        ),
        (
            "of another kind",
            component,
            vec![other_kind],
            "the signature is for another image",
        ),
        ("of another document", component, vec![moved], "invalid signature"),
        ("no base64", component, vec![plain], "invalid signature"),
        (
            "of a file's kind",
            component,
            vec![of_component],
            "the signature is for another image",
        ),
        (
            "another component",
            b"another component",
            vec![good],
            "names another component",
        ),
    ] {
        let why = check(&trust, &image(component, signatures)).expect_err(what);
        assert!(why.contains(expected), "{what}: {why}");
    }
}

#[test]
fn unusable_keys_are_errors_at_startup() {
    let two = [file!("p256.pub"), file!("other.pub")].concat();
    for (pem, expected) in [
        (b"".as_slice(), "one PUBLIC KEY"),
        (b"ssh-ed25519 AAAA", "one PUBLIC KEY"),
        (file!("p256.key"), "one PUBLIC KEY"),
        (&two, "several keys"),
        (file!("rsa.pub"), "expected ECDSA on P-256 or Ed25519"),
        (file!("p384.pub"), "expected ECDSA on P-256 or Ed25519"),
        (file!("compressed.pub"), "is compressed"),
        (
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            "team.pub",
        ),
    ] {
        let keys = vec![PublicKey {
            name: "team.pub".to_owned(),
            pem: pem.to_vec(),
        }];
        let error = Trust::new(&Signatures { keys, required: true }).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("team.pub") && error.contains(expected), "{error}");
    }
}

/// A recording of `cosign sign --key`, with its public key.
#[test]
fn signature_by_cosign_is_valid() {
    macro_rules! cosign {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/data/cosign/", $name)).as_slice()
        };
    }
    let payload = cosign!("payload.json");
    let signature = decode(cosign!("payload.sig")).unwrap();
    let key = trust(&[cosign!("cosign.pub")], true);
    assert!(key.signer(payload, &signature).is_some());
    assert_eq!(
        trust(&[file!("p256.pub")], true).signer(payload, &signature),
        None
    );
    let document = std::str::from_utf8(payload).unwrap();
    let digest = "sha256:f3cfc9d0dbf931d3db4685ec659b7ac68e2a578219da4aae65427886e649b06b";
    assert!(names_image(document, digest));
    assert!(!names_image(document, &digest.replace('f', "0")));
}
