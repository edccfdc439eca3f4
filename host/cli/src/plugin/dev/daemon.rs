//! The daemon that serves the plugin. New files are copied to its plugin directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use reqwest::Method;
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use crate::admin_port::Connection;
use crate::exit::Misconfigured;
use crate::output::print_note;
use crate::plugin::build::{Built, write_pair};
use crate::plugin::served::{Admission, PluginOnDaemon};

/// How long the daemon may take to detect new files. It receives a request to scan its directory.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Daemon {
    pub(super) plugin: PluginOnDaemon,
    /// The daemon's plugin directory.
    pub(super) dir: PathBuf,
}

impl Daemon {
    /// `dir`: the daemon's plugin directory, if it differs from the one that the daemon reports.
    pub(super) async fn find(
        connection: Connection,
        name: String,
        dir: Option<&Path>,
    ) -> anyhow::Result<Daemon> {
        // The daemon's rule for names: the name becomes part of file names.
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_valid = name.chars().all(is_allowed) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !is_valid || name.len() > 64 {
            let expected =
                "expected 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit";
            return Err(anyhow::anyhow!("`{name}` is not a plugin's name: {expected}").context(Misconfigured));
        }
        let document = connection.request(Method::GET, &[], None).await.context(
            "`transom plugin dev` needs a running daemon; `transom dev` starts one with everything it needs",
        )?;
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => document["dir"]
                .as_str()
                .map(PathBuf::from)
                .context("the daemon does not report its plugin directory: name it with --plugins")
                .context(Misconfigured)?,
        };
        if !dir.is_dir() {
            let error = anyhow::anyhow!(
                "there is no folder {} on this machine: name the daemon's plugin directory with --plugins",
                dir.display()
            );
            return Err(error.context(Misconfigured));
        }
        let plugin = PluginOnDaemon { connection, name };
        Ok(Daemon { plugin, dir })
    }

    /// Copies the files to the plugin directory and waits for the daemon's verdict.
    pub(super) async fn serve(&self, built: &Built) -> anyhow::Result<Admission> {
        let digest = format!("sha256:{}", hex(&Sha256::digest(&built.component)));
        let path = |kind: &str| self.dir.join(format!("{}.{kind}", self.plugin.name));
        let is_unchanged = |kind: &str, content: &[u8]| fs::read(path(kind)).is_ok_and(|it| it == content);
        if is_unchanged("wasm", &built.component) && is_unchanged("toml", &built.manifest) {
            let status = self.plugin.status().await?;
            if status["digest"] == digest && status["refusal"].is_null() {
                return Ok(Admission::Unchanged);
            }
        }
        write_pair(&self.dir, &self.plugin.name, &built.component, &built.manifest)
            .context("the daemon's plugin directory")?;
        // A failed request, for example of a user who may only read, is no error: the daemon also
        // watches the directory, and detects the files a little later.
        if let Err(error) = self
            .plugin
            .connection
            .request(Method::POST, &["rescan"], None)
            .await
        {
            print_note(format_args!("{error:#}"));
        }
        let detection_error = format!(
            "the daemon did not detect {}.wasm in {} within {} s: is this its plugin directory?",
            self.plugin.name,
            self.dir.display(),
            DETECTION_TIMEOUT.as_secs()
        );
        self.plugin
            .wait_for_admission(&digest, DETECTION_TIMEOUT, &detection_error)
            .await
    }
}
