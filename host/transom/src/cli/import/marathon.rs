//! Marathon's configuration: flags in a file or a command line, `MARATHON_` variables in a file or
//! in the environment, and a folder with one file for each flag, as `/etc/marathon/conf`.
//!
//! The table of `config::marathon` maps flags to keys. A flag without a key becomes a comment with the
//! reason. Values are only printed as settings, never in comments or errors, because they may be
//! secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml::{Table, Value};

use super::{comment_list, store_and_plugins};
use crate::config::{self, Counterpart, FlagForm};

/// The maximum size of one file, in bytes, and the maximum number of files in a folder.
const MAX_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 1000;

const VARIABLES: &str = "MARATHON_";
/// Beginnings of variables that are not flags: Marathon passes them to tasks, or its launcher reads
/// them.
const NOT_FLAGS: [&str; 2] = ["app_", "java_args"];

/// Flags and their values; `None` for a flag without a value.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags(BTreeMap<String, Option<String>>);

impl Flags {
    fn insert(&mut self, name: &str, value: Option<String>) {
        let name = name
            .trim_start_matches('-')
            .replace('-', "_")
            .to_ascii_lowercase();
        self.0.insert(name, value);
    }

    /// Adds the flags of `others` that are not set yet.
    pub(super) fn or_insert_all(mut self, others: Self) -> Self {
        for (name, value) in others.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads flags from the environment. An empty variable is a flag without a value.
    pub(super) fn from_variables(variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut flags = Self::default();
        for (name, value) in variables {
            let Some(name) = name.strip_prefix(VARIABLES) else {
                continue;
            };
            let name = name.to_ascii_lowercase();
            if !NOT_FLAGS.iter().any(|other| name.starts_with(other)) {
                flags.insert(&name, Some(value).filter(|value| !value.is_empty()));
            }
        }
        flags
    }

    /// Reads a folder: the name of a file is a flag, its content the value; `?flag` is a flag without a
    /// value.
    pub(super) fn from_folder(folder: &Path) -> anyhow::Result<Self> {
        let cannot_read = || format!("cannot read {}", folder.display());
        let mut flags = Self::default();
        for (count, entry) in std::fs::read_dir(folder).with_context(cannot_read)?.enumerate() {
            let path = entry.with_context(cannot_read)?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // Hidden files, and backups of editors and package managers, are skipped.
            let is_backup = name.ends_with('~') || name.contains(".dpkg-") || name.contains(".rpm");
            if name.starts_with('.') || is_backup || !path.is_file() {
                continue;
            }
            if count >= MAX_FILES {
                bail!("{} has more than {MAX_FILES} files", folder.display());
            }
            let content = read_text(&path)?;
            let content = content.trim();
            match name.strip_prefix('?') {
                Some(flag) => flags.insert(flag, None),
                None => flags.insert(&name, Some(content.to_owned()).filter(|value| !value.is_empty())),
            }
        }
        if flags.is_empty() {
            bail!(
                "{} has no files; expected one for each flag, as in /etc/marathon/conf",
                folder.display()
            );
        }
        Ok(flags)
    }

    /// Reads a file with flags or variables; `None` if it contains neither.
    pub(super) fn from_text(text: &str) -> Option<anyhow::Result<Self>> {
        let lines = || {
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let variable = |line: &str| {
            line.strip_prefix("export ")
                .unwrap_or(line)
                .starts_with(VARIABLES)
        };
        if lines().any(|line| line.starts_with('[')) {
            return None;
        }
        if lines().any(variable) {
            return Some(
                lines()
                    .filter(|line| variable(line))
                    .try_fold(Self::default(), |flags, line| {
                        let line = line.strip_prefix("export ").unwrap_or(line).trim();
                        let (name, value) = line.split_once('=').unwrap_or((line, ""));
                        let value = split_words(value).context(name.to_owned())?.join(" ");
                        let new_flags =
                            Self::from_variables(std::iter::once((name.trim().to_owned(), value)));
                        Ok(new_flags.or_insert_all(flags))
                    }),
            );
        }
        if lines().any(|line| line.split_whitespace().any(|word| word.starts_with("--"))) {
            return Some(Self::from_command_line(&lines().collect::<Vec<_>>().join("\n")));
        }
        None
    }

    /// Reads `--flag value`, `--flag=value`, or `--flag`. Words before the first flag are the program
    /// and its own arguments, and are ignored.
    fn from_command_line(text: &str) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        let mut words = split_words(text)?.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                continue;
            };
            match flag.split_once('=') {
                Some((flag, value)) => flags.insert(flag, Some(value.to_owned())),
                None => flags.insert(flag, words.next_if(|next| !next.starts_with("--"))),
            }
        }
        Ok(flags)
    }

    /// The TOML. `source`: the origin of the flags, for a comment; `base_dir` and `components`: as for the
    /// other files.
    pub(super) fn into_toml(
        self,
        source: &str,
        base_dir: &Path,
        components: Option<PathBuf>,
    ) -> anyhow::Result<String> {
        let mut converted = Converted::default();
        for (flag, value) in self.0 {
            converted.add(&flag, value.as_deref());
        }
        converted.into_toml(source, base_dir, components)
    }
}

/// The resulting settings and comments.
#[derive(Default)]
struct Converted {
    sections: BTreeMap<&'static str, Table>,
    attention: Vec<String>,
    unsupported: Vec<String>,
    unknown: Vec<String>,
    errors: Vec<String>,
}

