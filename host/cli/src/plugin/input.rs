//! Reads the input of the commands without a daemon: a component with its manifest, and cases.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use transom_plugin_tools::workbench::{Candidate, Cases, ComponentFiles, StageResult, Workbench};

use super::cache::CacheArgs;
use crate::exit::Misconfigured;
use crate::output;
use crate::output::print_note;

/// A component and its manifest.
#[derive(Debug, Args)]
pub(super) struct Component {
    /// Component file; `check` also accepts a manifest that names a `source`.
    pub(super) file: PathBuf,
    /// Manifest. Default: the `.toml` file of the same name next to the component.
    #[arg(long)]
    pub(super) manifest: Option<PathBuf>,
}

impl Component {
    pub(super) fn read(&self) -> anyhow::Result<ComponentFiles> {
        self.files().context(Misconfigured)
    }

    fn files(&self) -> anyhow::Result<ComponentFiles> {
        let component =
            fs::read(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        let path = self
            .manifest
            .clone()
            .unwrap_or_else(|| self.file.with_extension("toml"));
        let manifest = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))
            .context("a component needs a manifest: create one or name it with --manifest")?;
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let signature = fs::read(self.file.with_extension("wasm.sig")).ok();
        Ok(ComponentFiles::new(&name, component, manifest).signed(signature))
    }
}

/// A component that is admitted before its cases run.
#[derive(Debug, Args)]
pub(super) struct ComponentUnderTest {
    #[command(flatten)]
    component: Component,
    #[command(flatten)]
    cache: CacheArgs,
    /// Show the stages of admission on standard error, with the time of each and whether the
    /// compiled component is from the cache.
    #[arg(long, short)]
    verbose: bool,
}

impl ComponentUnderTest {
    /// Runs the stages of admission, except for the manifest's self-tests.
    pub(super) async fn admit(&self) -> anyhow::Result<Candidate> {
        let files = self.component.read()?;
        let workbench = self.cache.apply(Workbench::new()?)?;
        let admitted = workbench.admit(&files).await;
        let candidate = admitted.with_context(|| self.display_path())?;
        if self.verbose {
            let stages = candidate.stages();
            // The detail is the last column, because a list of imports is wider than a terminal.
            let rows = stages.iter().map(|stage| {
                let mut row = stage_row(stage);
                row.insert(2, micros(stage.millis * 1000.0));
                row
            });
            print_note(format_args!(
                "{}\n",
                output::table(&["stage", "result", "time", "detail"], rows)
            ));
        }
        Ok(candidate)
    }

    /// The component's file name without `.wasm`.
    pub(super) fn name(&self) -> String {
        let stem = self.component.file.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Another file in the component's folder.
    pub(super) fn sibling_path(&self, name: &str) -> PathBuf {
        self.component.file.with_file_name(name)
    }

    /// The component's path for messages.
    pub(super) fn display_path(&self) -> String {
        self.component.file.display().to_string()
    }
}

/// Name, verdict and detail of a stage.
pub(super) fn stage_row(result: &StageResult) -> Vec<String> {
    let stage = serde_json::to_value(result.stage).ok();
    let stage = stage.as_ref().and_then(Value::as_str).unwrap_or_default();
    let verdict = if result.ok { "ok" } else { "rejected" };
    vec![stage.to_owned(), verdict.to_owned(), result.detail.clone()]
}

/// The format of a file of cases, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CasesFormat {
    Toml,
    Json,
}

impl CasesFormat {
    pub(super) fn from_path(path: &Path) -> anyhow::Result<CasesFormat> {
        match path.extension().and_then(|it| it.to_str()) {
            Some("toml") => Ok(CasesFormat::Toml),
            Some("json") => Ok(CasesFormat::Json),
            _ => bail!("{}: expected a name that ends in .toml or .json", path.display()),
        }
    }
}

/// Reads the cases of a file; returns them with the file's text and format.
pub(super) fn read_cases(path: &Path) -> anyhow::Result<(Cases, String, CasesFormat)> {
    let read = || {
        let format = CasesFormat::from_path(path)?;
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let cases = match format {
            CasesFormat::Toml => Cases::from_toml(&text),
            CasesFormat::Json => Cases::from_json(&text),
        };
        let cases = cases.with_context(|| path.display().to_string())?;
        Ok((cases, text, format))
    };
    let outcome: anyhow::Result<_> = read();
    outcome.context(Misconfigured)
}

/// Bytes in readable form.
pub(super) fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{:.0} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

/// Microseconds in readable form.
pub(super) fn micros(number: f64) -> String {
    if number < 1000.0 {
        format!("{number:.1} us")
    } else if number < 1_000_000.0 {
        format!("{:.1} ms", number / 1000.0)
    } else {
        format!("{:.1} s", number / 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_formatted_with_units() {
        for (actual, expected) in [
            (bytes(100), "100 B"),
            (bytes(2048), "2 KiB"),
            (bytes(1 << 20), "1.0 MiB"),
            (micros(2.44), "2.4 us"),
            (micros(12_345.0), "12.3 ms"),
            (micros(12_345_678.0), "12.3 s"),
        ] {
            assert_eq!(actual, expected);
        }
    }
}
