//! The sizes of definitions, for the budgets of what clients may store.

use std::io::{self, Write};

use serde::Serialize;

use super::Spec;

/// The memory of an app or pod besides its definition.
const SPEC_BYTES: u64 = 1024;
/// The memory of a member or element besides its text.
const ELEMENT_BYTES: u64 = 48;

/// The size of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of the definition as JSON, with all defaults. The number of instances counts as one
    /// digit, so that scaling changes no size.
    pub(crate) text: u64,
    /// Approximate bytes in memory.
    pub(crate) memory: u64,
}

impl Size {
    pub(crate) fn of(spec: &Spec) -> Self {
        let mut counter = Counter::default();
        // A definition can always be encoded, because it is stored.
        let _ = serde_json::to_writer(&mut counter, spec);
        let digits = u64::from(spec.instances().checked_ilog10().unwrap_or(0));
        let text = counter.bytes.saturating_sub(digits);
        Self {
            text,
            memory: SPEC_BYTES + text + ELEMENT_BYTES * counter.commas,
        }
    }
}

/// The bytes of a record as JSON.
pub(crate) fn json_bytes(record: &impl Serialize) -> u64 {
    let mut counter = Counter::default();
    let _ = serde_json::to_writer(&mut counter, record);
    counter.bytes
}

/// Counts instead of writing.
#[derive(Default)]
struct Counter {
    bytes: u64,
    /// About as many as there are members and elements.
    commas: u64,
}

impl Write for Counter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.bytes += text.len() as u64;
        self.commas += text.iter().map(|byte| u64::from(*byte == b',')).sum::<u64>();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::app;

    #[test]
    fn size_counts_the_definition_and_no_scaling() {
        let size = |document| Size::of(&app(&document).into());
        let small = size(json!({"id": "/a", "cmd": "x", "instances": 1}));
        let scaled = size(json!({"id": "/a", "cmd": "x", "instances": 12_345}));
        let long = size(json!({"id": "/a", "cmd": "x".repeat(1001), "instances": 1}));
        assert_eq!(small, scaled);
        assert_eq!((long.text, long.memory), (small.text + 1000, small.memory + 1000));
        let many =
            size(json!({"id": "/a", "cmd": "x", "instances": 1, "labels": {"a": "", "b": "", "c": ""}}));
        assert!(
            many.memory > small.memory + 2 * ELEMENT_BYTES,
            "{many:?}, {small:?}"
        );
    }
}
