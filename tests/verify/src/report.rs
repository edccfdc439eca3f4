//! The result of a run.

use std::fmt;
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::stories::Name;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The leading master.
    pub master: String,
    /// Its version.
    pub version: String,
    /// The name of the run, with which its frameworks' names begin.
    pub run: String,
    /// Whether all stories held and nothing was left behind.
    pub held: bool,
    /// Duration of the run in seconds.
    pub seconds: f64,
    /// The results of all requested stories.
    pub stories: Vec<Verdict>,
    /// What could not be removed from the cluster.
    pub left_behind: Vec<String>,
    /// The directory with the logs, if it was kept.
    pub logs: Option<PathBuf>,
}

/// The result of a story.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: Name,
    /// The function that the story verifies.
    pub title: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason of a failure.
    pub reason: Option<String>,
    /// Duration of the story in seconds.
    pub seconds: f64,
    /// Logs and documents for the diagnosis of a failed story.
    pub logs: Vec<PathBuf>,
}

/// The outcome of a story.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was as expected.
    Held,
    /// Something was not as expected; the reason describes it.
    Failed,
    /// The run was interrupted before the story ended.
    NotRun,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Failed => "FAILED",
            Self::NotRun => "not run",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on master {} (version {}), {:.0} s\n",
            self.run, self.master, self.version, self.seconds
        )?;
        let mut table = Table::new();
        table
            .load_preset(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["STORY", "OUTCOME", "SECONDS", "VERIFIES"]);
        for story in &self.stories {
            table.add_row([
                story.name.to_string(),
                story.outcome.to_string(),
                format!("{:7.1}", story.seconds),
                story.title.to_owned(),
            ]);
        }
        writeln!(f, "{}", table.trim_fmt())?;
        for story in &self.stories {
            let Some(reason) = &story.reason else {
                continue;
            };
            writeln!(f, "\n{}: {reason}", story.name)?;
            for path in &story.logs {
                writeln!(f, "  see {}", path.display())?;
            }
        }
        for left in &self.left_behind {
            writeln!(f, "\nLEFT BEHIND: {left}")?;
        }
        let held = self
            .stories
            .iter()
            .filter(|story| story.outcome == Outcome::Held)
            .count();
        writeln!(f, "\n{held} of {} stories held", self.stories.len())?;
        if let Some(logs) = &self.logs {
            writeln!(f, "logs: {}", logs.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let story = |name, outcome, reason: Option<&str>| Verdict {
            name,
            title: "what it verifies",
            outcome,
            reason: reason.map(str::to_owned),
            seconds: 1.25,
            logs: reason
                .map(|_| PathBuf::from("/tmp/x/scale"))
                .into_iter()
                .collect(),
        };
        Report {
            master: "h:5050".to_owned(),
            version: "1.11.0".to_owned(),
            run: "transom-verify-1".to_owned(),
            held: false,
            seconds: 3.0,
            stories: vec![
                story(Name::Lifecycle, Outcome::Held, None),
                story(Name::Scale, Outcome::Failed, Some("one task too many")),
            ],
            left_behind: vec!["framework F".to_owned()],
            logs: Some("/tmp/x".into()),
        }
    }

    #[test]
    fn table_shows_reason_and_logs_of_a_failed_story() {
        let text = report().to_string();
        for expected in [
            "lifecycle  held",
            "scale      FAILED",
            "scale: one task too many\n  see /tmp/x/scale",
            "LEFT BEHIND: framework F",
            "1 of 2 stories held",
            "logs: /tmp/x",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn json_names_stories_and_outcomes_as_the_command_line_does() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["stories"][1]["name"], "scale");
        assert_eq!(json["stories"][1]["outcome"], "failed");
        assert_eq!(serde_json::to_value(Outcome::NotRun).unwrap(), "not_run");
    }
}
