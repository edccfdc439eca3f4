//! The faults of the settings: all of them are found in one pass, and each names its place.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use figment::error::{Actual, Kind};
use figment::value::Value;
use figment::{Figment, Metadata};

use super::aliases::WORKFLOW_ALIASES;
use super::file::{Lines, Readable};
use super::kubernetes::{self, INSTANCES};
use super::settings::Settings;
use super::{marathon, reference, renamed, report};

/// The maximum number of faults that are told; the number of the rest is told, too.
const MAX_FAULTS: usize = 100;

/// The faults of one reading of the settings.
pub(super) struct Faults<'a> {
    figment: &'a Figment,
    file: Option<&'a Path>,
    lines: Lines,
    texts: Vec<String>,
    /// The keys whose values were rejected. Further faults of these keys only follow from that.
    rejected: BTreeSet<String>,
}

impl<'a> Faults<'a> {
    /// `readable`: the content of `file`, whose errors are the first faults.
    pub(super) fn new(figment: &'a Figment, file: Option<&'a Path>, readable: &Readable) -> Self {
        Self {
            figment,
            file,
            lines: Lines::of(&readable.text),
            texts: readable.errors.clone(),
            rejected: readable.removed.iter().cloned().collect(),
        }
    }

    /// The settings without the keys whose values have the wrong type. `None`: no settings can be read.
    pub(super) fn extract(&mut self) -> Option<Settings> {
        let mut settings = match self.figment.find_value("") {
            Ok(settings) => settings,
            Err(error) => {
                let texts: Vec<_> = error.into_iter().map(|error| self.line(&error)).collect();
                self.texts.extend(texts);
                return None;
            }
        };
        // Each round removes a key.
        loop {
            let error = match settings.deserialize::<Settings>() {
                Ok(settings) => return Some(settings),
                Err(error) => error,
            };
            let path = path_of(&error);
            let removed = remove(&mut settings, &path);
            if !self.is_inherited(&path) {
                let text = self.line(&error);
                self.texts.push(text);
            }
            self.rejected.insert(report::display_key(&removed?).into_owned());
        }
    }

    /// Whether an instance inherits this key, so that the error is that of `[kubernetes]`.
    fn is_inherited(&self, path: &[String]) -> bool {
        match path {
            [section, _, key @ ..] if section == INSTANCES && !key.is_empty() => {
                self.rejected.contains(&format!("kubernetes.{}", key[0]))
                    || self.rejected.contains(&format!("kubernetes.{}", key.join(".")))
            }
            _ => false,
        }
    }

