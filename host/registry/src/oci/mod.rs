//! OCI registries: references, image manifests, authentication, and the HTTP client.
//!
//! * `source`, `image_manifest`, `image`, `auth`, `link`: pure rules
//! * `servers`: which servers may be contacted, and at which addresses
//! * `registry_client`: bounded HTTP to a registry

mod auth;
mod fetch_error;
mod image;
mod image_manifest;
mod link;
mod registry_client;
mod servers;
mod source;

pub use fetch_error::FetchError;
pub(crate) use image::text;
pub use image::{Fetched, Image, MAX_COMPONENT_SIZE, Signature};
pub use image_manifest::{CONFIG, LAYER, Layer, NoComponent, digest_of};
pub(crate) use image_manifest::{
    MAX_IMAGE_MANIFEST, component_layer, image_manifest, layer_of, parse_digest,
};
pub(crate) use registry_client::{FileRequest, NextPage, RegistryClient};
pub use source::Source;

/// Media type of the layers of cosign's signatures.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of such a layer that contains the signature.
pub const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
