//! Marathon's configuration: flags in a file or a command line, `MARATHON_` variables in a file or
//! in the environment, and a folder with one file for each flag, as `/etc/marathon/conf`.
//!
//! The table of `transom_config::marathon` maps flags to keys. A flag without a key becomes a comment with the
//! reason. Comments and errors contain no values of flags that may be secrets. Nothing is executed: a
//! line that needs a shell is named in a comment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml::{Table, Value};
use transom_config::{Counterpart, FlagForm};

use super::{comment_list, store_and_plugins};

/// The maximum size of one file, in bytes, and the maximum number of files in a folder.
const MAX_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 1000;

const VARIABLES: &str = "MARATHON_";
/// Beginnings of variables that are not flags: Marathon passes them to tasks, or its launcher reads
/// them.
const NOT_FLAGS: &[&str] = &["app_", "java_args"];

/// The variable with the credentials of the API, if the flag is not set.
const CREDENTIALS_VARIABLE: &str = "MESOSPHERE_HTTP_CREDENTIALS";

/// Flags and their values, and what was left out of their source.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    /// `None` for a flag without a value; an empty text is a value that was given and is empty.
    values: BTreeMap<String, Option<String>>,
    /// Notes for the operator.
    notes: Vec<String>,
}

impl Flags {
    fn insert(&mut self, name: &str, value: Option<String>) {
        let name = name
            .trim_start_matches('-')
            .replace('-', "_")
            .to_ascii_lowercase();
        self.values.insert(name, value);
    }

    /// Adds the flags of `others` that are not set yet.
    pub(super) fn or_insert_all(mut self, others: Self) -> Self {
        for (name, value) in others.values {
            self.values.entry(name).or_insert(value);
        }
        self.notes.extend(others.notes);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Reads flags from the environment.
    pub(super) fn from_variables(variables: impl Iterator<Item = (String, String)>) -> Self {
        let (mut flags, mut defaults) = (Self::default(), Self::default());
        for (name, value) in variables {
            if name == CREDENTIALS_VARIABLE {
                defaults.insert("http_credentials", Some(value));
                continue;
            }
            let Some(name) = name.strip_prefix(VARIABLES) else {
                continue;
            };
            let name = name.to_ascii_lowercase();
            if !NOT_FLAGS.iter().any(|other| name.starts_with(other)) {
                flags.insert(&name, Some(value));
            }
        }
        flags.or_insert_all(defaults)
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
                None => flags.insert(&name, Some(content.to_owned())),
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
                .enumerate()
                .map(|(index, line)| (index + 1, line.trim()))
                .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        };
        if lines().any(|(_, line)| line.starts_with('[') && !line.starts_with("[ ")) {
            return None;
        }
        if lines().any(|(_, line)| variable(line).is_some()) {
            return Some(Self::from_assignments(lines()));
        }
        if lines().any(|(_, line)| line.split_whitespace().any(|word| word.starts_with("--"))) {
            let lines: Vec<_> = lines().map(|(_, line)| line).collect();
            return Some(Self::from_command_line(&lines.join("\n")));
        }
        None
    }

