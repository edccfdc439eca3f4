//! The compiler process for the tests of this crate. The daemon uses its own binary instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    transom_plugin_host::compile_standard_input()
}
