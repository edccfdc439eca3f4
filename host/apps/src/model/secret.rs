//! Secrets of the cluster's secret store, and what refers to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A secret of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SecretDef {
    /// Its name in the cluster's secret store.
    pub(crate) source: String,
}

/// The value of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum EnvValue {
    /// The value itself.
    Plain(String),
    /// A name in the app's `secrets`.
    Secret { secret: String },
}
