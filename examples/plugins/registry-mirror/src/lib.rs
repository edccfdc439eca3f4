//! Adds mirrors of image registries to the first script of servers and agents.
//!
//! Before anything else the script then writes the file in which k3s looks for mirrors
//! (`registries.yaml`), with the mirrors of the configuration. The rest of the script stays as it
//! is. A script whose interpreter is not a shell is rejected.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use serde::Deserialize;
use transom_sdk::bootstrap::{Bootstrap, Context, Prepared, Refusal};
use transom_sdk::{ConfigError, Description, Plugin, export_bootstrap, log};

/// The last line of the file in the script. No line of the YAML file equals it.
const END: &str = "REGISTRIES";
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "ksh"];

/// The configuration: see `config.schema.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    mirrors: BTreeMap<String, Vec<String>>,
    #[serde(default = "usual_file")]
    file: String,
}

fn usual_file() -> String {
    "/etc/rancher/k3s/registries.yaml".to_owned()
}

/// The plugin, with the lines that it adds.
#[derive(Debug)]
pub struct RegistryMirror {
    lines: String,
    count: usize,
}

impl Plugin for RegistryMirror {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: env!("CARGO_PKG_DESCRIPTION"),
            config_schema: Some(include_str!("config.schema.json")),
        }
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mirrors = config.mirrors.iter();
        let errors: Vec<ConfigError> = mirrors
            .flat_map(|(registry, urls)| {
                let registry = registry.replace('~', "~0").replace('/', "~1");
                urls.iter().enumerate().filter_map(move |(at, url)| {
                    let reason = wrong(url)?;
                    let message =
                        format!("{reason}; expected a URL such as https://mirror.example.com:5000/path");
                    Some(ConfigError::at(format!("/mirrors/{registry}/{at}"), message))
                })
            })
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            lines: lines(&config),
            count: config.mirrors.len(),
        })
    }
}

impl Bootstrap for RegistryMirror {
    fn prepare(&self, context: Context, script: Vec<u8>) -> Result<Prepared, Refusal> {
        let text = String::from_utf8(script).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            rejected(format!("the script is not text: byte {at} is not valid UTF-8"))
        })?;
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        check_interpreter(first)?;
        log::debug!("{}: mirrors of {} registries", context.task, self.count);
        Ok(Prepared {
            script: format!("{first}\n{}{rest}", self.lines).into_bytes(),
            environment: context.environment,
            arguments: context.arguments,
        })
    }
}

/// Why a mirror is not a URL that k3s can use. `None` if it is valid.
fn wrong(url: &str) -> Option<String> {
    let Some(rest) = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
    else {
        return Some(format!("{url:?} begins with neither https:// nor http://"));
    };
    let host_and_port = rest.split('/').next().unwrap_or_default();
    if host_and_port.contains('@') {
        // The URL is left out of the message because it contains credentials.
        return Some(
            "the URL has a user or a password, which belong in the orchestrator's own file".to_owned(),
        );
    }
    let allowed = |char: char| char.is_ascii_alphanumeric() || "-._~:/%[]".contains(char);
    if let Some(char) = rest.chars().find(|char| !allowed(*char)) {
        return Some(format!("{url:?} has the character {char:?}"));
    }
    let (host, port) = if let Some(inside) = host_and_port.strip_prefix('[') {
        // An IPv6 address.
        inside.split_once(']').unwrap_or_default()
    } else {
        let end = host_and_port.find(':').unwrap_or(host_and_port.len());
        host_and_port.split_at(end)
    };
    if host.is_empty() {
        return Some(format!("{url:?} has no host"));
    }
    match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => None,
        _ => Some(format!("{url:?} has no valid port")),
    }
}

/// The lines of the script that write the file.
fn lines(config: &Config) -> String {
    let file = &config.file;
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut lines = format!(
        "# Mirrors of registries, added by the plugin registry-mirror.\nmkdir -p '{folder}/'\ncat > '{file}' <<'{END}'\nmirrors:\n"
    );
    for (registry, urls) in &config.mirrors {
        // Neither names nor URLs have characters that YAML or the shell would read in another way.
        lines.extend(["  \"", registry, "\":\n    endpoint:\n"]);
        for url in urls {
            lines.extend(["      - \"", url, "\"\n"]);
        }
    }
    lines + END + "\n"
}

