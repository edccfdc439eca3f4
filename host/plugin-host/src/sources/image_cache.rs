//! Cache of fetched images on disk, so that a daemon can start while a registry is unavailable.
//!
//! A component is stored in one file with its image manifest and its signatures, named by the
//! source and the manifest's digest, and is used only if all digests match. Another file for each
//! source records the image that was admitted last: if a tag has moved to an image that is refused,
//! the daemon still starts with the admitted one. Both are in the host's private directory; the
//! oldest are removed. Without that directory nothing is cached.

use std::{path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    image::{Fetched, Image},
    oci_manifest::digest_of,
    source::Source,
};
use crate::{executor::run_blocking, limits::MAX_SIZE, private_dir::PrivateDir, text::hex};

/// Maximum number of images over all plugins: one for each plugin, and some earlier ones.
const MAX_FILES: usize = 320;
/// Maximum bytes of the header of a file: a manifest and the signatures, as JSON.
const MAX_HEAD: u64 = 8 << 20;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ImageCache(Option<Arc<ImageDirs>>);

#[derive(Debug)]
struct ImageDirs {
    images: PrivateDir,
    admitted: PrivateDir,
}

impl ImageCache {
    /// `private`: the host's private directory. Blocks.
    pub(crate) fn open(private: Option<&Path>) -> ImageCache {
        let Some(private) = private else {
            return ImageCache(None);
        };
        let opened = PrivateDir::open(&private.join("fetched"), MAX_FILES).and_then(|images| {
            let admitted = PrivateDir::open(&private.join("sources"), MAX_FILES)?;
            Ok(ImageDirs { images, admitted })
        });
        match opened {
            Ok(dirs) => ImageCache(Some(Arc::new(dirs))),
            Err(error) => {
                tracing::warn!(
                    dir = %private.display(),
                    "fetched components are not cached: {error}"
                );
                ImageCache(None)
            }
        }
    }

    /// The image of a source that was admitted last; for a digest, its image.
    pub(super) async fn last_admitted(&self, source: &Source) -> Option<Fetched> {
        let (dirs, source) = (self.0.clone()?, source.clone());
        let found = run_blocking(move || {
            let digest = if let Some(digest) = source.digest() {
                digest.to_owned()
            } else {
                let name = source_name(&source.to_string());
                String::from_utf8(dirs.admitted.read(&name, 100).ok()??).ok()?
            };
            dirs.image(&source, &digest)
        });
        found.await.ok()?
    }

    /// The image of a source with this digest.
    pub(super) async fn image(&self, source: &Source, digest: &str) -> Option<Fetched> {
        let (dirs, source, digest) = (self.0.clone()?, source.clone(), digest.to_owned());
        run_blocking(move || dirs.image(&source, &digest)).await.ok()?
    }

    pub(super) async fn save(&self, fetched: &Fetched) {
        let Some(dirs) = self.0.clone() else { return };
        let fetched = fetched.clone();
        let written = run_blocking(move || {
            let head = serde_json::to_vec(fetched.image.as_ref()).unwrap_or_default();
            let length = (head.len() as u64).to_le_bytes();
            let name = image_name(&fetched.image.source, &fetched.image.digest());
            dirs.images.write(&name, &[&length, &head, &fetched.component])
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("cannot cache a fetched component: {error}");
        }
    }

    /// Records the image that was admitted for its source.
    pub(super) async fn admitted(&self, image: &Image) {
        let Some(dirs) = self.0.clone() else { return };
        let (name, digest) = (source_name(&image.source), image.digest());
        let written = run_blocking(move || {
            let same = dirs
                .admitted
                .read(&name, 100)
                .is_ok_and(|it| it.as_deref() == Some(digest.as_bytes()));
            if same {
                Ok(())
            } else {
                dirs.admitted.write(&name, &[digest.as_bytes()])
            }
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("cannot record the admitted image: {error}");
        }
    }
}

impl ImageDirs {
    fn image(&self, source: &Source, digest: &str) -> Option<Fetched> {
        let name = image_name(&source.to_string(), digest);
        let file = match self.images.read(&name, MAX_SIZE + MAX_HEAD) {
            Ok(file) => file?,
            Err(error) => {
                tracing::warn!("cached image rejected: {error}");
                return None;
            }
        };
        let found = parse(&file).filter(|it| {
            let component = hex(&Sha256::digest(it.component.as_slice()));
            it.image.source == source.to_string() && it.image.digest() == digest && it.image.is_of(&component)
        });
        if found.is_none() {
            tracing::warn!(
                file = %self.images.path(&name).display(),
                "cached image rejected: it is corrupt"
            );
        }
        found
    }
}

fn parse(file: &[u8]) -> Option<Fetched> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let (head, component) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some(Fetched {
        image: Arc::new(serde_json::from_slice(head).ok()?),
        component: Arc::new(component.to_vec()),
    })
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
    use crate::sources::oci_manifest::{CONFIG, LAYER};

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
            }),
            component: Arc::new(component.to_vec()),
        }
    }

    #[tokio::test]
    async fn image_cache_loads_saved_images_and_rejects_changed_ones() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        let image_cache = ImageCache::open(Some(&private));
        let tag = Source::parse("oci://r.example/probe:1").unwrap();
        assert!(image_cache.last_admitted(&tag).await.is_none());
        let (one, two) = (fetched(&tag, b"one"), fetched(&tag, b"two"));
        for it in [&one, &two] {
            image_cache.save(it).await;
            image_cache.admitted(&it.image).await;
        }
        let again = ImageCache::open(Some(&private));
        assert_eq!(again.last_admitted(&tag).await.unwrap().component, two.component);
        let first = again.image(&tag, &one.image.digest()).await.unwrap();
        assert_eq!((&first.image, &first.component), (&one.image, &one.component));
        let other = Source::parse("oci://r.example/probe:2").unwrap();
        assert!(again.last_admitted(&other).await.is_none());
        assert!(
            again.image(&other, &one.image.digest()).await.is_none(),
            "another source's"
        );

        let name = image_name(&tag.to_string(), &two.image.digest());
        let file = private.join("fetched").join(name);
        let whole = std::fs::read(&file).unwrap();
        for at in [0, 20, whole.len() - 1] {
            let mut spoilt = whole.clone();
            spoilt[at] ^= 1;
            std::fs::write(&file, spoilt).unwrap();
            assert!(again.last_admitted(&tag).await.is_none(), "byte {at}");
        }
        std::fs::write(&file, &whole[..5]).unwrap();
        assert!(again.last_admitted(&tag).await.is_none());
        std::fs::write(&file, &whole).unwrap();
        assert!(again.last_admitted(&tag).await.is_some());
        assert!(ImageCache::open(None).last_admitted(&tag).await.is_none());
    }
}
