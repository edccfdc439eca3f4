//! Builds hostile probes from `tests/data/hostile-probe.wat`.

use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("../data/hostile-probe.wat");
/// The record of `describe`, and the address of the first text.
const DESCRIPTION: usize = 512;
const TEXTS: usize = 4096;
const PAGE: usize = 64 << 10;

/// A probe whose parts tests replace.
pub(crate) struct HostileProbe<'a> {
    pub(crate) version: &'a str,
    pub(crate) summary: &'a str,
    pub(crate) schema: Option<&'a str>,
    /// The instructions of `attempt.next` before it reports.
    pub(crate) next: &'a str,
    /// The custom outcome that each attempt reports.
    pub(crate) outcome: &'a str,
    /// Free pages after the texts.
    pub(crate) free_pages: usize,
}

impl Default for HostileProbe<'_> {
    fn default() -> Self {
        HostileProbe {
            version: "1.0.0",
            summary: "hostile",
            schema: None,
            next: "",
            outcome: "{}",
            free_pages: 2,
        }
    }
}

impl HostileProbe<'_> {
    pub(crate) fn component(&self) -> Vec<u8> {
        let mut at = TEXTS;
        let mut data = String::new();
        let mut put = |text: &str| {
            let words = [at as u32, text.len() as u32];
            write!(data, "(data (i32.const {at}) \"{}\") ", escaped(text.as_bytes())).unwrap();
            at += text.len();
            words
        };
        let mut description = [put("hostile"), put(self.version), put(self.summary)].concat();
        match self.schema {
            Some(schema) => description.extend([&[1][..], &put(schema)].concat()),
            None => description.extend([0, 0, 0]),
        }
        let [outcome, length] = put(self.outcome);
        let words: Vec<u8> = description.iter().flat_map(|it| it.to_le_bytes()).collect();
        write!(data, "(data (i32.const {DESCRIPTION}) \"{}\")", escaped(&words)).unwrap();
        // The step `done` with the outcome `custom`.
        let report = format!(
            "{} (i32.store8 (i32.const 700) (i32.const 5)) (i32.store8 (i32.const 704) (i32.const 3)) \
             (i32.store (i32.const 708) (i32.const {outcome})) (i32.store (i32.const 712) (i32.const {length}))",
            self.next
        );
        let heap = at.next_multiple_of(PAGE);
        let pages = heap / PAGE + self.free_pages;
        let text = TEMPLATE
            .replace("{pages}", &pages.to_string())
            .replace("{heap}", &heap.to_string())
            .replace("{next}", &report)
            .replace("{data}", &data);
        wat::parse_str(text).unwrap()
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:02x}").unwrap();
        text
    })
}
