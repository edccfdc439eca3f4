//! Failed tests, whose output is printed again at the end of a run, where it is found.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context;

/// The maximum number of lines of each failed test that are printed again: the reason and the
/// backtrace, which come before the logs of the programs that the test started.
const MAX_LINES: usize = 60;

/// Runs `cargo test`; returns its status and the output of the failed tests. On a terminal the output
/// is not collected, so that it keeps its colours.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<(ExitStatus, Vec<String>)> {
    if std::io::stdout().is_terminal() {
        return Ok((command.status().context("cannot run cargo")?, Vec::new()));
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("the output of cargo")?;
    let failed = copy(output, &mut std::io::stdout().lock())?;
    Ok((child.wait()?, failed))
}

/// Copies the output of test programs; returns the lines about failed tests.
fn copy(output: impl Read, to: &mut impl Write) -> anyhow::Result<Vec<String>> {
    let (mut reader, mut line, mut failed) = (BufReader::new(output), Vec::new(), Vec::new());
    // The number of lines of the present failed test that may still be collected.
    let mut rest = 0;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(failed);
        }
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.starts_with("---- ") && text.ends_with(" ----") {
            rest = MAX_LINES;
        } else if text == "failures:" {
            // The list of names, after the output of the last failed test.
            rest = 0;
        }
        if rest > 0 {
            rest -= 1;
            failed.push(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 2 tests\n\
        test first ... FAILED\n\
        test second ... ok\n\
        \n\
        failures:\n\
        \n\
        ---- first stdout ----\n\
        \n\
        thread 'first' panicked at src/lib.rs:1:1:\n\
        a reason\n\
        \n\
        \n\
        failures:\n    first\n\
        \n\
        test result: FAILED. 1 passed; 1 failed\n";

    #[test]
    fn output_of_failed_tests_is_collected_and_all_output_is_copied() {
        let mut copied = Vec::new();
        let failed = copy(OUTPUT.as_bytes(), &mut copied).expect("copied");
        assert_eq!(copied, OUTPUT.as_bytes());
        assert_eq!(
            failed.join("\n").trim(),
            "---- first stdout ----\n\nthread 'first' panicked at src/lib.rs:1:1:\na reason"
        );
    }

    #[test]
    fn collected_output_of_each_test_has_a_limit() {
        let long = "a line\n".repeat(2 * MAX_LINES);
        let output = format!("---- first stdout ----\n{long}---- second stdout ----\na reason\n");
        let failed = copy(output.as_bytes(), &mut std::io::sink()).expect("copied");
        assert_eq!(failed.len(), MAX_LINES + 2);
        assert_eq!(failed[MAX_LINES..], ["---- second stdout ----", "a reason"]);
    }
}
