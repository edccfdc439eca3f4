//! The trial instance of an admission, and the admitted component.
//!
//! The trial instance becomes the first instance of the version, unless the manifest has
//! self-tests: these leave state in it, and an answer in service must not depend on them. Without
//! self-tests it is in the same state as every other configured instance, because `describe` only
//! returns constants.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use transom_plugin_cases::RecordedCalls;

use super::{AdmissionError, ServingVersion, Stage, StageLog, replayed::judge};
use crate::{
    lifecycle::{
        replay::{ReplayTarget, replay},
        table::Serving,
    },
    manifest::{Manifest, masks::Masks},
    observe::{health::HealthWatch, version_metrics::VersionMetrics},
    runtime::{
        active_version::ActiveVersion,
        engine::{Engine, Instance, World},
        pool::{ComponentInfo, Runtime, Version},
        recording::{RecordedVersion, Recorder},
        version_context::{VersionContext, seconds_now},
    },
    self_test::{self, Testable},
    storage::call_log::CallLog,
};

/// A component with a configured trial instance.
pub(crate) struct TrialInstance<W: Testable> {
    pub(crate) pre: W::Pre,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) info: ComponentInfo,
    pub(super) instance: Instance<W>,
    pub(super) context: Arc<VersionContext>,
    /// The granted environment variables.
    pub(super) environment: Vec<(String, String)>,
    /// The secrets of its configuration.
    pub(super) masks: Arc<Masks>,
}

/// An admitted component. It can be started repeatedly.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) info: ComponentInfo,
    pub(crate) manifest: Arc<Manifest>,
    masks: Arc<Masks>,
    start: Arc<dyn Fn(Activation) -> Serving + Send + Sync>,
}

/// How a version is started.
#[derive(Debug)]
pub(crate) enum Activation {
    /// It answers calls. `metrics` are used unless the trial instance, which has its own, is
    /// reused.
    Serving {
        metrics: VersionMetrics,
        watch: HealthWatch,
        recorder: Option<Recorder>,
    },
    /// Neither its calls nor its faults count for the plugin.
    Shadow,
}

impl Admitted {
    /// Starts a version.
    pub(crate) fn start(&self, activation: Activation) -> Serving {
        (self.start)(activation)
    }

    /// Returns its description for recorded calls.
    pub(crate) fn recorded_version(&self, plugin: &str) -> Arc<RecordedVersion> {
        Arc::new(RecordedVersion {
            plugin: plugin.to_owned(),
            version: self.info.version.clone(),
            digest: self.info.digest.clone(),
            manifest: self.info.manifest.clone(),
            world: self.info.world,
            masks: Arc::clone(&self.masks),
        })
    }
}

impl<W: Testable> TrialInstance<W> {
    pub(crate) async fn self_tests(&mut self, stage_log: &mut StageLog) -> Result<(), AdmissionError> {
        stage_log.begin(Stage::SelfTests);
        stage_log.note(match self.manifest.self_tests.len() {
            0 => "none".to_owned(),
            number => format!("{number} passed"),
        });
        self_test::run(&mut self.instance, &self.manifest.self_tests).await?;
        Ok(())
    }

    /// Replays recorded calls on it, if the manifest requires that and a version serves. `log`:
    /// `None` if no calls are recorded.
    pub(super) async fn replay(
        &mut self,
        engine: &Engine,
        log: Option<&CallLog>,
        serving: &ServingVersion,
        stage_log: &mut StageLog,
    ) -> Result<(), AdmissionError> {
        let Some(plan) = self.manifest.rollout.replay() else {
            return Ok(());
        };
        if serving.world != self.info.world {
            return Err(AdmissionError::OtherWorld);
        }
        stage_log.begin(Stage::Replay);
        let recorded = match log {
            Some(log) => {
                let version = (serving.digest.clone(), serving.manifest.clone());
                let max = usize::try_from(plan.max_calls).unwrap_or(usize::MAX);
                log.read(&self.context.name, plan.since, max, Some(version))
                    .await?
            }
            None => RecordedCalls::default(),
        };
        let deadline = Instant::now() + plan.timeout;
        let report = replay(self.replay_target(engine), &recorded, Some(deadline)).await;
        stage_log.note(judge(&plan, &report, log.is_some())?);
        Ok(())
    }

    /// Returns the component for a replay on further instances.
    pub(crate) fn replay_target<'a>(&'a self, engine: &'a Engine) -> ReplayTarget<'a, W> {
        ReplayTarget {
            engine,
            pre: &self.pre,
            context: self.new_context(),
            world: self.info.world,
            masks: &self.masks,
        }
    }

    pub(super) fn admitted(self, runtime: Runtime, of_world: fn(ActiveVersion<W>) -> Serving) -> Admitted
    where
        W: World,
    {
        let TrialInstance {
            pre,
            manifest,
            info,
            instance,
            context,
            environment,
            masks,
        } = self;
        let name = context.name.clone();
        let unused = manifest.self_tests.is_empty().then_some((instance, context));
        let unused = Mutex::new(unused);
        let start = {
            let (manifest, info, masks) = (Arc::clone(&manifest), info.clone(), Arc::clone(&masks));
            move |activation| {
                let trial = unused.lock().unwrap_or_else(PoisonError::into_inner).take();
                let new_context = |metrics| {
                    let context = VersionContext::new(&name, &manifest, environment.clone(), metrics);
                    context.log.set_version(&info.version);
                    Arc::new(context)
                };
                let (context, first) = match activation {
                    Activation::Serving {
                        metrics,
                        watch,
                        recorder,
                    } => {
                        let (context, first) = match trial {
                            Some((instance, context)) => (context, Some(instance)),
                            None => (new_context(metrics), None),
                        };
                        context.activate(&info.label(), watch, recorder);
                        (context, first)
                    }
                    // The calls of the trial instance count for the plugin, so it is not used here.
                    Activation::Shadow => {
                        let context = new_context(VersionMetrics::unexported());
                        context.set_label(&info.label());
                        (context, None)
                    }
                };
                let mut info = info.clone();
                info.admitted_at = seconds_now();
                of_world(ActiveVersion::new(Version::start(
                    &runtime,
                    &pre,
                    &context,
                    info,
                    Arc::clone(&masks),
                    first,
                )))
            }
        };
        Admitted {
            info,
            manifest,
            masks,
            start: Arc::new(start),
        }
    }

    /// Creates the context of another instance, with separate metrics.
    pub(crate) fn new_context(&self) -> Arc<VersionContext> {
        self.context_with(self.manifest.config.to_string())
    }

    /// Creates the same context with another document for `configure`.
    pub(crate) fn context_with(&self, config: String) -> Arc<VersionContext> {
        let mut context = VersionContext::new(
            &self.context.name,
            &self.manifest,
            self.environment.clone(),
            VersionMetrics::unexported(),
        );
        context.config = config;
        context.log.set_version(&self.info.version);
        Arc::new(context)
    }
}
