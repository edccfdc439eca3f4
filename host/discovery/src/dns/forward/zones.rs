//! Finds the resolvers of a name: those of its longest zone.

use std::collections::HashMap;

use hickory_proto::rr::{Name, RecordType};

/// Zones with their values.
#[derive(Debug)]
pub(super) struct Zones<T> {
    /// Values by zone name in wire form and lower case, without the root label.
    by_name: HashMap<Vec<u8>, T>,
}

impl<T> Zones<T> {
    /// Zones such as `sub.corp`; the empty zone contains all other names. Case and leading or trailing
    /// dots are ignored. A label that is too long matches no name.
    pub(super) fn new<'a>(zones: impl IntoIterator<Item = (&'a str, T)>) -> Self {
        let by_name = zones.into_iter().map(|(zone, value)| {
            let labels = zone.split('.').filter(|label| !label.is_empty());
            (wire(labels.map(str::as_bytes)), value)
        });
        Self {
            by_name: by_name.collect(),
        }
    }

    /// The value of a name's zone. DS records belong to the parent zone (RFC 4035, section
    /// 3.1.4.1).
    pub(super) fn find(&self, name: &Name, kind: RecordType) -> Option<&T> {
        let name = wire(name.iter());
        let mut offset = 0;
        if kind == RecordType::DS {
            offset = next_label(&name, offset);
        }
        loop {
            if let Some(found) = self.by_name.get(name.get(offset..)?) {
                return Some(found);
            }
            if offset == name.len() {
                return None;
            }
            offset = next_label(&name, offset);
        }
    }
}

/// The offset after the label at `offset`; at the end of the name `offset` itself.
fn next_label(name: &[u8], offset: usize) -> usize {
    name.get(offset)
        .map_or(offset, |length| offset + 1 + usize::from(*length))
}

fn wire<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in labels {
        // A label longer than 255 bytes gets the length 255, which no valid label has.
        wire.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        wire.extend(label.to_ascii_lowercase());
    }
    wire
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use super::*;

    #[test]
    fn find_returns_the_longest_zone_by_whole_labels() {
        let zones = Zones::new([("", 0), ("weave", 1), ("Sub.Corp.", 2), ("deep.sub.corp", 3)]);
        for (name, kind, zone) in [
            ("example.", RecordType::A, 0),
            (".", RecordType::NS, 0),
            ("weave.", RecordType::A, 1),
            ("a.b.WEAVE.", RecordType::A, 1),
            ("xweave.", RecordType::A, 0),
            ("weave.example.", RecordType::A, 0),
            ("corp.", RecordType::A, 0),
            ("x.sub.corp.", RecordType::A, 2),
            ("deep.sub.corp.", RecordType::A, 3),
            // DS records are in the parent zone.
            ("weave.", RecordType::DS, 0),
            ("x.weave.", RecordType::DS, 1),
            ("deep.sub.corp.", RecordType::DS, 2),
            (".", RecordType::DS, 0),
        ] {
            let name = Name::from_ascii(name).unwrap();
            assert_eq!(zones.find(&name, kind), Some(&zone), "{name} {kind}");
        }
        let only = Zones::new([("weave", 1)]);
        for (name, found) in [("weave.", true), ("example.", false), (".", false)] {
            let name = Name::from_ascii(name).unwrap();
            assert_eq!(only.find(&name, RecordType::A).is_some(), found, "{name}");
        }
        // A dot within a label does not separate labels.
        let uppercase = Name::from_labels([&b"a.weave"[..]]).unwrap();
        assert!(only.find(&uppercase, RecordType::A).is_none());
    }
}
