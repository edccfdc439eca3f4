//! Cases of plugins: calls of each world and their answers as documents, and the comparison of two
//! answers.
//!
//! A case is a call and the answer that it expects. The `[[self-test]]` tables of a manifest, the
//! files of `transom plugin test`, generated calls and the records of the call log are cases. The
//! modules [`probe`], [`matcher`], [`events`] and [`bootstrap`] describe the keys of each world.
//! [`compare`] is the only function that decides whether two answers are equal: expected and found
//! ones of a case, recorded and new ones of a replay, those of a serving version and of a candidate.
//!
//! This crate neither runs components nor depends on the engine: the plugin host converts its own
//! types, which mirror the WIT packages, from and to these documents. It compares documents and not
//! these types because the call log needs the document of each answer anyway, and because a document
//! contains only the comparable parts of an answer, not the wording of an error.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

mod answer;
pub mod bootstrap;
mod comparison;
pub mod events;
mod file;
pub mod forms;
pub mod json;
pub mod matcher;
pub mod probe;
mod question;
mod record;

pub use answer::{ANSWER_KEYS, Answer, answer, check, format_answer, parse, split_name};
pub use comparison::{Difference, MASK, Masks, compare};
pub use file::{Cases, CasesError, NamedCase, NotFinite, toml_to_json};
pub use question::question;
pub use record::{CallRecord, Exported, RecordedCalls, export};
