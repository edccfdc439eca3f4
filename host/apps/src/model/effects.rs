//! The effects of a changed definition on its instances: a table of fields.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The effect of a changed field on the instances of an app or a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// Nothing: the field does not belong to the configuration.
    Nothing,
    /// The new value applies to running instances, or from the next launch on.
    InPlace,
    /// Instances are started or killed.
    Scale,
    /// Every instance is replaced.
    Replace,
}

/// A field of a definition and the effect of its change.
pub(super) struct Field<T> {
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    pub(super) same: fn(&T, &T) -> bool,
}

/// A table of fields of a type: the name in JSON, the field and the effect of each.
macro_rules! fields {
    ($type:ty; $($name:literal $field:ident $effect:ident,)*) => {
        &[$($crate::model::effects::Field::<$type> {
            name: $name,
            effect: $crate::model::effects::Effect::$effect,
            same: |old, new| old.$field == new.$field,
        }),*]
    };
}
pub(super) use fields;

/// A digest of a part of a definition, short enough for a key.
pub(super) fn digest<T: Serialize>(fields: &BTreeMap<&str, T>) -> String {
    let text = serde_json::to_string(fields).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let short = digest
        .iter()
        .take(16)
        .fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
    format!("{short:032x}")
}

/// Parses the tables of `docs/apps/`, for the tests that compare them with the code.
#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::Effect;

    /// The page about the fields of apps.
    pub(in crate::model) const DEFINITIONS: &str = include_str!("../../../../docs/apps/definitions.md");
    /// The page about the fields of pods.
    pub(in crate::model) const PODS: &str = include_str!("../../../../docs/apps/pods.md");

    /// The field and the effect in each row of the first table after `heading` of the page.
    pub(in crate::model) fn documented(
        page: &'static str,
        heading: &str,
    ) -> Vec<(&'static str, &'static str)> {
        let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap();
        let (_, table) = section.split_once("| field | default | change |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(field, rest)| (field, rest.rsplit('|').nth(1).unwrap().trim()))
            .collect()
    }

    /// The word of the tables for an effect.
    pub(in crate::model) fn word(effect: Effect) -> &'static str {
        match effect {
            Effect::Nothing => "",
            Effect::InPlace => "in place",
            Effect::Scale => "scales",
            Effect::Replace => "replaces",
        }
    }
}