    /// Adds faults of single texts, each beginning with its key in backticks, and their places.
    pub(super) fn extend(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            let key = text.split('`').nth(1).unwrap_or_default().to_owned();
            let follows = |name: &&str| self.rejected.contains(*name);
            if text.split('`').skip(1).step_by(2).any(|name| follows(&name)) {
                continue;
            }
            let place = self.place(&key).map(|place| format!(" ({place})"));
            self.texts.push(text + &place.unwrap_or_default());
        }
    }

    /// Adds faults that name their places themselves.
    pub(super) fn extend_placed(&mut self, texts: impl IntoIterator<Item = String>) {
        self.texts.extend(texts);
    }

    /// All faults, one line each; an error, if there is any.
    pub(super) fn into_result(self) -> anyhow::Result<()> {
        let mut seen = HashSet::new();
        let mut texts: Vec<_> = self
            .texts
            .into_iter()
            .filter(|text| seen.insert(text.clone()))
            .collect();
        if texts.is_empty() {
            return Ok(());
        }
        if texts.len() > MAX_FAULTS {
            let rest = texts.len() - MAX_FAULTS;
            texts.truncate(MAX_FAULTS);
            texts.push(format!("and {rest} more"));
        }
        Err(anyhow::anyhow!("{}", texts.join("\n")))
    }

    /// The place of a key: the line of its file, or the name of another source. A key that is nowhere
    /// has the place of its section.
    fn place(&self, key: &str) -> Option<String> {
        let internal = internal_key(key);
        let metadata = self.figment.find_metadata(&internal);
        let from_file = metadata.is_none_or(|metadata| metadata.source.is_some());
        match (from_file, metadata) {
            (false, Some(metadata)) => Some(format!("from {}", metadata.name)),
            _ => Some(format!(
                "in {}, line {}",
                self.file?.display(),
                self.line_of(key)?
            )),
        }
    }

    /// The line of a key, or of its alias, or of its section.
    fn line_of(&self, key: &str) -> Option<usize> {
        let alias = |key: &str| {
            let workflow = WORKFLOW_ALIASES.iter().filter_map(|(name, alias)| {
                let rest = key.strip_prefix("workflow.")?;
                (rest == *name).then(|| format!("workflow.{alias}"))
            });
            let marathon = marathon::flags_of(key).map(|flag| format!("apps.{flag}"));
            workflow
                .chain(marathon)
                .find_map(|alias| self.lines.exact(&alias))
        };
        self.lines
            .exact(key)
            .or_else(|| alias(key))
            .or_else(|| self.lines.nearest(key))
    }

    /// The text of an error, with the place of its key.
    fn line(&self, error: &figment::Error) -> String {
        let path = path_of(error);
        let key = report::display_key(&path.join(".")).into_owned();
        let metadata = known_part(self.figment, &path).or(error.metadata.as_ref());
        let location = match metadata {
            Some(Metadata {
                source: Some(source), ..
            }) => match self.line_of(&key) {
                Some(line) => format!(" (in {source}, line {line})"),
                None => format!(" (in {source})"),
            },
            Some(metadata) => format!(" (from {})", metadata.name),
            None => String::new(),
        };
        error_line(error, &location)
    }
}

/// The path of the key that has the error.
fn path_of(error: &figment::Error) -> Vec<String> {
    let mut path = error.path.clone();
    if let Kind::UnknownField(name, _) = &error.kind
        && path.last() != Some(name)
    {
        path.push(name.clone());
    }
    path
}

/// The metadata of the innermost value on this path.
fn known_part<'a>(figment: &'a Figment, path: &[String]) -> Option<&'a Metadata> {
    (1..=path.len())
        .rev()
        .find_map(|length| figment.find_metadata(&path[..length].join(".")))
}

/// The path under which a key of an instance is kept.
fn internal_key(key: &str) -> String {
    match key
        .strip_prefix("kubernetes.")
        .and_then(|rest| rest.split_once('.'))
    {
        Some((name, rest)) if !kubernetes::is_key(name) => format!("{INSTANCES}.{name}.{rest}"),
        _ => key.to_owned(),
    }
}

/// Removes the value at this path, or the list that contains it, and returns its path.
fn remove(settings: &mut Value, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let Value::Dict(_, dict) = settings else {
        return None;
    };
    if !rest.is_empty()
        && let Some(inner @ Value::Dict(..)) = dict.get_mut(first)
        && let Some(removed) = remove(inner, rest)
    {
        return Some(format!("{first}.{removed}"));
    }
    dict.remove(first).map(|_| first.clone())
}

