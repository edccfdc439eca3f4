//! The output of `cargo test`: that of failed tests is printed again at the end of a run, where it is
//! found, and after it the slowest tests.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};

use crate::durations::Durations;

/// The maximum number of lines of each failed test that are printed again: the reason and the
/// backtrace, which come before the logs of the programs that the test started.
const MAX_LINES: usize = 60;

/// Runs `cargo test` with so many tests at a time, and prints the slowest; returns its status and
/// the output of the failed tests. On a terminal the output is not collected, so that it keeps its
/// colours.
pub(crate) fn run(command: &mut Command, threads: usize) -> anyhow::Result<(ExitStatus, Vec<String>)> {
    command.env("RUST_TEST_THREADS", threads.to_string());
    if std::io::stdout().is_terminal() {
        return Ok((command.status().context("cannot run cargo")?, Vec::new()));
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("the output of cargo")?;
    let errors = child.stderr.take().context("the errors of cargo")?;
    let (program, mut durations) = (Mutex::new(String::new()), Durations::new(threads));
    let failed = thread::scope(|scope| {
        let errors = scope.spawn(|| copy_errors(errors, &mut std::io::stderr(), &program));
        let failed = copy(output, &mut std::io::stdout().lock(), &mut |line| {
            let program = program.lock().map(|it| it.clone()).unwrap_or_default();
            durations.read(line, &program, Instant::now());
        });
        errors
            .join()
            .map_err(|_| anyhow!("panic while reading the errors of cargo"))??;
        anyhow::Ok(failed?)
    })?;
    eprint!("{}", durations.slowest());
    Ok((child.wait()?, failed))
}

/// Copies what cargo and the test programs print as errors; keeps the name of the program that
/// cargo runs.
fn copy_errors(errors: impl Read, to: &mut impl Write, program: &Mutex<String>) -> anyhow::Result<()> {
    let (mut reader, mut line) = (BufReader::new(errors), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        if let Some(name) = program_of(&String::from_utf8_lossy(&line))
            && let Ok(mut program) = program.lock()
        {
            *program = name;
        }
        line.clear();
    }
    Ok(())
}

/// The name in `Running tests/e2e/main.rs (target/debug/deps/e2e-0123456789abcdef)`, or in
/// `Doc-tests transom_apps`.
fn program_of(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("documentation of {name}"));
    }
    let (_, path) = line.strip_prefix("Running ")?.split_once('(')?;
    let (_, file) = path.trim_end_matches(')').rsplit_once('/')?;
    let (name, _) = file.rsplit_once('-')?;
    Some(name.to_owned())
}

/// Copies the output of test programs, and shows each line; returns the lines about failed tests.
fn copy(output: impl Read, to: &mut impl Write, show: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<String>> {
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
        show(text);
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
        let failed = copy(OUTPUT.as_bytes(), &mut copied, &mut |_| ()).expect("copied");
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
        let failed = copy(output.as_bytes(), &mut std::io::sink(), &mut |_| ()).expect("copied");
        assert_eq!(failed.len(), MAX_LINES + 2);
        assert_eq!(failed[MAX_LINES..], ["---- second stdout ----", "a reason"]);
    }

    #[test]
    fn programs_are_named_in_the_lines_of_cargo() {
        for (line, expected) in [
            (
                "     Running tests/e2e/main.rs (target/debug/deps/e2e-0123456789abcdef)\n",
                Some("e2e"),
            ),
            (
                "     Running unittests src/lib.rs (/a b/target/debug/deps/transom_apps-0123)",
                Some("transom_apps"),
            ),
            ("   Doc-tests transom_sdk", Some("documentation of transom_sdk")),
            ("   Compiling transom-apps v0.1.0 (/a)", None),
        ] {
            assert_eq!(program_of(line).as_deref(), expected, "{line}");
        }
    }
}