/// Checks that a shell runs the script, because the added lines are for a shell.
fn check_interpreter(first: &str) -> Result<(), Refusal> {
    let Some(command) = first.strip_prefix("#!") else {
        return Err(rejected(
            "line 1 of the script names no interpreter; expected a line such as #!/bin/sh".to_owned(),
        ));
    };
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let name = |word: Option<&str>| word.and_then(|word| word.rsplit('/').next()).map(str::to_owned);
    let program = match name(words.next()) {
        Some(env) if env == "env" => name(words.find(|word| !word.starts_with('-'))),
        program => program,
    };
    if program.is_some_and(|program| SHELLS.contains(&program.as_str())) {
        return Ok(());
    }
    Err(rejected(format!(
        "line 1 of the script names the interpreter {:?}, which is not a shell; the lines with the mirrors are for a shell",
        command.trim()
    )))
}

/// A rejection without a retry, because the same script would be rejected again.
fn rejected(message: String) -> Refusal {
    Refusal {
        message,
        retry: false,
    }
}

export_bootstrap!(RegistryMirror);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::plugin;

    use super::*;

    #[test]
    fn malformed_mirrors_are_rejected_with_their_place() {
        let config =
            |urls: &str| format!(r#"{{"mirrors": {{"docker.io": ["https://good.example", {urls}]}}}}"#);
        for (url, expected) in [
            ("ftp://mirror.example.com", "begins with neither"),
            ("mirror.example.com", "begins with neither"),
            ("https://", "has no host"),
            ("https:///path", "has no host"),
            ("https://:5000", "has no host"),
            ("https://[::1", "has no host"),
            ("https://m:0", "has no valid port"),
            ("https://m:65536", "has no valid port"),
            ("https://m:", "has no valid port"),
            ("https://[::1]5000", "has no valid port"),
            ("https://m/'; reboot; '", "has the character '\\''"),
            ("https://m/$(reboot)", "has the character '$'"),
            ("https://user:hunter2@m", "has a user or a password"),
        ] {
            let errors = plugin::<RegistryMirror>(&config(&format!("{url:?}"))).unwrap_err();
            assert_eq!(errors.len(), 1, "{url}");
            assert_eq!(errors[0].pointer, "/mirrors/docker.io/1", "{url}");
            assert!(
                errors[0].message.contains(expected),
                "{url}: {}",
                errors[0].message
            );
            assert!(!errors[0].message.contains("hunter2"));
        }
        for url in [
            "http://m",
            "https://10.0.0.5:5000/v2/cache",
            "https://[2001:db8::1]:5000",
            "https://m/",
        ] {
            assert!(
                plugin::<RegistryMirror>(&config(&format!("{url:?}"))).is_ok(),
                "{url}"
            );
        }
        let two = config(r#""m", "n""#);
        assert_eq!(
            plugin::<RegistryMirror>(&two).unwrap_err().len(),
            2,
            "every malformed URL is reported"
        );
        assert!(plugin::<RegistryMirror>("{}").is_err(), "no mirrors");
    }

    #[test]
    fn only_scripts_of_shells_get_the_lines() {
        for (first, allowed) in [
            ("#!/bin/sh", true),
            ("#! /bin/bash -eu", true),
            ("#!/usr/bin/env bash", true),
            ("#!/usr/bin/env -S bash -e", true),
            ("#!/usr/bin/env", false),
            ("#!/usr/bin/python3", false),
            // Lines that end as on Windows: the kernel finds no such program.
            ("#!/bin/sh\r", false),
            ("#!", false),
            ("", false),
            ("exec k3s", false),
        ] {
            assert_eq!(check_interpreter(first).is_ok(), allowed, "{first}");
        }
    }
}
