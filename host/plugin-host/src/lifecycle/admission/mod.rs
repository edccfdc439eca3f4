//! Admission: turns a component and its manifest into a version that may serve. A failure here never
//! affects calls.
//!
//! The stages: manifest, size, digest, signature, compilation, exports of the world, imports,
//! resources, linking, a trial instance that describes itself, the configuration against its
//! schema, `configure`, the manifest's self-tests, and with `rollout = "replay"` recorded calls.

mod error;
mod replayed;
mod stage_log;
mod trial_instance;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use transom_common::text::hex;
use transom_registry::{Origin, Provenance, Trust};

use crate::{
    config::Config,
    lifecycle::table::Serving,
    manifest::{Manifest, files::Files, imports},
    name::is_name,
    observe::version_metrics::VersionMetrics,
    runtime::{
        active_version::ActiveVersion,
        config_check,
        engine::{
            Compiled, Instance, check_types, link,
            worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
        },
        pool::{ComponentInfo, Runtime},
        version_context::{VersionContext, seconds_now},
    },
    self_test::Testable,
    storage::{call_log::CallLog, compiled_cache::CompiledCache},
    worlds::{WorldName, about::shown_text},
};

pub(crate) use error::{AdmissionError, Retry};
pub use stage_log::Stage;
pub(crate) use stage_log::{StageLog, StageRecord};
pub(crate) use trial_instance::{Activation, Admitted, TrialInstance};

/// The dependencies of admission. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionContext {
    pub(crate) runtime: Runtime,
    pub(crate) config: Arc<Config>,
    pub(crate) cache: CompiledCache,
    pub(crate) trust: Arc<Trust>,
    /// The call log. `None`: no calls are recorded.
    pub(crate) calls: Option<CallLog>,
}

/// The version that serves during an admission.
#[derive(Clone, Debug)]
pub(crate) struct ServingVersion {
    /// `sha256:` and the component's digest.
    pub(crate) digest: String,
    /// `sha256:` and the digest of the manifest.
    pub(crate) manifest: String,
    pub(crate) world: WorldName,
}

/// A component that passed all checks that need no instance.
pub(crate) struct ValidatedComponent<'a> {
    admission_context: &'a AdmissionContext,
    name: &'a str,
    manifest: Arc<Manifest>,
    compiled: Compiled,
    /// SHA-256 of the component and of the manifest, hexadecimal.
    digests: (String, String),
    provenance: Provenance,
    imports: Vec<String>,
    metrics: VersionMetrics,
}

impl AdmissionContext {
    /// Admits or rejects a component. `before`: the imports of the version to be replaced; `None`
    /// if there is no such version. `serving`: the version whose recorded calls are replayed;
    /// `None` if there is no replay.
    pub(crate) async fn admit(
        &self,
        name: &str,
        files: &Files,
        before: Option<&[String]>,
        serving: Option<&ServingVersion>,
        metrics: VersionMetrics,
    ) -> Result<Admitted, AdmissionError> {
        let mut stage_log = StageLog::default();
        let validated = self.examine(name, files, before, metrics, &mut stage_log).await?;
        match validated.world() {
            WorldName::CheckProbe => {
                validated
                    .admit::<Probe>(Serving::Probe, serving, &mut stage_log)
                    .await
            }
            WorldName::AttributeMatcher => {
                validated
                    .admit::<Matcher>(Serving::Matcher, serving, &mut stage_log)
                    .await
            }
            WorldName::EventFilter => {
                validated
                    .admit::<Filter>(Serving::Filter, serving, &mut stage_log)
                    .await
            }
            WorldName::BootstrapHandler => {
                validated
                    .admit::<Bootstrap>(Serving::Bootstrap, serving, &mut stage_log)
                    .await
            }
        }
    }

