//! What the meaning of a definition depends on beside itself.

use std::collections::BTreeSet;

use transom_web::Problems;

use crate::config::{Config, Feature};

/// The settings of the service that definitions depend on.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The framework's role, the default role of apps.
    pub(crate) role: String,
    /// Whether apps may have no other role.
    pub(crate) enforces_role: bool,
    /// The enabled features.
    pub(crate) features: BTreeSet<Feature>,
    /// The name of container networks that have none.
    pub(crate) default_network_name: Option<String>,
}

impl Settings {
    /// Those of a configured service.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            role: config.role.clone(),
            enforces_role: false,
            features: config.features.clone(),
            default_network_name: config.default_network_name.clone(),
        }
    }

    /// The same settings where `role` is the only role.
    pub(crate) fn with_enforced_role(&self, role: &str) -> Self {
        Self {
            role: role.to_owned(),
            enforces_role: true,
            ..self.clone()
        }
    }

    /// Adds a problem unless the feature is enabled. The closing bracket without an opening one is
    /// upstream's.
    pub(crate) fn require(&self, feature: Feature, path: &str, problems: &mut Problems) {
        if !self.features.contains(&feature) {
            let name = feature.name();
            problems.add(
                path,
                format!("Feature {name} is not enabled. Enable with --enable_features {name})"),
            );
        }
    }
}
