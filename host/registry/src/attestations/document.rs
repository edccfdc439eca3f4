//! The parts of statements and SBOMs that a summary needs. Everything else is skipped.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::json::{First, Length, part};

/// An in-toto statement.
#[derive(Deserialize)]
pub(super) struct Statement<'a> {
    #[serde(rename = "_type")]
    pub(super) in_toto_type: Option<String>,
    #[serde(rename = "predicateType")]
    pub(super) predicate_type: Option<String>,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) predicate: Option<&'a RawValue>,
}

impl Statement<'_> {
    /// Whether the statement is about the image with this hexadecimal SHA-256.
    pub(super) fn is_about(&self, sha256: &str) -> bool {
        let Some(subject) = self.subject else { return false };
        let mut subjects = serde_json::Deserializer::from_str(subject.get());
        Contains(sha256).deserialize(&mut subjects).unwrap_or(false)
    }
}

#[derive(Deserialize)]
struct Subject {
    digest: Digests,
}

#[derive(Deserialize)]
struct Digests {
    sha256: String,
}

/// Searches a list of subjects for a digest.
struct Contains<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Contains<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Contains<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of subjects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut subjects: A) -> Result<bool, A::Error> {
        let mut is_found = false;
        while let Some(subject) = subjects.next_element::<&RawValue>()? {
            let subject = part::<Subject>(Some(subject));
            is_found |= subject.is_some_and(|it| it.digest.sha256 == self.0);
        }
        Ok(is_found)
    }
}

/// Provenance (SLSA 0.2 and 1) or an SBOM (SPDX, `CycloneDX`): the fields where each format has the
/// same facts.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Predicate<'a> {
    #[serde(borrow)]
    packages: Option<&'a RawValue>,
    #[serde(borrow)]
    components: Option<&'a RawValue>,
    #[serde(borrow)]
    run_details: Option<&'a RawValue>,
    #[serde(borrow)]
    builder: Option<&'a RawValue>,
    #[serde(borrow)]
    build_definition: Option<&'a RawValue>,
    #[serde(borrow)]
    invocation: Option<&'a RawValue>,
    #[serde(borrow)]
    materials: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RunDetails {
    builder: Builder,
}

#[derive(Deserialize)]
struct Builder {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition {
    resolved_dependencies: First<Material>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    config_source: Material,
}

#[derive(Deserialize)]
struct Material {
    uri: String,
}

impl Predicate<'_> {
    /// The builder's id.
    pub(super) fn builder(&self) -> Option<String> {
        let details = part::<RunDetails>(self.run_details).map(|it| it.builder);
        Some(details.or_else(|| part::<Builder>(self.builder))?.id)
    }

    /// The address of the source.
    pub(super) fn source(&self) -> Option<String> {
        let dependency = part::<BuildDefinition>(self.build_definition);
        let found = dependency
            .and_then(|it| it.resolved_dependencies.0)
            .or_else(|| part::<Invocation>(self.invocation).map(|it| it.config_source))
            .or_else(|| part::<First<Material>>(self.materials)?.0);
        Some(found?.uri)
    }

    /// How many packages it lists.
    pub(super) fn packages(&self) -> Option<u64> {
        let length = part::<Length>(self.packages).or_else(|| part(self.components));
        length.map(|it| it.0)
    }
}