    /// Executes all checks that need no instance.
    pub(crate) async fn examine<'a>(
        &'a self,
        name: &'a str,
        files: &Files,
        before: Option<&[String]>,
        metrics: VersionMetrics,
        stage_log: &mut StageLog,
    ) -> Result<ValidatedComponent<'a>, AdmissionError> {
        stage_log.begin(Stage::Manifest);
        if !is_name(name) {
            return Err(AdmissionError::Name);
        }
        let file = files
            .manifest
            .as_ref()
            .ok_or_else(|| AdmissionError::NoManifest(name.to_owned()))?;
        let manifest = Arc::clone(file.manifest()?);
        if manifest.source.is_some() && matches!(files.origin, Origin::File { .. }) {
            return Err(AdmissionError::TwoSources(name.to_owned()));
        }
        stage_log.begin(Stage::Size);
        let found = files.component.len() as u64;
        let limit = manifest.limits.size;
        if found > limit {
            return Err(AdmissionError::TooLarge { found, limit });
        }
        stage_log.note(format!("{found} bytes of {limit}"));
        stage_log.begin(Stage::Digest);
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
        stage_log.note(format!("sha256:{found}{pinned}"));
        stage_log.begin(Stage::Signature);
        let signed_by = self.trust.check(name, &files.component, &files.origin, &found)?;
        stage_log.note(match &signed_by {
            Some(key) => format!("by {key}"),
            None => "not required".to_owned(),
        });
        let provenance = Provenance {
            source: match &files.origin {
                Origin::File { .. } => None,
                Origin::Image(image) => Some(image.pinned_source()),
            },
            signed_by,
            attestations: match &files.origin {
                Origin::File { .. } => Vec::new(),
                Origin::Image(image) => image.attestations.list.clone(),
            },
        };
        stage_log.begin(Stage::Compile);
        let (cache, engine) = (&self.cache, &self.runtime.engine);
        let (compiled, from) = cache
            .get_or_compile(engine, &files.component, digest.into())
            .await?;
        stage_log.note(from.to_string());
        stage_log.begin(Stage::World);
        let world = manifest.world;
        let imports = check_types(&self.runtime.engine, &compiled, world)?;
        stage_log.note(world.short());
        stage_log.begin(Stage::Imports);
        imports::check(&imports, before, &manifest.grants)?;
        let imported = imports::interfaces(&imports);
        stage_log.note(imported.join(", "));
        stage_log.begin(Stage::Resources);
        compiled.fits(&manifest.limits)?;
        Ok(ValidatedComponent {
            admission_context: self,
            name,
            manifest,
            compiled,
            digests: (found, hex(&Sha256::digest(file.text()))),
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

    async fn admit<W: Testable>(
        self,
        of_world: fn(ActiveVersion<W>) -> Serving,
        serving: Option<&ServingVersion>,
        stage_log: &mut StageLog,
    ) -> Result<Admitted, AdmissionError> {
        let AdmissionContext { runtime, calls, .. } = self.admission_context.clone();
        let mut trial = self.instantiate_trial::<W>(stage_log).await?;
        trial.self_tests(stage_log).await?;
        if let Some(serving) = serving {
            trial
                .replay(&runtime.engine, calls.as_ref(), serving, stage_log)
                .await?;
        }
        Ok(trial.admitted(runtime, of_world))
    }

    /// Links the component and configures a trial instance.
    pub(crate) async fn instantiate_trial<W: Testable>(
        self,
        stage_log: &mut StageLog,
    ) -> Result<TrialInstance<W>, AdmissionError> {
        let AdmissionContext { runtime, config, .. } = self.admission_context;
        stage_log.begin(Stage::Link);
        let pre = link::<W>(&runtime.engine, &self.compiled).map_err(AdmissionError::Link)?;
        let environment: Vec<(String, String)> = self
            .manifest
            .grants
            .environment
            .iter()
            .filter_map(|name| Some((name.clone(), (config.environment)(name)?)))
            .collect();
        stage_log.begin(Stage::Trial);
        let context = Arc::new(VersionContext::new(
            self.name,
            &self.manifest,
            environment.clone(),
            self.metrics,
        ));
        let mut instance = Instance::<W>::instantiate(&runtime.engine, &pre, &context, 0).await?;
        stage_log.begin(Stage::Describe);
        let description = instance.describe().await?;
        let (version, calls_itself) = (shown_text(&description.version), shown_text(&description.name));
        tracing::debug!(plugin = context.name, version, calls_itself, "trial instance");
        context.log.set_version(&version);
        let summary = shown_text(&description.summary);
        stage_log.note(format!("{calls_itself} {version}: {summary}"));
        stage_log.begin(Stage::Schema);
        if description.config_schema.is_none() {
            stage_log.note("no config-schema");
        }
        let schema = description.config_schema.as_deref();
        let priority = self.admission_context.cache.priority();
        let checked = config_check::check(&config.compiler, schema, &self.manifest.config, priority);
        let masks = Arc::new(checked.await?);
        stage_log.begin(Stage::Configure);
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
            context,
            environment,
            masks,
        })
    }
}
