//! Run specs: what apps and pods have in common.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pod::Backoff;
use super::{
    App, Check, Constraint, Effect, HealthCheck, KillSelection, Pod, ReadinessCheck, UnreachableStrategy,
    UpgradeStrategy, VersionInfo,
};
use crate::ids::SpecId;
use crate::settings::Checks;
use crate::time::Moment;

/// The definition of an app or of a pod. A clone is cheap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spec {
    App(Arc<App>),
    Pod(Arc<Pod>),
}

impl From<App> for Spec {
    fn from(app: App) -> Self {
        Self::App(Arc::new(app))
    }
}

impl From<Pod> for Spec {
    fn from(pod: Pod) -> Self {
        Self::Pod(Arc::new(pod))
    }
}

impl Spec {
    pub(crate) fn app(&self) -> Option<&Arc<App>> {
        match self {
            Self::App(app) => Some(app),
            Self::Pod(_) => None,
        }
    }

    pub(crate) fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::App(_) => None,
        }
    }

    /// Whether both share one definition.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::App(one), Self::App(other)) => Arc::ptr_eq(one, other),
            (Self::Pod(one), Self::Pod(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.pod().is_some()
    }

    pub(crate) fn id(&self) -> &SpecId {
        match self {
            Self::App(app) => &app.id,
            Self::Pod(pod) => &pod.id,
        }
    }

    /// The time of this definition.
    pub(crate) fn version(&self) -> Moment {
        match self {
            Self::App(app) => app.version,
            Self::Pod(pod) => pod.version,
        }
    }

    /// The same definition at another time.
    pub(crate) fn with_version(&self, version: Moment) -> Self {
        let mut next = self.clone();
        match &mut next {
            Self::App(app) => Arc::make_mut(app).version = version,
            Self::Pod(pod) => Arc::make_mut(pod).version = version,
        }
        next
    }

    /// The times of the last changes.
    pub(crate) fn version_info(&self) -> Option<VersionInfo> {
        match self {
            Self::App(app) => app.version_info,
            Self::Pod(pod) => pod.version_info,
        }
    }

    pub(crate) fn set_version_info(&mut self, info: VersionInfo) {
        match self {
            Self::App(app) => Arc::make_mut(app).version_info = Some(info),
            Self::Pod(pod) => Arc::make_mut(pod).version_info = Some(info),
        }
    }

    /// The version of the last change that affected more than the number of instances.
    pub(crate) fn config_version(&self) -> Moment {
        self.version_info()
            .map_or(self.version(), |info| info.last_config_change_at)
    }

    /// The wanted number of instances.
    pub(crate) fn instances(&self) -> u32 {
        match self {
            Self::App(app) => app.instances,
            Self::Pod(pod) => pod.instances(),
        }
    }

    /// The same definition with another number of instances.
    pub(crate) fn with_instances(&self, instances: u32) -> Self {
        let mut next = self.clone();
        match &mut next {
            Self::App(app) => Arc::make_mut(app).instances = instances,
            Self::Pod(pod) => Arc::make_mut(pod).set_instances(instances),
        }
        next
    }

    pub(crate) fn role(&self) -> &str {
        match self {
            Self::App(app) => &app.role,
            Self::Pod(pod) => &pod.role,
        }
    }

    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        match self {
            Self::App(app) => &app.labels,
            Self::Pod(pod) => &pod.labels,
        }
    }

    /// The apps, pods and groups that it depends on. Pods have dependencies only through their
    /// groups.
    pub(crate) fn dependencies(&self) -> &[SpecId] {
        self.app().map_or(&[], |app| &app.dependencies)
    }

    pub(crate) fn constraints(&self) -> &[Constraint] {
        match self {
            Self::App(app) => &app.constraints,
            Self::Pod(pod) => pod.constraints(),
        }
    }

    pub(crate) fn upgrade_strategy(&self) -> UpgradeStrategy {
        match self {
            Self::App(app) => app.upgrade_strategy,
            Self::Pod(pod) => pod.upgrade_strategy(),
        }
    }

    pub(crate) fn unreachable_strategy(&self) -> UnreachableStrategy {
        match self {
            Self::App(app) => app.unreachable_strategy,
            Self::Pod(pod) => pod.unreachable_strategy(),
        }
    }

    pub(crate) fn kill_selection(&self) -> KillSelection {
        match self {
            Self::App(app) => app.kill_selection,
            Self::Pod(pod) => pod.kill_selection(),
        }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        match self {
            Self::App(app) => Backoff {
                initial_delay: f64::from(app.backoff_seconds),
                factor: app.backoff_factor,
                max_delay: f64::from(app.max_launch_delay_seconds),
            },
            Self::Pod(pod) => pod.backoff(),
        }
    }

    /// The service port of each port; 0: none. Pods have none.
    pub(crate) fn service_ports(&self) -> impl Iterator<Item = u16> {
        self.app().into_iter().flat_map(|app| app.service_ports())
    }

    /// The health checks of an app. Those of a pod are defined at its containers, and agents make
    /// them.
    pub(crate) fn health_checks(&self) -> &[HealthCheck] {
        self.app().map_or(&[], |app| &app.health_checks)
    }

    /// Whether instances have health checks of any kind.
    pub(crate) fn has_health_checks(&self) -> bool {
        match self {
            Self::App(app) => !app.health_checks.is_empty(),
            Self::Pod(pod) => pod.containers.iter().any(|it| it.health_check.is_some()),
        }
    }

    /// The number of containers, each of which may have a check. An app counts as one.
    pub(crate) fn check_count(&self) -> usize {
        self.pod().map_or(1, |pod| pod.containers.len())
    }

    /// The check of the app, or of the container of a pod with this index.
    pub(crate) fn check(&self, index: usize) -> Option<Cow<'_, Check>> {
        match self {
            Self::App(app) => app.check.as_ref().filter(|_| index == 0).map(Cow::Borrowed),
            Self::Pod(pod) => pod.indexed_check_of(index).map(Cow::Owned),
        }
    }

    /// Whether all checks are the same in both definitions.
    pub(crate) fn has_same_checks(&self, other: &Self) -> bool {
        let checks = |spec: &Self| -> Vec<Option<Check>> {
            let indices = 0..spec.check_count();
            indices
                .map(|index| spec.check(index).map(Cow::into_owned))
                .collect()
        };
        checks(self) == checks(other)
    }

    /// Whether the same ports are probed under both definitions.
    pub(crate) fn has_same_ports(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::App(old), Self::App(new)) => {
                old.port_definitions == new.port_definitions && old.port_mappings() == new.port_mappings()
            }
            // A changed endpoint of a pod replaces the instances.
            _ => true,
        }
    }

    pub(crate) fn readiness_checks(&self) -> &[ReadinessCheck] {
        self.app().map_or(&[], |app| &app.readiness_checks)
    }

    /// Seconds between the request to end a task and its kill. For a pod they are defined at its
    /// containers.
    pub(crate) fn kill_grace_seconds(&self) -> Option<u32> {
        self.app()?.task_kill_grace_period_seconds
    }

    /// Whether its instances have persistent volumes, and so stay on their agents.
    pub(crate) fn is_resident(&self) -> bool {
        match self {
            Self::App(app) => app.is_resident(),
            Self::Pod(pod) => pod.is_resident(),
        }
    }

    /// The effect of a change from `self` to `next`: the greatest one of the changed fields.
    pub(crate) fn effect_of(&self, next: &Self, checks: Checks) -> Effect {
        match (self, next) {
            (Self::App(old), Self::App(new)) => old.effect_of(new, checks),
            (Self::Pod(old), Self::Pod(new)) => old.effect_of(new, checks),
            // The rules forbid such a change.
            (Self::App(_), Self::Pod(_)) | (Self::Pod(_), Self::App(_)) => Effect::Replace,
        }
    }

    /// Identifies the configuration: a digest of the fields whose change replaces instances.
    pub(crate) fn config(&self, checks: Checks) -> String {
        match self {
            Self::App(app) => app.config(checks),
            Self::Pod(pod) => pod.config(checks),
        }
    }
}
