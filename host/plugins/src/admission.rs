//! From two files to a version that serves, aside from traffic: what fails here never answers a call.
//!
//! Manifest, size, digest, compilation, the world's exports and the imports by name, room in the pool, linking, a trial instance that describes
//! itself, the configuration against its schema, the instance's own word on it, and the manifest's self-tests.

mod steps;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{
    cache::{Cache, NotCompiled},
    config::Config,
    engine::{
        CompileError, Compiled, Live, Mismatch, Unfit, World, check_types, link,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::CallError,
    health::Health,
    imports::{self, Unwanted},
    lanes::{Unfinished, aside},
    manifest::{Manifest, ManifestError},
    metrics::Stats,
    origin::{Files, Origin, Provenance},
    plugin::{Meta, Post, seconds_now},
    pool::{Facts, Surroundings, Version},
    schema::{self, SchemaError},
    selftest::{self, Failed, Tested},
    shadow::{Pair, Shadowed},
    sources::FetchError,
    table::Serving,
    text::{hex, one_line},
    trust::{Trust, Untrusted},
    types::about::ConfigError,
    world::WorldName,
};

pub use steps::Stage;
pub(crate) use steps::Steps;

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
    #[error("{0}")]
    Compile(#[from] NotCompiled),
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    #[error("{0}")]
    Imports(#[from] Unwanted),
    #[error("{0}")]
    Unfit(#[from] Unfit),
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
    #[error("there are {0} components in the directory already, and no more are looked at")]
    TooMany(usize),
    #[error("{0}")]
    Unfinished(#[from] Unfinished),
    #[error("its name is none for a plugin: expected {NAMES}")]
    Name,
}

/// How plugins may be called.
pub(crate) const NAMES: &str = "1 to 64 of the letters a to z and A to Z, digits, `.`, `_` and `-`, the first of them a letter or a digit";

/// Whether a file's name without its ending may be a plugin's.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}

/// When a component that was refused is looked at again although its files are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// At the next look.
    Soon,
    /// When an operator asks for a look.
    Asked,
}

impl Refused {
    /// None: only when its files change.
    pub(crate) fn again(&self) -> Option<Again> {
        match self {
            Refused::Compile(NotCompiled::Compile(error)) if error.passes() => Some(Again::Soon),
            // A compilation that took too long may end in time on a machine that is less busy.
            Refused::Unfinished(_)
            | Refused::Compile(NotCompiled::Unfinished(_) | NotCompiled::Compile(CompileError::TooLong(_))) => {
                Some(Again::Asked)
            }
            _ => None,
        }
    }
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

/// What is looked at, on its way through: it may be tried out.
pub(crate) struct Case<'a> {
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

/// What was tried out: an instance started, described itself and took its configuration.
pub(crate) struct Tried<W: World> {
    pub(crate) pre: W::Pre,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) facts: Facts,
    pub(crate) trial: Live<W>,
    name: String,
    /// The variables that are granted.
    environment: Vec<(String, String)>,
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
        let mut steps = Steps::default();
        let case = self.examine(name, files, before, stats, &mut steps).await?;
        match case.world() {
            WorldName::CheckProbe => case.admit::<Probe>(Serving::Probe, &mut steps).await,
            WorldName::AttributeMatcher => case.admit::<Matcher>(Serving::Matcher, &mut steps).await,
            WorldName::EventFilter => case.admit::<Filter>(Serving::Filter, &mut steps).await,
            WorldName::BootstrapHandler => case.admit::<Bootstrap>(Serving::Bootstrap, &mut steps).await,
        }
    }

    /// Everything that can be said without an instance.
    pub(crate) async fn examine<'a>(
        &'a self,
        name: &'a str,
        files: &Files,
        before: Option<&[String]>,
        stats: Stats,
        steps: &mut Steps,
    ) -> Result<Case<'a>, Refused> {
        steps.begin(Stage::Manifest);
        if !is_name(name) {
            return Err(Refused::Name);
        }
        let text = files
            .manifest
            .as_ref()
            .ok_or_else(|| Refused::NoManifest(name.to_owned()))?;
        let manifest = Manifest::parse(text, &self.config.limits, self.config.probation)?;
        if manifest.source.is_some() && matches!(files.origin, Origin::File { .. }) {
            return Err(Refused::TwoSources(name.to_owned()));
        }
        steps.begin(Stage::Size);
        let found = files.component.len() as u64;
        let limit = manifest.limits.size;
        if found > limit {
            return Err(Refused::TooLarge { found, limit });
        }
        steps.note(format!("{found} bytes of {limit}"));
        steps.begin(Stage::Digest);
        let digest = Sha256::digest(files.component.as_slice());
        let found = hex(&digest);
        if let Some(pinned) = manifest.digest.as_ref().filter(|pinned| **pinned != found) {
            return Err(Refused::Digest {
                found,
                pinned: pinned.clone(),
            });
        }
        let pinned = if manifest.digest.is_some() {
            ""
        } else {
            ", not pinned"
        };
        steps.note(format!("sha256:{found}{pinned}"));
        steps.begin(Stage::Signature);
        let signed_by = self.trust.check(name, files, &found)?;
        steps.note(match &signed_by {
            Some(key) => format!("by {key}"),
            None => "none was looked for".to_owned(),
        });
        let provenance = Provenance {
            source: match &files.origin {
                Origin::File { .. } => None,
                Origin::Image(image) => Some(image.at()),
            },
            signed_by,
        };
        steps.begin(Stage::Compile);
        let (cache, engine) = (&self.cache, &self.around.engine);
        let compiled = cache.compiled(engine, &files.component, digest.into()).await?;
        steps.begin(Stage::World);
        let world = manifest.world;
        let imports = check_types(&self.around.engine, &compiled, world)?;
        steps.note(world.short());
        steps.begin(Stage::Imports);
        imports::check(&imports, before, &manifest.grants)?;
        let imported = imports::interfaces(&imports);
        steps.note(imported.join(", "));
        steps.begin(Stage::Room);
        compiled.fits(&manifest.limits)?;
        Ok(Case {
            desk: self,
            name,
            manifest: Arc::new(manifest),
            compiled,
            digests: (found, hex(&Sha256::digest(text))),
            provenance,
            imports: imported,
            stats,
        })
    }
}

