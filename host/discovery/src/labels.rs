//! Turns texts into labels: names, fragments, the hash of a task's id, the tail of an agent's id.
//!
//! Exactly as mesos-dns does, because clients rely on such names.

use hickory_proto::rr::Name;
use sha1::{Digest, Sha1};

/// The rule for labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelRule {
    /// Up to 63 characters, without a dash at either end.
    Rfc1123,
    /// Up to 24 characters, beginning with a letter, without a dash at the end.
    Rfc952,
}

impl LabelRule {
    fn max_length(self) -> usize {
        match self {
            Self::Rfc1123 => 63,
            Self::Rfc952 => 24,
        }
    }

    fn may_not_begin(self, byte: u8) -> bool {
        byte == b'-' || (self == Self::Rfc952 && byte.is_ascii_digit())
    }

    /// One label: lower case; dots, dashes and underscores become dashes, other characters except
    /// letters and digits are removed. May be empty.
    pub fn label(self, text: &str) -> String {
        let allowed: String = text
            .bytes()
            .filter_map(|byte| match byte {
                b'A'..=b'Z' => Some(byte.to_ascii_lowercase()),
                b'a'..=b'z' | b'0'..=b'9' => Some(byte),
                b'-' | b'.' | b'_' => Some(b'-'),
                _ => None,
            })
            .map(char::from)
            .collect();
        let trimmed = allowed.trim_start_matches(|c: char| self.may_not_begin(c as u8));
        truncate_label(trimmed, self.max_length())
    }

    /// Several labels, one for each part between dots; empty ones are removed.
    pub fn fragment(self, text: &str) -> String {
        let labels: Vec<_> = text
            .split('.')
            .map(|part| self.label(part))
            .filter(|label| !label.is_empty())
            .collect();
        labels.join(".")
    }
}

/// Cuts to a length and trims dashes at the end. If the cut falls after dashes, the characters
/// after them fill the gap.
fn truncate_label(text: &str, max_length: usize) -> String {
    let Some((head, rest)) = text.split_at_checked(max_length) else {
        return text.trim_end_matches('-').to_owned();
    };
    let mut label = head.trim_end_matches('-').to_owned();
    if label.len() < max_length {
        label.extend(
            rest.trim_start_matches('-')
                .chars()
                .take(max_length - label.len()),
        );
    }
    label.truncate(label.trim_end_matches('-').len());
    label
}

/// The five characters that distinguish tasks of one name: the start of the task id's SHA-1 in
/// z-base-32.
pub fn hash5(task_id: &str) -> String {
    const ALPHABET: &[u8; 32] = b"ybndrfg8ejkmcpqxot1uwisza345h769";
    let digest = Sha1::digest(task_id.as_bytes());
    let first = digest
        .iter()
        .take(4)
        .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    (0..5)
        .map(|n| char::from(ALPHABET[(first >> (27 - 5 * n)) as usize & 31]))
        .collect()
}

/// The part of an agent's id after the last dash, in lower case.
pub fn agent_tail(agent_id: &str) -> String {
    agent_id.rsplit('-').next().unwrap_or_default().to_lowercase()
}

/// A name for DNS, with any characters; none if a label is empty or longer than 63 bytes, or the
/// name longer than 255.
pub fn wire_name(name: &str) -> Option<Name> {
    let labels = name.strip_suffix('.')?.split('.');
    if labels.clone().any(str::is_empty) {
        return None;
    }
    Name::from_labels(labels.map(str::as_bytes)).ok()
}

/// The length of a name in wire form; none if it is too long for DNS.
pub(crate) fn wire_length(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    if bytes.len() > 254 || bytes.last() != Some(&b'.') {
        return None;
    }
    let mut label = 0;
    for byte in bytes {
        if *byte == b'.' {
            if label == 0 || label > 63 {
                return None;
            }
            label = 0;
        } else {
            label += 1;
        }
    }
    Some(bytes.len() + 1)
}

/// Writes a name that [`wire_length`] accepts.
pub(crate) fn write_name(name: &str, out: &mut Vec<u8>) {
    for label in name.as_bytes().split(|byte| *byte == b'.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use serde_json::Value;

    use super::*;

    fn table(name: &str) -> Vec<Value> {
        let tables: Value = serde_json::from_str(include_str!("../tests/fixtures/tables.json")).unwrap();
        let rows = tables[name].as_array().unwrap().clone();
        assert!(!rows.is_empty());
        rows
    }

    #[test]
    fn labels_and_fragments_match_mesos_dns() {
        for row in table("labels") {
            let text = row["in"].as_str().unwrap();
            assert_eq!(
                LabelRule::Rfc1123.label(text),
                row["rfc1123"],
                "{text:?} by RFC 1123"
            );
            assert_eq!(
                LabelRule::Rfc952.label(text),
                row["rfc952"],
                "{text:?} by RFC 952"
            );
            assert_eq!(
                LabelRule::Rfc1123.fragment(text),
                row["frag_rfc1123"],
                "{text:?} in parts by RFC 1123"
            );
            assert_eq!(
                LabelRule::Rfc952.fragment(text),
                row["frag_rfc952"],
                "{text:?} in parts by RFC 952"
            );
        }
    }

    #[test]
    fn hashes_match_mesos_dns() {
        for row in table("task_id_hash") {
            assert_eq!(hash5(row["In"].as_str().unwrap()), row["Hash"], "{row}");
        }
    }

    #[test]
    fn agent_tails_match_mesos_dns() {
        for row in table("slave_id_tail") {
            assert_eq!(agent_tail(row["In"].as_str().unwrap()), row["Out"], "{row}");
        }
    }
}
