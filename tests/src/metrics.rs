//! The metrics of a daemon as it exports them, and the names that rules and boards use.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    pub kind: String,
    pub unit: String,
    pub help: String,
    /// The labels of its series; `None` if it has no series.
    pub labels: Option<BTreeSet<String>>,
}

impl Family {
    /// The names of its series.
    pub fn series(&self, name: &str) -> Vec<String> {
        let with = |suffixes: &[&str]| suffixes.iter().map(|it| format!("{name}{it}")).collect();
        match self.kind.as_str() {
            "counter" => with(&["_total"]),
            "histogram" => with(&["_bucket", "_sum", "_count"]),
            "info" => with(&["_info"]),
            _ => with(&[""]),
        }
    }
}

/// The families in a text in the OpenMetrics format, by name.
pub fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut present = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let value = words.next().unwrap_or_default().to_owned();
            name.clone_into(&mut present);
            let family = families.entry(name.to_owned()).or_default();
            match what {
                "HELP" => value.trim_end_matches('.').clone_into(&mut family.help),
                "TYPE" => family.kind = value,
                "UNIT" => family.unit = value,
                other => panic!("{other} in {line}"),
            }
            continue;
        }
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let family = families.get_mut(&present).expect("a described family");
        assert!(
            family.series(&present).iter().any(|it| it == name),
            "{line} of {present}"
        );
        let labels = family.labels.get_or_insert_default();
        labels.extend(parse_selector(line).1.into_iter().filter(|label| label != "le"));
    }
    families
}

/// The name at the start of a selector, the labels in its braces, and the length of the selector.
fn parse_selector(text: &str) -> (String, Vec<String>, usize) {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(text.len());
    let name = text[..end].to_owned();
    let mut labels = Vec::new();
    let Some(rest) = text[end..].strip_prefix('{') else {
        return (name, labels, end);
    };
    let (mut label, mut quoted, mut escaped) = (String::new(), false, false);
    for (place, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '}' => return (name, labels, end + place + 2),
            '=' | '!' if !label.is_empty() => labels.push(std::mem::take(&mut label)),
            _ if c.is_ascii_alphanumeric() || c == '_' => label.push(c),
            _ => {}
        }
    }
    panic!("{text}: no end of the labels")
}

/// The metrics in a query with the labels that select their series, and the labels of groupings and
/// joins.
pub fn metrics_in_query(query: &str) -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    let (mut metrics, mut grouped) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
    let (mut rest, mut previous) = (query, String::new());
    while !rest.is_empty() {
        let (name, labels, length) = parse_selector(rest);
        if let Some(list) = rest.strip_prefix('(')
            && ["by", "on"].contains(&previous.as_str())
        {
            let (list, _) = list.split_once(')').expect("an end of the list");
            let list = list.split(',').map(|label| label.trim().to_owned());
            grouped.extend(list.filter(|label| !label.is_empty()));
        }
        let ours = ["transom_", "process_"].iter().any(|it| name.starts_with(it));
        if ours || name.contains(":transom_") {
            metrics.entry(name.clone()).or_default().extend(labels);
        }
        if length == 0 {
            let first = rest.chars().next().expect("a character");
            if first == '"' {
                let end = rest[1..].find('"').expect("an end of the text");
                rest = &rest[end + 2..];
            } else {
                rest = &rest[first.len_utf8()..];
            }
            if first != ' ' {
                previous.clear();
            }
        } else {
            rest = &rest[length..];
            previous = name;
        }
    }
    (metrics, grouped)
}
