//! `verify`: executes one run and prints its results.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use transom_verify::{Name, Options, Outcome, Report, run};

/// Runs Transom against a master and verifies its behaviour from outside.
///
/// The daemon is started on this machine with its own frameworks, whose names begin with
/// `transom-verify-`. They are torn down at the end. Agents and the ports of their tasks must be
/// reachable from this machine.
///
/// Exit code: 0 when every story held, 1 when one failed, 2 when the run could not begin or was
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "verify", bin_name = "cargo xtask verify")]
struct Arguments {
    /// A master: `http://host:port` or `host:port`. A master that does not lead redirects to the
    /// leading one.
    #[arg(long)]
    master: String,
    /// The user for masters and agents that require credentials; also the frameworks' principal.
    #[arg(long, requires = "password")]
    username: Option<String>,
    /// That user's password. A variable is not shown in the process table.
    #[arg(
        long,
        requires = "username",
        env = "TRANSOM_VERIFY_PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// The role whose offers are used.
    #[arg(long, default_value = "*")]
    role: String,
    /// The user as whom tasks run on the agents.
    #[arg(long, default_value = "root", value_name = "NAME")]
    task_user: String,
    /// The stories to run, separated by commas. Default: all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<Name>,
    /// Timeout of each story in seconds.
    #[arg(long, default_value_t = 180, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    /// Directory for the logs. Default: a temporary directory, which is kept if something failed.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The same as `--output json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// A table for reading.
    Table,
    /// One JSON object for programs.
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("verify: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn carry_out(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let json = arguments.json || arguments.output == Output::Json;
    let options = Options {
        master: authority(&arguments.master)?,
        credentials: arguments.username.zip(arguments.password),
        role: arguments.role,
        task_user: arguments.task_user,
        stories: Name::in_order(&arguments.only),
        limit: Duration::from_secs(arguments.limit),
        logs: arguments.logs,
    };
    let report = run(options).await?;
    show(json, &report)?;
    let interrupted = report
        .stories
        .iter()
        .any(|story| story.outcome == Outcome::NotRun);
    Ok(match (report.held, interrupted) {
        (true, _) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
    })
}

/// `host:port` of the given master.
fn authority(master: &str) -> anyhow::Result<String> {
    let expected = "expected http://HOST:PORT or HOST:PORT of a master, such as http://10.0.0.1:5050";
    if master.starts_with("https://") {
        bail!("--master {master}: masters with TLS are not supported by this command; {expected}");
    }
    if master.starts_with("zk://") {
        bail!("--master {master}: name one of the masters itself; {expected}");
    }
    let authority = master.strip_prefix("http://").unwrap_or(master);
    let authority = authority.trim_end_matches('/');
    let port = authority
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(1..))) if !host.is_empty() && !host.contains(['/', '@']) => Ok(authority.to_owned()),
        _ => bail!("--master {master}: {expected}"),
    }
}

fn show(json: bool, report: &Report) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(report)? + "\n"
    } else {
        report.to_string()
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the output, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the report"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn master_is_accepted_as_url_and_as_authority() {
        for given in ["http://10.0.0.1:5050", "http://10.0.0.1:5050/", "10.0.0.1:5050"] {
            assert_eq!(authority(given).ok().as_deref(), Some("10.0.0.1:5050"), "{given}");
        }
        assert_eq!(authority("http://[::1]:5050").ok().as_deref(), Some("[::1]:5050"));
        for given in [
            "10.0.0.1",
            "http://",
            ":5050",
            "https://h:5050",
            "zk://h:2181/mesos",
            "h:0",
            "http://h:1/x:2",
            "u@h:5050",
        ] {
            let error = authority(given).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| format!("{given} was accepted"));
            assert!(
                error.contains(given) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
    }
}
