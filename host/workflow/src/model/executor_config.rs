//! The workflow engine's own settings of a task.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// An object with its members unchanged. It is kept as text, because as values it would need up to
/// thirty times the memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExecutorConfig(Box<str>);

impl From<&Map<String, Value>> for ExecutorConfig {
    fn from(members: &Map<String, Value>) -> Self {
        // The keys are texts, so it can always be encoded.
        Self(serde_json::to_string(members).unwrap_or_default().into())
    }
}

impl ExecutorConfig {
    /// Bytes of the text.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn members(&self) -> Map<String, Value> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Serialize for ExecutorConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.members().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExecutorConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(|members| Self::from(&members))
    }
}
