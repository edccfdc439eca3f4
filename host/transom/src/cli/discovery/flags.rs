//! Flags in the form of Go programs: one dash or two, the value after `=` or in the next word; a switch
//! has no value, or `=true` or `=false`; the first word that is not a flag ends the flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// The usage text.
pub(super) const USAGE: &str = "\
usage: transom discovery [flags]
  -config FILE            mesos-dns JSON configuration file (default config.json)
  -v N                    log verbosity: 0, 1 or 2 (default 0)
  -version                print the version
  -admin ADDRESS:PORT     serve health and metrics there (default: off)
  -logtostderr, -alsologtostderr, -log_dir, -log_backtrace_at, -stderrthreshold, -vmodule
                          accepted for compatibility and ignored; the log goes to standard error";

/// The requested action.
#[derive(Debug, PartialEq)]
pub(super) enum Invocation {
    Serve(Flags),
    Version,
    Help,
}

/// The options of discovery.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flags {
    pub(super) config: PathBuf,
    verbosity: u32,
    pub(super) admin: Option<SocketAddr>,
}

impl Flags {
    /// The log level for the verbosity of `-v`.
    pub(super) fn level(&self) -> &'static str {
        match self.verbosity {
            0 => "info",
            1 => "info,transom_discovery=debug,transom_cluster=debug",
            _ => "debug",
        }
    }
}

/// Parses the flags.
///
/// # Errors
/// An unknown flag, or one without its value.
pub(super) fn read(words: &[String]) -> anyhow::Result<Invocation> {
    let mut flags = Flags {
        config: "config.json".into(),
        verbosity: 0,
        admin: None,
    };
    let mut version = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
            break;
        };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        if flag.is_empty() {
            break;
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        let mut needed = || match value.clone().or_else(|| words.next().cloned()) {
            Some(value) => Ok(value),
            None => bail!("the flag -{name} needs a value\n{USAGE}"),
        };
        match name {
            "config" => flags.config = expand_home(&needed()?),
            "v" => {
                let value = needed()?;
                let invalid_value =
                    || format!("the flag -v needs a number, as in -v=1, and not {value:?}\n{USAGE}");
                flags.verbosity = value.parse().with_context(invalid_value)?;
            }
            "admin" => {
                let value = needed()?;
                let invalid_value = || {
                    format!(
                        "the flag -admin needs ADDRESS:PORT, as in 127.0.0.1:9990, and not {value:?}\n{USAGE}"
                    )
                };
                flags.admin = Some(value.parse().with_context(invalid_value)?);
            }
            "version" => version = switch(name, value.as_deref())?,
            "logtostderr" | "alsologtostderr" => drop(switch(name, value.as_deref())?),
            "log_dir" | "log_backtrace_at" | "stderrthreshold" | "vmodule" => drop(needed()?),
            "h" | "help" => return Ok(Invocation::Help),
            _ => bail!("unknown flag -{name}\n{USAGE}"),
        }
    }
    Ok(if version {
        Invocation::Version
    } else {
        Invocation::Serve(flags)
    })
}

fn switch(name: &str, value: Option<&str>) -> anyhow::Result<bool> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => bail!("the flag -{name} must be true or false, not {other:?}\n{USAGE}"),
    }
}

/// Expands `~/` to the home directory.
fn expand_home(path: &str) -> PathBuf {
    match std::env::var("HOME") {
        Ok(home) if path.contains("~/") => path.replacen("~/", &format!("{home}/"), 1).into(),
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        read(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_parsed_like_mesos_dns() {
        let serve = |config: &str, verbosity| {
            Ok(Invocation::Serve(Flags {
                config: config.into(),
                verbosity,
                admin: None,
            }))
        };
        for (line, expected) in [
            ("", serve("config.json", 0)),
            ("-config=a.json", serve("a.json", 0)),
            ("--config a.json -v=2 -logtostderr", serve("a.json", 2)),
            (
                "-alsologtostderr=false -stderrthreshold INFO -v 1 -config b",
                serve("b", 1),
            ),
            ("-config a rest -bogus", serve("a", 0)),
            ("-config a -- -bogus", serve("a", 0)),
            ("-version", Ok(Invocation::Version)),
            ("-version=false", serve("config.json", 0)),
            ("-help", Ok(Invocation::Help)),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn invalid_flags_are_rejected_with_reason_and_usage() {
        for (line, expected) in [
            ("-bogus", "unknown flag -bogus"),
            ("-config", "-config needs a value"),
            ("-v=x", "-v needs a number"),
            ("-version=perhaps", "-version must be true or false"),
            ("-admin=9990", "-admin needs ADDRESS:PORT"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(
                error.contains(expected) && error.contains("usage:"),
                "{line}: {error}"
            );
        }
    }
}
