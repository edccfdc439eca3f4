//! The three programs of the control plane, and the client configuration.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::certificates::{Authority, Signed, service_accounts, write_secret};
use crate::shared::SharedFolder;
use crate::{Arguments, address, url, variable};

/// Time between SIGTERM and SIGKILL of a program.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The running programs.
pub(crate) struct ControlPlane {
    programs: Vec<(&'static str, Child)>,
}

impl ControlPlane {
    /// Starts the programs, which wait for each other.
    pub(crate) fn start(arguments: &Arguments, token: &str) -> anyhow::Result<Self> {
        let folder = &arguments.data_dir;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let path = |name: &str| folder.join(name).display().to_string();

        let shared = SharedFolder::of(arguments)?;
        let authority = Authority::in_folder(shared.path())?;
        let host = address(arguments).to_string();
        let mut names = arguments.tls_san.clone();
        names.extend(["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"].map(str::to_owned));
        let server = authority.server(names)?;
        fs::write(path("server.crt"), &server.certificate)?;
        write_secret(&folder.join("server.key"), &server.key)?;
        let (private, public) = service_accounts(shared.path())?;
        let (private, public) = (private.display(), public.display());
        // All agents share the framework's token; nodes have no separate users.
        write_secret(
            &folder.join("tokens"),
            &format!("{token},agent,agent,system:masters\n"),
        )?;

        let url = url(arguments);
        let own = folder.join("own.kubeconfig");
        write_secret(
            &own,
            &client_config(&authority, &authority.administrator()?, &url),
        )?;
        let own = own.display();

        let cert = path("server.crt");
        let authority = shared.path().join("authority.crt").display().to_string();
        let mut plane = Self { programs: Vec::new() };
        let mut apiserver = vec![
            format!("--etcd-servers={}", variable("K3S_DATASTORE_ENDPOINT")?),
            format!("--bind-address={host}"),
            format!("--secure-port={}", arguments.https_listen_port),
            // An address reserved for documentation: nothing in the cluster uses it, and the
            // program rejects loopback.
            "--advertise-address=192.0.2.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={cert}"),
            format!("--tls-private-key-file={}", path("server.key")),
            format!("--client-ca-file={authority}"),
            format!("--token-auth-file={}", path("tokens")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--service-cluster-ip-range=10.3.0.0/24".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={private}"),
            format!("--service-account-key-file={public}"),
        ];
        for (name, option) in [
            ("K3S_DATASTORE_CAFILE", "etcd-cafile"),
            ("K3S_DATASTORE_CERTFILE", "etcd-certfile"),
            ("K3S_DATASTORE_KEYFILE", "etcd-keyfile"),
        ] {
            apiserver.extend(std::env::var(name).map(|file| format!("--{option}={file}")));
        }
        plane.spawn("kube-apiserver", &apiserver)?;
        let client = [
            format!("--kubeconfig={own}"),
            "--leader-elect=false".to_owned(),
            "--port=0".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let controllers = [
            format!("--service-account-private-key-file={private}"),
            format!("--root-ca-file={authority}"),
            // Short, because the nodes of these tests renew their leases often.
            "--node-monitor-grace-period=10s".to_owned(),
        ];
        plane.spawn("kube-controller-manager", &[&client[..], &controllers].concat())?;
        plane.spawn("kube-scheduler", &client)?;
        Ok(plane)
    }

    fn spawn(&mut self, name: &'static str, arguments: &[String]) -> anyhow::Result<()> {
        let folder = PathBuf::from(variable("TRANSOM_KUBERNETES")?);
        // The program is killed with this process, even if this process is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(folder.join(name))
            .args(arguments)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.programs.push((name, child));
        Ok(())
    }

    /// Waits until one of the programs has ended, which is an error.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<()> {
        let [(first, a), (second, b), (third, c)] = self.programs.as_mut_slice() else {
            bail!("not every program was started");
        };
        let (name, status) = tokio::select! {
            status = a.wait() => (first, status),
            status = b.wait() => (second, status),
            status = c.wait() => (third, status),
        };
        bail!("{name} has ended: {}", status?)
    }

    /// Sends SIGTERM, to the API server last, and SIGKILL after the timeout.
    pub(crate) async fn stop(mut self) {
        while let Some((_, mut child)) = self.programs.pop() {
            if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
                // The child is not reaped yet, so its pid cannot belong to another process.
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }
}

/// Writes the client configuration where k3s would, with the address that k3s writes.
pub(crate) fn write_client_config(arguments: &Arguments) -> anyhow::Result<()> {
    let authority = Authority::in_folder(SharedFolder::of(arguments)?.path())?;
    let url = format!("https://127.0.0.1:{}", arguments.https_listen_port);
    let text = client_config(&authority, &authority.administrator()?, &url);
    let path = variable("K3S_KUBECONFIG_OUTPUT").or_else(|_| variable("KUBECONFIG"))?;
    let path = PathBuf::from(path);
    // The file is replaced by a rename, because the framework may read it at any time.
    let temporary = path.with_extension("new");
    write_secret(&temporary, &text)?;
    fs::rename(&temporary, &path).with_context(|| format!("writing {}", path.display()))
}

/// A client configuration (kubeconfig). JSON is valid YAML.
fn client_config(authority: &Authority, user: &Signed, url: &str) -> String {
    let name = "default";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name, "preferences": {},
        "clusters": [{"name": name, "cluster": {
            "server": url, "certificate-authority-data": STANDARD.encode(&authority.certificate),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(&user.certificate),
            "client-key-data": STANDARD.encode(&user.key),
        }}],
    });
    format!("{config:#}\n")
}
