//! Secret values.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

const MASK: &str = "********";

/// A text that is never shown: neither `Debug` nor serialisation reveals it.
#[derive(Clone, Deserialize, Eq, Hash, PartialEq)]
#[serde(transparent)]
pub struct Secret(String);

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl Secret {
    /// The value itself, for the code that sends or compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_masks_the_value() {
        let secret = Secret::from("opensesame");
        assert_eq!(format!("{:?}", Some(&secret)), format!("Some({MASK})"));
        assert_eq!(secret.reveal(), "opensesame");
    }
}
