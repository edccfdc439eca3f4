//! The state of sources for operators.

use serde::Serialize;

/// A component from a registry, and the state of its fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceStatus {
    /// `oci://…`, as in the manifest.
    pub reference: String,
    /// `sha256:` and the digest of the image manifest that was fetched last.
    pub digest: Option<String>,
    /// The state.
    pub state: FetchStatus,
    /// When the registry was last contacted: seconds since 1970.
    pub checked_at: Option<u64>,
    /// Why the last fetch failed. The component fetched earlier stays in service.
    pub error: Option<String>,
}

/// The state of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchStatus {
    /// The first fetch has not finished.
    Pending,
    /// The fetched component is the current one.
    Current,
    /// The last fetch failed.
    Failed,
}
