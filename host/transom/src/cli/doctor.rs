//! `transom doctor`: checks for common faults of configuration and environment, and prints advice.
//!
//! The checks run concurrently, each with a timeout, and change nothing: no store is opened, no
//! framework subscribes. They test what this machine and this user can reach, so run them on the
//! daemon's machine, as the daemon's user.

mod agents;
mod clock;
mod dns;
mod finding;
mod isolators;
mod master;
mod open_files;
mod plugins;
mod ports;
mod store;

use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use transom_cli::{
    exit::{Misconfigured, Unavailable},
    output::{Output, print_note},
    status::style::Style,
};
use transom_config::Settings;
use transom_plugin_host::{printable, printable_json};

use super::ports::Port;
use crate::daemon::services::SERVICES;
pub(super) use finding::{Finding, State};

/// Timeout of one check: the whole run takes little longer.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Checks that take longer are named on standard error.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Check what the daemon depends on: configuration, masters, credentials, store, ports, limits, clock,
/// DNS, plugin directory and agents.
///
/// Nothing is changed. Run it on the daemon's machine, as the daemon's user; the daemon may be running.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no errors (warnings may be shown); 1 errors; 2 the configuration is invalid; \
    3 the only errors are servers, files or ports that are unavailable.\n\n\
    Examples:\n  \
    transom doctor --config /etc/transom/transom.toml\n  \
    transom doctor --output json | jq '.findings[] | select(.state == \"error\")'"
)]
pub(super) struct Doctor {
    /// Configuration file.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    #[arg(long, value_name = "NAME=N", help = super::ports::help(&[]))]
    port: Vec<Port>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Doctor {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let overrides = super::ports::overrides(&self.port);
        let settings = transom_config::load(Some(&self.config), overrides);
        let (settings, invalid) = match settings {
            Ok((settings, _)) => (Some(settings), None),
            Err(error) => (None, Some(error)),
        };
        let findings = match (&settings, &invalid) {
            (Some(settings), _) => run_checks(settings, &self.config, self.output == Output::Table).await,
            (None, error) => {
                let message = error.as_ref().map(|error| format!("{error:#}"));
                vec![Finding::error(
                    "configuration",
                    message.unwrap_or_default(),
                    "Correct it; `transom config check` prints every setting with its source.",
                )]
            }
        };
        print(&findings, self.output)?;
        if let Some(error) = invalid {
            return Err(error.context(Misconfigured));
        }
        fail_on_errors(&findings)
    }
}

/// Returns an error if there are errors among the findings; its context determines the exit code.
fn fail_on_errors(findings: &[Finding]) -> anyhow::Result<()> {
    let errors: Vec<_> = findings.iter().filter(|one| one.state == State::Error).collect();
    let text = match errors.len() {
        0 => return Ok(()),
        1 => "1 error was found".to_owned(),
        count => format!("{count} errors were found"),
    };
    let error = anyhow::anyhow!(text);
    if errors.iter().all(|one| one.unavailable) {
        Err(error.context(Unavailable))
    } else {
        Err(error)
    }
}

type Check<'a> = Pin<Box<dyn Future<Output = Vec<Finding>> + Send + 'a>>;

