//! From two files to a version that serves, aside from traffic: what fails here never answers a call.
//!
//! Manifest, size, digest, compilation, the world's exports and the imports by name, linking, a trial instance that describes
//! itself, the configuration against its schema, the instance's own word on it, and the manifest's self-tests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    cache::Cache,
    config::Config,
    engine::{
        CompileError, Compiled, Live, Mismatch, check_types, link,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::CallError,
    health::Health,
    imports::{self, Unwanted},
    manifest::{Manifest, ManifestError},
    metrics::Stats,
    plugin::{Meta, Post, seconds_now},
    pool::{Facts, Surroundings, Version},
    schema::{self, SchemaError},
    selftest::{self, Failed, Tested},
    shadow::{Pair, Shadowed},
    sources::{FetchError, image::Image},
    table::Serving,
    text::{hex, one_line},
    trust::{Trust, Untrusted},
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
    #[error("there are both {0}.wasm and a `source` in its manifest: which of the two is meant?")]
    TwoSources(String),
    #[error("it is not fetched from {from}: {error}")]
    NotFetched { from: String, error: FetchError },
    #[error("its digest is sha256:{found}, the manifest pins sha256:{pinned}")]
    Digest { found: String, pinned: String },
    #[error("{0}")]
    Untrusted(#[from] Untrusted),
    #[error("it does not compile: {0}")]
    Compile(#[from] CompileError),
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    #[error("{0}")]
    Imports(#[from] Unwanted),
    #[error("it does not link: {0}")]
    Link(String),
    #[error("its trial instance failed: {0}")]
    Trial(#[from] CallError),
    #[error("{0}")]
    Schema(#[from] SchemaError),
    #[error("it refuses its configuration: {}", ConfigError::list(.0))]
    Config(Vec<ConfigError>),
    #[error("{0}")]
    SelfTest(#[from] Failed),
    #[error(
        "it is of another world than the version that serves, so that their answers cannot be compared (promote)"
    )]
    OtherWorld,
    #[error("looking at it failed within the plugin host, which is a mistake there")]
    Broke,
    #[error("there are {0} components in the directory already, and no more are looked at")]
    TooMany(usize),
    #[error("the daemon is stopping")]
    Stopped,
}

/// A component and its manifest as they were read.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) component: Arc<Vec<u8>>,
    pub(crate) manifest: Option<String>,
    pub(crate) origin: Origin,
}

/// Where a component is from, and what shows who signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// A file in the directory.
    File {
        /// What lies beside it as `NAME.wasm.sig`; looked for where keys are configured.
        signature: Option<Vec<u8>>,
    },
    /// A registry.
    Image(Arc<Image>),
}

/// Where an admitted component is from, and who signed it: as records say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Provenance {
    /// `oci://…@sha256:…`; none for a file in the directory.
    pub(crate) source: Option<String>,
    /// The key's name and digest; none where nobody had to.
    pub(crate) signed_by: Option<String>,
}

/// What admitting needs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) around: Surroundings,
    pub(crate) config: Arc<Config>,
    pub(crate) cache: Cache,
    pub(crate) trust: Arc<Trust>,
}

/// A component that may serve, and how it is made to. Can be started again, after another version was tried.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) facts: Facts,
    pub(crate) manifest: Arc<Manifest>,
    start: Arc<dyn Fn(Post) -> Serving + Send + Sync>,
}

impl Admitted {
    /// A version with instances of its own.
    pub(crate) fn start(&self, post: Post) -> Serving {
        (self.start)(post)
    }
}

/// What is looked at, on its way through.
struct Case<'a> {
    desk: &'a Desk,
    name: &'a str,
    manifest: Arc<Manifest>,
    compiled: Compiled,
    /// SHA-256 of component and of manifest, hexadecimal.
    digests: (String, String),
    provenance: Provenance,
    imports: Vec<String>,
    stats: Stats,
}

