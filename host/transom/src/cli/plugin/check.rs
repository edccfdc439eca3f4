//! `transom plugin check`: runs the admission of a component without a daemon.

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use transom_plugin_tools::workbench::{Examination, Workbench};

use super::cache::CacheArgs;
use super::registry::RegistryArgs;
use super::work::{Component, stage_row};
use super::{check_source, flatten};
use crate::output::{self, Output};

/// Run a component and its manifest through every stage of admission, without a daemon: size,
/// digest, compilation, world, imports and grants, a trial instance that is described and
/// configured, and the manifest's self-tests.
///
/// Exit code 1 means that a daemon would reject it; the last stage and the message give the reason.
#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    component: Component,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Check {
    pub(in crate::cli) async fn run(self) -> anyhow::Result<()> {
        let (registries, signatures) = self.registry.read()?;
        let Component { file, manifest } = &self.component;
        if manifest.is_none() && file.extension().is_some_and(|it| it == "toml") {
            let verdict = check_source::verdict(file, registries, signatures).await?;
            let mut rows = Vec::new();
            flatten("", &verdict, &mut rows);
            return output::print(self.output, &verdict, &["key", "value"], rows);
        }
        let work = self.component.read()?;
        let bench = self.cache.apply(Workbench::trusting(&signatures)?)?;
        let examination = bench.examine(&work).await;
        output::print(
            self.output,
            &document(&examination)?,
            &["stage", "", "what"],
            rows(&examination),
        )?;
        match &examination.refusal {
            Some(refusal) => bail!("{} would be refused: {refusal}", file.display()),
            None => Ok(()),
        }
    }
}

/// The component's facts and stages, and why it would be rejected.
fn document(examination: &Examination) -> anyhow::Result<Value> {
    let mut document = serde_json::to_value(&examination.component)?;
    if document.is_null() {
        document = json!({});
    }
    document["stages"] = serde_json::to_value(&examination.stages)?;
    document["refusal"] = json!(examination.refusal);
    Ok(document)
}

fn rows(examination: &Examination) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = examination.stages.iter().map(stage_row).collect();
    if let Some(facts) = &examination.component {
        for (name, document) in [("grants", &facts.grants), ("limits", &facts.limits)] {
            let mut found = Vec::new();
            flatten(name, document, &mut found);
            rows.extend(found.into_iter().map(|row| match <[String; 2]>::try_from(row) {
                Ok([key, value]) => vec![key, String::new(), value],
                Err(row) => row,
            }));
        }
    }
    rows
}
