//! `transom plugin push`: pushes a component to a registry.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use transom_plugin_host::Registries;
use transom_plugin_tools::{Push as Image, PushError};

use super::registry::RegistryArgs;
use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};

/// The annotation with the component's name.
const TITLE: &str = "org.opencontainers.image.title";

/// Push a component to an OCI registry. A manifest with `source = "oci://…"` makes a daemon fetch
/// it from there.
///
/// Prints the source with the image's digest, which names exactly this component.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Component to push.
    file: PathBuf,
    /// Destination: `oci://registry/repository:tag`.
    place: String,
    /// Annotation of the image, for example org.opencontainers.image.version=1.2.0; repeatable.
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = annotation)]
    annotations: Vec<(String, String)>,
    /// Sign the image with this private key (PEM, PKCS#8, no password; ECDSA on P-256 or Ed25519), as
    /// cosign does.
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

impl Push {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (registries, _) = self.registry.read()?;
        let read = |file: &PathBuf| {
            fs::read(file)
                .with_context(|| format!("cannot read {}", file.display()))
                .context(Misconfigured)
        };
        let component = read(&self.file)?;
        // The preamble of a component: the magic number, version 13, and layer 1.
        if !component.starts_with(b"\0asm\x0d\0\x01\0") {
            bail!("{} is not a WebAssembly component", self.file.display());
        }
        let mut annotations: std::collections::BTreeMap<_, _> = self.annotations.into_iter().collect();
        if let Some(name) = self.file.file_name() {
            annotations
                .entry(TITLE.to_owned())
                .or_insert_with(|| name.to_string_lossy().into_owned());
        }
        let image = Image {
            component,
            annotations,
            key: self.sign.as_ref().map(read).transpose()?,
        };
        let source = match image.to(&self.place, &registries).await {
            Ok(source) => source,
            Err(error) => return Err(explained(error, &registries).await),
        };
        let rows = [vec!["source".to_owned(), source.clone()]];
        output::print(self.output, &json!({"source": source}), &["key", "value"], rows)
    }
}

/// The error of a failed push, with a hint if the registry answers without TLS.
async fn explained(error: PushError, registries: &Registries) -> anyhow::Error {
    let registry = match &error {
        PushError::Destination { .. } | PushError::Key { .. } => {
            return anyhow::Error::new(error).context(Misconfigured);
        }
        PushError::Registry { registry, .. } | PushError::TimedOut { registry, .. } => registry,
    };
    if registries.plain_http.contains(registry) || !speaks_plain_http(registry).await {
        return anyhow::Error::new(error).context(Unavailable);
    }
    anyhow::anyhow!(
        "{error}. {registry} answers without TLS: to allow that, add `--plain-http {registry}`, or set \
         `plugins.oci.insecure_registries` in the configuration"
    )
    .context(Unavailable)
}

/// Whether a registry answers the version request without TLS. A port with TLS answers such a
/// request with 400, if at all.
async fn speaks_plain_http(registry: &str) -> bool {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(3))
        .build();
    let Ok(client) = client else { return false };
    let answer = client.get(format!("http://{registry}/v2/")).send().await;
    answer.is_ok_and(|it| matches!(it.status().as_u16(), 200 | 401))
}
