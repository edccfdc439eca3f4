//! Fetches the components for which a manifest names a source.
//!
//! [`Sources`] has one entry for each plugin with a source. The plugin directory's task requests a
//! component ([`Sources::want`]), which never waits for a registry; a separate task
//! ([`Sources::run`]) fetches a few at a time and notifies the directory of results. A tag is
//! resolved again periodically, a digest is fetched once. Fetched images are cached on disk
//! (`image_cache`), so that plugins stay available during an outage of a registry.
//!
//! * `schedule`: when a source is fetched again, a pure rule; `fetcher`: the fetch task
//! * `pull`: one fetch, with the verification of digests and sizes; `bundles`: sigstore bundles

mod bundles;
mod fetcher;
mod image_cache;
mod metrics;
mod pull;
mod schedule;
mod status;

pub use fetcher::Sources;
pub use metrics::FetchMetrics;
pub use pull::FetchRequest;
pub use schedule::FetchState;
pub use status::{FetchStatus, SourceStatus};
