//! The user and the password of a port, for HTTP basic authentication.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use ring::digest;
use transom_common::Secret;

/// User and password of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// The result of checking a request's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// There is no `Authorization` header.
    Missing,
    /// User and password are right.
    Valid,
    /// They are wrong, or the header has another scheme.
    Invalid,
}

impl Credentials {
    /// Checks the headers of a request, in a time that does not depend on how much of the
    /// credentials is right.
    pub fn presented(&self, headers: &HeaderMap) -> Presented {
        if !headers.contains_key(header::AUTHORIZATION) {
            return Presented::Missing;
        }
        match decoded(headers) {
            Some(presented) if self.matches(&presented) => Presented::Valid,
            _ => Presented::Invalid,
        }
    }

    /// The value of the header `Authorization` with these credentials.
    pub fn authorization(&self) -> String {
        format!("Basic {}", STANDARD.encode(self.text()))
    }

    fn text(&self) -> String {
        format!("{}:{}", self.username, self.password.reveal())
    }

    fn matches(&self, presented: &[u8]) -> bool {
        let of = |text: &[u8]| digest::digest(&digest::SHA256, text);
        let (presented, expected) = (of(presented), of(self.text().as_bytes()));
        let pairs = presented.as_ref().iter().zip(expected.as_ref());
        pairs.fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

/// Decodes `user:password` from the header `Authorization`. A request with several such headers is
/// never valid.
fn decoded(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, rest) = value.to_str().ok()?.trim().split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("basic")
        .then(|| STANDARD.decode(rest.trim()).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn credentials_are_compared_whole() {
        let credentials = Credentials {
            username: "user".to_owned(),
            password: "pass:word".into(),
        };
        let with = |values: &[String]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            credentials.presented(&headers)
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let valid = credentials.authorization();
        assert_eq!(with(&[]), Presented::Missing);
        assert_eq!(with(std::slice::from_ref(&valid)), Presented::Valid);
        assert_eq!(
            with(&[basic("user:pass:word").replace("Basic", "basic")]),
            Presented::Valid
        );
        for invalid in [
            basic("user:pass"),
            basic("user:pass:wordy"),
            basic("User:pass:word"),
            basic(""),
            String::new(),
            "Basic !".to_owned(),
            "Bearer x".to_owned(),
            "Basic".to_owned(),
        ] {
            assert_eq!(
                with(std::slice::from_ref(&invalid)),
                Presented::Invalid,
                "{invalid}"
            );
        }
        assert_eq!(with(&[valid.clone(), valid]), Presented::Invalid);
        assert!(!format!("{credentials:?}").contains("pass:word"));
    }
}