/// Rewrites figment's errors: place, value, and expected value.
pub(super) fn error_text(error: &figment::Error) -> String {
    error
        .clone()
        .into_iter()
        .map(|error| {
            let location = match &error.metadata {
                Some(metadata) => match &metadata.source {
                    Some(source) => format!(" (in {source})"),
                    None => format!(" (from {})", metadata.name),
                },
                None => String::new(),
            };
            error_line(&error, &location)
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn error_line(error: &figment::Error, location: &str) -> String {
    let path = report::display_key(&error.path.join(".")).into_owned();
    match &error.kind {
        Kind::UnknownField(name, known) => unknown_key(error, name, known, location),
        Kind::InvalidType(Actual::Map, expected) if is_kubernetes_key(&error.path) => {
            format!(
                "`{path}` is a table{location}; expected {expected}, because no instance can have the name of a key of [kubernetes]"
            )
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected)
            if reference::is_secret(&error.path) =>
        {
            format!(
                "`{path}` is {}{location}; expected {}",
                type_name(found),
                expected_in_words(expected)
            )
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!(
                "`{path}` is {}{location}; expected {}",
                value_in_words(found),
                expected_in_words(expected)
            )
        }
        Kind::UnknownVariant(found, known) => {
            let known = known.join(", ");
            let hint = renamed::value(&path, found);
            let hint = hint.map_or_else(String::new, |new| format!("; `{found}` is now `{new}`"));
            format!("`{path}` is `{found}`{location}; expected one of {known}{hint}")
        }
        Kind::MissingField(name) => {
            let key = if path.is_empty() {
                name.to_string()
            } else {
                format!("{path}.{name}")
            };
            format!("`{key}` is missing{location}")
        }
        kind if path.is_empty() => format!("{kind}{location}"),
        kind => format!("`{path}`: {}{location}", message_in_words(&kind.to_string())),
    }
}

fn unknown_key(error: &figment::Error, name: &str, known: &[&'static str], location: &str) -> String {
    let path = report::display_key(&error.path.join(".")).into_owned();
    let known: Vec<_> = known.iter().copied().filter(|key| *key != INSTANCES).collect();
    // The path ends with the key if figment knows it.
    let key = match error.path.last() {
        None => name.to_owned(),
        Some(last) if last == name => path,
        Some(_) => format!("{path}.{name}"),
    };
    if marathon::is_credentials(&key) {
        return format!("`{key}`{location}: expected a text with user and password, \"USER:PASSWORD\"");
    }
    let hint = match (renamed::key(&key), marathon::reason(&key), nearest(name, &known)) {
        (Some(new), _, _) => format!("it is now `{new}`"),
        (None, Some(reason), _) => format!("Marathon's flag has no counterpart: {reason}"),
        (None, None, Some(candidate)) => format!("did you mean `{candidate}`?"),
        (None, None, None) => format!("known keys: {}", known.join(", ")),
    };
    format!("unknown key `{key}`{location}; {hint}")
}

/// The type of a value that must not be shown.
fn type_name(value: &Actual) -> &'static str {
    match value {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "an integer",
        Actual::Float(_) => "a number",
        Actual::Str(_) | Actual::Char(_) => "another text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "a value of another type",
    }
}

/// A value as the file has it.
fn value_in_words(value: &Actual) -> String {
    match value {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => value.to_string(),
        Actual::Signed(value) => value.to_string(),
        Actual::Float(value) => value.to_string(),
        Actual::Str(value) => format!("the text {value:?}"),
        Actual::Char(value) => format!("the text \"{value}\""),
        other => type_name(other).to_owned(),
    }
}

/// The expected value without the names of Rust's types.
pub fn expected_in_words(expected: &str) -> String {
    let text = match expected {
        "u8" => "a whole number, 0 to 255",
        "u16" => "a whole number, 0 to 65535",
        "u32" => "a whole number, 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "bool" | "a boolean" => "true or false, without quotes",
        "a string" | "path string" | "IP address" => "a text in quotes",
        "a sequence" => "a list, as in [\"a\", \"b\"]",
        other if other.starts_with("a nonzero") => "a whole number, 1 or more",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    text.to_owned()
}

/// The message of a value that could not be parsed.
fn message_in_words(message: &str) -> String {
    let advice = match message {
        "invalid IP address syntax" => "; expected an address in quotes, as in \"10.0.0.1\"",
        "invalid IP Network syntax" => "; expected a network in quotes, as in \"10.0.0.0/8\"",
        _ => "",
    };
    format!("{message}{advice}")
}

fn is_kubernetes_key(path: &[String]) -> bool {
    matches!(path, [section, _] if section == "kubernetes")
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
