//! How long each test and each test program took, from the lines that they print.
//!
//! A test program prints a line when a test has ended, and none when it starts. It starts its tests
//! in the order of their names, so many at a time, and the next one when one has ended: the test at
//! position `k` starts with the end that comes `k - threads + 1`-th.

use std::time::{Duration, Instant};

/// How many of the slowest tests are printed.
const SLOWEST_TESTS: usize = 20;
/// How many of the slowest programs are printed.
const SLOWEST_PROGRAMS: usize = 10;

/// The name and the outcome in `test NAME ... OUTCOME`.
pub(crate) fn outcome_of(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The durations of a run of `cargo test`.
pub(crate) struct Durations {
    threads: usize,
    running: Option<Running>,
    tests: Vec<(Duration, String)>,
    programs: Vec<(Duration, String)>,
}

/// A test program, and the ends of its tests.
struct Running {
    program: String,
    begun: Instant,
    ends: Vec<(String, Instant)>,
}

impl Durations {
    /// Of tests that run `threads` at a time.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            running: None,
            tests: Vec::new(),
            programs: Vec::new(),
        }
    }

    /// Reads a line that `program` printed at this time.
    pub(crate) fn read(&mut self, line: &str, program: &str, now: Instant) {
        if line.starts_with("running ") {
            self.running = Some(Running {
                program: program.to_owned(),
                begun: now,
                ends: Vec::new(),
            });
        } else if line.starts_with("test result: ") {
            if let Some(running) = self.running.take() {
                self.add(running, now);
            }
        } else if let Some(running) = &mut self.running
            && let Some((name, outcome)) = outcome_of(line)
            && outcome != "ignored"
        {
            running.ends.push((name.to_owned(), now));
        }
    }

    fn add(&mut self, running: Running, now: Instant) {
        let Running { program, begun, ends } = running;
        // The order in which the tests ended is that of the lines.
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by(|a, b| ends[*a].0.cmp(&ends[*b].0));
        for (position, index) in order.into_iter().enumerate() {
            let start = match position.checked_sub(self.threads) {
                Some(earlier) => ends[earlier].1,
                None => begun,
            };
            let (name, end) = &ends[index];
            self.tests
                .push((end.saturating_duration_since(start), format!("{program} {name}")));
        }
        self.programs
            .push((now.saturating_duration_since(begun), program));
    }

    /// The slowest tests and programs, one a line.
    pub(crate) fn slowest(mut self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (title, all, count) in [
            ("slowest tests", &mut self.tests, SLOWEST_TESTS),
            ("slowest test programs", &mut self.programs, SLOWEST_PROGRAMS),
        ] {
            all.sort_by(|a, b| b.cmp(a));
            let _ = writeln!(text, "{title}:");
            for (duration, name) in all.iter().take(count) {
                let _ = writeln!(text, "  {:7.1} s  {name}", duration.as_secs_f64());
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_starts_when_an_earlier_one_has_ended() {
        let begun = Instant::now();
        let mut durations = Durations::new(2);
        for (seconds, line) in [
            (0, "running 4 tests"),
            (3, "test b ... ok"),
            (4, "test c ... FAILED"),
            (9, "test d - should panic ... ok"),
            (10, "test a ... ok"),
            (11, "test e ... ignored"),
            (12, "test result: FAILED. 3 passed; 1 failed"),
            (13, "test elsewhere ... ok"),
        ] {
            durations.read(line, "e2e", begun + Duration::from_secs(seconds));
        }
        assert_eq!(
            durations.slowest(),
            "slowest tests:\n     10.0 s  e2e a\n      5.0 s  e2e d - should panic\n      3.0 s  e2e b\n      \
             1.0 s  e2e c\nslowest test programs:\n     12.0 s  e2e\n"
        );
    }
}
