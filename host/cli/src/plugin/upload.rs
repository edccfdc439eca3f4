//! `transom plugin upload`: sends a plugin's files to a running daemon, and waits until it has admitted
//! or rejected them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use reqwest::Method;
use serde_json::json;
use transom_plugin_host::{PluginFiles, printable};

use super::served::{Admission, PluginOnDaemon};
use crate::admin_port::Connection;
use crate::exit::Misconfigured;
use crate::output::{self, Output};
use crate::plugin_archive;

/// Send a component to a running daemon, which writes it to its plugin directory and admits it like any
/// other file there; the command ends when the new version serves or is rejected.
///
/// The daemon keeps the plugin's manifest unless `--manifest` names another one; a new plugin needs a
/// manifest. A rejected component leaves the old version serving. The daemon accepts files only with
/// `uploads = true` in the section [plugins] of its configuration, as `transom dev` writes it.
///
/// Exit code 0 means that the version serves, or runs as a shadow or canary; 1 that the daemon
/// rejects it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom plugin upload events.wasm                          # replaces the plugin `events`\n  \
    transom plugin upload out/mine.wasm --manifest mine.toml   # a new plugin, or also its manifest\n  \
    transom plugin upload out/mine.wasm --as events            # under another name\n\n\
    The same with other programs:\n  \
    curl -T events.wasm http://127.0.0.1:9990/v1/plugins/events/files\n  \
    tar c events.toml events.wasm | curl -T - http://127.0.0.1:9990/v1/plugins/events/files")]
pub(crate) struct Upload {
    /// Component: NAME.wasm.
    file: PathBuf,
    /// Manifest to send with the component. Default: the daemon keeps the plugin's manifest.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Signature of the component. Default: the file NAME.wasm.sig next to it, if it exists.
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Name of the plugin in the daemon. Default: the component's file name without `.wasm`.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Upload {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let name = self.name.clone().unwrap_or_else(|| stem.into_owned());
        let files = self.files().context(Misconfigured)?;
        let plugin = PluginOnDaemon {
            connection: self.connection,
            name,
        };
        // Whether uploads are enabled is checked first: a daemon that rejects a large body may close
        // the connection before the client reads the response.
        let document = plugin.connection.request(Method::GET, &[], None).await?;
        if document["uploads"] == false {
            return Err(anyhow!(
                "uploads of plugin files are disabled in this daemon: set `uploads = true` in the section \
                 [plugins] of its configuration, or copy them to its plugin directory {}",
                printable(document["dir"].as_str().unwrap_or_default())
            ));
        }
        let body = plugin_archive::archive(&plugin.name, &files)?;
        let answer = plugin.connection.put(&[&plugin.name, "files"], body).await?;
        let digest = answer["digest"]
            .as_str()
            .context("the daemon does not report the component's digest")?;
        let ignored = "the daemon ignores these files, because a rollback or an abort has replaced them: change them, or \
                      roll back to their record (`transom plugin history`, `transom plugin rollback`)";
        if answer["ignored"] == true {
            return Err(anyhow!("{ignored}; {}", plugin.serving_text().await));
        }
        // The timeout for the beginning is zero: the daemon has begun the admission before it responds,
        // unless it already has the same files.
        let outcome = match plugin.wait_for_admission(digest, Duration::ZERO, ignored).await {
            Ok(outcome) => outcome,
            Err(error) => {
                return Err(anyhow!("{error:#}; {}", plugin.serving_text().await));
            }
        };
        let (state, version) = match &outcome {
            Admission::Serving(version) => ("serving", version),
            Admission::Rollout(kind, version) => (kind.as_str(), version),
            Admission::Unchanged => ("serving", &String::new()),
        };
        let document = json!({
            "plugin": plugin.name,
            "written": answer["written"],
            "digest": digest,
            "state": state,
            "version": version,
        });
        output::print_text(self.output, &document, &format!("{}: {outcome}", plugin.name))
    }

    fn files(&self) -> anyhow::Result<PluginFiles> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let default_signature = self.file.with_extension("wasm.sig");
        let signature = self
            .signature
            .clone()
            .or_else(|| default_signature.is_file().then_some(default_signature));
        Ok(PluginFiles {
            component: Some(read(&self.file)?),
            manifest: self.manifest.as_deref().map(read).transpose()?,
            signature: signature.as_deref().map(read).transpose()?,
        })
    }
}
