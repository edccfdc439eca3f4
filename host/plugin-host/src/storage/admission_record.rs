//! [`AdmissionRecord`]: the record of an admission, a JSON document in the store.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use transom_common::text::hex;
use transom_registry::Attestation;

use crate::{
    manifest::{
        Manifest,
        grants::Grants,
        limits::{Instances, Limits},
    },
    runtime::{pool::ComponentInfo, version_context::seconds_now},
};

/// The outcome of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionOutcome {
    /// It was activated.
    Admitted,
    /// It was rejected.
    #[serde(rename = "refused")]
    Rejected,
    /// An earlier version serves again. The record describes that version.
    RolledBack,
    /// The version of the record was disabled.
    Disabled,
    /// It runs as a shadow version.
    Shadowing,
    /// It runs as a canary.
    Canary,
    /// It was a shadow or a canary, and was activated.
    Promoted,
    /// It was a shadow or a canary, and was stopped. Its files are not admitted again.
    // The former name, in records of earlier builds.
    #[serde(alias = "returned")]
    Aborted,
    /// The files were removed.
    Removed,
}

/// The record of one admission. Unknown fields are omitted, for instance if a file was unreadable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionRecord {
    /// Increases by one for each record of a plugin.
    pub sequence: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// What caused it: `directory`, `upload`, `probation`, `shadow`, `canary`, or the operator's
    /// name.
    pub by: String,
    /// The outcome of an admission.
    pub outcome: AdmissionOutcome,
    /// Why it was rejected, disabled, promoted, aborted or rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The plugin's own version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its world: `check-probe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// `sha256:` and the component's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `sha256:` and the digest of the manifest's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// `sha256:` and the digest of the configuration. The configuration itself is left out because
    /// it may contain secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The registry source: `oci://…@sha256:…` with the digest of the image manifest; omitted for a
    /// file in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The key that signed it: its name and, in parentheses, the digest of its SPKI. Omitted if no
    /// key is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// Attestations that the registry attaches to its image: provenance and SBOMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attestations: Vec<Attestation>,
    /// Its imported interfaces, without versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
    /// `[grants]`, as JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub grants: Value,
    /// `[limits]`, as JSON: bytes and milliseconds.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub limits: Value,
    /// The digest of the files in the directory at that time. After a rollback or an abort the same
    /// files are not admitted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
}

impl AdmissionRecord {
    pub(crate) fn new(outcome: AdmissionOutcome, by: &str) -> AdmissionRecord {
        AdmissionRecord {
            sequence: 0,
            at: seconds_now(),
            by: by.to_owned(),
            outcome,
            reason: None,
            version: None,
            world: None,
            digest: None,
            manifest: None,
            config: None,
            source: None,
            signed_by: None,
            attestations: Vec::new(),
            imports: Vec::new(),
            grants: Value::Null,
            limits: Value::Null,
            files: None,
        }
    }

    pub(crate) fn for_version(
        outcome: AdmissionOutcome,
        by: &str,
        info: &ComponentInfo,
        manifest: &Manifest,
    ) -> AdmissionRecord {
        let config = hex(&Sha256::digest(manifest.config.to_string()));
        AdmissionRecord {
            version: Some(info.version.clone()),
            world: Some(info.world.short().to_owned()),
            digest: Some(info.digest.clone()),
            manifest: Some(info.manifest.clone()),
            config: Some(format!("sha256:{config}")),
            source: info.provenance.source.clone(),
            signed_by: info.provenance.signed_by.clone(),
            attestations: info.provenance.attestations.clone(),
            imports: info.imports.clone(),
            grants: grants(&manifest.grants),
            limits: limits(&manifest.limits),
            ..AdmissionRecord::new(outcome, by)
        }
    }

    pub(crate) fn with_reason(mut self, reason: Option<&str>) -> AdmissionRecord {
        self.reason = reason.map(str::to_owned);
        self
    }

    pub(crate) fn with_files(mut self, files: Option<String>) -> AdmissionRecord {
        self.files = files;
        self
    }

    /// Whether it activates a version.
    pub(crate) fn activates(&self) -> bool {
        matches!(
            self.outcome,
            AdmissionOutcome::Admitted | AdmissionOutcome::Promoted | AdmissionOutcome::RolledBack
        )
    }

    /// Whether it describes a shadow or a canary: its start or its return.
    pub(crate) fn is_of_candidate(&self) -> bool {
        matches!(
            self.outcome,
            AdmissionOutcome::Shadowing | AdmissionOutcome::Canary | AdmissionOutcome::Aborted
        )
    }

    /// Whether it describes this version.
    pub(crate) fn describes(&self, info: &ComponentInfo) -> bool {
        self.digest.as_ref() == Some(&info.digest) && self.manifest.as_ref() == Some(&info.manifest)
    }
}

pub(crate) fn grants(grants: &Grants) -> Value {
    let network: Vec<String> = grants.network.iter().map(ToString::to_string).collect();
    json!({
        "network": network,
        "command": grants.command,
        "tls-unverified": grants.tls_unverified,
        "clock": grants.clock,
        "random": grants.random,
        "environment": grants.environment,
        "imports": grants.imports,
    })
}

pub(crate) fn limits(limits: &Limits) -> Value {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "wall-clock": millis(limits.wall_clock),
        "cpu": millis(limits.cpu),
        "memory": limits.memory,
        "table": limits.table,
        "output": limits.output,
        "instances": match limits.instances {
            Instances::Kept(count) => json!(count),
            Instances::PerCall => json!("per-call"),
        },
        "max-calls-per-instance": limits.max_calls_per_instance,
        "concurrency": limits.concurrency,
        "steps": limits.steps,
        "attempt-time": millis(limits.attempt_time),
        "attempt-input": limits.attempt_input,
        "attempt-output": limits.attempt_output,
        "log-lines": limits.log_lines,
        "log-line": limits.log_line,
        "size": limits.size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = AdmissionRecord::new(AdmissionOutcome::RolledBack, "probation")
            .with_reason(Some("x"))
            .with_files(Some("sha256:00".to_owned()));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<AdmissionRecord>(&text).unwrap(), record);
        assert!(text.contains(r#""outcome":"rolled-back""#), "{text}");
        assert!(!text.contains("null"), "{text}");
        // Unknown fields of later versions do not invalidate the record.
        let more = text.replacen('{', r#"{"more": 1, "#, 1);
        assert_eq!(serde_json::from_str::<AdmissionRecord>(&more).unwrap(), record);
    }

    #[test]
    fn records_with_the_former_name_of_an_abort_are_read() {
        let record = AdmissionRecord::new(AdmissionOutcome::Aborted, "grace");
        let text = serde_json::to_string(&record).unwrap();
        let former = text.replace(r#""outcome":"aborted""#, r#""outcome":"returned""#);
        assert_ne!(former, text);
        assert_eq!(serde_json::from_str::<AdmissionRecord>(&former).unwrap(), record);
    }
}
