//! Components from registries: a plugin's manifest names a source, and this has it fetched.
//!
//! [`Sources`] is a book with an entry for each plugin that names a source. The directory's task asks it what there is ([`Sources::want`]), which
//! never waits for a registry; a task of its own ([`Sources::run`]) fetches, a few at a time, and wakes the directory when something
//! came or failed. A tag is resolved again every so often, a digest is fetched once. What was fetched is on disk (`image_cache`), so that a registry
//! that is away takes nothing away.
//!
//! * `source`, `oci_manifest`, `auth`: what is asked for, what may come, and who is told what: pure rules
//! * `destination`: which servers may be asked, and at which addresses
//! * `registry_client`, `pull`: one registry's answers, held against their digests and bounds
//! * `fetch_schedule`: when what is asked for again, a pure rule; `fetcher`: doing so
//! * `push`: the other way, for `transom plugin push`

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
