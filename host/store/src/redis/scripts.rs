//! The scripts, and parsing their results.

use std::fmt::Display;
use std::sync::LazyLock;
use std::vec::IntoIter;

use ::redis::{Script, Value};
use bytes::Bytes;

use crate::{Entry, Error, Notice, Result};

/// All scripts; each documents its arguments and its result at its top.
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) barrier: Script,
    pub(super) commit: Script,
    pub(super) epoch: Script,
    pub(super) get: Script,
    pub(super) read_lease: Script,
    pub(super) page: Script,
    pub(super) recheck: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: Script::new(include_str!("lua/acquire.lua")),
    barrier: Script::new(include_str!("lua/barrier.lua")),
    commit: Script::new(include_str!("lua/commit.lua")),
    epoch: Script::new(include_str!("lua/epoch.lua")),
    get: Script::new(include_str!("lua/get.lua")),
    read_lease: Script::new(include_str!("lua/read_lease.lua")),
    page: Script::new(include_str!("lua/page.lua")),
    recheck: Script::new(include_str!("lua/recheck.lua")),
    release: Script::new(include_str!("lua/release.lua")),
    renew: Script::new(include_str!("lua/renew.lua")),
});

/// The result of a script: strings and nils, read in order.
#[derive(Debug)]
pub(super) struct Reply(IntoIter<Value>);

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            _ => Err(unreadable("the reply of a Redis script")),
        }
    }

    /// Whether everything has been read.
    pub(super) fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    /// The next part; `None` for nil.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
            Some(Value::Nil) => Ok(None),
            _ => Err(unreadable("the reply of a Redis script")),
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        self.optional_text()?
            .ok_or_else(|| unreadable("a string in the reply of a Redis script"))
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>> {
        let text = self.next()?.map(|bytes| String::from_utf8(bytes.into()));
        text.transpose()
            .map_err(|_| unreadable("a string in the reply of a Redis script"))
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        self.optional_number()?
            .ok_or_else(|| unreadable("a number in the reply of a Redis script"))
    }

    /// The next number; `None` for an empty text.
    pub(super) fn optional_number(&mut self) -> Result<Option<u64>> {
        match self.text()?.as_str() {
            "" => Ok(None),
            number => number
                .parse()
                .map(Some)
                .map_err(|_| unreadable("a number in the reply of a Redis script")),
        }
    }
}

/// An invalid result, as the crate's error.
pub(super) fn unreadable(place: impl Display) -> Error {
    Error::Corrupt {
        place: place.to_string(),
        source: None,
    }
}

/// Combines an entry from its two halves, which are both present or both missing.
pub(super) fn entry(key: String, version: Option<Bytes>, value: Option<Bytes>) -> Result<Option<Entry>> {
    match (version, value) {
        (None, None) => Ok(None),
        (Some(version), Some(value)) => match self::version(&version) {
            Some(version) => Ok(Some(Entry { key, value, version })),
            None => Err(unreadable(key)),
        },
        _ => Err(unreadable(key)),
    }
}

pub(super) fn version(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Parses the message of the commit script: lines `VERSION LENGTH KEY`, version 0 for a deletion;
/// or the word `missed`. An invalid message counts as missed too, because it may have named any
/// key.
pub(super) fn notices(message: &[u8]) -> Vec<Notice> {
    fn number<'m>(rest: &mut &'m [u8]) -> Option<u64> {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (number, after): (&'m [u8], &'m [u8]) = rest.split_at_checked(end)?;
        *rest = after.get(1..)?;
        version(number)
    }
    fn notice(rest: &mut &[u8]) -> Option<Notice> {
        let version = number(rest)?;
        let length = usize::try_from(number(rest)?).ok()?;
        let (key, after) = rest.split_at_checked(length)?;
        *rest = after.strip_prefix(b"\n")?;
        Some(Notice::Changed {
            key: String::from_utf8(key.to_owned()).ok()?,
            version: (version != 0).then_some(version),
        })
    }
    let (mut rest, mut notices) = (message, Vec::new());
    while !rest.is_empty() {
        let Some(notice) = notice(&mut rest) else {
            return vec![Notice::Lagged];
        };
        notices.push(notice);
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_messages_are_parsed_and_invalid_ones_mean_lagged() {
        let changed = |key: &str, version| Notice::Changed {
            key: key.to_owned(),
            version,
        };
        for (message, expected) in [
            ("7 1 a\n", vec![changed("a", Some(7))]),
            (
                "7 3 a b\n0 2 \n\n\n1700000000000000 0 \n",
                vec![
                    changed("a b", Some(7)),
                    changed("\n\n", None),
                    changed("", Some(1_700_000_000_000_000)),
                ],
            ),
            ("missed", vec![Notice::Lagged]),
            ("7 1 a", vec![Notice::Lagged]),
            ("7 1 a\n8", vec![Notice::Lagged]),
            ("7 9 a\n", vec![Notice::Lagged]),
            ("7 99999999999999999999 a\n", vec![Notice::Lagged]),
            ("-7 1 a\n", vec![Notice::Lagged]),
        ] {
            assert_eq!(notices(message.as_bytes()), expected, "{message:?}");
        }
    }
}
