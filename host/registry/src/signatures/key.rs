//! Public keys in PEM: ECDSA on P-256 or Ed25519.

use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

use crate::oci::digest_of;

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ED: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// Length and first byte of an uncompressed point of P-256.
const POINT: (usize, u8) = (65, 4);
const ED_BYTES: usize = 32;

/// A key that verifies signatures.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// The operator's name for it with the digest of its SPKI: `release.pub (sha256:…)`.
    pub(super) label: String,
    kind: Kind,
    /// An uncompressed point of P-256, or the 32 bytes of an Ed25519 key.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    EcdsaP256,
    Ed25519,
}

impl Key {
    pub(super) fn parse(name: &str, pem: &[u8]) -> Result<Key, String> {
        let mut found = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        let expected = "expected a PEM file with one PUBLIC KEY";
        let info = found
            .next()
            .ok_or(expected)?
            .map_err(|error| format!("{expected}: {error}"))?;
        if found.next().is_some() {
            return Err(format!("it holds several keys; {expected}"));
        }
        let parsed = SubjectPublicKeyInfoRef::try_from(info.as_ref()).map_err(|error| error.to_string())?;
        let (algorithm, parameters) = parsed.algorithm.oids().map_err(|error| error.to_string())?;
        let key = parsed.subject_public_key.as_bytes().unwrap_or_default();
        let kind = match (algorithm, parameters) {
            (EC, Some(P256)) if (key.len(), key.first()) == (POINT.0, Some(&POINT.1)) => Kind::EcdsaP256,
            (EC, Some(P256)) => return Err("its point is compressed".to_owned()),
            (ED, None) if key.len() == ED_BYTES => Kind::Ed25519,
            _ => {
                return Err(format!(
                    "its algorithm is {algorithm}{}; expected ECDSA on P-256 or Ed25519",
                    parameters.map(|it| format!(" on {it}")).unwrap_or_default()
                ));
            }
        };
        Ok(Key {
            label: format!("{name} ({})", digest_of(info.as_ref())),
            kind,
            bytes: key.to_vec(),
        })
    }

    /// Whether this key signed the message. `signature`: DER for ECDSA, 64 bytes for Ed25519.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.kind {
            Kind::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
            Kind::Ed25519 => &ED25519,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes)
            .verify(message, signature)
            .is_ok()
    }
}
