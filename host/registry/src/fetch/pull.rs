//! Fetches one image: its manifest, the component, its signatures and its attestations, each verified
//! by its digest.

use std::{sync::Arc, time::Duration};

use oci_client::manifest::OciDescriptor;
use sha2::{Digest, Sha256};

use transom_common::text::hex;

use super::image_cache::ImageCache;
use crate::{
    attestations::{self, Attestation, Attestations},
    bundles::{Bundle, BundleError},
    error::Error,
    network::Reserved,
    oci::{
        self, FetchError, Fetched, FileRequest, Image, Layer, MAX_IMAGE_MANIFEST, NoComponent,
        RegistryClient, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, Signature, Source,
    },
    settings::Registries,
    signatures::Trust,
};

/// Runs work that takes long, such as reading documents of megabytes, on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| FetchError::Panicked)
}

/// Whether a sigstore bundle is a signature; others are attestations.
fn is_signature(bundle: &str) -> bool {
    Bundle::read(bundle.as_bytes()).is_ok_and(|it| it.is_signature())
}

/// The fetch that a plugin's manifest requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The source of the component.
    pub source: Source,
    /// Maximum bytes of the component.
    pub limit: u64,
    /// Expected SHA-256 of the component, hexadecimal; `None` if the manifest pins none.
    pub pinned: Option<String>,
}

/// Maximum bytes of a signed document; usual ones have a few hundred.
const MAX_PAYLOAD: u64 = 64 << 10;
/// Maximum number of signatures of an image that are read: the newest ones, which are the last in
/// the list.
const MAX_SIGNATURES: usize = 16;
/// Maximum number of attestations of an image that are read: the newest ones.
const MAX_ATTESTATIONS: usize = 16;
/// Maximum bytes of an attestation; a larger one is not shown.
const MAX_ATTESTATION: u64 = 16 << 20;
/// Timeout of reading attestations, which delay the component.
const ATTESTATIONS_TIMEOUT: Duration = Duration::from_secs(10);
/// Suffixes of the tags of attestations and of SBOMs, after the digest.
const ATTESTATION_TAGS: &[&str] = &["att", "sbom"];
/// Indexes are accepted too, so that the error for an index names it; otherwise the registry would
/// answer 404.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";

/// Fetches images. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Puller {
    client: RegistryClient,
    image_cache: ImageCache,
    trust: Arc<Trust>,
}

impl Puller {
    pub(super) fn new(
        registries: Arc<Registries>,
        reserved: Reserved,
        image_cache: ImageCache,
        trust: Arc<Trust>,
    ) -> Result<Puller, Error> {
        Ok(Puller {
            client: RegistryClient::new(registries, reserved)?,
            image_cache,
            trust,
        })
    }

    pub(super) fn image_cache(&self) -> &ImageCache {
        &self.image_cache
    }

    /// Fetches the current image of a source; returns `previous` if it is unchanged.
    pub(super) async fn pull(
        &self,
        request: &FetchRequest,
        previous: Option<Fetched>,
    ) -> Result<Fetched, FetchError> {
        let source = &request.source;
        let manifest = self
            .manifest(source, source.version(), "the image manifest")
            .await?;
        let digest = oci::digest_of(manifest.as_bytes());
        let previous = match previous.filter(|it| it.image.manifest == manifest) {
            Some(previous) => Some(previous),
            None => self.image_cache.image(source, &digest).await,
        };
        let previous_image = previous.as_ref().map(|it| Arc::clone(&it.image));
        let mut fetched = match previous {
            Some(previous) => previous,
            None => self.component(request, manifest).await?,
        };
        let bundles = tokio::time::timeout(ATTESTATIONS_TIMEOUT, self.bundle_manifests(source, &digest));
        let bundles = bundles
            .await
            .unwrap_or(Err(FetchError::TimedOut(ATTESTATIONS_TIMEOUT)));
        if self.trust.is_enabled() && !self.is_signed(&fetched.image).await? {
            let mut image = Image::clone(&fetched.image);
            image.signatures = self.signatures(source, &digest).await?;
            image.bundles = Vec::new();
            if self.trust.of_image(&image).is_err() {
                let manifests = match &bundles {
                    Ok(manifests) => manifests.as_slice(),
                    Err(error) if error.is_temporary() => return Err(error.clone()),
                    // The registry has no list of bundles.
                    Err(_) => &[],
                };
                let found = self.bundles(source, &digest, manifests).await?;
                image.bundles =
                    blocking(move || found.into_iter().filter(|it| is_signature(it)).collect()).await?;
            }
            if *fetched.image != image {
                fetched.image = Arc::new(image);
            }
        }
        let attestations = self.attestations(source, &fetched.image, &bundles).await;
        if fetched.image.attestations != attestations {
            let mut image = Image::clone(&fetched.image);
            image.attestations = attestations;
            fetched.image = Arc::new(image);
        }
        if previous_image.as_ref() != Some(&fetched.image) {
            self.image_cache.save(&fetched).await;
        }
        Ok(fetched)
    }

