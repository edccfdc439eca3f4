//! Completion of names. The commands say which names an argument has, and how they are requested.
//!
//! The shell runs the program for each completion, and the program asks the daemon that the options on
//! the command line and the environment name. It waits for at most [`LIMIT`], and a failure is no
//! candidate: nothing is printed into the user's command line.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::Parser;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::Value;
use transom_plugin_host::printable;

use crate::admin_port::Connection;

/// How long the daemon may take.
const LIMIT: Duration = Duration::from_secs(1);
/// The most candidates: a shell shows no more in a useful way.
const MAX_CANDIDATES: usize = 1_000;

/// Names, each with a short text about it.
pub(crate) type Names = Vec<(String, String)>;

/// The options that select the admin port.
#[derive(Debug, Parser)]
pub(crate) struct Admin {
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The names in a list, and their descriptions.
pub(crate) fn listed(list: &Value, name: &str, description: &str) -> Names {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| {
        let about = one[description].as_str().unwrap_or_default();
        Some((one[name].as_str()?.to_owned(), about.to_owned()))
    })
    .collect()
}

/// A completer that asks for the names.
pub(crate) fn completer(
    names: impl AsyncFn() -> anyhow::Result<Names> + Send + Sync + 'static,
) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (Ok(runtime), Some(current)) = (runtime, current.to_str()) else {
            return Vec::new();
        };
        let found = runtime.block_on(async { tokio::time::timeout(LIMIT, names()).await });
        // A name resolution that hangs must not delay the shell.
        runtime.shutdown_background();
        let names = found.ok().and_then(Result::ok).unwrap_or_default();
        let mut candidates = candidates(names, current);
        candidates.truncate(MAX_CANDIDATES);
        candidates
            .into_iter()
            .map(|(name, about)| {
                let about = (!about.is_empty()).then(|| printable(&about).into_owned().into());
                CompletionCandidate::new(name).help(about)
            })
            .collect()
    })
}

/// The names that begin with `current`, in order. The slash at the beginning of an id may be left out.
fn candidates(mut names: Names, current: &str) -> Names {
    if !current.is_empty() && !current.starts_with('/') {
        for (name, _) in &mut names {
            if let Some(rest) = name.strip_prefix('/') {
                *name = rest.to_owned();
            }
        }
    }
    // A shell would take white space for the end of the name, and pass control characters on.
    let is_word = |name: &str| !name.contains(char::is_whitespace) && printable(name) == name;
    names.retain(|(name, _)| name.starts_with(current) && is_word(name));
    names.sort();
    names.dedup_by(|a, b| a.0 == b.0);
    names
}

/// The options of the command line that is being completed which select the daemon.
pub(crate) fn parsed<T: Parser>() -> anyhow::Result<T> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    Ok(T::try_parse_from(options(words.collect()))?)
}

/// The program's name, and the options that select a daemon.
fn options(words: Vec<OsString>) -> Vec<OsString> {
    const NAMES: [&str; 5] = ["--url", "--admin", "--username", "--password", "--config"];
    let mut kept = vec![OsString::from("transom")];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if NAMES.contains(&text.as_ref()) {
            let value = words.next();
            kept.extend(value.into_iter().flat_map(|value| [word.clone(), value]));
        } else if NAMES
            .iter()
            .any(|name| text.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        {
            kept.push(word);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_by_their_beginning_and_unsafe_ones_left_out() {
        let names = ["/shop/web", "/shop/api", "/a b", "/x\u{1b}[31m", "/shop/web"];
        let names: Names = names
            .iter()
            .map(|name| ((*name).to_owned(), String::new()))
            .collect();
        let found = |current| {
            let found = candidates(names.clone(), current).into_iter();
            found.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(found(""), ["/shop/api", "/shop/web"]);
        assert_eq!(found("/shop/w"), ["/shop/web"]);
        assert_eq!(found("shop/"), ["shop/api", "shop/web"]);
        assert!(found("web").is_empty());
    }

    #[test]
    fn options_that_select_a_daemon_are_taken_from_the_command_line() {
        let words = [
            "transom",
            "apps",
            "show",
            "--url",
            "http://h:1",
            "-o",
            "json",
            "--username=me",
            "--password",
        ];
        let options = options(words.map(OsString::from).to_vec());
        assert_eq!(options, ["transom", "--url", "http://h:1", "--username=me"]);
    }
}