/// Runs all checks; the findings are in the order of the checks. `progress`: whether slow checks are
/// named on standard error.
pub(super) async fn run_checks(settings: &Settings, file: &Path, progress: bool) -> Vec<Finding> {
    let checks: Vec<(&'static str, Check<'_>)> = vec![
        (
            "configuration",
            Box::pin(async { vec![configuration(settings, file)] }),
        ),
        ("master", Box::pin(master::check(settings))),
        ("store", Box::pin(store::check(settings))),
        ("ports", Box::pin(ports::check(settings, file))),
        ("open files", Box::pin(async { vec![open_files::check()] })),
        ("dns", Box::pin(dns::check(settings))),
        ("plugins", Box::pin(plugins::check(settings))),
    ];
    let mut running: Vec<&'static str> = checks.iter().map(|(name, _)| *name).collect();
    let mut checks: FuturesUnordered<_> = checks
        .into_iter()
        .enumerate()
        .map(|(index, (name, check))| async move {
            let findings_of_check = timeout(TIMEOUT, check).await.unwrap_or_else(|_| {
                vec![
                    Finding::error(
                        name,
                        format!("the check did not end within {TIMEOUT:?}"),
                        "A server that it queries does not respond: see the other findings, and check the \
                         network.",
                    )
                    .unavailable(),
                ]
            });
            (index, name, findings_of_check)
        })
        .collect();
    let mut findings = Vec::new();
    let mut next = Instant::now() + PROGRESS_INTERVAL;
    loop {
        tokio::select! {
            ended = checks.next() => match ended {
                Some((index, name, findings_of_check)) => {
                    running.retain(|other| *other != name);
                    findings.push((index, findings_of_check));
                }
                None => break,
            },
            () = sleep_until(next) => {
                next += PROGRESS_INTERVAL;
                if progress {
                    print_note(format_args!("still checking: {}", running.join(", ")));
                }
            }
        }
    }
    findings.sort_by_key(|(index, _)| *index);
    findings
        .into_iter()
        .flat_map(|(_, findings_of_check)| findings_of_check)
        .collect()
}

fn configuration(settings: &Settings, file: &Path) -> Finding {
    let enabled = SERVICES.iter().filter(|kind| kind.is_enabled(settings));
    let enabled: Vec<&str> = enabled.map(|kind| kind.name()).collect();
    if enabled.is_empty() {
        let sections: Vec<String> = SERVICES.iter().map(|kind| format!("[{}]", kind.name())).collect();
        return Finding::warning(
            "configuration",
            format!("{} is valid and enables no service", file.display()),
            format!("Add a section: {}.", sections.join(", ")),
        );
    }
    Finding::ok(
        "configuration",
        format!("{} is valid; it enables {}", file.display(), enabled.join(", ")),
    )
}

fn print(findings: &[Finding], output: Output) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            let text = serde_json::to_string_pretty(&json!({"findings": findings}))
                .context("the findings as JSON")?;
            writeln!(out, "{}", printable_json(&text))?;
        }
        Output::Table => write!(out, "{}", text(findings, Style::of_standard_output()))?,
    }
    out.flush()?;
    Ok(())
}

/// A line for each finding, and below it a line with advice.
pub(super) fn text(findings: &[Finding], style: Style) -> String {
    let mut text = String::new();
    for finding in findings {
        let state = match finding.state {
            State::Ok => style.green("ok     "),
            State::Warning => style.yellow("WARNING"),
            State::Error => style.red("ERROR  "),
            State::Skipped => "skipped".to_owned(),
        };
        let mut lines = finding.message.lines();
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(text, "{state}  {:<13}  {}", finding.check, printable(first));
        for line in lines.chain(finding.advice.as_deref()) {
            let _ = writeln!(text, "{:24}{}", "", printable(line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_depends_on_the_kinds_of_errors() {
        let error = || Finding::error("a", "m", "do");
        let code = |findings: &[Finding]| match fail_on_errors(findings) {
            Ok(()) => 0,
            Err(error) if error.is::<Unavailable>() => 3,
            Err(_) => 1,
        };
        assert_eq!(
            code(&[Finding::ok("a", "m"), Finding::warning("a", "m", "do")]),
            0
        );
        assert_eq!(code(&[error()]), 1);
        assert_eq!(code(&[error().unavailable()]), 3);
        assert_eq!(code(&[error(), error().unavailable()]), 1);
    }

    #[test]
    fn lines_have_state_check_message_and_advice() {
        let findings = [
            Finding::ok("store", "fine"),
            Finding::error("ports", "taken\u{1b}[2J", "Free it."),
        ];
        let text = text(&findings, Style::PLAIN);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("ok       store          fine"));
        let error = lines.next().expect("a line");
        assert!(error.starts_with("ERROR    ports          taken"), "{error}");
        assert!(!error.contains('\u{1b}'), "{error}");
        assert_eq!(lines.next().map(str::trim), Some("Free it."));
    }
}