    /// Whether a configured key signed the image.
    async fn is_signed(&self, image: &Arc<Image>) -> Result<bool, FetchError> {
        let (trust, image) = (Arc::clone(&self.trust), Arc::clone(image));
        blocking(move || trust.of_image(&image).is_ok()).await
    }

    pub(super) fn client(&self) -> &RegistryClient {
        &self.client
    }

    pub(super) async fn manifest(
        &self,
        source: &Source,
        version: &str,
        what: &'static str,
    ) -> Result<String, FetchError> {
        let file = FileRequest {
            what,
            path: &format!("manifests/{version}"),
            accept: MANIFESTS,
            max_bytes: MAX_IMAGE_MANIFEST,
        };
        let bytes = self.client.get(source, file).await?;
        let found = oci::digest_of(&bytes);
        if version.starts_with("sha256:") && version != found {
            return Err(FetchError::Digest {
                what,
                found,
                expected: version.to_owned(),
            });
        }
        Ok(oci::text(&bytes)?)
    }

    /// Fetches the component of an image manifest, after checks of its size and pinned digest.
    async fn component(&self, request: &FetchRequest, manifest: String) -> Result<Fetched, FetchError> {
        let layer = oci::component_layer(&oci::image_manifest(manifest.as_bytes())?)?;
        if layer.size > request.limit {
            return Err(FetchError::TooLarge {
                found: layer.size,
                limit: request.limit,
            });
        }
        if let Some(pinned) = request.pinned.as_ref().filter(|pinned| **pinned != layer.digest) {
            return Err(FetchError::Digest {
                what: "the component",
                found: format!("sha256:{}", layer.digest),
                expected: format!("sha256:{pinned}, which the manifest pins"),
            });
        }
        let component = self
            .blob(&request.source, &layer, "the component", oci::LAYER)
            .await?;
        Ok(Fetched {
            image: Arc::new(Image {
                source: request.source.to_string(),
                manifest,
                signatures: Vec::new(),
                bundles: Vec::new(),
                attestations: Attestations::default(),
            }),
            component: Arc::new(component.into()),
        })
    }

    pub(super) async fn blob(
        &self,
        source: &Source,
        layer: &Layer,
        what: &'static str,
        accept: &'static str,
    ) -> Result<bytes::Bytes, FetchError> {
        let file = FileRequest {
            what,
            path: &format!("blobs/sha256:{}", layer.digest),
            accept,
            max_bytes: layer.size,
        };
        let bytes = self.client.get(source, file).await?;
        let (bytes, found) = blocking(move || {
            let found = hex(&Sha256::digest(&bytes));
            (bytes, found)
        })
        .await?;
        if found == layer.digest {
            Ok(bytes)
        } else {
            Err(FetchError::Digest {
                what,
                found: format!("sha256:{found}"),
                expected: format!("sha256:{}", layer.digest),
            })
        }
    }

    /// The cosign signatures of an image. Empty if there are none.
    async fn signatures(&self, source: &Source, digest: &str) -> Result<Vec<Signature>, FetchError> {
        let attached = self.attached(source, digest, "sig", "the signatures' manifest");
        let Some(manifest) = attached.await? else {
            return Ok(Vec::new());
        };
        let manifest = oci::image_manifest(manifest.as_bytes())?;
        let layers: Vec<(&OciDescriptor, &String)> = manifest
            .layers
            .iter()
            .filter(|it| it.media_type == SIMPLE_SIGNING)
            .filter_map(|it| Some((it, it.annotations.as_ref()?.get(SIGNATURE_ANNOTATION)?)))
            .collect();
        let newest = layers.len().saturating_sub(MAX_SIGNATURES);
        let mut signatures = Vec::new();
        for (descriptor, signature) in &layers[newest..] {
            let layer = oci::layer_of(descriptor)?;
            if layer.size > MAX_PAYLOAD {
                return Err(FetchError::TooLarge {
                    found: layer.size,
                    limit: MAX_PAYLOAD,
                });
            }
            let payload = self
                .blob(source, &layer, "the signed document", SIMPLE_SIGNING)
                .await?;
            let payload = String::from_utf8(payload.into())
                .map_err(|_| NoComponent::Manifest("the signed document is not UTF-8".to_owned()))?;
            signatures.push(Signature {
                payload,
                signature: (*signature).clone(),
            });
        }
        Ok(signatures)
    }

