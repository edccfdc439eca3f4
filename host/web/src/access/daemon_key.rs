//! The key by which the daemons of a site recognise each other.
//!
//! All daemons that share a store have the same random key. A daemon that forwards a request states
//! who sent it, and proves the statement: `X-Transom-Proof` is the time in Unix seconds, a dot, and
//! the HMAC-SHA256 of the statement, the time, the port's section, and the method and the target of
//! the request, in base64. So a proof is of no use for another request, on another port, or later
//! than [`MAX_AGE`]. Within that time a proof that was read on the way could be sent again, with
//! another body: ports that do not use TLS do not protect against that, as they do not protect
//! passwords.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Uri};
use ring::hmac;

/// How far the time of a proof and this machine's clock may differ. Requests reach the leader within
/// seconds, so this is the tolerance for clocks.
pub(crate) const MAX_AGE: Duration = Duration::from_mins(1);

/// The key that all daemons of a site share. Cheap to clone.
#[derive(Clone)]
pub struct DaemonKey(hmac::Key);

impl DaemonKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;

    /// The key with these bytes, which must be random.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The value of `X-Transom-Proof`. `now`: since the Unix epoch.
    pub(crate) fn prove(&self, signed: &Signed<'_>, now: Duration) -> String {
        let seconds = now.as_secs();
        let tag = hmac::sign(&self.0, &signed.text(seconds));
        format!("{seconds}.{}", STANDARD.encode(tag))
    }

    /// Checks a value of `X-Transom-Proof`.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub(crate) fn check(&self, signed: &Signed<'_>, proof: &[u8], now: Duration) -> Result<(), &'static str> {
        let proof = std::str::from_utf8(proof).ok();
        let (seconds, tag) = proof.and_then(|proof| proof.split_once('.')).ok_or(MALFORMED)?;
        let seconds: u64 = seconds.parse().map_err(|_| MALFORMED)?;
        let tag = STANDARD.decode(tag).map_err(|_| MALFORMED)?;
        hmac::verify(&self.0, &signed.text(seconds), &tag).map_err(|_| {
            "its signature is wrong: the sender has another key, so it uses another store, or it is no daemon"
        })?;
        if seconds.abs_diff(now.as_secs()) > MAX_AGE.as_secs() {
            return Err("it is too old or too new: compare the clocks of the machines");
        }
        Ok(())
    }
}

const MALFORMED: &str = "it is malformed";

impl fmt::Debug for DaemonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonKey").finish_non_exhaustive()
    }
}

/// What a proof covers, with the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    /// The section of the port.
    pub(crate) port: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    /// The values of the headers of the statement.
    pub(crate) statement: [Option<&'a [u8]>; 3],
}

impl Signed<'_> {
    /// The signed text. No part can contain a line feed, so parts cannot be exchanged.
    fn text(&self, seconds: u64) -> Vec<u8> {
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let seconds = seconds.to_string();
        let [client, user, rights] = self.statement.map(Option::unwrap_or_default);
        let parts: [&[u8]; 8] = [
            b"transom forwarded request 1",
            seconds.as_bytes(),
            self.port.as_bytes(),
            self.method.as_str().as_bytes(),
            target.as_bytes(),
            client,
            user,
            rights,
        ];
        parts.join(&b'\n')
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn proof_is_valid_for_one_request_and_one_minute() {
        let (key, other) = (DaemonKey::new(&[1; 32]), DaemonKey::new(&[2; 32]));
        let at = |seconds| Duration::from_secs(seconds);
        let uri: Uri = "/v2/apps//a;b?x=%2F".parse().unwrap();
        let signed = Signed {
            port: "apps",
            method: &Method::PUT,
            uri: &uri,
            statement: [Some(b"192.0.2.1"), Some(b"ann"), Some(b"full")],
        };
        let proof = key.prove(&signed, at(1000));
        for (now, valid) in [
            (939, false),
            (940, true),
            (1000, true),
            (1060, true),
            (1061, false),
        ] {
            let found = key.check(&signed, proof.as_bytes(), at(now));
            assert_eq!(found.is_ok(), valid, "{now}: {found:?}");
        }
        assert!(other.check(&signed, proof.as_bytes(), at(1000)).is_err());
        let (path, query) = ("/v2/apps/a;b?x=%2F", "/v2/apps//a;b?x=/");
        let (path, query): (Uri, Uri) = (path.parse().unwrap(), query.parse().unwrap());
        for changed in [
            Signed {
                port: "workflow",
                ..signed
            },
            Signed {
                method: &Method::DELETE,
                ..signed
            },
            Signed { uri: &path, ..signed },
            Signed {
                uri: &query,
                ..signed
            },
            Signed {
                statement: [Some(b"192.0.2.2"), Some(b"ann"), Some(b"full")],
                ..signed
            },
            Signed {
                statement: [Some(b"192.0.2.1"), None, Some(b"full")],
                ..signed
            },
            Signed {
                statement: [Some(b"192.0.2.1"), Some(b"ann"), Some(b"read-only")],
                ..signed
            },
        ] {
            assert!(
                key.check(&changed, proof.as_bytes(), at(1000)).is_err(),
                "{changed:?}"
            );
        }
        let (_, tag) = proof.split_once('.').unwrap();
        for malformed in [
            "",
            ".",
            "1000",
            "1000.",
            "x.y",
            &format!("1001.{tag}"),
            &format!("{proof}="),
        ] {
            assert!(
                key.check(&signed, malformed.as_bytes(), at(1000)).is_err(),
                "{malformed}"
            );
        }
    }
}
