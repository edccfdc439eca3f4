//! Signs components for `transom plugin push`.

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

/// A private key. It is never logged or displayed.
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

    /// Returns the signature in base64, as cosign writes it. If the system provides no random
    /// numbers it is empty, and no verifier accepts it.
    pub(crate) fn sign(&self, message: &[u8]) -> String {
        match self {
            Signer::EcdsaP256(key) => key
                .sign(&SystemRandom::new(), message)
                .map_or_else(|_| String::new(), |it| BASE64_STANDARD.encode(it)),
            Signer::Ed25519(key) => BASE64_STANDARD.encode(key.sign(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use transom_registry::{Origin, PublicKey, Signatures, Trust};

    use super::*;

    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../tests/data/", $name)).as_slice()
        };
    }

    #[test]
    fn own_signature_is_valid() {
        for (key, public) in [
            (file!("p256.key"), file!("p256.pub")),
            (file!("ed25519.key"), file!("ed25519.pub")),
        ] {
            let keys = vec![PublicKey {
                name: "team.pub".to_owned(),
                pem: public.to_vec(),
            }];
            let trust = Trust::new(&Signatures { keys, required: true }).unwrap();
            let signature = Signer::parse(key).unwrap().sign(b"x");
            let origin = Origin::File {
                signature: Some(signature.into_bytes()),
            };
            assert!(trust.check("probe", b"x", &origin, "").is_ok());
            assert!(trust.check("probe", b"y", &origin, "").is_err());
        }
    }

    #[test]
    fn keys_that_cannot_sign_are_rejected() {
        assert!(Signer::parse(file!("p256.pub")).is_err());
        assert!(Signer::parse(b"").is_err());
    }
}
