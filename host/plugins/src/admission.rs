//! From two files to a version that serves, aside from traffic: what fails here never answers a call.
//!
//! Manifest, size, digest, compilation, the world's exports and the imports by name, linking, a trial instance that describes
//! itself, the configuration against its schema, and the instance's own word on it.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use sha2::{Digest, Sha256};

use crate::{
    engine::{
        CompileError, Compiled, Live, Mismatch, World, check_types, link,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::CallError,
    limits::Limits,
    manifest::{Manifest, ManifestError},
    metrics::Stats,
    plugin::Meta,
    pool::{Facts, Surroundings, Version},
    schema::{self, SchemaError},
    table::Serving,
    text::{hex, one_line},
    types::about::ConfigError,
    world::WorldName,
};

/// Why a component does not serve. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no {0}.toml beside it: without a manifest nothing is admitted")]
    NoManifest(String),
    #[error("{what} cannot be read: {message}")]
    Unreadable { what: String, message: String },
    #[error("manifest: {0}")]
    Manifest(#[from] ManifestError),
    #[error("it has {found} bytes, {limit} are allowed (limits.size)")]
    TooLarge { found: u64, limit: u64 },
    #[error("its digest is sha256:{found}, the manifest pins sha256:{pinned}")]
    Digest { found: String, pinned: String },
    #[error("it does not compile: {0}")]
    Compile(#[from] CompileError),
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    #[error("it does not link: {0}")]
    Link(String),
    #[error("its trial instance failed: {0}")]
    Trial(#[from] CallError),
    #[error("{0}")]
    Schema(#[from] SchemaError),
    #[error("it refuses its configuration: {}", ConfigError::list(.0))]
    Config(Vec<ConfigError>),
    #[error("looking at it failed within the plugin host, which is a mistake there")]
    Broke,
    #[error("there are {0} components in the directory already, and no more are looked at")]
    TooMany(usize),
    #[error("the daemon is stopping")]
    Stopped,
}

/// The two files as they were read.
pub(crate) struct Files {
    pub(crate) component: Vec<u8>,
    pub(crate) manifest: Option<String>,
}

/// Admits or refuses.
pub(crate) async fn admit(
    around: &Surroundings,
    defaults: &Limits,
    name: &str,
    files: Files,
    stats: Stats,
) -> Result<Serving, Refused> {
    let manifest = files
        .manifest
        .ok_or_else(|| Refused::NoManifest(name.to_owned()))?;
    let manifest = Manifest::parse(&manifest, defaults)?;
    let found = files.component.len() as u64;
    if found > manifest.limits.size {
        return Err(Refused::TooLarge {
            found,
            limit: manifest.limits.size,
        });
    }
    let digest = hex(&Sha256::digest(&files.component));
    if let Some(pinned) = manifest.digest.as_ref().filter(|pinned| **pinned != digest) {
        return Err(Refused::Digest {
            found: digest,
            pinned: pinned.clone(),
        });
    }
    let compiled = compile(around, files.component).await?;
    let world = manifest.world;
    check_types(&around.engine, &compiled, world)?;
    let meta = Arc::new(Meta::new(name, manifest, stats));
    Ok(match world {
        WorldName::CheckProbe => Serving::Probe(serve::<Probe>(around, &compiled, &meta, digest).await?),
        WorldName::AttributeMatcher => {
            Serving::Matcher(serve::<Matcher>(around, &compiled, &meta, digest).await?)
        }
        WorldName::EventFilter => Serving::Filter(serve::<Filter>(around, &compiled, &meta, digest).await?),
        WorldName::BootstrapHandler => {
            Serving::Bootstrap(serve::<Bootstrap>(around, &compiled, &meta, digest).await?)
        }
    })
}

async fn compile(around: &Surroundings, component: Vec<u8>) -> Result<Compiled, Refused> {
    let engine = around.engine.clone();
    Ok(aside(move || engine.compile(&component)).await??)
}

/// Does what takes the processor for long outside the runtime's own threads.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(work).await;
    // The runtime drops work when it goes down.
    done.map_err(|error| {
        if error.is_panic() {
            Refused::Broke
        } else {
            Refused::Stopped
        }
    })
}

/// Links, tries an instance, and starts the version.
async fn serve<W: World>(
    around: &Surroundings,
    compiled: &Compiled,
    meta: &Arc<Meta>,
    digest: String,
) -> Result<Arc<Version<W>>, Refused> {
    let pre = link::<W>(&around.engine, compiled).map_err(Refused::Link)?;
    let mut trial = Live::<W>::instantiate(&around.engine, &pre, meta, 0).await?;
    let said = trial.describe().await?;
    let version = one_line(&said.version);
    tracing::debug!(
        plugin = meta.name,
        version,
        calls_itself = one_line(&said.name),
        "trial instance"
    );
    meta.log.set_version(&version);
    let summary = one_line(&said.summary);
    let config = Arc::clone(meta);
    aside(move || schema::check(said.config_schema.as_deref(), &config.config)).await??;
    trial
        .configure(&meta.config.to_string())
        .await?
        .map_err(Refused::Config)?;
    drop(trial);
    let facts = Facts {
        version,
        summary,
        digest: format!("sha256:{digest}"),
        admitted_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    Ok(Arc::new(Version::start(around, &pre, meta, facts)))
}
