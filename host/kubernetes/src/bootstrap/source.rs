//! The source of the script: `BOOTSTRAP_URL`, or the script that ships with the daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use reqwest::Client;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use tokio::time::Instant;
use transom_common::Secret;
use url::Url;

use crate::settings::Bootstrap;
use crate::{Error, Result, Settings};

/// The script that ships with the daemon.
const SHIPPED_SCRIPT: &str = include_str!("bootstrap.sh");
/// The name of that script's source for components.
const SHIPPED_NAME: &str = "transom:bootstrap.sh";
/// The number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// A fetched script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) script: Arc<[u8]>,
    /// Its source without credentials.
    pub(crate) source: String,
    /// SHA-256 of the script, lower-case hexadecimal.
    pub(crate) digest: String,
}

/// Why the script is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("BOOTSTRAP_URL is not a valid URL: {0}; expected http://, https:// or file://")]
    BadUrl(String),
    #[error("{url} cannot be fetched: {reason}")]
    Failed { url: String, reason: String },
    #[error("{url} answered with status {status}")]
    Status { url: String, status: u16 },
    #[error("{url} has more than {maximum} bytes (`bootstrap.max_bytes`)")]
    TooLarge { url: String, maximum: usize },
    #[error("{url} did not answer within {} s (`bootstrap.timeout_seconds`)", .timeout.as_secs_f64())]
    TimedOut { url: String, timeout: Duration },
    #[error("{url} is empty")]
    Empty { url: String },
    #[error(
        "the first line of {url} ends with CR LF, so no container can run the script; convert its line ends to LF"
    )]
    LineEnds { url: String },
}

/// Fetches and caches the script. Only one fetch runs at a time; concurrent callers wait for it.
#[derive(Debug)]
pub(crate) struct Source {
    url: Option<Secret>,
    config: Bootstrap,
    client: Client,
    cached: Mutex<Option<(Instant, Fetched)>>,
}

impl Source {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        // This fails if a provider is already installed; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
            .timeout(settings.bootstrap.timeout())
            .user_agent(concat!("transom/", env!("CARGO_PKG_VERSION")));
        let url = settings.bootstrap_url.clone();
        let https = url.as_ref().is_some_and(|url| url.reveal().starts_with("https:"));
        if !https {
            // Only HTTPS needs certificates, and the machine may have none.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(Error::Client)?;
        Ok(Self {
            url,
            config: settings.bootstrap.clone(),
            client,
            cached: Mutex::default(),
        })
    }

