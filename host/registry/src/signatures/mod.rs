//! Signatures of components.
//!
//! One rule applies to the whole host: if keys are configured, each component needs a signature by
//! one of them, whatever its origin, including after a rollback and from a cache. A manifest cannot
//! change that. Verification fails closed: a component with a missing signature, an unknown key, a
//! mismatch or an unknown format is rejected.
//!
//! A file's signature is in `NAME.wasm.sig` and covers the component's bytes, as `cosign sign-blob`
//! and `openssl` write it. An image has a cosign signature: over a document with the digest of the
//! image manifest, which contains the digest of the component. cosign 3 puts such a signature into a
//! sigstore bundle ([`crate::bundles`]). Not supported: certificates, transparency logs and signing
//! times.

mod key;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use crate::{
    attestations::Attestation,
    bundles::Bundle,
    error::Error,
    oci::{Image, digest_of},
    origin::Origin,
};
use key::Key;

/// Maximum bytes of a detached signature; real ones have about a hundred.
pub const MAX_SIGNATURE: u64 = 16 << 10;

/// Which signatures components need.
#[derive(Clone, Debug)]
pub struct Signatures {
    /// A component needs a signature by one of these keys. If the list is empty, signatures are not
    /// checked.
    pub keys: Vec<PublicKey>,
    /// Whether unsigned components are rejected. Components with only invalid signatures are always
    /// rejected.
    pub required: bool,
}

impl Default for Signatures {
    fn default() -> Self {
        Signatures {
            keys: Vec::new(),
            required: true,
        }
    }
}

/// A public key as it was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// Its name in records.
    pub name: String,
    /// PEM (SPKI), ECDSA on P-256 or Ed25519.
    pub pem: Vec<u8>,
}

/// Why a component is not trusted. Display is for an operator.
#[allow(missing_docs, reason = "the texts say it")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("it is not signed: {0} is missing (plugins.signatures)")]
    NoFile(String),
    #[error("it is not signed: the registry has no signature (plugins.signatures)")]
    NoSignature,
    #[error("invalid signature: {0}")]
    Invalid(&'static str),
}

/// The configured rule and its keys.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: Vec<Key>,
    required: bool,
}

impl Trust {
    /// Parses the configured keys; fails for one that cannot be used.
    pub fn new(signatures: &Signatures) -> Result<Trust, Error> {
        let keys = signatures.keys.iter().map(|it| {
            Key::parse(&it.name, &it.pem).map_err(|message| Error::PublicKey {
                name: it.name.clone(),
                message,
            })
        });
        Ok(Trust {
            keys: keys.collect::<Result<_, _>>()?,
            required: signatures.required,
        })
    }

    /// Whether signatures are checked.
    pub fn is_enabled(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the key that signed a component; `None` for an unsigned component if no signature is
    /// required. `name`: the plugin's name. `digest`: hexadecimal SHA-256 of the component.
    pub fn check(
        &self,
        name: &str,
        component: &[u8],
        origin: &Origin,
        digest: &str,
    ) -> Result<Option<String>, SignatureError> {
        if !self.is_enabled() {
            return Ok(None);
        }
        match origin {
            Origin::File { signature: None } => {
                self.unsigned(SignatureError::NoFile(format!("{name}.wasm.sig")))
            }
            Origin::File {
                signature: Some(signature),
            } => self.of_file(component, signature).map(Some),
            Origin::Image(image) if image.has_component(digest) => self.of_image(image),
            Origin::Image(_) => Err(SignatureError::Invalid(
                "the image manifest names another component",
            )),
        }
    }

    /// Returns the key that signed an image, as [`Trust::check`] does for its component.
    pub fn of_image(&self, image: &Image) -> Result<Option<String>, SignatureError> {
        if image.signatures.is_empty() && image.bundles.is_empty() {
            return self.unsigned(SignatureError::NoSignature);
        }
        let digest = digest_of(image.manifest.as_bytes());
        let mut why = SignatureError::Invalid("none of the configured keys signed it");
        for entry in &image.signatures {
            let signer = decode(entry.signature.as_bytes())
                .and_then(|signature| self.signer(entry.payload.as_bytes(), &signature));
            match signer {
                Some(signer) if names_image(&entry.payload, &digest) => return Ok(Some(signer)),
                Some(_) => why = SignatureError::Invalid("the signature is for another image"),
                None => {}
            }
        }
        let signer = |message: &[u8], signature: &[u8]| self.signer(message, signature);
        for bundle in &image.bundles {
            let bundle = Bundle::read(bundle.as_bytes()).ok().filter(Bundle::is_signature);
            let Some(bundle) = bundle else { continue };
            match bundle.attestation(image, signer) {
                Ok(Attestation {
                    signed_by: Some(signer),
                    ..
                }) => return Ok(Some(signer)),
                Ok(_) => {}
                Err(_) => why = SignatureError::Invalid("the signature is for another image"),
            }
        }
        Err(why)
    }

    fn unsigned(&self, why: SignatureError) -> Result<Option<String>, SignatureError> {
        if self.required { Err(why) } else { Ok(None) }
    }

    fn of_file(&self, component: &[u8], signature: &[u8]) -> Result<String, SignatureError> {
        // The signature may be raw bytes or base64, so both are tried.
        let decoded = decode(signature);
        [Some(signature), decoded.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|it| self.signer(component, it))
            .ok_or(SignatureError::Invalid(
                "none of the configured keys signed these bytes",
            ))
    }

    /// The name and digest of the key that signed a message.
    pub(crate) fn signer(&self, message: &[u8], signature: &[u8]) -> Option<String> {
        let key = self.keys.iter().find(|key| key.verifies(message, signature))?;
        Some(key.label.clone())
    }

    /// The names and digests of the keys.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.label.as_str())
    }
}

/// Decodes base64 on one line or several.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let plain: Vec<u8> = text
        .iter()
        .copied()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    BASE64_STANDARD.decode(plain).ok()
}

/// Whether the signed document names this image manifest. The name in the document is ignored,
/// because images are copied between registries.
fn names_image(payload: &str, digest: &str) -> bool {
    let document: Value = serde_json::from_str(payload).unwrap_or_default();
    let critical = &document["critical"];
    critical["type"] == "cosign container image signature"
        && critical["image"]["docker-manifest-digest"] == digest
}

#[cfg(test)]
mod tests;
