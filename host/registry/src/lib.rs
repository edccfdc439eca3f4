//! Components from OCI registries: fetching, caching, and verifying their signatures.
//!
//! A manifest names a component as `oci://registry/repository:tag`. [`Sources`] fetches it,
//! verifies every digest and keeps the image on disk. [`Trust`] decides whether a component has a
//! valid signature. With signatures the registry need not be trusted: it controls neither which
//! servers receive passwords nor which ones are contacted, and it cannot exceed any size limit.
//! Nothing here runs a component.
//!
//! * [`Sources`]: the fetch task and its schedule
//! * [`Source`], [`Image`], [`LAYER`] and others: references and images, as the OCI specifications
//!   define them
//! * [`signatures`]: keys, and the verification of signatures
//! * [`Attestation`]: provenance and SBOMs of an image, to be shown to operators
//! * [`network`]: which destinations may be contacted; also used by the plugin host's probes
//! * [`artifacts`]: the files that the plugin host keeps on disk
//! * [`Registries`], [`Login`]: the settings

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

pub mod artifacts;
mod attestations;
mod bundles;
mod error;
mod fetch;
mod json;
pub mod network;
mod oci;
mod origin;
mod settings;
pub mod signatures;

pub use attestations::{Attestation, Attestations};
pub use error::Error;
pub use fetch::{FetchMetrics, FetchRequest, FetchState, FetchStatus, SourceStatus, Sources};
pub use oci::{
    CONFIG, FetchError, Fetched, Image, LAYER, Layer, MAX_COMPONENT_SIZE, NoComponent, SIGNATURE_ANNOTATION,
    SIMPLE_SIGNING, Signature, Source, digest_of,
};
pub use origin::{Origin, Provenance};
pub use settings::{Login, Registries};
pub use signatures::{PublicKey, Signatures, Trust};
