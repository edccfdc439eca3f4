//! Components from registries: fetches the sources that manifests name.
//!
//! [`Sources`] has one entry for each plugin with a source. The directory's task requests a component
//! ([`Sources::want`]), which never waits for a registry; a separate task ([`Sources::run`])
//! fetches a few at a time and notifies the directory of results. A tag is resolved again
//! periodically, a digest is fetched once. Fetched images are cached on disk (`image_cache`), so
//! that plugins stay available while a registry is not.
//!
//! * `source`, `oci_manifest`, `auth`: references, image manifests and authentication: pure rules
//! * `destination`: which servers may be contacted, and at which addresses
//! * `registry_client`, `pull`: HTTP to a registry; verification of digests and sizes
//! * `fetch_schedule`: when a source is fetched again, a pure rule; `fetcher`: the fetch task
//! * `push`: uploads for `transom plugin push`

mod auth;
mod destination;
mod fetch_error;
mod fetch_schedule;
mod fetcher;
pub(crate) mod image;
mod image_cache;
pub(crate) mod oci_manifest;
mod pull;
mod push;
mod registry_client;
mod settings;
pub(crate) mod source;

pub(crate) use fetch_error::FetchError;
pub(crate) use fetch_schedule::FetchState;
pub(crate) use fetcher::Sources;
pub(crate) use image_cache::ImageCache;
pub(crate) use pull::FetchRequest;
pub use push::{Push, PushError};
pub use settings::{Login, Registries};
