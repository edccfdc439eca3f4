//! `transom plugin check`: runs the admission of a component without a daemon, and compares it with
//! the version that serves in one.

mod against;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use transom_plugin_tools::workbench::{Examination, Workbench};

use super::cache::CacheArgs;
use super::input::{Component, stage_row};
use super::registry::RegistryArgs;
use super::{check_source, flatten};
use crate::admin_port::AdminPort;
use crate::exit::Misconfigured;
use crate::output::{self, Output};

/// Run a component and its manifest through every stage of admission, without a daemon: size,
/// digest, compilation, world, imports and grants, a trial instance that is described and
/// configured, and the manifest's self-tests.
///
/// With `--against serving` it also requests the serving version of this plugin from a running daemon,
/// and lists new imports, new grants and higher limits.
///
/// Exit code 1 means that a daemon would reject the component; the last stage and the message contain
/// the reason.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    component: Component,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Compare with another version of the plugin.
    #[arg(long, value_enum, value_name = "VERSION")]
    against: Option<Against>,
    #[command(flatten)]
    admin: AdminPort,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The version that a component is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// The version that serves in the daemon.
    Serving,
}

impl Check {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (registries, signatures) = self.registry.read()?;
        let Component { file, manifest } = &self.component;
        let is_manifest = manifest.is_none() && file.extension().is_some_and(|it| it == "toml");
        if is_manifest {
            if self.against.is_some() {
                let message = "--against needs a component, not a manifest with a `source`";
                return Err(anyhow!(message).context(Misconfigured));
            }
            let verdict = check_source::verdict(file, registries, signatures).await?;
            let mut rows = Vec::new();
            flatten("", &verdict, &mut rows);
            return output::print(self.output, &verdict, &["key", "value"], rows);
        }
        let files = self.component.read()?;
        let workbench = self.cache.apply(Workbench::trusting(&signatures)?)?;
        let examination = workbench.examine(&files).await;
        let comparison = match (&self.against, &examination.component) {
            (Some(Against::Serving), Some(component)) => {
                let name = file.file_stem().unwrap_or_default().to_string_lossy();
                let config = self.registry.file();
                Some(against::serving(&self.admin, config.as_deref(), &name, component).await?)
            }
            _ => None,
        };
        let rejection = comparison.as_ref().and_then(|it| it.rejection.clone());
        let rejection = examination.rejection.clone().or(rejection);
        let mut document = document(&examination)?;
        document["refusal"] = json!(rejection);
        let mut rows = rows(&examination);
        if let Some(comparison) = &comparison {
            document["against"] = serde_json::to_value(comparison)?;
            rows.extend(comparison.rows());
        }
        output::print(self.output, &document, &["stage", "result", "detail"], rows)?;
        match rejection {
            Some(rejection) => bail!("the daemon would reject {}: {rejection}", file.display()),
            None => Ok(()),
        }
    }
}

/// The component's facts and stages.
fn document(examination: &Examination) -> anyhow::Result<Value> {
    let mut document = serde_json::to_value(&examination.component)?;
    if document.is_null() {
        document = json!({});
    }
    document["stages"] = serde_json::to_value(&examination.stages)?;
    Ok(document)
}

fn rows(examination: &Examination) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = examination.stages.iter().map(stage_row).collect();
    if let Some(facts) = &examination.component {
        for (name, document) in [("grants", &facts.grants), ("limits", &facts.limits)] {
            let mut pairs = Vec::new();
            flatten(name, document, &mut pairs);
            rows.extend(pairs.into_iter().map(|row| match <[String; 2]>::try_from(row) {
                Ok([key, value]) => vec![key, String::new(), value],
                Err(row) => row,
            }));
        }
    }
    rows
}
