//! Sigstore bundles, as cosign 3 attaches them to an image: a signature with the material for its
//! verification. Pure rules, without a registry.
//!
//! A bundle contains a DSSE envelope with an in-toto statement, or a signature of the image manifest itself.
//! Its signatures are verified with the configured keys, like signatures under tags. A certificate, an entry
//! of a transparency log and a timestamp are not verified; [`Bundle::not_verified`] names them.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;
use transom_common::text::one_line;

use crate::{
    attestations::{self, Attestation, AttestationError, Envelope},
    json::{Length, part},
    oci::{Image, digest_of},
};

/// Media type of a bundle, and of the artefact that contains one.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Predicate type of a statement that is a signature of an image.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// The only supported digest algorithm of a signature without a statement.
const SHA256: &str = "SHA2_256";

/// A parsed bundle.
#[derive(Debug)]
pub(crate) struct Bundle {
    content: Content,
    /// The parts that are not verified.
    not_verified: Vec<String>,
}

#[derive(Debug)]
enum Content {
    Statement(Envelope),
    /// A signature of the image manifest.
    Message {
        signature: Vec<u8>,
        /// `sha256:…` of the signed content.
        digest: String,
    },
}

/// Why a bundle is not used. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("it is not a sigstore bundle: {0}")]
    Malformed(String),
    #[error("it is of type {0}; expected {BUNDLE}")]
    Type(String),
    #[error("{0}")]
    Attestation(#[from] AttestationError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    media_type: String,
    #[serde(borrow)]
    verification_material: Option<&'a RawValue>,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<MessageSignature>,
}

/// The verification material of a bundle.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material<'a> {
    #[serde(borrow)]
    certificate: Option<&'a RawValue>,
    #[serde(borrow)]
    x509_certificate_chain: Option<&'a RawValue>,
    #[serde(borrow)]
    tlog_entries: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp_verification_data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Timestamps<'a> {
    #[serde(borrow, rename = "rfc3161Timestamps")]
    rfc3161_timestamps: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageSignature {
    message_digest: MessageDigest,
    signature: String,
}

#[derive(Deserialize)]
struct MessageDigest {
    algorithm: String,
    digest: String,
}

impl Bundle {
    pub(crate) fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let malformed = |error: &dyn std::fmt::Display| BundleError::Malformed(one_line(&error.to_string()));
        let document: Document<'_> = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
        if document.media_type != BUNDLE {
            return Err(BundleError::Type(attestations::bounded_line(
                &document.media_type,
            )));
        }
        let content = match (document.dsse_envelope, document.message_signature) {
            (Some(envelope), None) => Content::Statement(envelope),
            (None, Some(message)) => {
                let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|error| malformed(&error));
                if message.message_digest.algorithm != SHA256 {
                    let found = one_line(&message.message_digest.algorithm);
                    return Err(malformed(&format!("its digest is {found}, expected {SHA256}")));
                }
                Content::Message {
                    signature: decode(&message.signature)?,
                    digest: format!(
                        "sha256:{}",
                        transom_common::text::hex(&decode(&message.message_digest.digest)?)
                    ),
                }
            }
            _ => {
                return Err(malformed(
                    &"expected one of `dsseEnvelope` and `messageSignature`",
                ));
            }
        };
        Ok(Bundle {
            content,
            not_verified: part::<Material<'_>>(document.verification_material)
                .unwrap_or_default()
                .not_verified(),
        })
    }

    /// Whether the bundle is a signature of an image, and not an attestation about one.
    pub(crate) fn is_signature(&self) -> bool {
        match &self.content {
            Content::Statement(envelope) => {
                attestations::predicate_type(envelope).is_ok_and(|it| it.as_deref() == Some(SIGNED))
            }
            Content::Message { .. } => true,
        }
    }

    /// Returns the bundle's statement about the image. `signer` returns the configured key that
    /// signed a message, if any.
    pub(crate) fn attestation(
        &self,
        image: &Image,
        signer: impl Fn(&[u8], &[u8]) -> Option<String>,
    ) -> Result<Attestation, BundleError> {
        let found = match &self.content {
            Content::Statement(envelope) => attestations::from_statement(envelope, &image.digest(), signer)?,
            Content::Message { signature, digest } => {
                let manifest = image.manifest.as_bytes();
                if *digest != digest_of(manifest) {
                    return Err(AttestationError::OtherImage.into());
                }
                Attestation {
                    kind: SIGNED.to_owned(),
                    signed_by: signer(manifest, signature),
                    ..Attestation::default()
                }
            }
        };
        Ok(Attestation {
            not_verified: self.not_verified.clone(),
            ..found
        })
    }
}

impl Material<'_> {
    /// The parts that are not verified.
    fn not_verified(&self) -> Vec<String> {
        let timestamps = part::<Timestamps<'_>>(self.timestamp_verification_data);
        let timestamps = timestamps.and_then(|it| it.rfc3161_timestamps);
        let has = |it: Option<&RawValue>| it.is_some() && part::<Length>(it) != Some(Length(0));
        let parts = [
            (
                has(self.certificate) || has(self.x509_certificate_chain),
                "certificate",
            ),
            (has(self.tlog_entries), "transparency log"),
            (has(timestamps), "timestamp"),
        ];
        let found = parts.into_iter().filter(|(is_present, _)| *is_present);
        found.map(|(_, name)| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests;
