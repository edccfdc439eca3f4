//! The audit log: one event for each request that may change something.
//!
//! Events have the target `transom::audit` and the level `info`. A daemon that forwards a request
//! leaves the event to the leader, and writes one itself only if the leader does not answer. Events
//! contain no bodies, and secrets in queries are masked.

use std::fmt::Write;
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use http::{Method, Uri};

use super::Caller;
use crate::text::truncated;

/// An extension of the response to a forwarded request: the leader has written its audit event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// The target of audit events.
const TARGET: &str = "transom::audit";
const MASK: &str = "********";
/// Parts of the names of parameters whose values are secret.
const SECRET_NAMES: &[&str] = &[
    "auth",
    "credential",
    "key",
    "passw",
    "secret",
    "signature",
    "token",
];

/// A request that is being handled. If it is dropped before the response, because the client has
/// disconnected, the event has no status: the change may have been made.
pub(crate) struct Audit {
    port: &'static str,
    caller: Caller,
    method: Method,
    uri: Uri,
    began: Instant,
    ended: bool,
}

impl Audit {
    pub(crate) fn begin(port: &'static str, caller: Caller, request: &Request) -> Self {
        Self {
            port,
            caller,
            method: request.method().clone(),
            uri: request.uri().clone(),
            began: Instant::now(),
            ended: false,
        }
    }

    /// Writes the event. `audited`: the header that names what the request has started.
    pub(crate) fn end(mut self, response: &Response, audited: Option<&str>) {
        self.ended = true;
        if response.extensions().get::<Forwarded>().is_some() {
            return;
        }
        let started = audited.map(|name| {
            let values = response.headers().get_all(name).iter();
            let values: Vec<_> = values
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            values.join(",")
        });
        let started = started.filter(|values| !values.is_empty());
        self.write(Some(response.status().as_u16()), started.as_deref());
    }

    fn write(&self, status: Option<u16>, started: Option<&str>) {
        let client = self.caller.client.map(|client| client.to_string());
        let query = self.uri.query().map(masked);
        // The fields are strings and not `%` values, so that the log quotes and escapes them.
        tracing::info!(
            target: TARGET,
            port = self.port,
            user = self.caller.user.as_deref().map_or("-", truncated),
            client = client.as_deref().unwrap_or("-"),
            method = truncated(self.method.as_str()),
            path = truncated(self.uri.path()),
            query = query.as_deref().map(truncated),
            status,
            deployment = started.map(truncated),
            milliseconds = self.began.elapsed().as_millis() as u64,
            "mutating request"
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.ended {
            self.write(None, None);
        }
    }
}

/// Masks the values of a query's parameters that may be secret: those with a suspicious name, and
/// URLs with credentials.
fn masked(query: &str) -> String {
    let mut parts = String::new();
    for parameter in query.split('&') {
        if !parts.is_empty() {
            parts.push('&');
        }
        // Writing into a String does not fail.
        let _ = match parameter.split_once('=') {
            Some((name, value)) if is_secret(name, value) => write!(parts, "{name}={MASK}"),
            _ => write!(parts, "{parameter}"),
        };
    }
    parts
}

fn is_secret(name: &str, value: &str) -> bool {
    let (name, value) = (decoded(name).to_ascii_lowercase(), decoded(value));
    let authority = value.split_once("://").map(|(_, rest)| rest);
    SECRET_NAMES.iter().any(|part| name.contains(part)) || authority.is_some_and(|rest| rest.contains('@'))
}

/// Percent-encoding removed, as far as it is valid.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_queries_are_masked() {
        for (query, expected) in [
            ("force=true&scale=False", "force=true&scale=False"),
            ("", ""),
            ("flag", "flag"),
            ("password=a&force=true", "password=********&force=true"),
            ("api_Token=a=b", "api_Token=********"),
            ("pass%77ord=a", "pass%77ord=********"),
            ("X-Amz-Signature=ab", "X-Amz-Signature=********"),
            ("accessKey=a", "accessKey=********"),
            (
                "callbackUrl=http://u:p@h/x&force=true",
                "callbackUrl=********&force=true",
            ),
            ("callbackUrl=http%3A%2F%2Fu%3Ap%40h", "callbackUrl=********"),
            ("callbackUrl=http://h/x", "callbackUrl=http://h/x"),
            ("id=a%zz%", "id=a%zz%"),
        ] {
            assert_eq!(masked(query), expected, "{query}");
        }
    }
}
