//! Validates OCI image manifests of components. Pure rules, without a registry.
//!
//! The manifest is that of a Wasm artifact as the CNCF working group specifies it: a configuration
//! of type [`CONFIG`] and one layer of type [`LAYER`], which is the component. Containers, indexes
//! of several platforms, compressed layers and core modules of older tools are rejected with an
//! error that names them.

use oci_client::manifest::{
    OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use transom_common::text::{hex, one_line};

/// Media type of the configuration of a Wasm artefact.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// Media type of its only layer.
pub const LAYER: &str = "application/wasm";
/// Maximum bytes of an image manifest; usual ones have a few hundred.
pub(crate) const MAX_IMAGE_MANIFEST: u64 = 1 << 20;

/// Why an image does not contain a component. Display is for an operator.
#[allow(missing_docs, reason = "the texts say it")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoComponent {
    #[error("it is not an image manifest: {0}")]
    Manifest(String),
    #[error("it is an index of several images; expected the image manifest of one component")]
    Index,
    #[error("its configuration is of type {0}; expected {CONFIG}")]
    Config(String),
    #[error("it has {0} layers; expected one, the component")]
    Layers(usize),
    #[error("its layer is of type {0}; expected {LAYER}")]
    Layer(String),
    #[error("its layer has the digest {0}; expected \"sha256:\" and 64 hexadecimal digits")]
    LayerDigest(String),
    #[error("its layer has a size of {0} bytes")]
    LayerSize(i64),
}

/// The component that an image manifest describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Lower-case hexadecimal SHA-256.
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

/// Reads an image manifest.
pub(crate) fn image_manifest(bytes: &[u8]) -> Result<OciImageManifest, NoComponent> {
    let wrong = |error: &serde_json::Error| NoComponent::Manifest(one_line(&error.to_string()));
    let document: Value = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
    let media_type = document["mediaType"].as_str();
    if media_type == Some(OCI_IMAGE_INDEX_MEDIA_TYPE) || document.get("manifests").is_some() {
        return Err(NoComponent::Index);
    }
    if let Some(other) = media_type.filter(|it| *it != OCI_IMAGE_MEDIA_TYPE) {
        let message = format!("it is of type {}", one_line(other));
        return Err(NoComponent::Manifest(message));
    }
    if document["schemaVersion"] != 2 {
        let message = format!("its schemaVersion is {}, expected 2", document["schemaVersion"]);
        return Err(NoComponent::Manifest(one_line(&message)));
    }
    serde_json::from_value(document).map_err(|error| wrong(&error))
}

/// The layer of an image manifest that is the component.
pub(crate) fn component_layer(manifest: &OciImageManifest) -> Result<Layer, NoComponent> {
    if manifest.config.media_type != CONFIG {
        return Err(NoComponent::Config(one_line(&manifest.config.media_type)));
    }
    let [layer] = manifest.layers.as_slice() else {
        return Err(NoComponent::Layers(manifest.layers.len()));
    };
    if layer.media_type != LAYER {
        return Err(NoComponent::Layer(one_line(&layer.media_type)));
    }
    layer_of(layer)
}

/// Digest and size of the content that a descriptor describes.
pub(crate) fn layer_of(descriptor: &OciDescriptor) -> Result<Layer, NoComponent> {
    let digest = parse_digest(&descriptor.digest)
        .ok_or_else(|| NoComponent::LayerDigest(one_line(&descriptor.digest)))?;
    let size = u64::try_from(descriptor.size).map_err(|_| NoComponent::LayerSize(descriptor.size))?;
    Ok(Layer {
        digest: digest.to_owned(),
        size,
    })
}

/// The hexadecimal part of `sha256:…`, in lower case as registries write it.
pub(crate) fn parse_digest(text: &str) -> Option<&str> {
    let hex = text.strip_prefix("sha256:")?;
    let plain = hex.len() == 64 && hex.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    plain.then_some(hex)
}

/// `sha256:…` of some bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE_MEDIA_TYPE,
            "config": {"mediaType": CONFIG, "digest": digest_of(b"{}"), "size": 2},
            "layers": [{"mediaType": LAYER, "digest": digest_of(b"wasm"), "size": 4}],
        })
    }

    fn read(document: &Value) -> Result<Layer, String> {
        image_manifest(document.to_string().as_bytes())
            .and_then(|it| component_layer(&it))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_component_is_one_layer_of_its_type() {
        let layer = read(&good()).unwrap();
        assert_eq!(layer.size, 4);
        assert_eq!(format!("sha256:{}", layer.digest), digest_of(b"wasm"));
        let mut without_type = good();
        without_type.as_object_mut().unwrap().remove("mediaType");
        assert!(read(&without_type).is_ok(), "the media type is optional");
    }

    #[test]
    fn unsupported_manifests_are_rejected_with_the_reason() {
        let layer = good()["layers"][0].clone();
        for (pointer, value, expected) in [
            (
                "/mediaType",
                json!(OCI_IMAGE_INDEX_MEDIA_TYPE),
                "an index of several images",
            ),
            (
                "/mediaType",
                json!("application/vnd.docker.distribution.manifest.v2+json"),
                "of type application/vnd.docker.distribution.manifest.v2+json",
            ),
            ("/schemaVersion", json!(1), "schemaVersion is 1"),
            ("/config", json!(null), "not an image manifest"),
            (
                "/config/mediaType",
                json!("application/vnd.oci.image.config.v1+json"),
                "configuration is of type application/vnd.oci.image.config.v1+json",
            ),
            ("/layers", json!([]), "it has 0 layers"),
            ("/layers", json!([layer, layer]), "it has 2 layers"),
            (
                "/layers/0/mediaType",
                json!("application/vnd.wasm.content.layer.v1+wasm"),
                "layer is of type application/vnd.wasm.content.layer.v1+wasm",
            ),
            (
                "/layers/0/digest",
                json!("sha256:../../x"),
                "has the digest sha256:../../x",
            ),
            (
                "/layers/0/digest",
                json!(format!("sha512:{}", "0".repeat(128))),
                "has the digest",
            ),
            ("/layers/0/size", json!(-1), "a size of -1"),
            ("/layers/0/size", json!("x"), "not an image manifest"),
        ] {
            let mut document = good();
            *document.pointer_mut(pointer).unwrap() = value;
            let why = read(&document).unwrap_err();
            assert!(why.contains(expected), "{pointer}: {why}");
        }
        let index = json!({"schemaVersion": 2, "manifests": []});
        assert!(read(&index).unwrap_err().contains("an index"));
        for text in ["", "[]", "<html>", "{"] {
            let why = image_manifest(text.as_bytes()).unwrap_err().to_string();
            assert!(why.contains("not an image manifest"), "{text}: {why}");
        }
    }
}
