//! The output of `cargo test`: that of failed tests is printed again at the end of a run, where it is
//! found, and after it the slowest tests.
//!
//! Tests of whole programs wait for real servers, and a machine may be too slow for them for a
//! moment. So the failed tests of a run, if they are few, run once more, one at a time.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};

use crate::durations::{Durations, outcome_of};

/// The maximum number of lines of each failed test that are printed again: the reason and the
/// backtrace, which come before the logs of the programs that the test started.
const MAX_LINES: usize = 60;

/// The maximum number of failed tests that run once more. If more fail, the change is the reason.
const MAX_REPEATED: usize = 5;

/// What a run of `cargo test` ended with.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    /// The output of the failed tests.
    pub(crate) output: Vec<String>,
    /// The names of the tests that passed.
    passed: Vec<String>,
    failed: Vec<String>,
    /// The number of programs that printed how many of their tests failed.
    reported: usize,
    /// The number of programs that failed, in the words of cargo.
    failed_programs: usize,
}

impl Outcome {
    fn of(status: ExitStatus) -> Self {
        Self {
            status,
            output: Vec::new(),
            passed: Vec::new(),
            failed: Vec::new(),
            reported: 0,
            failed_programs: 0,
        }
    }

    /// The tests to run once more. None if there are too many, or if a program ended without its
    /// results, because then nobody knows which of its tests did not run.
    pub(crate) fn repeatable(&self) -> &[String] {
        let complete = self.reported == self.failed_programs;
        if complete && self.failed.len() <= MAX_REPEATED {
            &self.failed
        } else {
            &[]
        }
    }

    /// Whether these tests, and no others, ran and passed.
    pub(crate) fn has_passed(&self, names: &[String]) -> bool {
        self.status.success() && names.iter().all(|name| self.passed.contains(name))
    }

    /// Reads a line of a test program.
    fn read(&mut self, line: &str) {
        if line.starts_with("test result: FAILED") {
            self.reported += 1;
        } else if let Some((name, outcome)) = outcome_of(line) {
            match outcome {
                "ok" => self.passed.push(name.to_owned()),
                "FAILED" => self.failed.push(name.to_owned()),
                _ => (),
            }
        }
    }
}

/// Runs `cargo test` with so many tests at a time, and prints the slowest. On a terminal the output
/// is not collected, so that it keeps its colours.
pub(crate) fn run(command: &mut Command, threads: usize) -> anyhow::Result<Outcome> {
    command.env("RUST_TEST_THREADS", threads.to_string());
    if std::io::stdout().is_terminal() {
        return Ok(Outcome::of(command.status().context("cannot run cargo")?));
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("the output of cargo")?;
    let errors = child.stderr.take().context("the errors of cargo")?;
    let (program, mut durations) = (Mutex::new(String::new()), Durations::new(threads));
    let mut lines = Outcome::of(ExitStatus::default());
    let (collected, failed_programs) = thread::scope(|scope| {
        let errors = scope.spawn(|| copy_errors(errors, &mut std::io::stderr(), &program));
        let collected = copy(output, &mut std::io::stdout().lock(), &mut |line| {
            let program = program.lock().map(|it| it.clone()).unwrap_or_default();
            durations.read(line, &program, Instant::now());
            lines.read(line);
        });
        let failed_programs = errors
            .join()
            .map_err(|_| anyhow!("panic while reading the errors of cargo"))??;
        anyhow::Ok((collected?, failed_programs))
    })?;
    eprint!("{}", durations.slowest());
    Ok(Outcome {
        status: child.wait()?,
        output: collected,
        failed_programs,
        ..lines
    })
}

/// Copies what cargo and the test programs print as errors; keeps the name of the program that
/// cargo runs. Returns how many programs failed.
fn copy_errors(errors: impl Read, to: &mut impl Write, program: &Mutex<String>) -> anyhow::Result<usize> {
    let (mut reader, mut line, mut failed) = (BufReader::new(errors), Vec::new(), 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(name) = program_of(&text) {
            if let Ok(mut program) = program.lock() {
                *program = name;
            }
        } else if let Some(number) = failed_programs_of(&text) {
            failed = number;
        }
        line.clear();
    }
    Ok(failed)
}

/// The number in `error: 2 targets failed:`.
fn failed_programs_of(line: &str) -> Option<usize> {
    let (number, rest) = line.strip_prefix("error: ")?.split_once(' ')?;
    let is_end = matches!(rest.trim_end(), "target failed:" | "targets failed:");
    is_end.then(|| number.parse().ok())?
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

    /// The outcome of a run in which these lines were printed.
    fn outcome(lines: &str, errors: &str) -> Outcome {
        let mut outcome = Outcome::of(ExitStatus::default());
        for line in lines.lines() {
            outcome.read(line);
        }
        let program = Mutex::new(String::new());
        outcome.failed_programs =
            copy_errors(errors.as_bytes(), &mut std::io::sink(), &program).expect("copied");
        outcome
    }

    #[test]
    fn failed_tests_are_repeated_if_they_are_few_and_every_program_reported() {
        let one_failed = "error: 1 target failed:\n    `-p transom-tests --test e2e`\n";
        assert_eq!(outcome(OUTPUT, one_failed).repeatable(), ["first"]);
        // A second program ended without results.
        let two_failed = "error: 2 targets failed:\n    `-p a --lib`\n    `-p b --lib`\n";
        assert!(outcome(OUTPUT, two_failed).repeatable().is_empty());
        let many = "test another ... FAILED\n".repeat(MAX_REPEATED + 1) + "test result: FAILED.\n";
        assert!(outcome(&many, one_failed).repeatable().is_empty());
    }

    #[test]
    fn a_repeated_test_must_have_run() {
        let names = ["first".to_owned()];
        assert!(outcome("test first ... ok\ntest result: ok. 1 passed", "").has_passed(&names));
        assert!(!outcome("test second ... ok\ntest result: ok. 1 passed", "").has_passed(&names));
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
