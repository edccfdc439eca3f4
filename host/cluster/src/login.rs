//! Login with a service account, as clusters of Mesosphere's distribution require it: a JWT (RS256)
//! with the account's name and an expiry, signed with its RSA key, is exchanged for a token that
//! requests then carry.
//!
//! Documents and subscriptions, which are few, log in each time, so a revoked account is noticed
//! immediately. Calls use the present token until a master rejects it.

use crate::config::ServiceAccount;
use crate::error::{Error, Result, TransportError};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use url::{Position, Url};

/// The expiry of a login.
const TOKEN_LIFETIME: Duration = Duration::from_hours(1);
/// The maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const CALL: &str = "the login";
const ROLE: &str = "the login service";

/// The choice of the token for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TokenChoice {
    /// A new token.
    New,
    /// The last token, or a new one if there is none or a master has rejected it.
    Current,
}

/// Logs in, and keeps the last token.
pub(crate) struct Login {
    uid: String,
    key: RsaKeyPair,
    endpoint: Url,
    client: reqwest::Client,
    /// The timeout of one login.
    limit: Duration,
    last: Mutex<Option<HeaderValue>>,
}

/// Omits secrets.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("uid", &self.uid)
            .field("endpoint", &self.endpoint.as_str())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct LoginAnswer {
    #[serde(default)]
    token: String,
}

impl Login {
    /// Parses the account. Fails with [`Error::Config`].
    pub(crate) fn new(account: &ServiceAccount, client: reqwest::Client, limit: Duration) -> Result<Self> {
        let invalid = |what: &str| Error::Config {
            what: format!("service account {:?}: {what}", account.uid),
        };
        let endpoint = Url::parse(&account.login_endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| invalid("the login endpoint must be an http or https URL"))?;
        let key = PrivateKeyDer::from_pem_slice(&account.private_key)
            .map_err(|_| invalid("the private key is not in PEM format"))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(invalid("the private key is not an RSA key")),
        };
        let key = key.map_err(|error| {
            invalid(&format!(
                "the private key is not an RSA key of 2048 bits or more ({error})"
            ))
        })?;
        Ok(Self {
            uid: account.uid.clone(),
            key,
            endpoint,
            client,
            limit,
            last: Mutex::default(),
        })
    }

    /// The header with the token for a request. Logs in if necessary.
    pub(crate) async fn header(&self, token: TokenChoice, deadline: Instant) -> Result<HeaderValue> {
        let last = match token {
            TokenChoice::New => None,
            TokenChoice::Current => self.last().clone(),
        };
        if let Some(last) = last {
            return Ok(last);
        }
        let deadline = deadline.min(Instant::now() + self.limit);
        let header = match tokio::time::timeout_at(deadline, self.log_in()).await {
            Ok(header) => header?,
            Err(_) => {
                return Err(Error::TimedOut {
                    address: self.address(),
                    call: CALL.to_owned(),
                    after: self.limit,
                });
            }
        };
        *self.last() = Some(header.clone());
        Ok(header)
    }

    /// Drops a token that a master has rejected.
    pub(crate) fn forget(&self) {
        *self.last() = None;
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<HeaderValue>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> String {
        self.endpoint[..Position::BeforePath].to_owned()
    }

    async fn log_in(&self) -> Result<HeaderValue> {
        let body = json!({"uid": self.uid, "token": self.signed(SystemTime::now())?});
        let unreachable = |error| Error::Unreachable {
            address: self.address(),
            role: ROLE,
            source: TransportError::new(error),
        };
        let sending = self.client.post(self.endpoint.clone()).json(&body);
        let mut response = sending.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut answer = Vec::new();
        while let Some(part) = response.chunk().await.map_err(unreachable)? {
            if answer.len() + part.len() > MAX_ANSWER_BYTES {
                return Err(Error::BodyTooLarge {
                    call: CALL.to_owned(),
                    limit: MAX_ANSWER_BYTES as u64,
                });
            }
            answer.extend_from_slice(&part);
        }
        if status != StatusCode::OK {
            return Err(Error::Rejected {
                call: format!("{CALL} of {:?} at {}", self.uid, self.address()),
                status: status.as_u16(),
                body: String::from_utf8_lossy(&answer).chars().take(200).collect(),
            });
        }
        let what = || format!("the answer of {} to {CALL}", self.address());
        let answer: LoginAnswer =
            serde_json::from_slice(&answer).map_err(|source| Error::decode(what(), source))?;
        let mut header =
            HeaderValue::try_from(format!("token={}", answer.token)).map_err(|_| Error::Incomplete {
                what: what(),
                missing: "a token that is valid in an HTTP header",
            })?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// The signed JWT: account name, expiry, signature.
    fn signed(&self, now: SystemTime) -> Result<String> {
        let expires = (now + TOKEN_LIFETIME)
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signing_input = format!(
            "{}.{}",
            part(json!({"alg": "RS256", "typ": "JWT"})),
            part(json!({"exp": expires.as_secs(), "uid": self.uid}))
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signing_input.as_bytes(),
                &mut signature,
            )
            .map_err(|_| Error::Config {
                what: format!("service account {:?}: signing with its key failed", self.uid),
            })?;
        Ok(format!(
            "{signing_input}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }
}
