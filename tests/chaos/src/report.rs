//! The result of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// The result of a run: numbers, and whether each invariant held.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The seed of the schedule.
    pub seed: u64,
    /// The command that repeats the run.
    pub command: String,
    /// Whether all invariants held.
    pub holds: bool,
    /// Seconds from the first step to the last.
    pub seconds: f64,
    /// Steps, quiet moments included.
    pub steps: u32,
    /// Checks at quiet moments.
    pub quiet_moments: u32,
    /// The smallest number of wanted tasks at a quiet moment.
    pub least_wanted: u32,
    /// Task processes that the agents started.
    pub launches: usize,
    /// Writes by outcome.
    pub writes: Writes,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u32>,
    /// Times that the daemon ended unexpectedly and was restarted.
    pub unasked_ends: u32,
    /// The longest time in seconds from the end of the faults to the wanted state.
    pub slowest_recovery: f64,
    /// The invariants.
    pub invariants: Vec<InvariantReport>,
    /// Logs and journals of a run that failed.
    pub kept: Option<PathBuf>,
}

/// Writes by outcome.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Writes {
    /// 2xx.
    pub acknowledged: u32,
    /// 4xx, or the request was not sent.
    pub rejected: u32,
    /// Every other outcome: the write may have been applied.
    pub unanswered: u32,
}

/// An invariant and the number of its checks.
#[derive(Clone, Debug, Serialize)]
pub struct InvariantReport {
    /// The invariant.
    pub invariant: &'static str,
    /// The number of checks.
    pub checked: u64,
    /// The evidence of violations.
    pub breaches: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Writes {
            acknowledged,
            rejected,
            unanswered,
        } = self.writes;
        writeln!(
            f,
            "seed {}: {} steps in {:.0} s, {} quiet moments with at least {} wanted tasks, {} launches",
            self.seed, self.steps, self.seconds, self.quiet_moments, self.least_wanted, self.launches
        )?;
        writeln!(
            f,
            "writes: {acknowledged} acknowledged, {rejected} rejected, {unanswered} without an answer"
        )?;
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        writeln!(
            f,
            "the daemon ended unexpectedly {} times; the slowest recovery took {:.1} s\n",
            self.unasked_ends, self.slowest_recovery
        )?;
        let mut table = Table::new();
        table
            .load_preset(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["INVARIANT", "CHECKED", "HOLDS"]);
        for invariant in &self.invariants {
            let holds = match invariant.breaches.len() {
                0 if invariant.checked == 0 => "not checked".to_owned(),
                0 => "yes".to_owned(),
                count => format!("NO ({count})"),
            };
            table.add_row([
                invariant.invariant.to_owned(),
                invariant.checked.to_string(),
                holds,
            ]);
        }
        writeln!(f, "{}", table.trim_fmt())?;
        if self.holds {
            return Ok(());
        }
        for invariant in self
            .invariants
            .iter()
            .filter(|invariant| !invariant.breaches.is_empty())
        {
            writeln!(f, "\nINVARIANT VIOLATED: {}", invariant.invariant)?;
            for breach in &invariant.breaches {
                writeln!(f, "  {breach}")?;
            }
        }
        if let Some(kept) = &self.kept {
            writeln!(f, "\nlogs, journals and output of the daemon: {}", kept.display())?;
        }
        writeln!(f, "again: {}", self.command)
    }
}