    /// Reads `NAME=value` lines, with or without `export`, as a shell reads them.
    fn from_assignments<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        let mut variables = Vec::new();
        for (number, line) in lines {
            let Some((name, value)) = variable(line) else {
                if !is_plain_assignment(line) {
                    flags
                        .notes
                        .push(format!("line {number} is not read: it needs a shell"));
                }
                continue;
            };
            let words = split_words(value).with_context(|| format!("line {number}: {name}"))?;
            if words.iter().any(|word| word.needs_shell) {
                flags.notes.push(format!(
                    "line {number}: the value of {name} is not read, because it needs a shell; set it by hand"
                ));
                continue;
            }
            let end = words
                .iter()
                .position(|word| word.text.starts_with('#') && !word.quoted);
            if let Some(end) = end.filter(|end| *end > 0) {
                flags
                    .notes
                    .push(format!("line {number}: the comment after {name} is dropped"));
                let value = joined(&words[..end]);
                variables.push((name.to_owned(), value));
            } else {
                variables.push((name.to_owned(), joined(&words)));
            }
        }
        let notes = std::mem::take(&mut flags.notes);
        let mut flags = Self::from_variables(variables.into_iter());
        flags.notes = notes;
        Ok(flags)
    }

    /// Reads `--flag value`, `--flag=value`, or `--flag`. Words before the first flag are the program
    /// and its own arguments, and are ignored.
    fn from_command_line(text: &str) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        let mut words = split_words(text)?.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.text.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                continue;
            };
            let (flag, value, needs_shell) = if let Some((flag, value)) = flag.split_once('=') {
                (flag, Some(value.to_owned()), word.needs_shell)
            } else {
                let next = words.next_if(|next| !next.text.starts_with("--"));
                let needs_shell = next.as_ref().is_some_and(|next| next.needs_shell);
                (flag, next.map(|next| next.text), needs_shell)
            };
            if needs_shell {
                flags.notes.push(format!(
                    "the value of --{flag} is not read, because it needs a shell; set it by hand"
                ));
            } else {
                flags.insert(flag, value);
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
        let mut converted = Converted {
            attention: self.notes,
            ..Converted::default()
        };
        for (flag, value) in self.values {
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
        match (transom_config::counterpart(flag), value) {
            (None, _) => self.unknown.push(flag.to_owned()),
            (Some(Counterpart::Unsupported(reason)), _) => {
                self.unsupported.push(format!("--{flag}: {reason}"));
            }
            (Some(Counterpart::Attention(advice)), _) => self.attention.push(format!("--{flag}: {advice}")),
            (Some(_), None) => self.errors.push(format!("--{flag} has no value")),
            (Some(_), Some("")) => self.attention.push(format!("--{flag} is empty: it is left out")),
            (Some(Counterpart::Key(key, form)), Some(value)) => {
                match transom_config::parse_flag_value(form, value) {
                    Ok(value) => self.set(flag, key, value),
                    // Only numbers have a form, and a number is no secret.
                    Err(expected) => self
                        .errors
                        .push(format!("--{flag} is {value:?}: expected {expected}")),
                }
            }
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

    /// Sets a key of `[apps]` with the name of the flag, in the first form that the settings accept. None
    /// of these flags is a secret.
    fn set_same_name(&mut self, flag: &str, form: FlagForm, value: &str) {
        let candidates = [form, FlagForm::Text].map(|form| transom_config::parse_flag_value(form, value));
        if let Some(value) = candidates
            .iter()
            .flatten()
            .find(|value| rejection(flag, value).is_none())
        {
            return self.insert("apps", flag, value.clone());
        }
        match &candidates[0] {
            Err(expected) => self
                .errors
                .push(format!("--{flag} is {value:?}: expected {expected}")),
            Ok(Value::Array(items)) => self.set_known_items(flag, items),
            Ok(_) if flag == "gpu_scheduling_behavior" => self.unsupported.push(format!(
                "--{flag} is {value:?}: there is no such behaviour, so the default applies, \"restricted\""
            )),
            Ok(accepted) if is_setting(flag) => {
                let expected = rejection(flag, accepted).unwrap_or_default();
                self.errors.push(format!("--{flag} is {value:?}: {expected}"));
            }
            Ok(_) => self
                .unsupported
                .push(format!("--{flag}: there is no setting `apps.{flag}` yet")),
        }
    }

    /// Sets a list without the items that the settings do not have.
    fn set_known_items(&mut self, flag: &str, items: &[Value]) {
        let is_known = |item: &Value| rejection(flag, &Value::Array(vec![item.clone()])).is_none();
        let (known, others): (Vec<_>, Vec<_>) = items.iter().cloned().partition(is_known);
        for item in others {
            let item = item.as_str().unwrap_or_default().to_owned();
            let reason = match item.as_str() {
                "vips" => {
                    "ports with a VIP label need no switch; the cluster's load balancer reads the labels"
                }
                "maintenance_mode" => "it is on: the default of `apps.maintenance` is \"evacuate\"",
                _ => "there is no such feature",
            };
            self.unsupported.push(format!("--{flag} {item:?}: {reason}"));
        }
        self.insert("apps", flag, Value::Array(known));
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
            &transom_config::missing(&document),
        );
        Ok(text + "\n" + &document)
    }
}

/// Why `[apps]` cannot have this value; `None` if it can.
fn rejection(key: &str, value: &Value) -> Option<String> {
    let section = Table::from_iter([(key.to_owned(), value.clone())]);
    let error = section.try_into::<transom_config::Apps>().err()?;
    let expected = error.message().rsplit_once("expected ");
    Some(match expected {
        Some((_, expected)) => format!("expected {}", transom_config::expected_in_words(expected.trim())),
        None => error.message().to_owned(),
    })
}

/// The name and the value of a `MARATHON_` variable in a line with an assignment.
fn variable(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("export ").unwrap_or(line).trim();
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let name = name.trim();
    (name.starts_with(VARIABLES) || name == CREDENTIALS_VARIABLE).then_some((name, value))
}

/// Whether a line sets another variable, as in `PATH=/bin`.
fn is_plain_assignment(line: &str) -> bool {
    let line = line.strip_prefix("export ").unwrap_or(line).trim();
    let Some((name, value)) = line.split_once('=') else {
        return false;
    };
    let is_name = |name: &str| {
        name.chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
    };
    is_name(name.trim()) && !value.contains(VARIABLES)
}

/// Whether `[apps]` has this key.
fn is_setting(key: &str) -> bool {
    let section = Table::try_from(transom_config::Apps::default()).unwrap_or_default();
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

/// A word of a shell's line.
#[derive(Debug, Default)]
struct Word {
    text: String,
    /// Whether a part is in quotes.
    quoted: bool,
    /// Whether a shell would replace a part, as in `$HOME` or `$(hostname)`.
    needs_shell: bool,
}

/// The text of several words.
fn joined(words: &[Word]) -> String {
    words
        .iter()
        .map(|word| word.text.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Splits a text into words as a shell does, with quotes, and backslashes as escapes.
fn split_words(text: &str) -> anyhow::Result<Vec<Word>> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut chars = text.chars().peekable();
    let is_replaced = |char: char, next: Option<&char>| {
        char == '`'
            || char == '$'
                && next.is_some_and(|next| matches!(next, '{' | '(' | '_') || next.is_ascii_alphanumeric())
    };
    while let Some(char) = chars.next() {
        match char {
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                word.quoted = true;
                loop {
                    match chars.next() {
                        None => bail!("a quote is not closed"),
                        Some(char) if char == quote => break,
                        Some('\\') if quote == '"' => word.text.extend(chars.next()),
                        Some(char) => {
                            word.needs_shell |= quote == '"' && is_replaced(char, chars.peek());
                            word.text.push(char);
                        }
                    }
                }
            }
            // A backslash at the end of a line continues it.
            '\\' => match chars.next() {
                None | Some('\n') => {}
                Some(char) => word.get_or_insert_default().text.push(char),
            },
            char if char.is_whitespace() => words.extend(word.take()),
            char => {
                let word = word.get_or_insert_default();
                word.needs_shell |= is_replaced(char, chars.peek());
                word.text.push(char);
            }
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[path = "marathon_tests.rs"]
mod tests;
