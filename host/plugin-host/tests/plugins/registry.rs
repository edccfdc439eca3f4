//! A real registry for tests: Debian's `docker-registry`, which `cargo xtask test` provides.

use std::{
    fmt::Write,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use oci_client::{
    Client,
    client::{ClientConfig, ClientProtocol},
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use transom_plugin_host::{Login, Registries};
use transom_plugin_tools::Push;

use crate::support::{TIMEOUT, component};

/// The registry's users: `reader` with the password `correct horse`.
const USERS: &str = "reader:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n";

/// How a registry is set up.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) users: bool,
    /// Certificate and key, PEM.
    pub(crate) tls: Option<(String, String)>,
}

/// A running registry with storage of its own; killed when dropped.
pub(crate) struct DockerRegistry {
    dir: TempDir,
    setup: Setup,
    pub(crate) address: SocketAddr,
    child: Option<Child>,
}

impl DockerRegistry {
    pub(crate) async fn start() -> DockerRegistry {
        DockerRegistry::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> DockerRegistry {
        // Another process may take the port between the check and the start. Then another port is
        // used.
        let mut registry = DockerRegistry {
            dir: TempDir::new().unwrap(),
            setup,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            child: None,
        };
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            registry.address = free.local_addr().unwrap();
            drop(free);
            if registry.begin().await {
                return registry;
            }
        }
        panic!("docker-registry does not start");
    }

    /// A client of it. The proxy, from which all servers are excluded, replaces that of the
    /// environment.
    pub(crate) fn client(&self) -> Client {
        let unused = Some("http://localhost".to_owned());
        Client::new(ClientConfig {
            protocol: ClientProtocol::HttpsExcept(vec![self.address.to_string()]),
            no_proxy: Some("*,0.0.0.0/0,::/0".to_owned()),
            http_proxy: unused.clone(),
            https_proxy: unused,
            ..ClientConfig::default()
        })
    }

    /// Stops the registry. Its port then refuses connections.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the registry again, on the same port and with the same content.
    pub(crate) async fn restart(&mut self) {
        assert!(self.begin().await, "docker-registry does not start again");
    }

    async fn begin(&mut self) -> bool {
        let config = self.dir.path().join("registry.yml");
        fs::write(&config, self.config()).unwrap();
        let child = Command::new(program())
            .arg("serve")
            .arg(&config)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let child = self.child.insert(child);
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            if TcpStream::connect(self.address).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.stop();
        false
    }

    fn config(&self) -> String {
        let file = |name: &str, content: &str| {
            let path = self.dir.path().join(name);
            fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let mut text = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    \
             rootdirectory: {}\nhttp:\n  addr: {}\n",
            self.storage().display(),
            self.address
        );
        if let Some((certificate, key)) = &self.setup.tls {
            let _ = write!(
                text,
                "  tls:\n    certificate: {}\n    key: {}\n",
                file("tls.crt", certificate),
                file("tls.key", key)
            );
        }
        if self.setup.users {
            let _ = write!(
                text,
                "auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
                file("users", USERS)
            );
        }
        text
    }

    fn storage(&self) -> PathBuf {
        self.dir.path().join("storage")
    }

    /// `oci://…` for a repository and a version of it: `:tag` or `@sha256:…`.
    pub(crate) fn source(&self, version: &str) -> String {
        format!("oci://{}/team/odd{version}", self.address)
    }

    /// Settings that allow this registry without TLS. Tags are resolved again only on request.
    pub(crate) fn settings(&self) -> Registries {
        Registries {
            plain_http: vec![self.address.to_string()],
            idle_timeout: Duration::from_secs(5),
            ..Registries::default()
        }
    }

    pub(crate) fn login(&self, password: &str) -> Login {
        Login {
            registry: self.address.to_string(),
            user: "reader".to_owned(),
            password: password.to_owned(),
            token_server: None,
        }
    }

    /// Pushes a built component. Returns the digest of its image manifest, `sha256:…`.
    pub(crate) async fn push(&self, name: &str, tag: &str) -> String {
        self.push_with(name, tag, None, &self.settings()).await
    }

    pub(crate) async fn push_with(
        &self,
        name: &str,
        tag: &str,
        key: Option<&[u8]>,
        settings: &Registries,
    ) -> String {
        let push = Push {
            component: fs::read(component(name)).unwrap(),
            annotations: [("org.opencontainers.image.title".to_owned(), name.to_owned())].into(),
            key: key.map(<[u8]>::to_vec),
        };
        let destination = self.source(&format!(":{tag}"));
        let pushed = push.to(&destination, settings).await.unwrap();
        let (at, digest) = pushed.split_once('@').unwrap();
        assert_eq!(at, destination);
        digest.to_owned()
    }

    /// The directory where the registry keeps the tags and manifests of a repository.
    pub(crate) fn manifests(&self, repository: &str) -> PathBuf {
        self.storage()
            .join("docker/registry/v2/repositories/team")
            .join(repository)
            .join("_manifests")
    }

    /// The file that holds a blob, or a manifest, on the registry's disk.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        self.storage()
            .join("docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data")
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn program() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin/docker-registry");
    [PathBuf::from("/usr/bin/docker-registry"), unpacked]
        .into_iter()
        .find(|it| it.exists())
        .expect("docker-registry is not installed: cargo xtask test provides it")
}
