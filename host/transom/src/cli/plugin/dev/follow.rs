//! Shows the log and the calls of the plugin between builds.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use transom_plugin_host::shown;

use super::say;
use crate::cli::plugin::served::Served;

/// Interval of the requests to the daemon.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Follower<'a> {
    plugin: &'a Served,
    /// The number of the last shown line of the plugin's log.
    after: u64,
    calls: Counts,
    last_trap: Value,
    /// Whether the last request failed. Only the first failure is printed.
    away: bool,
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
    pub(super) async fn new(plugin: &'a Served) -> anyhow::Result<Follower<'a>> {
        let status = plugin.status().await?;
        let known = status["version"].is_string();
        let lines = if known { plugin.log(0).await? } else { Vec::new() };
        Ok(Follower {
            plugin,
            after: lines.last().map_or(0, sequence),
            calls: Counts::of(&status),
            last_trap: status["last_trap"].clone(),
            away: false,
        })
    }

    /// Prints new lines and new calls until it is dropped.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            match self.look().await {
                Ok(()) => self.away = false,
                Err(error) if !self.away => {
                    self.away = true;
                    eprintln!("{error:#}");
                }
                Err(_) => {}
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let status = self.plugin.status().await?;
        if !status["version"].is_string() {
            return Ok(());
        }
        for line in self.plugin.log(self.after).await? {
            self.after = sequence(&line);
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            say(format_args!("log: {} {}", text("level"), shown(&text("message"))));
        }
        let calls = Counts::of(&status);
        if calls != self.calls {
            say(calls.since(self.calls, &status));
            self.calls = calls;
        }
        let trap = &status["last_trap"];
        if *trap != self.last_trap {
            if let Some(fault) = trap["fault"].as_str() {
                say(format_args!("fault: {}", shown(fault)));
            }
            for frame in trap["backtrace"].as_array().into_iter().flatten() {
                say(format_args!("    {}", shown(frame.as_str().unwrap_or_default())));
            }
            self.last_trap = trap.clone();
        }
        Ok(())
    }
}

impl Counts {
    fn of(status: &Value) -> Counts {
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
    fn since(self, before: Counts, status: &Value) -> String {
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
        let calls = Counts::of(&status);
        let before = Counts {
            calls: 5,
            ..Counts::default()
        };
        assert_eq!(
            calls.since(before, &status),
            "calls: 7 (+2), p99 30 us, timeouts 2"
        );
        // Another version serves now, and its counts start at 0.
        let before = Counts {
            calls: 50,
            ..Counts::default()
        };
        let status = json!({"calls": 1});
        assert_eq!(Counts::of(&status).since(before, &status), "calls: 1 (+1)");
    }
}
