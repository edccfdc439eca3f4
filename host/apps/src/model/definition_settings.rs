//! The settings that the meaning of a definition depends on.

use std::collections::BTreeSet;

use transom_web::Problems;

use crate::settings::Feature;

/// The settings of the service that definitions depend on.
#[derive(Clone, Debug)]
pub(crate) struct DefinitionSettings {
    /// The framework's role, the default role of apps.
    pub(crate) role: String,
    /// Whether `role` is the only role that apps may have.
    pub(crate) enforces_role: bool,
    /// Further roles that a definition may have: that of its top-level group, and its current one.
    pub(crate) other_roles: Vec<String>,
    /// The enabled features.
    pub(crate) features: BTreeSet<Feature>,
    /// The name of container networks whose definition names none.
    pub(crate) default_network_name: Option<String>,
}

impl DefinitionSettings {
    /// The settings of a service with this configuration.
    pub(crate) fn new(section: &crate::Settings) -> Self {
        Self {
            role: section.role.clone(),
            enforces_role: false,
            other_roles: Vec::new(),
            features: section.features(),
            default_network_name: section.default_network().map(str::to_owned),
        }
    }

    /// The same settings with further roles.
    pub(crate) fn with_other_roles(&self, roles: Vec<String>) -> Self {
        Self {
            other_roles: roles,
            ..self.clone()
        }
    }

    /// The roles that a definition may have, each once.
    pub(crate) fn allowed_roles(&self) -> Vec<&str> {
        if self.enforces_role {
            return vec![&self.role];
        }
        let mut roles = vec!["*"];
        let others = self.other_roles.iter().map(String::as_str);
        for role in std::iter::once(self.role.as_str()).chain(others) {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        roles
    }

    /// The same settings where `role` is the only role.
    pub(crate) fn with_enforced_role(&self, role: &str) -> Self {
        Self {
            role: role.to_owned(),
            enforces_role: true,
            ..self.clone()
        }
    }

    /// Adds a problem unless the feature is enabled. The unmatched closing bracket is upstream's.
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
