//! Sigstore bundles of an image: the registry's list of artefacts that refer to the image, and the files that
//! it lists.
//!
//! The list comes from the referrers API (OCI 1.1), or, on registries without it, from the index under the
//! tag `sha256-…`. The API sends it in pages. A bounded number of them is read, only from the registry of the
//! source, and a warning names the first page that is left out. A file that is truncated, too large, of
//! another type or about another image is logged and left out.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use transom_common::text::one_line;

use super::pull::Puller;
use crate::{
    bundles::BUNDLE,
    oci::{self, FetchError, FileRequest, MAX_IMAGE_MANIFEST, NextPage, Source},
};

/// Maximum number of bundles of an image that are read: the newest ones.
const MAX_BUNDLES: usize = 16;
/// Maximum bytes of a bundle. An SBOM is part of it.
const MAX_BUNDLE: u64 = 4 << 20;
/// Maximum number of pages of a list that are read.
const MAX_PAGES: usize = 32;
/// Maximum bytes of the pages of a list together.
const MAX_LIST: u64 = 4 << 20;
/// Media type of a list.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LIST: &str = "the list of referrers";
/// The annotation in which OCI clients write when a bundle was attached.
const CREATED: &str = "org.opencontainers.image.created";

/// A list, or a page of it.
#[derive(Deserialize)]
struct List {
    manifests: Option<Vec<Referrer>>,
}

/// An entry of a list: the manifest of an artefact that refers to the image.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    artifact_type: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The request for a list, or for a page of it.
fn list_request(path: &str, max_bytes: u64) -> FileRequest<'_> {
    FileRequest {
        what: LIST,
        path,
        accept: INDEX,
        max_bytes,
    }
}

/// Returns the entries of a list that are bundles.
fn entries(source: &Source, list: &[u8]) -> Result<Vec<Referrer>, FetchError> {
    let invalid = |message: &str| FetchError::InvalidAnswer {
        what: LIST,
        host: source.registry().to_owned(),
        message: one_line(message),
    };
    let list: List = serde_json::from_slice(list).map_err(|error| invalid(&error.to_string()))?;
    let mut found = list.manifests.ok_or_else(|| invalid("it is not an index"))?;
    found.retain(|it| it.artifact_type.as_deref() == Some(BUNDLE));
    Ok(found)
}

impl Puller {
    /// Returns the digests of the manifests of an image's bundles, oldest first. `image`: the
    /// image's digest.
    pub(super) async fn bundle_manifests(
        &self,
        source: &Source,
        image: &str,
    ) -> Result<Vec<String>, FetchError> {
        let listed = match self.referrers(source, image).await {
            // Registries without the API answer with various errors.
            Err(error) if !error.is_temporary() => {
                let tag = format!("manifests/{}", image.replace(':', "-"));
                let list = self
                    .client()
                    .get(source, list_request(&tag, MAX_IMAGE_MANIFEST))
                    .await;
                list.and_then(|list| entries(source, &list))
            }
            other => other,
        };
        let mut found = match listed {
            Err(FetchError::NotFound { .. }) => Vec::new(),
            other => other?,
        };
        // Bundles without a time are the oldest.
        found.sort_by(|a, b| a.annotations.get(CREATED).cmp(&b.annotations.get(CREATED)));
        found.drain(..found.len().saturating_sub(MAX_BUNDLES));
        Ok(found.into_iter().map(|it| it.digest).collect())
    }

    /// Returns the entries of all pages of the referrers API. A later page that cannot be read ends
    /// the list. The function fails if the first page cannot be read, or on any page for a
    /// temporary error.
    async fn referrers(&self, source: &Source, image: &str) -> Result<Vec<Referrer>, FetchError> {
        let path = format!("referrers/{image}");
        let first = self.client().address(source, &path)?;
        let list = self
            .client()
            .page(source, &first, list_request(&path, MAX_IMAGE_MANIFEST));
        let (list, mut next) = list.await?;
        let mut found = entries(source, &list)?;
        let warn_incomplete = |page: &str, why: &str| tracing::warn!(%source, page, "the list of an image's referrers is incomplete: {why}");
        let mut read_pages = BTreeSet::from([first]);
        let mut bytes = list.len() as u64;
        loop {
            let page = match next {
                NextPage::None => return Ok(found),
                NextPage::At(page) => page,
                NextPage::Elsewhere(link) => {
                    warn_incomplete(&link, "the next page is not at the registry of the source");
                    return Ok(found);
                }
            };
            if read_pages.contains(&page) {
                warn_incomplete(page.as_str(), "the list links to a page that was already read");
                return Ok(found);
            }
            if read_pages.len() >= MAX_PAGES || bytes >= MAX_LIST {
                let limit = format!("it has more than {MAX_PAGES} pages or {MAX_LIST} bytes");
                warn_incomplete(page.as_str(), &limit);
                return Ok(found);
            }
            let max_bytes = MAX_IMAGE_MANIFEST.min(MAX_LIST - bytes);
            let answer = self
                .client()
                .page(source, &page, list_request(&path, max_bytes))
                .await;
            read_pages.insert(page.clone());
            match answer.and_then(|(list, next)| Ok((entries(source, &list)?, list.len(), next))) {
                Ok((more, length, following)) => {
                    found.extend(more);
                    bytes += length as u64;
                    next = following;
                }
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) => {
                    warn_incomplete(page.as_str(), &error.to_string());
                    return Ok(found);
                }
            }
        }
    }

    /// Fetches the bundles of these manifests. Only temporary errors are returned; others are
    /// logged.
    pub(super) async fn bundles(
        &self,
        source: &Source,
        image: &str,
        manifests: &[String],
    ) -> Result<Vec<String>, FetchError> {
        let mut bundles = Vec::new();
        for manifest in manifests {
            match self.bundle(source, image, manifest).await {
                Ok(bundle) => bundles.push(bundle),
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) => tracing::warn!(%source, manifest, "sigstore bundle ignored: {error}"),
            }
        }
        Ok(bundles)
    }

    async fn bundle(&self, source: &Source, image: &str, digest: &str) -> Result<String, FetchError> {
        let what = "a sigstore bundle";
        let unusable = |message: String| FetchError::InvalidAnswer {
            what,
            host: source.registry().to_owned(),
            message: one_line(&message),
        };
        if oci::parse_digest(digest).is_none() {
            return Err(unusable(format!(
                "its digest is {digest}, expected one of SHA-256"
            )));
        }
        let manifest = self.manifest(source, digest, "a bundle's manifest").await?;
        let manifest = oci::image_manifest(manifest.as_bytes())?;
        let subject = manifest.subject.as_ref().map(|it| it.digest.as_str());
        if subject != Some(image) {
            let subject = subject.unwrap_or("none");
            return Err(unusable(format!("its subject is {subject}, not this image")));
        }
        let types: Vec<&str> = manifest.layers.iter().map(|it| it.media_type.as_str()).collect();
        let [BUNDLE] = types[..] else {
            return Err(unusable(format!(
                "its layers are of types {types:?}, expected one of {BUNDLE}"
            )));
        };
        let layer = oci::layer_of(&manifest.layers[0])?;
        if layer.size > MAX_BUNDLE {
            return Err(FetchError::TooLong {
                what,
                host: source.registry().to_owned(),
                limit: MAX_BUNDLE,
            });
        }
        let content = self.blob(source, &layer, what, BUNDLE).await?;
        String::from_utf8(content.into()).map_err(|_| unusable("it is not UTF-8".to_owned()))
    }
}