impl Converted {
    fn add(&mut self, flag: &str, value: Option<&str>) {
        match (config::counterpart(flag), value) {
            (None, _) => self.unknown.push(flag.to_owned()),
            (Some(Counterpart::Unsupported(reason)), _) => {
                self.unsupported.push(format!("--{flag}: {reason}"));
            }
            (Some(Counterpart::Attention(advice)), _) => self.attention.push(format!("--{flag}: {advice}")),
            (Some(_), None) => self.errors.push(format!("--{flag} has no value")),
            (Some(Counterpart::Key(key, form)), Some(value)) => match config::parse_flag_value(form, value) {
                Ok(value) => self.set(flag, key, value),
                Err(expected) => self.errors.push(format!("--{flag}: expected {expected}")),
            },
            (Some(Counterpart::SameKey(form)), Some(value)) => self.set_same_name(flag, form, value),
            (Some(Counterpart::Credentials), Some(value)) => match value.split_once(':') {
                Some((username, password)) => {
                    self.insert("apps", "api_username", username.into());
                    self.insert("apps", "api_password", password.into());
                }
                None => self.errors.push(format!("--{flag}: expected USER:PASSWORD")),
            },
        }
    }

    fn set(&mut self, flag: &str, key: &'static str, value: Value) {
        let Some((section, name)) = key.split_once('.') else {
            return;
        };
        let any = Value::from("*");
        if flag == "access_control_allow_origin" && value.as_array().is_some_and(|it| it.contains(&any)) {
            let text = "pages of every site could change apps through the browsers of operators; name the sites in \
                        `apps.allowed_origins`";
            self.attention.push(format!("--{flag} is \"*\": {text}"));
            return;
        }
        if section == "cluster" && name == "principal" {
            // The framework registers with the principal, and authenticates as it if it has a
            // secret.
            self.insert(section, "username", value.clone());
        }
        self.insert(section, name, value);
    }

    /// Sets a key of `[apps]` with the name of the flag, in the first form that the settings accept.
    fn set_same_name(&mut self, flag: &str, form: FlagForm, value: &str) {
        let candidates = [form, FlagForm::Text].map(|form| config::parse_flag_value(form, value));
        let accepted = candidates.iter().flatten().find(|value| {
            let section = Table::from_iter([(flag.to_owned(), (*value).clone())]);
            section.try_into::<config::Apps>().is_ok()
        });
        match (accepted, &candidates[0]) {
            (Some(value), _) => self.insert("apps", flag, value.clone()),
            (None, Err(expected)) => self.errors.push(format!("--{flag}: expected {expected}")),
            (None, Ok(_)) if is_setting(flag) => {
                self.errors.push(format!("--{flag}: the value is out of range"));
            }
            (None, Ok(_)) => self
                .unsupported
                .push(format!("--{flag}: there is no setting `apps.{flag}` yet")),
        }
    }

    fn insert(&mut self, section: &'static str, key: &str, value: Value) {
        self.sections
            .entry(section)
            .or_default()
            .insert(key.to_owned(), value);
    }

    fn into_toml(
        mut self,
        source: &str,
        base_dir: &Path,
        components: Option<PathBuf>,
    ) -> anyhow::Result<String> {
        if !self.errors.is_empty() {
            bail!("{}", self.errors.join("\n"));
        }
        let cluster = self.sections.entry("cluster").or_default();
        if !cluster.contains_key("password") {
            cluster.remove("username");
        }
        if cluster.is_empty() {
            self.sections.remove("cluster");
        }
        let apps = self.sections.entry("apps").or_default();
        if !apps.contains_key("listener") {
            let text = "Marathon listens on every address; this port listens on 127.0.0.1. If clients are on other \
                        machines, set `listener` and `hostname`, and either credentials or `trusted_networks`.";
            self.attention.push(text.to_owned());
        }
        let events = Table::from_iter([("plan_format".to_owned(), Value::from("upstream"))]);
        apps.insert("events".to_owned(), Value::Table(events));
        if components.is_none() {
            let text = "No components were found beside this program: copy them to the directory `plugins` beside this file.";
            self.attention.push(text.to_owned());
        }
        let sections = self.sections.iter();
        let sections = sections.map(|(name, section)| ((*name).to_owned(), Value::Table(section.clone())));
        let mut document = toml::to_string(&sections.collect::<Table>())?;
        document += &store_and_plugins(base_dir, components);

        let mut text = format!("# From Marathon's configuration: {source}.\n");
        text += &comment_list("Needs attention", &self.attention);
        text += &comment_list("Has no counterpart", &self.unsupported);
        if !self.unknown.is_empty() {
            text += &comment_list("Unknown flags", &[self.unknown.join(", ")]);
        }
        text += &comment_list(
            "Required before the service can start",
            &config::missing(&document),
        );
        Ok(text + "\n" + &document)
    }
}

/// Whether `[apps]` has this key.
fn is_setting(key: &str) -> bool {
    let section = Table::try_from(config::Apps::default()).unwrap_or_default();
    section.contains_key(key)
}

/// Reads the text of a file of limited size.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(cannot_read)?.len();
    if size > MAX_BYTES {
        bail!("{} has {size} bytes, more than {MAX_BYTES}", path.display());
    }
    let content = std::fs::read(path).with_context(cannot_read)?;
    String::from_utf8(content).with_context(|| format!("{} is not a text file", path.display()))
}

/// Splits a text into words as a shell does, with quotes, and backslashes as escapes.
fn split_words(text: &str) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => bail!("a quote is not closed"),
                        Some(char) if char == quote => break,
                        Some('\\') if quote == '"' => word.extend(chars.next()),
                        Some(char) => word.push(char),
                    }
                }
            }
            // A backslash at the end of a line continues it.
            '\\' => match chars.next() {
                None | Some('\n') => {}
                Some(char) => word.get_or_insert_default().push(char),
            },
            char if char.is_whitespace() => words.extend(word.take()),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[path = "marathon_tests.rs"]
mod tests;