    /// Returns the script. It is fetched again if the last fetch is older than configured; if that
    /// fails, the last script is returned.
    pub(crate) async fn get(&self) -> Result<Fetched, FetchError> {
        let mut cached = self.cached.lock().await;
        if let Some((at, fetched)) = &*cached
            && at.elapsed() < Duration::from_secs(self.config.refresh_seconds)
        {
            return Ok(fetched.clone());
        }
        match (self.fetch().await, &*cached) {
            (Ok(fetched), _) => {
                *cached = Some((Instant::now(), fetched.clone()));
                Ok(fetched)
            }
            (Err(error), Some((_, fetched))) => {
                tracing::warn!(%error, "fetching the bootstrap script failed; using the one fetched before");
                Ok(fetched.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn fetch(&self) -> Result<Fetched, FetchError> {
        let Some(url) = &self.url else {
            return Ok(fetched(
                SHIPPED_SCRIPT.as_bytes().to_vec(),
                SHIPPED_NAME.to_owned(),
            ));
        };
        let (url, display_url) = parse(url)?;
        let timeout = self.config.timeout();
        let reading = async {
            match url.scheme() {
                "file" => self.read(&url, &display_url).await,
                _ => self.download(url, &display_url).await,
            }
        };
        let read = tokio::time::timeout(timeout, reading).await;
        let script = read.map_err(|_| FetchError::TimedOut {
            url: display_url.clone(),
            timeout,
        })??;
        if script.is_empty() {
            return Err(FetchError::Empty { url: display_url });
        }
        // The kernel would look for an interpreter whose name ends with CR.
        let first_line = script.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first_line.starts_with(b"#!") && first_line.ends_with(b"\r") {
            return Err(FetchError::LineEnds { url: display_url });
        }
        Ok(fetched(script, display_url))
    }

    async fn read(&self, url: &Url, display_url: &str) -> Result<Vec<u8>, FetchError> {
        let failed = |reason: String| FetchError::Failed {
            url: display_url.to_owned(),
            reason,
        };
        let path: PathBuf = url
            .to_file_path()
            .map_err(|()| failed("the URL is not a local file path".to_owned()))?;
        let file = open(&path).await.map_err(|error| failed(error.to_string()))?;
        let mut script = Vec::new();
        let max_read = self.config.max_bytes as u64 + 1;
        let read = file.take(max_read).read_to_end(&mut script).await;
        read.map_err(|error| failed(error.to_string()))?;
        self.bounded(script, display_url)
    }

    async fn download(&self, url: Url, display_url: &str) -> Result<Vec<u8>, FetchError> {
        let failed = |error: reqwest::Error| FetchError::Failed {
            url: display_url.to_owned(),
            // The error's own text contains the URL with its credentials.
            reason: transom_common::error_chain(&error.without_url()),
        };
        let response = self.client.get(url).send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(FetchError::Status {
                url: display_url.to_owned(),
                status: status.as_u16(),
            });
        }
        let mut script = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            script.extend_from_slice(&chunk.map_err(failed)?);
            if script.len() > self.config.max_bytes {
                break;
            }
        }
        self.bounded(script, display_url)
    }

    fn bounded(&self, script: Vec<u8>, display_url: &str) -> Result<Vec<u8>, FetchError> {
        if script.len() > self.config.max_bytes {
            return Err(FetchError::TooLarge {
                url: display_url.to_owned(),
                maximum: self.config.max_bytes,
            });
        }
        Ok(script)
    }
}

/// Opens a regular file. Other files are rejected, because a pipe or a device could block forever.
async fn open(path: &Path) -> std::io::Result<tokio::fs::File> {
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    tokio::fs::File::open(path).await
}

fn parse(url: &Secret) -> Result<(Url, String), FetchError> {
    let url = Url::parse(url.reveal()).map_err(|error| FetchError::BadUrl(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https" | "file") {
        return Err(FetchError::BadUrl(format!("its scheme is {}", url.scheme())));
    }
    let mut display_url = url.clone();
    // These calls cannot fail for a URL with a host.
    let _ = display_url.set_username("");
    let _ = display_url.set_password(None);
    // A query may contain a token.
    display_url.set_query(None);
    display_url.set_fragment(None);
    Ok((url, display_url.into()))
}

fn fetched(script: Vec<u8>, source: String) -> Fetched {
    Fetched {
        digest: format!("{:x}", Sha256::digest(&script)),
        script: script.into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: Option<&str>, max_bytes: usize) -> Source {
        Source::new(&Settings {
            bootstrap_url: url.map(Secret::from),
            bootstrap: Bootstrap {
                max_bytes,
                refresh_seconds: 0,
                ..Bootstrap::default()
            },
            ..Settings::default()
        })
        .unwrap()
    }

    #[tokio::test]
    async fn a_file_is_read_up_to_the_maximum_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let url = format!("file://{}", path.display());
        let fetched = source(Some(&url), 10).get().await.unwrap();
        assert_eq!(&*fetched.script, b"#!/bin/sh\n");
        assert_eq!(fetched.source, url);
        assert_eq!(fetched.digest.len(), 64);
        let error = source(Some(&url), 9).get().await.unwrap_err();
        assert!(
            matches!(error, FetchError::TooLarge { maximum: 9, .. }),
            "{error}"
        );
        std::fs::write(&path, "").unwrap();
        let error = source(Some(&url), 9).get().await.unwrap_err();
        assert!(matches!(error, FetchError::Empty { .. }), "{error}");
        std::fs::write(&path, "#!/bin/sh\r\nexec \"$@\"\r\n").unwrap();
        let error = source(Some(&url), 100).get().await.unwrap_err();
        assert!(matches!(error, FetchError::LineEnds { .. }), "{error}");
        for missing in [format!("{url}s"), format!("file://{}", folder.path().display())] {
            let error = source(Some(&missing), 9).get().await.unwrap_err();
            assert!(matches!(error, FetchError::Failed { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn the_last_script_is_used_while_its_source_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "one").unwrap();
        let source = source(Some(&format!("file://{}", path.display())), 100);
        assert_eq!(&*source.get().await.unwrap().script, b"one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(&*source.get().await.unwrap().script, b"two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&*source.get().await.unwrap().script, b"two");
    }

    #[tokio::test]
    async fn without_a_url_the_shipped_script_is_used() {
        let fetched = source(None, 10).get().await.unwrap();
        assert!(fetched.script.starts_with(b"#!/bin/sh\n"));
        assert_eq!(fetched.source, SHIPPED_NAME);
    }

    #[test]
    fn credentials_are_not_shown() {
        for (url, expected) in [
            ("https://u:p@example.com/a?token=t#f", Ok("https://example.com/a")),
            ("http://example.com/", Ok("http://example.com/")),
            ("ftp://example.com/", Err("its scheme is ftp")),
            ("bootstrap.sh", Err("relative URL without a base")),
        ] {
            match (parse(&Secret::from(url)), expected) {
                (Ok((_, display_url)), Ok(expected)) => assert_eq!(display_url, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (found, expected) => panic!("{url}: {found:?} and not {expected:?}"),
            }
        }
    }
}
