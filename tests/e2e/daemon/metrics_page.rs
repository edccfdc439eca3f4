//! `docs/reference/metrics.md` lists what a daemon with all services exports.
//!
//! With `TRANSOM_UPDATE=1` the test writes the page. Labels are taken from exported series. For a
//! family without series, the labels on the page are kept; they are compared as soon as series
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use transom_tests::metrics::Family;

use crate::daemon::monitoring::{busy_site, families_of};

/// The sections by prefix of the name; the first matching one is used.
const SECTIONS: &[(&str, &str)] = &[
    ("process_", "Process"),
    ("transom_admin_", "Admin port"),
    ("transom_apps_", "Apps"),
    ("transom_discovery_", "Discovery"),
    ("transom_framework_", "Frameworks"),
    ("transom_kubernetes_", "Kubernetes"),
    ("transom_plugins_", "Plugins"),
    ("transom_scheduler_", "Schedulers"),
    ("transom_store_", "State store"),
    ("transom_web_", "Ports"),
    ("transom_workflow_", "Workflow"),
    ("", "Daemon"),
];

const PAGE_HEAD: &str = "# Metrics\n\n\
     Every metric that a daemon serves at `/metrics` of the admin port, in the OpenMetrics text format. This page is\n\
     generated from a running daemon with all services; [observability](../observability.md) explains how to use it.\n\n\
     A counter's series end in `_total`, as here. A histogram has the series `_bucket` (with the label `le`), `_sum` and\n\
     `_count`. A framework's name is the label `framework`, the store prefix; a plugin's the label `plugin`.\n";

/// A row of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) kind: String,
    pub(crate) labels: BTreeSet<String>,
    pub(crate) help: String,
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md")
}

/// The name of a family as the page shows it.
fn displayed_name(name: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.to_owned(),
    }
}

/// The rows of the page, by the name of the family.
pub(crate) fn documented() -> BTreeMap<String, Row> {
    let text = fs::read_to_string(page()).unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.splitn(4, '|').map(str::trim).collect();
        let [name, kind, labels, help] = cells[..] else {
            panic!("{row}: four cells")
        };
        let name = name.trim_end_matches('`');
        let family = match kind {
            "counter" => name.trim_end_matches("_total"),
            "info" => name.trim_end_matches("_info"),
            _ => name,
        };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
        let row = Row {
            kind: kind.to_owned(),
            labels: labels.filter(|label| !label.is_empty()).collect(),
            help: help.trim_end_matches('|').trim().to_owned(),
        };
        (family.to_owned(), row)
    })
    .collect()
}

fn rows(families: &BTreeMap<String, Family>, before: &BTreeMap<String, Row>) -> BTreeMap<String, Row> {
    let row = |(name, family): (&String, &Family)| {
        let labels_before = before.get(name).map(|row| row.labels.clone());
        let row = Row {
            kind: family.kind.clone(),
            labels: family.labels.clone().or(labels_before).unwrap_or_default(),
            help: family.help.replace('|', "\\|"),
        };
        (name.clone(), row)
    };
    families.iter().map(row).collect()
}

fn render_rows(rows: &BTreeMap<String, Row>) -> String {
    let mut text = PAGE_HEAD.to_owned();
    for (place, (prefix, title)) in SECTIONS.iter().enumerate() {
        let belongs = |name: &str| {
            name.starts_with(prefix)
                && !SECTIONS[..place]
                    .iter()
                    .any(|(earlier, _)| name.starts_with(earlier))
        };
        let _ = writeln!(
            text,
            "\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
        );
        for (name, row) in rows.iter().filter(|(name, _)| belongs(name)) {
            let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let Row { kind, help, .. } = row;
            let _ = writeln!(
                text,
                "| `{}` | {kind} | {} | {help} |",
                displayed_name(name, kind),
                labels.join(", ")
            );
        }
    }
    text
}

/// Violations of Prometheus' naming conventions.
fn naming_violation(name: &str, family: &Family) -> Option<String> {
    let units = [
        "_milliseconds",
        "_ms",
        "_minutes",
        "_kilobytes",
        "_mb",
        "_percent",
    ];
    let duration = name.ends_with("_duration") || name.ends_with("_latency");
    let problem = if family.help.is_empty() {
        "no help text"
    } else if units.iter().any(|unit| name.ends_with(unit)) || duration {
        "expected a base unit: _seconds, _bytes or _ratio"
    } else if name.ends_with("_total") {
        "registered with _total, which is added"
    } else if family.kind == "histogram" && !name.ends_with("_seconds") && !name.ends_with("_bytes") {
        "a histogram without a unit"
    } else if !family.unit.is_empty() && !name.ends_with(&family.unit) {
        "the unit is not in the name"
    } else {
        return None;
    };
    Some(format!("{name}: {problem}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_page_is_what_a_daemon_exports() {
    let site = busy_site().await;
    let families = families_of(&site).await;
    let misnamed: Vec<String> = families
        .iter()
        .filter_map(|(name, it)| naming_violation(name, it))
        .collect();
    assert!(misnamed.is_empty(), "{misnamed:#?}");
    let text = render_rows(&rows(&families, &documented()));
    if env::var_os("TRANSOM_UPDATE").is_some_and(|update| update == "1") {
        fs::create_dir_all(page().parent().expect("a folder")).expect("made");
        fs::write(page(), &text).expect("written");
    }
    let found = fs::read_to_string(page()).unwrap_or_default();
    let (page_lines, expected_lines): (BTreeSet<&str>, BTreeSet<&str>) =
        (text.lines().collect(), found.lines().collect());
    assert!(
        text == found,
        "docs/reference/metrics.md: run this test with TRANSOM_UPDATE=1\nmissing: {:#?}\nunknown: {:#?}",
        page_lines.difference(&expected_lines),
        expected_lines.difference(&page_lines)
    );
    site.cluster.stop_after(site.daemon);
}
