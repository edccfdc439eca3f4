//! Shows the log and the calls of the plugin between builds.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use transom_plugin_host::printable;

use super::print_status;
use crate::output::print_note;
use crate::plugin::served::PluginOnDaemon;

/// Interval of the requests to the daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Follower<'a> {
    plugin: &'a PluginOnDaemon,
    /// The number of the last shown line of the plugin's log.
    last_sequence: u64,
    calls: Counts,
    last_trap: Value,
    /// Whether the last request failed. Only the first failure is printed.
    is_unreachable: bool,
}

/// Counts since the activation of the serving version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    calls: u64,
    traps: u64,
    timeouts: u64,
    denials: u64,
}

impl<'a> Follower<'a> {
    /// Follows the plugin from now on: earlier lines are not shown.
    pub(super) async fn new(plugin: &'a PluginOnDaemon) -> anyhow::Result<Follower<'a>> {
        let status = plugin.status().await?;
        let has_version = status["version"].is_string();
        let lines = if has_version {
            plugin.log(0).await?
        } else {
            Vec::new()
        };
        Ok(Follower {
            plugin,
            last_sequence: lines.last().map_or(0, sequence),
            calls: Counts::from_status(&status),
            last_trap: status["last_trap"].clone(),
            is_unreachable: false,
        })
    }

    /// Prints new lines and new calls until it is dropped.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            match self.poll().await {
                Ok(()) => self.is_unreachable = false,
                Err(error) if !self.is_unreachable => {
                    self.is_unreachable = true;
                    print_note(format_args!("{error:#}"));
                }
                Err(_) => {}
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll(&mut self) -> anyhow::Result<()> {
        let status = self.plugin.status().await?;
        if !status["version"].is_string() {
            return Ok(());
        }
        for line in self.plugin.log(self.last_sequence).await? {
            self.last_sequence = sequence(&line);
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            print_status(format_args!(
                "log: {} {}",
                text("level"),
                printable(&text("message"))
            ));
        }
        let calls = Counts::from_status(&status);
        if calls != self.calls {
            print_status(calls.difference_line(self.calls, &status));
            self.calls = calls;
        }
        let trap = &status["last_trap"];
        if *trap != self.last_trap {
            if let Some(fault) = trap["fault"].as_str() {
                print_status(format_args!("fault: {}", printable(fault)));
            }
            for frame in trap["backtrace"].as_array().into_iter().flatten() {
                print_status(format_args!(
                    "    {}",
                    printable(frame.as_str().unwrap_or_default())
                ));
            }
            self.last_trap = trap.clone();
        }
        Ok(())
    }
}

impl Counts {
    fn from_status(status: &Value) -> Counts {
        let number = |key: &str| status[key].as_u64().unwrap_or(0);
        Counts {
            calls: number("calls"),
            traps: number("traps"),
            timeouts: number("timeouts"),
            denials: number("denials"),
        }
    }

    /// One line about the counts. `before`: the counts in the last line. They may be higher, if an
    /// earlier version served then.
    fn difference_line(self, before: Counts, status: &Value) -> String {
        let new = if self.calls >= before.calls {
            self.calls - before.calls
        } else {
            self.calls
        };
        let mut line = format!("calls: {} (+{new})", self.calls);
        if let Some(micros) = status["p99_micros"].as_u64() {
            let _ = write!(line, ", p99 {micros} us");
        }
        for (name, count) in [
            ("traps", self.traps),
            ("timeouts", self.timeouts),
            ("denials", self.denials),
        ] {
            if count > 0 {
                let _ = write!(line, ", {name} {count}");
            }
        }
        line
    }
}

fn sequence(line: &Value) -> u64 {
    line["sequence"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn line_about_calls_contains_the_difference_to_the_last_line() {
        let status = json!({"calls": 7, "traps": 0, "timeouts": 2, "denials": 0, "p99_micros": 30});
        let calls = Counts::from_status(&status);
        let before = Counts {
            calls: 5,
            ..Counts::default()
        };
        assert_eq!(
            calls.difference_line(before, &status),
            "calls: 7 (+2), p99 30 us, timeouts 2"
        );
        // Another version serves now, and its counts start at 0.
        let before = Counts {
            calls: 50,
            ..Counts::default()
        };
        let status = json!({"calls": 1});
        assert_eq!(
            Counts::from_status(&status).difference_line(before, &status),
            "calls: 1 (+1)"
        );
    }
}
