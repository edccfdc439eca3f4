//! Secret values.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A value that is never shown: not by `Debug`, not by `config check`, not in a log.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl From<String> for Secret {
    fn from(value: String) -> Secret {
        Secret(value)
    }
}

impl Secret {
    /// The value itself, for the code that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("********")
    }
}
