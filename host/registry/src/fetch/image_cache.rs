//! Cache of fetched images on disk, so that a daemon can start while a registry is unavailable.
//!
//! An image manifest is stored with its signatures in a file named by the source and the manifest's
//! digest; the component is in another file, named by its digest. Both are used only if all digests
//! match. A third file for each source records the image that was admitted last: if a tag has moved
//! to an image that is rejected, the daemon still starts with the admitted one.

use std::{io, sync::Arc};

use crate::{
    artifacts::{ArtifactStore, Kind},
    oci::{self, Fetched, Image, Source, digest_of},
};

/// The cache. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ImageCache(ArtifactStore);

impl ImageCache {
    pub(super) fn new(artifacts: ArtifactStore) -> ImageCache {
        ImageCache(artifacts)
    }

    /// Returns the image of a source that was admitted last or, if the source names a digest, the
    /// image with that digest.
    pub(super) async fn last_admitted(&self, source: &Source) -> Option<Fetched> {
        let (artifacts, source) = (self.0.clone(), source.clone());
        let found = tokio::task::spawn_blocking(move || {
            let digest = if let Some(digest) = source.digest() {
                digest.to_owned()
            } else {
                let name = source_name(&source.to_string());
                String::from_utf8(artifacts.read(Kind::AdmittedImage, &name).ok()??).ok()?
            };
            load(&artifacts, &source, &digest)
        });
        found.await.ok()?
    }

    /// The image of a source with this digest.
    pub(super) async fn image(&self, source: &Source, digest: &str) -> Option<Fetched> {
        let (artifacts, source, digest) = (self.0.clone(), source.clone(), digest.to_owned());
        tokio::task::spawn_blocking(move || load(&artifacts, &source, &digest))
            .await
            .ok()?
    }

    pub(super) async fn save(&self, fetched: &Fetched) {
        let (artifacts, fetched) = (self.0.clone(), fetched.clone());
        let written = tokio::task::spawn_blocking(move || {
            artifacts.save(Kind::Component, &fetched.component)?;
            let name = image_name(&fetched.image.source, &fetched.image.digest());
            let image = serde_json::to_vec(fetched.image.as_ref())?;
            artifacts.write(Kind::Image, &name, &[&image])
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("cannot cache a fetched component: {error}");
        }
    }

    /// Records the image that was admitted for its source.
    pub(super) async fn admitted(&self, image: &Image) {
        let (artifacts, name, digest) = (self.0.clone(), source_name(&image.source), image.digest());
        let written = tokio::task::spawn_blocking(move || {
            artifacts.save_as(Kind::AdmittedImage, &name, digest.as_bytes())
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("cannot record the admitted image: {error}");
        }
    }
}

fn load(artifacts: &ArtifactStore, source: &Source, digest: &str) -> Option<Fetched> {
    let name = image_name(&source.to_string(), digest);
    let rejected = |error: &dyn std::fmt::Display| {
        tracing::warn!(
            file = %artifacts.path(Kind::Image, &name).display(),
            "cached image rejected: {error}"
        );
    };
    let image = match artifacts.read(Kind::Image, &name) {
        Ok(content) => content?,
        Err(error) => {
            rejected(&error);
            return None;
        }
    };
    let image = serde_json::from_slice(&image).ok();
    let Some(image) = image.filter(|it: &Image| it.source == source.to_string() && it.digest() == digest)
    else {
        rejected(&"it is corrupt");
        return None;
    };
    match component(artifacts, &image) {
        Ok(component) => Some(Fetched {
            image: Arc::new(image),
            component: Arc::new(component?),
        }),
        Err(error) => {
            rejected(&error);
            None
        }
    }
}

/// Reads the component of an image; `None` if its file does not exist any more.
fn component(artifacts: &ArtifactStore, image: &Image) -> io::Result<Option<Vec<u8>>> {
    let layer = oci::image_manifest(image.manifest.as_bytes())
        .and_then(|it| oci::component_layer(&it))
        .map_err(io::Error::other)?;
    artifacts.load(Kind::Component, &layer.digest)
}

fn source_name(source: &str) -> String {
    digest_of(source.as_bytes()).split_off("sha256:".len())
}

fn image_name(source: &str, digest: &str) -> String {
    digest_of(format!("{source} {digest}").as_bytes()).split_off("sha256:".len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        attestations::Attestations,
        oci::{CONFIG, LAYER},
    };

    fn fetched(source: &Source, component: &[u8]) -> Fetched {
        let manifest = json!({
            "schemaVersion": 2,
            "config": {"mediaType": CONFIG, "digest": digest_of(b"{}"), "size": 2},
            "layers": [{"mediaType": LAYER, "digest": digest_of(component), "size": component.len()}],
        });
        Fetched {
            image: Arc::new(Image {
                source: source.to_string(),
                manifest: manifest.to_string(),
                signatures: Vec::new(),
                bundles: Vec::new(),
                attestations: Attestations::default(),
            }),
            component: Arc::new(component.to_vec()),
        }
    }

    #[tokio::test]
    async fn image_cache_loads_saved_images_and_rejects_changed_ones() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        let open = |private| ImageCache::new(ArtifactStore::open(private));
        let image_cache = open(Some(private.as_path()));
        let tag = Source::parse("oci://r.example/probe:1").unwrap();
        assert!(image_cache.last_admitted(&tag).await.is_none());
        let (one, two) = (fetched(&tag, b"one"), fetched(&tag, b"two"));
        for it in [&one, &two] {
            image_cache.save(it).await;
            image_cache.admitted(&it.image).await;
        }
        let reopened = open(Some(private.as_path()));
        assert_eq!(
            reopened.last_admitted(&tag).await.unwrap().component,
            two.component
        );
        let first = reopened.image(&tag, &one.image.digest()).await.unwrap();
        assert_eq!((&first.image, &first.component), (&one.image, &one.component));
        let other = Source::parse("oci://r.example/probe:2").unwrap();
        assert!(reopened.last_admitted(&other).await.is_none());
        assert!(
            reopened.image(&other, &one.image.digest()).await.is_none(),
            "another source's"
        );

        let image = image_name(&tag.to_string(), &two.image.digest());
        let component = digest_of(b"two").split_off("sha256:".len());
        for file in [
            private.join("images").join(image),
            private.join("components").join(component),
        ] {
            let whole = std::fs::read(&file).unwrap();
            for at in [0, 20.min(whole.len() / 2), whole.len() - 1] {
                let mut spoilt = whole.clone();
                spoilt[at] ^= 1;
                std::fs::write(&file, spoilt).unwrap();
                assert!(reopened.last_admitted(&tag).await.is_none(), "byte {at}");
            }
            std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
            assert!(reopened.last_admitted(&tag).await.is_none());
            std::fs::remove_file(&file).unwrap();
            assert!(reopened.last_admitted(&tag).await.is_none());
            reopened.save(&two).await;
            assert_eq!(std::fs::read(&file).unwrap(), whole);
            assert!(reopened.last_admitted(&tag).await.is_some());
        }
        assert!(open(None).last_admitted(&tag).await.is_none());
    }
}