impl Desk {
    /// Admits or refuses. `before`: the interfaces that the version to be replaced imports; none where none serves.
    pub(crate) async fn admit(
        &self,
        name: &str,
        files: &Files,
        before: Option<&[String]>,
        stats: Stats,
    ) -> Result<Admitted, Refused> {
        let text = files
            .manifest
            .as_ref()
            .ok_or_else(|| Refused::NoManifest(name.to_owned()))?;
        let manifest = Manifest::parse(text, &self.config.limits, self.config.probation)?;
        if manifest.source.is_some() && matches!(files.origin, Origin::File { .. }) {
            return Err(Refused::TwoSources(name.to_owned()));
        }
        let found = files.component.len() as u64;
        if found > manifest.limits.size {
            return Err(Refused::TooLarge {
                found,
                limit: manifest.limits.size,
            });
        }
        let digest = Sha256::digest(files.component.as_slice());
        let found = hex(&digest);
        if let Some(pinned) = manifest.digest.as_ref().filter(|pinned| **pinned != found) {
            return Err(Refused::Digest {
                found,
                pinned: pinned.clone(),
            });
        }
        let provenance = Provenance {
            source: match &files.origin {
                Origin::File { .. } => None,
                Origin::Image(image) => Some(image.at()),
            },
            signed_by: self.trust.check(name, files, &found)?,
        };
        let compiled = self.compile(&files.component, digest.into()).await?;
        let world = manifest.world;
        let imports = check_types(&self.around.engine, &compiled, world)?;
        imports::check(&imports, before, &manifest.grants)?;
        let case = Case {
            desk: self,
            name,
            manifest: Arc::new(manifest),
            compiled,
            digests: (found, hex(&Sha256::digest(text))),
            provenance,
            imports: imports::interfaces(&imports),
            stats,
        };
        match world {
            WorldName::CheckProbe => case.try_out::<Probe>(Serving::Probe).await,
            WorldName::AttributeMatcher => case.try_out::<Matcher>(Serving::Matcher).await,
            WorldName::EventFilter => case.try_out::<Filter>(Serving::Filter).await,
            WorldName::BootstrapHandler => case.try_out::<Bootstrap>(Serving::Bootstrap).await,
        }
    }

    async fn compile(&self, component: &Arc<Vec<u8>>, digest: [u8; 32]) -> Result<Compiled, Refused> {
        let (cache, engine) = (self.cache.clone(), self.around.engine.clone());
        let component = Arc::clone(component);
        Ok(aside(move || cache.compiled(&engine, &component, digest)).await??)
    }
}

/// Does what takes the processor or the disk for long outside the runtime's own threads.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
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

impl Case<'_> {
    /// Links, and asks an instance that serves nobody.
    async fn try_out<W: Tested + Shadowed>(
        self,
        of_world: fn(Pair<W>) -> Serving,
    ) -> Result<Admitted, Refused> {
        let Desk { around, config, .. } = self.desk;
        let pre = link::<W>(&around.engine, &self.compiled).map_err(Refused::Link)?;
        let environment: Vec<(String, String)> = self
            .manifest
            .grants
            .environment
            .iter()
            .filter_map(|name| Some((name.clone(), (config.environment)(name)?)))
            .collect();
        let post = Post {
            stats: self.stats.clone(),
            health: Health::new(self.manifest.probation, false, None),
        };
        let meta = Arc::new(Meta::new(self.name, &self.manifest, environment.clone(), post));
        let mut trial = Live::<W>::instantiate(&around.engine, &pre, &meta, 0).await?;
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
        let manifest = Arc::clone(&self.manifest);
        aside(move || schema::check(said.config_schema.as_deref(), &manifest.config)).await??;
        trial
            .configure(&meta.config.to_string())
            .await?
            .map_err(Refused::Config)?;
        selftest::run(&mut trial, &self.manifest.self_tests).await?;
        drop(trial);
        let (component, text) = &self.digests;
        let facts = Facts {
            world: self.manifest.world,
            version,
            summary,
            digest: format!("sha256:{component}"),
            manifest: format!("sha256:{text}"),
            provenance: self.provenance,
            imports: self.imports,
            admitted_at: seconds_now(),
        };
        let start = {
            let (around, name, manifest) = (around.clone(), self.name.to_owned(), Arc::clone(&self.manifest));
            let facts = facts.clone();
            move |post| {
                let meta = Arc::new(Meta::new(&name, &manifest, environment.clone(), post));
                meta.log.set_version(&facts.version);
                let mut facts = facts.clone();
                facts.admitted_at = seconds_now();
                of_world(Pair::alone(Version::start(&around, &pre, &meta, facts)))
            }
        };
        Ok(Admitted {
            facts,
            manifest: self.manifest,
            start: Arc::new(start),
        })
    }
}