impl Case<'_> {
    pub(crate) fn world(&self) -> WorldName {
        self.manifest.world
    }

    async fn admit<W: Tested + Shadowed>(
        self,
        of_world: fn(Pair<W>) -> Serving,
        steps: &mut Steps,
    ) -> Result<Admitted, Refused> {
        let around = self.desk.around.clone();
        let mut tried = self.try_out::<W>(steps).await?;
        tried.self_tests(steps).await?;
        Ok(tried.admitted(around, of_world))
    }

    /// Links, and asks an instance that serves nobody.
    pub(crate) async fn try_out<W: Tested>(self, steps: &mut Steps) -> Result<Tried<W>, Refused> {
        let Desk { around, config, .. } = self.desk;
        steps.begin(Stage::Link);
        let pre = link::<W>(&around.engine, &self.compiled).map_err(Refused::Link)?;
        let environment: Vec<(String, String)> = self
            .manifest
            .grants
            .environment
            .iter()
            .filter_map(|name| Some((name.clone(), (config.environment)(name)?)))
            .collect();
        steps.begin(Stage::Trial);
        let meta = aside_meta(self.name, &self.manifest, environment.clone(), self.stats.clone());
        let mut trial = Live::<W>::instantiate(&around.engine, &pre, &meta, 0).await?;
        steps.begin(Stage::Describe);
        let said = trial.describe().await?;
        let (version, calls_itself) = (one_line(&said.version), one_line(&said.name));
        tracing::debug!(plugin = meta.name, version, calls_itself, "trial instance");
        meta.log.set_version(&version);
        let summary = one_line(&said.summary);
        steps.note(format!("{calls_itself} {version}: {summary}"));
        steps.begin(Stage::Schema);
        let manifest = Arc::clone(&self.manifest);
        if said.config_schema.is_none() {
            steps.note("it states none");
        }
        aside(move || schema::check(said.config_schema.as_deref(), &manifest.config)).await??;
        steps.begin(Stage::Configure);
        trial.configure().await?.map_err(Refused::Config)?;
        let (component, text) = self.digests;
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
        Ok(Tried {
            pre,
            manifest: self.manifest,
            facts,
            trial,
            name: self.name.to_owned(),
            environment,
        })
    }
}

impl<W: Tested> Tried<W> {
    pub(crate) async fn self_tests(&mut self, steps: &mut Steps) -> Result<(), Refused> {
        steps.begin(Stage::SelfTests);
        steps.note(match self.manifest.self_tests.len() {
            0 => "there are none".to_owned(),
            number => format!("{number} passed"),
        });
        selftest::run(&mut self.trial, &self.manifest.self_tests).await?;
        Ok(())
    }

    /// Makes it one that may serve.
    fn admitted(self, around: Surroundings, of_world: fn(Pair<W>) -> Serving) -> Admitted
    where
        W: Shadowed,
    {
        let Tried {
            pre,
            manifest,
            facts,
            trial,
            name,
            environment,
        } = self;
        drop(trial);
        let start = {
            let (manifest, facts) = (Arc::clone(&manifest), facts.clone());
            move |post| {
                let label = facts.label();
                let meta = Arc::new(Meta::new(&name, &label, &manifest, environment.clone(), post));
                meta.log.set_version(&facts.version);
                let mut facts = facts.clone();
                facts.admitted_at = seconds_now();
                of_world(Pair::alone(Version::start(&around, &pre, &meta, facts)))
            }
        };
        Admitted {
            facts,
            manifest,
            start: Arc::new(start),
        }
    }

    /// What a further instance is made for that serves nobody either, with measurements of its own.
    pub(crate) fn another_meta(&self) -> Arc<Meta> {
        let meta = aside_meta(
            &self.name,
            &self.manifest,
            self.environment.clone(),
            Stats::unseen(),
        );
        meta.log.set_version(&self.facts.version);
        meta
    }
}

/// What an instance is made for whose faults are nobody's alarm.
fn aside_meta(
    name: &str,
    manifest: &Manifest,
    environment: Vec<(String, String)>,
    stats: Stats,
) -> Arc<Meta> {
    let health = Health::new(manifest.probation, false, None);
    Arc::new(Meta::new(name, "", manifest, environment, Post { stats, health }))
}