    /// Fetches the manifest that is attached to an image under a tag of this kind; `None` if the
    /// tag does not exist.
    async fn attached(
        &self,
        source: &Source,
        digest: &str,
        kind: &str,
        what: &'static str,
    ) -> Result<Option<String>, FetchError> {
        let tag = format!("{}.{kind}", digest.replace(':', "-"));
        match self.manifest(source, &tag, what).await {
            Err(FetchError::NotFound { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Returns the attestations of an image: the known ones if the registry has no others or does
    /// not answer. Admission ignores attestations, so that an error is only logged. `bundles`: the
    /// manifests of the image's sigstore bundles.
    async fn attestations(
        &self,
        source: &Source,
        image: &Arc<Image>,
        bundles: &Result<Vec<String>, FetchError>,
    ) -> Attestations {
        let (digest, known) = (&image.digest(), &image.attestations);
        let result = async {
            let mut manifests = Vec::new();
            let bundles = bundles.as_deref().unwrap_or_else(|error| {
                tracing::warn!(%source, "the sigstore bundles of a component could not be listed: {error}");
                &[]
            });
            for &kind in ATTESTATION_TAGS {
                let attached = self.attached(source, digest, kind, "the attestations' manifest");
                manifests.extend(attached.await?);
            }
            let keys = self.trust.labels().map(str::to_owned);
            let read_from = manifests.iter().chain(bundles).cloned();
            let read_from: Vec<String> = read_from.chain(keys).collect();
            let read_from = oci::digest_of(read_from.join("\n").as_bytes());
            if read_from == known.read_from {
                return Ok(known.clone());
            }
            let mut list = Vec::new();
            for manifest in &manifests {
                list.extend(self.attestations_of(source, digest, manifest).await?);
            }
            for bundle in self.bundles(source, digest, bundles).await? {
                list.extend(self.attestation_of(source, image, bundle).await?);
            }
            list.drain(..list.len().saturating_sub(MAX_ATTESTATIONS));
            Ok::<_, FetchError>(Attestations { read_from, list })
        };
        let result = tokio::time::timeout(ATTESTATIONS_TIMEOUT, result).await;
        let result = result.unwrap_or(Err(FetchError::TimedOut(ATTESTATIONS_TIMEOUT)));
        result.unwrap_or_else(|error| {
            tracing::warn!(%source, "the attestations of a component could not be fetched: {error}");
            known.clone()
        })
    }

    /// Reads the attestation of a sigstore bundle. Returns `None` for a signature by a configured
    /// key, which is shown as the component's signature.
    async fn attestation_of(
        &self,
        source: &Source,
        image: &Arc<Image>,
        bundle: String,
    ) -> Result<Option<Attestation>, FetchError> {
        let (trust, image) = (Arc::clone(&self.trust), Arc::clone(image));
        let read = move || {
            let signer = |message: &[u8], signature: &[u8]| trust.signer(message, signature);
            let bundle = Bundle::read(bundle.as_bytes())?;
            Ok::<_, BundleError>((bundle.is_signature(), bundle.attestation(&image, signer)?))
        };
        Ok(match blocking(read).await? {
            Ok((
                true,
                Attestation {
                    signed_by: Some(_), ..
                },
            )) => None,
            Ok((_, attestation)) => Some(attestation),
            Err(error) => {
                tracing::warn!(%source, "sigstore bundle ignored: {error}");
                None
            }
        })
    }

    /// Fetches the attestations that a manifest lists. `digest`: the image's digest.
    async fn attestations_of(
        &self,
        source: &Source,
        digest: &str,
        manifest: &str,
    ) -> Result<Vec<Attestation>, FetchError> {
        let manifest = oci::image_manifest(manifest.as_bytes())?;
        let newest = manifest.layers.len().saturating_sub(MAX_ATTESTATIONS);
        let mut list = Vec::new();
        for descriptor in &manifest.layers[newest..] {
            let media_type = descriptor.media_type.as_str();
            let is_envelope = media_type == attestations::ENVELOPE;
            if !is_envelope && !attestations::is_sbom(media_type) {
                continue;
            }
            let layer = oci::layer_of(descriptor)?;
            if layer.size > MAX_ATTESTATION {
                tracing::warn!(
                    %source, size = layer.size, limit = MAX_ATTESTATION,
                    "attestation ignored: it is too large"
                );
                continue;
            }
            let content = self.blob(source, &layer, "an attestation", "*/*").await?;
            let (trust, digest) = (Arc::clone(&self.trust), digest.to_owned());
            let media_type = media_type.to_owned();
            let read = move || {
                if !is_envelope {
                    return Ok(attestations::from_sbom(&media_type, &content));
                }
                let signer = |message: &[u8], signature: &[u8]| trust.signer(message, signature);
                attestations::from_envelope(&content, &digest, signer)
            };
            match blocking(read).await? {
                Ok(attestation) => list.push(attestation),
                Err(error) => tracing::warn!(%source, "attestation ignored: {error}"),
            }
        }
        Ok(list)
    }
}
