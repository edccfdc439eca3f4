//! Filter expressions: a subset of CEL, the Common Expression Language, with bounded cost.
//!
//! [`Program::compile`] parses an expression once, resolves its names, and rejects it with a
//! position if it cannot be evaluated. [`Program::matches`] evaluates it for one event.
//!
//! Clients write the expressions, one plugin instance evaluates those of all subscribers, and a
//! fault is counted against the component. Therefore everything is bounded: the text, its nesting,
//! its nodes, its regular expressions, and the steps of an evaluation ([`Input::budget`]). No input
//! causes a panic. The existing libraries for CEL do not count the steps of an evaluation, so this
//! module has its own parser and evaluator.
//!
//! The language is CEL as specified, but without bytes, timestamps, durations, types as values, messages and
//! optional values. JSON numbers without a fraction are `int`, or `uint` if they are too large for `int`; all
//! others are `double`.

mod document;
mod eval;
mod lex;
mod parse;
mod tree;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;

use tree::Node;

/// Maximum bytes of an expression.
pub const MAX_LENGTH: usize = 4096;
/// Maximum nodes of an expression: literals, names, operators, calls.
pub const MAX_NODES: usize = 512;
/// Maximum levels of nesting of an expression, which bounds the recursion of parser and evaluator.
pub const MAX_DEPTH: usize = 32;
/// Maximum nesting of macros (`all`, `exists`, `exists_one`, `filter`, `map`).
pub const MAX_MACROS: usize = 2;
/// Maximum bytes of the compiled regular expressions of one expression.
pub const MAX_PATTERNS: usize = 16 << 10;
/// Maximum values and keys in the JSON of an event that an expression reads.
pub const MAX_VALUES: usize = 250_000;
/// Steps of every evaluation's budget, in addition to those for the size of the event.
pub const BASE_STEPS: usize = 10_000;

/// Why an expression is rejected, and the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in this line, counted from 1.
    pub column: usize,
    /// The text at this place, and the expected syntax.
    pub reason: String,
}

impl Rejection {
    /// A rejection at a byte of the text.
    fn at(text: &str, byte: usize, reason: String) -> Self {
        let mut end = byte.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = text.get(..end).unwrap_or_default();
        let last = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: last.chars().count() + 1,
            reason,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

/// The event for which an expression is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The variable `kind`.
    pub kind: &'a str,
    /// The variable `subject`; null if there is none.
    pub subject: Option<&'a str>,
    /// The variable `event`, as JSON.
    pub body: &'a str,
}

impl Input<'_> {
    /// The maximum steps of an evaluation. They depend on this event only, so that its decision does not
    /// depend on the other events of the batch.
    pub fn budget(&self) -> usize {
        BASE_STEPS.saturating_add(self.body.len())
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program(Node);

impl Program {
    /// Compiles an expression.
    pub fn compile(text: &str) -> Result<Self, Rejection> {
        parse::program(text).map(Self)
    }

    /// Whether the event matches. An event does not match if the evaluation fails, needs more steps
    /// than its budget, or results in anything but a bool.
    ///
    /// The JSON is parsed when the evaluation first needs it, and at most once.
    pub fn matches(&self, input: Input<'_>) -> bool {
        eval::matches(&self.0, input)
    }
}
