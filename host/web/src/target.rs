//! The path of a request target, judged before anything else sees the request.
//!
//! Access rules, routing and forwarding all read the same path. It must therefore mean the same to
//! each of them, and to URL parsers, proxies and handlers that decode it: a path with one of the
//! following is rejected with 400, on every port.
//!
//! | in the path | why |
//! |---|---|
//! | `\`, `%5c` | URL parsers read a slash |
//! | a segment `.` or `..` | URL parsers remove it, and the segment before it |
//! | `%2e` | some URL parsers read a dot segment |
//! | `%2f` | a handler that decodes it sees more segments than the router |
//! | control characters, raw or encoded | URL parsers remove some of them |
//!
//! The query is not judged. A target in absolute form (`GET http://host/path`) is judged by its
//! path; one in authority form and `*` have none.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use http::Uri;

use crate::ApiError;

/// Why a path is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path of this request contains {what} at byte {at}, which is rejected on every port, because not every program \
     reads it alike; send a path without it"
)]
pub struct InvalidTarget {
    /// What was found, with its name.
    what: String,
    /// Where it begins.
    at: usize,
}

/// 400.
impl From<InvalidTarget> for ApiError {
    fn from(error: InvalidTarget) -> Self {
        Self::bad_request(error.to_string())
    }
}

/// Judges the path of a request target.
///
/// # Errors
/// What the path contains that is rejected, and where.
pub fn check_target(uri: &Uri) -> Result<(), InvalidTarget> {
    let path = uri.path();
    let mut segment_start = 0;
    for (at, byte) in path.bytes().chain([b'/']).enumerate() {
        let what = match byte {
            b'/' => {
                let segment = &path[segment_start..at];
                if matches!(segment, "." | "..") {
                    let what = format!("the segment {segment:?}");
                    return Err(InvalidTarget {
                        what,
                        at: segment_start,
                    });
                }
                segment_start = at + 1;
                continue;
            }
            b'%' => match path
                .get(at..at + 3)
                .and_then(|code| Some((code, named(decoded(code)?)?)))
            {
                Some((code, name)) => format!("{code:?} ({name}, percent-encoded)"),
                None => continue,
            },
            b'.' => continue,
            byte => match named(byte) {
                Some(name) => format!("{:?} ({name})", char::from(byte).to_string()),
                None => continue,
            },
        };
        return Err(InvalidTarget { what, at });
    }
    Ok(())
}

/// The byte of a percent-encoding such as `%2e`; `None` if it is invalid, which decoders leave as it
/// is.
fn decoded(code: &str) -> Option<u8> {
    let digits = code.strip_prefix('%')?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The name of a byte that must not be encoded in a path.
fn named(byte: u8) -> Option<&'static str> {
    match byte {
        b'\\' => Some("a backslash"),
        b'/' => Some("a slash"),
        b'.' => Some("a dot"),
        byte if byte.is_ascii_control() => Some("a control character"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn path_is_rejected_at_the_first_byte_that_programs_read_differently() {
        for (target, expected) in [
            (r"/bootstrap/..\api\fw", Some((r#""\\" (a backslash)"#, 13))),
            ("/a%5cb", Some((r#""%5c" (a backslash, percent-encoded)"#, 2))),
            ("/a%5Cb", Some((r#""%5C" (a backslash, percent-encoded)"#, 2))),
            ("/a/../b", Some((r#"the segment "..""#, 3))),
            ("/a/..", Some((r#"the segment "..""#, 3))),
            ("/.", Some((r#"the segment ".""#, 1))),
            ("/./b", Some((r#"the segment ".""#, 1))),
            ("http://host/a/../b", Some((r#"the segment "..""#, 3))),
            ("/a/.%2e/b", Some((r#""%2e" (a dot, percent-encoded)"#, 4))),
            ("/a/%2E%2e/b", Some((r#""%2E" (a dot, percent-encoded)"#, 3))),
            ("/leader%2emesos", Some((r#""%2e" (a dot, percent-encoded)"#, 7))),
            ("/a%2fb", Some((r#""%2f" (a slash, percent-encoded)"#, 2))),
            ("/a%2F..%2Fb", Some((r#""%2F" (a slash, percent-encoded)"#, 2))),
            (
                "/a%00",
                Some((r#""%00" (a control character, percent-encoded)"#, 2)),
            ),
            (
                "/a%1f",
                Some((r#""%1f" (a control character, percent-encoded)"#, 2)),
            ),
            (
                "/a%0d%0ab",
                Some((r#""%0d" (a control character, percent-encoded)"#, 2)),
            ),
            (
                "/a%7F",
                Some((r#""%7F" (a control character, percent-encoded)"#, 2)),
            ),
            ("/", None),
            ("*", None),
            ("host:80", None),
            ("http://host", None),
            ("/v2/apps//id/", None),
            ("/...", None),
            ("/.hidden/a.b/c..d/..e", None),
            ("/a;b=1/'c'/{d}^|\"e", None),
            ("/%c3%bc%20%25%3F%23", None),
            ("/%252e%252e/%255c", None),
            ("/%zz/%2/%", None),
            ("/a?b=../c/../%2e%2f%00", None),
        ] {
            let found = check_target(&target.parse().unwrap());
            let expected = expected.map_or(Ok(()), |(what, at)| {
                Err(InvalidTarget {
                    what: what.to_owned(),
                    at,
                })
            });
            assert_eq!(found, expected, "{target}");
        }
    }
}
