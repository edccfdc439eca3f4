//! Attestations of an image: the build provenance, and the software bill of materials (SBOM). Pure
//! rules, without a registry.
//!
//! An attestation is an in-toto statement in a DSSE envelope, as `cosign attest` attaches it: under a tag, or
//! in a sigstore bundle. An SBOM may also be attached without an envelope and signature
//! (`cosign attach sbom`). Only a summary is kept. Attestations are only shown to operators; admission
//! ignores them.

mod document;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use transom_common::text::one_line;

use self::document::{Predicate, Statement};
use crate::json::part;

/// Media type of an attestation's layer.
pub(crate) const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// Media type of an envelope's payload.
const STATEMENT: &str = "application/vnd.in-toto+json";
/// Prefix of a statement's type; a version follows.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/";
/// Media types of SBOM layers, as `cosign attach sbom` names them.
const SBOMS: &[&str] = &[
    "text/spdx",
    "text/spdx+json",
    "application/vnd.cyclonedx+json",
    "application/vnd.cyclonedx+xml",
];
/// Maximum number of signatures of an envelope; usual ones have one.
const MAX_SIGNATURES: usize = 16;
/// Maximum number of characters that are kept of each text.
const MAX_TEXT: usize = 256;

/// The summary of one attestation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// The type of the statement's predicate, such as `https://slsa.dev/provenance/v1`; of an SBOM
    /// without a statement its media type.
    pub kind: String,
    /// The name and digest of the configured key that signed it; `None` if no configured key did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// The builder of the component, from its provenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<String>,
    /// The source that the component was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How many packages an SBOM lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<u64>,
    /// The parts of a sigstore bundle that are not verified: `certificate`, `transparency log`,
    /// `timestamp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_verified: Vec<String>,
}

/// The attestations of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestations {
    /// The digest of the manifests and keys that they were read with. They are read again when it
    /// changes.
    pub(crate) read_from: String,
    /// The attestations in the registry's order, oldest first.
    pub list: Vec<Attestation>,
}

/// Why an attestation is not shown. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttestationError {
    #[error("it is not a DSSE envelope: {0}")]
    Envelope(String),
    #[error("its payload is of type {0}; expected {STATEMENT}")]
    Payload(String),
    #[error("it is not an in-toto statement: {0}")]
    Statement(String),
    #[error("it is about another image")]
    OtherImage,
}

/// A DSSE envelope.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope {
    payload_type: String,
    payload: String,
    #[serde(default)]
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

/// Whether a layer of this type is an SBOM without a statement.
pub(crate) fn is_sbom(media_type: &str) -> bool {
    SBOMS.contains(&media_type)
}

/// Reads an envelope about the image with this digest (`sha256:…`). `signer` returns the configured
/// key that signed a message, if any.
pub(crate) fn from_envelope(
    envelope: &[u8],
    image: &str,
    signer: impl Fn(&[u8], &[u8]) -> Option<String>,
) -> Result<Attestation, AttestationError> {
    let envelope: Envelope = serde_json::from_slice(envelope)
        .map_err(|error| AttestationError::Envelope(one_line(&error.to_string())))?;
    from_statement(&envelope, image, signer)
}

/// Like [`from_envelope`], for a parsed envelope.
pub(crate) fn from_statement(
    envelope: &Envelope,
    image: &str,
    signer: impl Fn(&[u8], &[u8]) -> Option<String>,
) -> Result<Attestation, AttestationError> {
    let signatures = envelope.signatures.len();
    if signatures > MAX_SIGNATURES {
        return Err(AttestationError::Envelope(format!(
            "it has {signatures} signatures, at most {MAX_SIGNATURES} are allowed"
        )));
    }
    let payload = payload(envelope)?;
    let statement = parse_statement(&payload)?;
    let message = pre_authentication_encoding(&envelope.payload_type, &payload);
    let signed_by = envelope.signatures.iter().find_map(|it| {
        let signature = BASE64_STANDARD.decode(&it.sig).ok()?;
        signer(&message, &signature)
    });
    let is_statement = statement
        .in_toto_type
        .as_ref()
        .is_some_and(|it| it.starts_with(STATEMENT_TYPE));
    let (true, Some(kind)) = (is_statement, &statement.predicate_type) else {
        return Err(AttestationError::Statement(
            "expected `_type` and `predicateType`".to_owned(),
        ));
    };
    let digest = image.strip_prefix("sha256:");
    if !digest.is_some_and(|it| statement.is_about(it)) {
        return Err(AttestationError::OtherImage);
    }
    Ok(Attestation {
        signed_by,
        ..summary(kind, &part(statement.predicate).unwrap_or_default())
    })
}

/// The type of the predicate of an envelope's statement.
pub(crate) fn predicate_type(envelope: &Envelope) -> Result<Option<String>, AttestationError> {
    Ok(parse_statement(&payload(envelope)?)?.predicate_type)
}

fn payload(envelope: &Envelope) -> Result<Vec<u8>, AttestationError> {
    if envelope.payload_type != STATEMENT {
        return Err(AttestationError::Payload(bounded_line(&envelope.payload_type)));
    }
    BASE64_STANDARD
        .decode(&envelope.payload)
        .map_err(|error| AttestationError::Envelope(one_line(&error.to_string())))
}

fn parse_statement(payload: &[u8]) -> Result<Statement<'_>, AttestationError> {
    serde_json::from_slice(payload).map_err(|error| AttestationError::Statement(one_line(&error.to_string())))
}

/// Reads an SBOM that is attached without an envelope.
pub(crate) fn from_sbom(media_type: &str, content: &[u8]) -> Attestation {
    summary(media_type, &serde_json::from_slice(content).unwrap_or_default())
}

/// Returns the bytes that DSSE signs. They include the type, so that a signed payload cannot be
/// reused as one of another type.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn summary(kind: &str, predicate: &Predicate<'_>) -> Attestation {
    Attestation {
        kind: bounded_line(kind),
        signed_by: None,
        builder: predicate.builder().as_deref().map(bounded_line),
        source: predicate.source().as_deref().map(bounded_line),
        packages: predicate.packages(),
        not_verified: Vec::new(),
    }
}

/// Puts a text on one line and bounds its length, because the registry controls it.
pub(crate) fn bounded_line(of: &str) -> String {
    one_line(of).chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
