//! `ssl_crt_base64` and `ssl_key_base64`: the port's certificate and key without files.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use transom_common::Secret;
use transom_web::TlsPem;

use super::Settings;

/// The names of the keys in messages.
const KEYS: [&str; 2] = ["kubernetes.ssl_crt_base64", "kubernetes.ssl_key_base64"];

/// The maximum size of a base64 text; chains and keys have a few thousand bytes.
const MAX_BYTES: usize = 1 << 20;

/// The standard alphabet, as the command `base64` writes it. The program that this one replaces reads
/// the alphabet for URLs, so such texts are translated to the standard alphabet before they are
/// decoded.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Settings {
    /// Certificate and key, if both are set and can be decoded. [`Self::certificate_problems`] reports
    /// everything else.
    pub fn tls_pem(&self) -> Option<TlsPem> {
        let certificate = decode(self.ssl_crt_base64.as_ref()?).ok()?;
        let key = decode(self.ssl_key_base64.as_ref()?).ok()?;
        Some(TlsPem {
            settings: KEYS,
            certificate,
            key: key.into(),
        })
    }

    /// Problems, one line each, without any part of the texts.
    pub(super) fn certificate_problems(&self) -> Vec<String> {
        let texts = [self.ssl_crt_base64.as_ref(), self.ssl_key_base64.as_ref()];
        let mut problems = Vec::new();
        for (index, (setting, text)) in KEYS.iter().zip(texts).enumerate() {
            let other_setting = KEYS[1 - index];
            match text {
                Some(text) => {
                    if let Err(problem) = decode(text) {
                        problems.push(format!("`{setting}` {problem}"));
                    }
                }
                None if texts[1 - index].is_some() => problems.push(format!(
                    "`{setting}` is missing: `{other_setting}` is set, and each needs the other"
                )),
                None => {}
            }
        }
        let files = self.tls_certificate.is_some() || self.tls_key.is_some();
        if files && texts.iter().any(Option::is_some) {
            problems.push(
                "`kubernetes.tls_certificate` and `kubernetes.ssl_crt_base64` are both set: the port has one \
                 certificate; name files or give the texts"
                    .to_owned(),
            );
        }
        let pem = self.tls_pem();
        let faults = pem.iter().flat_map(TlsPem::problems);
        problems.extend(faults.map(|fault| fault.to_string()));
        problems
    }
}

/// The decoded PEM text, or a description of the fault.
fn decode(text: &Secret) -> Result<String, &'static str> {
    let text = text.reveal();
    if text.len() > MAX_BYTES {
        return Err("is longer than 1 MiB; expected a PEM text in base64");
    }
    // Tools insert line breaks.
    let letters = text.chars().filter(|char| !char.is_ascii_whitespace());
    let letters = letters.map(|char| match char {
        '-' => '+',
        '_' => '/',
        char => char,
    });
    let bytes = BASE64.decode(letters.collect::<String>());
    let bytes = bytes.map_err(|_| "is not base64; expected a PEM text in base64")?;
    String::from_utf8(bytes).map_err(|_| "is not PEM; expected a PEM text in base64")
}

#[cfg(test)]
mod tests;
