//! Admission: from two files to a version that may serve. A failure here never affects calls.
//!
//! The stages: manifest, size, digest, signature, compilation, exports of the world, imports,
//! resources, linking, a trial instance that describes itself, the configuration against its
//! schema, `configure`, and the manifest's self-tests.

mod steps;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{
    cache::{Cache, NotCompiled},
    config::Config,
    engine::{
        CompileError, Compiled, ExceedsPool, Instance, World, WorldMismatch, check_types, link,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::CallError,
    executor::{BlockingTaskError, run_blocking},
    health::Health,
    imports::{self, ImportError},
    manifest::{Manifest, ManifestError},
    metrics::VersionMetrics,
    origin::{Files, Origin, Provenance},
    pool::{ComponentInfo, Runtime, Version},
    schema::{self, SchemaError},
    selftest::{self, Failed, Testable},
    shadow::{ActiveVersion, Comparable},
    sources::FetchError,
    table::Serving,
    text::{hex, one_line},
    trust::{SignatureError, Trust},
    types::about::ConfigError,
    version_context::{VersionContext, VersionTelemetry, seconds_now},
    world::WorldName,
};

pub use steps::Stage;
pub(crate) use steps::Steps;

/// Why a component does not serve. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("{0}.toml is missing: a component needs a manifest")]
    NoManifest(String),
    #[error("cannot read {what}: {message}")]
    Unreadable { what: String, message: String },
    #[error("manifest: {0}")]
    Manifest(#[from] ManifestError),
    #[error("it has {found} bytes, at most {limit} are allowed (limits.size)")]
    TooLarge { found: u64, limit: u64 },
    #[error("both {0}.wasm and a `source` in its manifest exist: remove one of them")]
    TwoSources(String),
    #[error("cannot fetch it from {from}: {error}")]
    NotFetched { from: String, error: FetchError },
    #[error("its digest is sha256:{found}, the manifest pins sha256:{pinned}")]
    Digest { found: String, pinned: String },
    #[error("{0}")]
    SignatureError(#[from] SignatureError),
    #[error("{0}")]
    Compile(#[from] NotCompiled),
    #[error("{0}")]
    WorldMismatch(#[from] WorldMismatch),
    #[error("{0}")]
    Imports(#[from] ImportError),
    #[error("{0}")]
    ExceedsPool(#[from] ExceedsPool),
    #[error("it does not link: {0}")]
    Link(String),
    #[error("its trial instance failed: {0}")]
    Trial(#[from] CallError),
    #[error("{0}")]
    Schema(#[from] SchemaError),
    #[error("it rejects its configuration: {}", ConfigError::list(.0))]
    Config(Vec<ConfigError>),
    #[error("{0}")]
    SelfTest(#[from] Failed),
    #[error("its world differs from that of the serving version, so the two cannot be compared (rollout)")]
    OtherWorld,
    #[error("the directory has more than {0} components")]
    TooMany(usize),
    #[error("{0}")]
    BlockingTaskError(#[from] BlockingTaskError),
    #[error("invalid plugin name: expected {NAMES}")]
    Name,
}

/// Valid plugin names.
pub(crate) const NAMES: &str =
    "1 to 64 of the characters a to z, A to Z, 0 to 9, `.`, `_` and `-`, starting with a letter or a digit";

/// Whether a file name without its extension is a valid plugin name.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}

/// When a refused component is retried without a change of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// At the next scan.
    Soon,
    /// When an operator requests a scan.
    Asked,
}

impl AdmissionError {
    /// When to retry. None: only when its files change.
    pub(crate) fn again(&self) -> Option<Again> {
        match self {
            AdmissionError::Compile(NotCompiled::Compile(error)) if error.passes() => Some(Again::Soon),
            // A compilation may succeed on a less busy machine.
            AdmissionError::BlockingTaskError(_)
            | AdmissionError::Compile(
                NotCompiled::BlockingTaskError(_) | NotCompiled::Compile(CompileError::TooLong(_)),
            ) => Some(Again::Asked),
            _ => None,
        }
    }
}

/// The dependencies of admission. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionContext {
    pub(crate) runtime: Runtime,
    pub(crate) config: Arc<Config>,
    pub(crate) cache: Cache,
    pub(crate) trust: Arc<Trust>,
}

/// An admitted component. It can be started repeatedly.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) info: ComponentInfo,
    pub(crate) manifest: Arc<Manifest>,
    start: Arc<dyn Fn(VersionTelemetry) -> Serving + Send + Sync>,
}

impl Admitted {
    /// Starts a version.
    pub(crate) fn start(&self, telemetry: VersionTelemetry) -> Serving {
        (self.start)(telemetry)
    }
}

/// A component that passed all checks that need no instance.
pub(crate) struct ValidatedComponent<'a> {
    admission_context: &'a AdmissionContext,
    name: &'a str,
    manifest: Arc<Manifest>,
    compiled: Compiled,
    /// SHA-256 of component and of manifest, hexadecimal.
    digests: (String, String),
    provenance: Provenance,
    imports: Vec<String>,
    metrics: VersionMetrics,
}

/// A component with a configured trial instance.
pub(crate) struct TrialInstance<W: World> {
    pub(crate) pre: W::Pre,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) info: ComponentInfo,
    pub(crate) instance: Instance<W>,
    name: String,
    /// The granted variables.
    environment: Vec<(String, String)>,
}

impl AdmissionContext {
    /// Admits or refuses. `before`: the imports of the version to be replaced; none if there is
    /// none.
    pub(crate) async fn admit(
        &self,
        name: &str,
        files: &Files,
        before: Option<&[String]>,
        metrics: VersionMetrics,
    ) -> Result<Admitted, AdmissionError> {
        let mut steps = Steps::default();
        let case = self.examine(name, files, before, metrics, &mut steps).await?;
        match case.world() {
            WorldName::CheckProbe => case.admit::<Probe>(Serving::Probe, &mut steps).await,
            WorldName::AttributeMatcher => case.admit::<Matcher>(Serving::Matcher, &mut steps).await,
            WorldName::EventFilter => case.admit::<Filter>(Serving::Filter, &mut steps).await,
            WorldName::BootstrapHandler => case.admit::<Bootstrap>(Serving::Bootstrap, &mut steps).await,
        }
    }

    /// All checks that need no instance.
    pub(crate) async fn examine<'a>(
        &'a self,
        name: &'a str,
        files: &Files,
        before: Option<&[String]>,
        metrics: VersionMetrics,
        steps: &mut Steps,
    ) -> Result<ValidatedComponent<'a>, AdmissionError> {
        steps.begin(Stage::Manifest);
        if !is_name(name) {
            return Err(AdmissionError::Name);
        }
        let text = files
            .manifest
            .as_ref()
            .ok_or_else(|| AdmissionError::NoManifest(name.to_owned()))?;
        let manifest = Manifest::parse(text, &self.config.limits, self.config.probation)?;
        if manifest.source.is_some() && matches!(files.origin, Origin::File { .. }) {
            return Err(AdmissionError::TwoSources(name.to_owned()));
        }
        steps.begin(Stage::Size);
        let found = files.component.len() as u64;
        let limit = manifest.limits.size;
        if found > limit {
            return Err(AdmissionError::TooLarge { found, limit });
        }
        steps.note(format!("{found} bytes of {limit}"));
        steps.begin(Stage::Digest);
        let digest = Sha256::digest(files.component.as_slice());
        let found = hex(&digest);
        if let Some(pinned) = manifest.digest.as_ref().filter(|pinned| **pinned != found) {
            return Err(AdmissionError::Digest {
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
            None => "not required".to_owned(),
        });
        let provenance = Provenance {
            source: match &files.origin {
                Origin::File { .. } => None,
                Origin::Image(image) => Some(image.at()),
            },
            signed_by,
        };
        steps.begin(Stage::Compile);
        let (cache, engine) = (&self.cache, &self.runtime.engine);
        let compiled = cache.compiled(engine, &files.component, digest.into()).await?;
        steps.begin(Stage::World);
        let world = manifest.world;
        let imports = check_types(&self.runtime.engine, &compiled, world)?;
        steps.note(world.short());
        steps.begin(Stage::Imports);
        imports::check(&imports, before, &manifest.grants)?;
        let imported = imports::interfaces(&imports);
        steps.note(imported.join(", "));
        steps.begin(Stage::Resources);
        compiled.fits(&manifest.limits)?;
        Ok(ValidatedComponent {
            admission_context: self,
            name,
            manifest: Arc::new(manifest),
            compiled,
            digests: (found, hex(&Sha256::digest(text))),
            provenance,
            imports: imported,
            metrics,
        })
    }
}

impl ValidatedComponent<'_> {
    pub(crate) fn world(&self) -> WorldName {
        self.manifest.world
    }

    async fn admit<W: Testable + Comparable>(
        self,
        of_world: fn(ActiveVersion<W>) -> Serving,
        steps: &mut Steps,
    ) -> Result<Admitted, AdmissionError> {
        let runtime = self.admission_context.runtime.clone();
        let mut trial = self.instantiate_trial::<W>(steps).await?;
        trial.self_tests(steps).await?;
        Ok(trial.admitted(runtime, of_world))
    }

    /// Links the component and configures a trial instance.
    pub(crate) async fn instantiate_trial<W: Testable>(
        self,
        steps: &mut Steps,
    ) -> Result<TrialInstance<W>, AdmissionError> {
        let AdmissionContext { runtime, config, .. } = self.admission_context;
        steps.begin(Stage::Link);
        let pre = link::<W>(&runtime.engine, &self.compiled).map_err(AdmissionError::Link)?;
        let environment: Vec<(String, String)> = self
            .manifest
            .grants
            .environment
            .iter()
            .filter_map(|name| Some((name.clone(), (config.environment)(name)?)))
            .collect();
        steps.begin(Stage::Trial);
        let context = trial_context(
            self.name,
            &self.manifest,
            environment.clone(),
            self.metrics.clone(),
        );
        let mut instance = Instance::<W>::instantiate(&runtime.engine, &pre, &context, 0).await?;
        steps.begin(Stage::Describe);
        let said = instance.describe().await?;
        let (version, calls_itself) = (one_line(&said.version), one_line(&said.name));
        tracing::debug!(plugin = context.name, version, calls_itself, "trial instance");
        context.log.set_version(&version);
        let summary = one_line(&said.summary);
        steps.note(format!("{calls_itself} {version}: {summary}"));
        steps.begin(Stage::Schema);
        let manifest = Arc::clone(&self.manifest);
        if said.config_schema.is_none() {
            steps.note("no config-schema");
        }
        run_blocking(move || schema::check(said.config_schema.as_deref(), &manifest.config)).await??;
        steps.begin(Stage::Configure);
        instance.configure().await?.map_err(AdmissionError::Config)?;
        let (component, text) = self.digests;
        let info = ComponentInfo {
            world: self.manifest.world,
            version,
            summary,
            digest: format!("sha256:{component}"),
            manifest: format!("sha256:{text}"),
            provenance: self.provenance,
            imports: self.imports,
            admitted_at: seconds_now(),
        };
        Ok(TrialInstance {
            pre,
            manifest: self.manifest,
            info,
            instance,
            name: self.name.to_owned(),
            environment,
        })
    }
}

impl<W: Testable> TrialInstance<W> {
    pub(crate) async fn self_tests(&mut self, steps: &mut Steps) -> Result<(), AdmissionError> {
        steps.begin(Stage::SelfTests);
        steps.note(match self.manifest.self_tests.len() {
            0 => "none".to_owned(),
            number => format!("{number} passed"),
        });
        selftest::run(&mut self.instance, &self.manifest.self_tests).await?;
        Ok(())
    }

    /// Drops the trial instance and returns the admitted component.
    fn admitted(self, runtime: Runtime, of_world: fn(ActiveVersion<W>) -> Serving) -> Admitted
    where
        W: Comparable,
    {
        let TrialInstance {
            pre,
            manifest,
            info,
            instance,
            name,
            environment,
        } = self;
        drop(instance);
        let start = {
            let (manifest, info) = (Arc::clone(&manifest), info.clone());
            move |telemetry| {
                let label = info.label();
                let context = Arc::new(VersionContext::new(
                    &name,
                    &label,
                    &manifest,
                    environment.clone(),
                    telemetry,
                ));
                context.log.set_version(&info.version);
                let mut info = info.clone();
                info.admitted_at = seconds_now();
                of_world(ActiveVersion::alone(Version::start(
                    &runtime, &pre, &context, info,
                )))
            }
        };
        Admitted {
            info,
            manifest,
            start: Arc::new(start),
        }
    }

    /// The context of another trial instance, with its own measurements.
    pub(crate) fn new_context(&self) -> Arc<VersionContext> {
        let context = trial_context(
            &self.name,
            &self.manifest,
            self.environment.clone(),
            VersionMetrics::unseen(),
        );
        context.log.set_version(&self.info.version);
        context
    }
}

/// The context of a trial instance, which sends no health events.
fn trial_context(
    name: &str,
    manifest: &Manifest,
    environment: Vec<(String, String)>,
    metrics: VersionMetrics,
) -> Arc<VersionContext> {
    let health = Health::new(manifest.probation, false, None);
    Arc::new(VersionContext::new(
        name,
        "",
        manifest,
        environment,
        VersionTelemetry { metrics, health },
    ))
}
