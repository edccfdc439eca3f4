//! The process that compiles, for the tests of this crate. The daemon starts itself instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    transom_plugin_host::compile_standard_input()
}
