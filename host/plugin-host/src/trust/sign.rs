//! Signs components for `transom plugin push`.

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

/// A private key. Never shown.
pub(crate) enum Signer {
    EcdsaP256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// Reads a PEM file with a key in PKCS#8 that has no password.
    pub(crate) fn parse(pem: &[u8]) -> Result<Signer, String> {
        let expected = "expected a PEM file with one PRIVATE KEY (PKCS#8, no password), as `openssl genpkey` makes it, of ECDSA on P-256 or Ed25519";
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|error| format!("{error}; {expected}"))?;
        let key = key.secret_pkcs8_der();
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key) {
            return Ok(Signer::Ed25519(key));
        }
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &SystemRandom::new())
            .map(Signer::EcdsaP256)
            .map_err(|error| format!("{error}; {expected}"))
    }

    /// The signature in base64, as cosign writes it. Empty where the system has no randomness; such
    /// a one holds nowhere.
    pub(crate) fn sign(&self, message: &[u8]) -> String {
        match self {
            Signer::EcdsaP256(key) => key
                .sign(&SystemRandom::new(), message)
                .map_or_else(|_| String::new(), |it| BASE64_STANDARD.encode(it)),
            Signer::Ed25519(key) => BASE64_STANDARD.encode(key.sign(message)),
        }
    }
}
