//! Who signed a component, and whether that is enough.
//!
//! The rule is the operator's, for the whole host: with keys configured each component needs a signature by one of them, wherever it is from and
//! however it comes to serve, also one that returns or that was fetched earlier. A plugin's manifest has no say in it. What cannot be
//! shown is not so: a signature that is missing, of another key, of other bytes or in a form that is not known admits nothing.
//!
//! A file's signature lies beside it (`NAME.wasm.sig`) and is over the component's bytes, as `cosign sign-blob` and `openssl` write it. That of
//! an image is cosign's: over a document that names the image manifest by its digest, and the manifest names the component by its own. Not
//! here: certificates, transparency logs, and when something was signed.

mod key;
mod sign;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use crate::{
    error::Error,
    origin::{Files, Origin},
    sources::{image::Image, oci_manifest::digest_of},
};
use key::Key;
pub(crate) use sign::Signer;

/// Bytes of a detached signature; real ones have a hundred.
pub(crate) const MAX_SIGNATURE: u64 = 16 << 10;

/// Which signatures components need.
#[derive(Clone, Debug)]
pub struct Signatures {
    /// A component needs a signature by one of these. None: signatures are not looked at.
    pub keys: Vec<PublicKey>,
    /// Whether what has no signature at all is refused. What has only signatures that do not hold is refused in any case.
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
    /// What records call it.
    pub name: String,
    /// PEM (SPKI), ECDSA on P-256 or Ed25519.
    pub pem: Vec<u8>,
}

/// Why a component is not trusted. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    #[error("it is not signed: there is no {0}, and a signature is required (plugins.signatures)")]
    NoFile(String),
    #[error(
        "it is not signed: the registry has no signature of it, and one is required (plugins.signatures)"
    )]
    NoneThere,
    #[error("its signature does not hold: {0}")]
    Wrong(&'static str),
}

/// The rule in force, with the keys read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    keys: Vec<Key>,
    required: bool,
}

impl Trust {
    pub(crate) fn new(signatures: &Signatures) -> Result<Trust, Error> {
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

    /// Whether there is anything to hold signatures against.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Who signed it; none where nobody has to. `name`: the plugin's. `component`: hexadecimal SHA-256.
    pub(crate) fn check(
        &self,
        name: &str,
        files: &Files,
        component: &str,
    ) -> Result<Option<String>, SignatureError> {
        if !self.is_enabled() {
            return Ok(None);
        }
        match &files.origin {
            Origin::File { signature: None } => {
                self.unsigned(SignatureError::NoFile(format!("{name}.wasm.sig")))
            }
            Origin::File {
                signature: Some(signature),
            } => self.of_file(&files.component, signature).map(Some),
            Origin::Image(image) if image.is_of(component) => self.of_image(image),
            Origin::Image(_) => Err(SignatureError::Wrong(
                "the image manifest is of another component",
            )),
        }
    }

    /// Who signed an image, as [`Trust::check`] will say of its component.
    pub(crate) fn of_image(&self, image: &Image) -> Result<Option<String>, SignatureError> {
        if image.signatures.is_empty() {
            return self.unsigned(SignatureError::NoneThere);
        }
        let digest = digest_of(image.manifest.as_bytes());
        let mut why = SignatureError::Wrong("none of the configured keys made it");
        for it in &image.signatures {
            let signer = decode(it.signature.as_bytes())
                .and_then(|signature| self.signer(it.payload.as_bytes(), &signature));
            match signer {
                Some(signer) if names(&it.payload, &digest) => return Ok(Some(signer)),
                Some(_) => why = SignatureError::Wrong("it is of another image"),
                None => {}
            }
        }
        Err(why)
    }

    fn unsigned(&self, why: SignatureError) -> Result<Option<String>, SignatureError> {
        if self.required { Err(why) } else { Ok(None) }
    }

    fn of_file(&self, component: &[u8], signature: &[u8]) -> Result<String, SignatureError> {
        // As bytes, or in base64: each is tried, and bytes that could be both decide nothing by being so.
        let decoded = decode(signature);
        [Some(signature), decoded.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|it| self.signer(component, it))
            .ok_or(SignatureError::Wrong(
                "none of the configured keys made it of these bytes",
            ))
    }

    fn signer(&self, message: &[u8], signature: &[u8]) -> Option<String> {
        let key = self.keys.iter().find(|key| key.signed(message, signature))?;
        Some(key.label.clone())
    }
}

/// Base64, on one line or several.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let plain: Vec<u8> = text
        .iter()
        .copied()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    BASE64_STANDARD.decode(plain).ok()
}

/// Whether what was signed says that it is of this image manifest. What it says of the image's name is no proof: images are copied.
fn names(payload: &str, digest: &str) -> bool {
    let document: Value = serde_json::from_str(payload).unwrap_or_default();
    let critical = &document["critical"];
    critical["type"] == "cosign container image signature"
        && critical["image"]["docker-manifest-digest"] == digest
}

#[cfg(test)]
mod tests;
