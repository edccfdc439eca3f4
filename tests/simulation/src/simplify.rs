//! Looks for a simpler run that violates the same invariant.

use std::time::Duration;

use crate::run::{Options, Report};

/// Leaves out kinds of faults, apps and time as long as `run` violates the same invariant. Returns the
/// simplest options, and their report.
///
/// # Errors
/// Those of `run`.
pub fn simplified(
    mut options: Options,
    mut report: Report,
    mut run: impl FnMut(&Options) -> anyhow::Result<Report>,
) -> anyhow::Result<(Options, Report)> {
    let invariant = invariant(&report);
    let faults: Vec<String> = report.faults.keys().cloned().collect();
    let halvings = options.apps.checked_ilog2().unwrap_or_default() as usize;
    let steps = faults
        .into_iter()
        .map(Some)
        .chain(std::iter::repeat_n(None, halvings));
    for step in steps {
        options.time = Duration::from_secs_f64(report.hours * 3600.0);
        let mut simpler = options.clone();
        match step {
            Some(fault) => drop(simpler.without.insert(fault)),
            None => simpler.apps /= 2,
        }
        let tried = run(&simpler)?;
        if self::invariant(&tried) == invariant {
            (options, report) = (simpler, tried);
        }
    }
    options.time = Duration::from_secs_f64(report.hours * 3600.0);
    Ok((options, report))
}

/// The violated invariant, without names and numbers.
fn invariant(report: &Report) -> Option<String> {
    let violation = report.violation.as_ref()?;
    let words = violation.what.split(' ');
    let words = words.filter(|word| !word.contains(|char: char| char.is_ascii_digit()));
    Some(words.collect::<Vec<_>>().join(" "))
}
