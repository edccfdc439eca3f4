//! Notes on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints a line to standard error: progress, or a warning. If nobody can read it, the command still
/// does its work.
pub fn print_note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
