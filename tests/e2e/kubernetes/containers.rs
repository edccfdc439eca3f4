//! The Kubernetes framework in real containers: datastore, server and agent run from an image that
//! is pulled from a registry, and reach each other by mapped ports.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_minicluster::{AgentConfig, Config, Minicluster};
use transom_testkit::containers::Runtime;
use transom_testkit::{free_ports, retry_until};
use transom_tests::kubernetes::{Api, task_ids};
use transom_tests::process::{Transom, binary};
use transom_tests::registry::Registry;
use transom_tests::site::{addresses, copy_components};

use crate::apps::containers::runtime;
use crate::kubernetes::real::{kubectl, programs};

/// Number of host ports of each agent.
const PORTS: u16 = 50;
const AGENTS: u16 = 2;
/// Timeout of the start: images are pulled, and a kvstore elects a leader after about 15 seconds
/// because of the framework's election timeout.
const START_TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// An address of this machine that its containers can reach, too; loopback is not one.
fn address() -> IpAddr {
    // No packet is sent: the kernel selects the address that it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket
        .connect("203.0.113.1:9")
        .expect("a route to other machines");
    socket.local_addr().expect("an address").ip()
}

async fn cluster(dir: &Path, token: &CancellationToken) -> Minicluster {
    let (ip, first) = (address(), free_ports(PORTS * AGENTS));
    let agent = |number: u16| AgentConfig {
        ip,
        port: 0,
        hostname: ip.to_string(),
        cpus: 4.0,
        mem: 4096.0,
        disk: 8192.0,
        disks: Vec::new(),
        ports: (first + number * PORTS, first + (number + 1) * PORTS - 1),
        attributes: Vec::new(),
    };
    let mut config = Config::new(dir.join("cluster"));
    config.agents = (0..AGENTS).map(agent).collect();
    config.start(token.clone()).await.expect("a cluster")
}

/// Copies a program of this machine and its libraries.
fn copy(root: &Path, program: &Path, place: &str) {
    let ldd = Command::new("ldd").arg(program).output().expect("ldd");
    let libraries = String::from_utf8_lossy(&ldd.stdout);
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    // In the output of `ldd` the program's own name ends with a colon, so that it is no file.
    let libraries = libraries.map(PathBuf::from).filter(|path| path.is_file());
    let all = libraries
        .map(|path| (path.clone(), path))
        .chain([(program.to_owned(), PathBuf::from(place))]);
    for (from, to) in all {
        let to = root.join(to.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
}

/// Builds an image of Debian's etcd and the orchestrator with its control plane, and pushes it;
/// returns its name.
fn image(runtime: &Runtime, dir: &Path, control_plane: &str, registry: &Registry) -> String {
    let root = dir.join("root");
    for folder in ["bin", "tmp", "usr/local/bin"] {
        fs::create_dir_all(root.join(folder)).expect("made");
    }
    copy(&root, Path::new("/bin/busybox"), "/bin/busybox");
    for program in ["sh", "base64", "chmod", "mkdir", "rm"] {
        symlink("busybox", root.join("bin").join(program)).expect("linked");
    }
    copy(
        &root,
        &binary().with_file_name("orchestrator"),
        "/usr/local/bin/orchestrator",
    );
    for program in ["etcd", "etcdctl"] {
        copy(
            &root,
            &Path::new("/usr/bin").join(program),
            &format!("/usr/local/bin/{program}"),
        );
    }
    copy(&root, Path::new("/usr/bin/setpriv"), "/usr/bin/setpriv");
    for program in fs::read_dir(control_plane).expect("a folder").flatten() {
        let place = format!("/kubernetes/{}", program.file_name().display());
        copy(&root, &program.path(), &place);
    }
    let archive = dir.join("image.tar");
    let tar = Command::new("tar")
        .args(["--mode=a+rX", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status();
    assert!(tar.expect("tar").success());
    let name = format!("{}/fw/node:1", registry.address);
    let archive = archive.display().to_string();
    runtime.run(&["import", &archive, &name]);
    let mut push = vec!["push"];
    if runtime.program == "podman" {
        push.push("--tls-verify=false");
    }
    push.push(&name);
    runtime.run(&push);
    // The local copy is removed, so that the cluster pulls the image.
    runtime.run(&["rmi", &name]);
    name
}

fn section(image: &str, dir: &Path) -> String {
    let (data, script) = (dir.join("data"), dir.join("bootstrap.sh"));
    fs::write(
        &script,
        "#!/bin/sh\nexport TRANSOM_KUBERNETES=/kubernetes\necho \"began as @TRANSOM_ROLE@\"\nexec \"$@\"\n",
    )
    .expect("written");
    let (data, script) = (data.display(), script.display());
    let program = "/usr/local/bin/orchestrator";
    format!(
        "[kubernetes]\nport = 0\nmapped_addresses = true\nheartbeat_interval = \"1s\"\nportrange_from = 1024\n\
         portrange_to = 65535\nds_etcd = true\nds_mysql = false\nds_port = 2379\nds_cpu = 0.2\nds_mem = 200\nds_disk = 1\n\
         image_kvstore = \"{image}\"\nimage_orch = \"{image}\"\nvolume_ds = \"{data}/datastore\"\n\
         volume_orch_server = \"{data}/server\"\norch_container = false\nkubeconfig = \"/mnt/mesos/sandbox/k3s.yaml\"\n\
         orch_server_string = \"{program} server --bind-address=0.0.0.0 --data-dir=/var/lib/rancher/k3s\"\n\
         orch_server_cpu = 0.5\norch_server_cpu_limit = 2\norch_server_mem = 1000\norch_server_disk = 1\n\
         orch_agent_string = \"{program} agent\"\norch_agent_count = 1\norch_agent_mem = 64\norch_agent_disk = 1\n\
         bootstrap_url = \"file://{script}\"\n"
    )
}

/// Whether a container of the cluster has written this text.
fn has_written(work_dir: &Path, text: &str) -> bool {
    let mut grep = Command::new("grep");
    grep.args(["--recursive", "--quiet", "--fixed-strings", text]);
    grep.arg(work_dir).status().expect("grep").success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datastore_server_and_agent_run_as_containers_and_kubectl_reaches_them_by_a_mapped_port() {
    let (Some(control_plane), Some(runtime)) = (
        programs("kubernetes_containers"),
        runtime("kubernetes_containers").await,
    ) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let registry = Registry::start(dir.path());
    let image = image(&runtime, dir.path(), &control_plane, &registry);
    copy_components(&dir.path().join("plugins"));
    let token = CancellationToken::new();
    let cluster = cluster(dir.path(), &token).await;
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n[store]\nserver = \"file:store\"\n\
         [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{}",
        cluster.master(),
        section(&image, dir.path()),
    );
    fs::write(dir.path().join("transom.toml"), configuration).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let api = Api::new(format!(
        "http://{}/api/fw/v0",
        addresses(&mut daemon)["kubernetes"]
    ));

    let file = dir.path().join("kubeconfig");
    let deadline = Instant::now() + START_TIMEOUT;
    let seen = retry_until(
        deadline,
        POLL_INTERVAL,
        "kubectl to show both nodes as ready",
        || async {
            let seen = api.get("/explain").await?;
            let (status, config) = api.send(reqwest::Method::GET, "/server/config").await?;
            if status != 200 {
                return Err(format!("{status} {config} {seen}"));
            }
            fs::write(&file, config).expect("written");
            let nodes = kubectl(&file, &["get", "nodes", "--no-headers"])?;
            if nodes.matches(" Ready ").count() == 2 {
                Ok(seen)
            } else {
                Err(format!("{nodes} {seen}"))
            }
        },
    )
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    let address = address().to_string();
    let port = seen["tasks"]["server"][0]["ports"][0].to_string();
    let config = fs::read_to_string(&file).expect("the configuration");
    assert!(
        config.contains(&format!("https://{address}:{port}\"")),
        "{config}"
    );

    let work_dir = dir.path().join("cluster");
    assert_eq!(runtime.names(&work_dir).len(), 3, "{seen}");
    for role in ["server", "agent"] {
        assert_eq!(task_ids(&seen, role).len(), 1, "{seen}");
        assert!(
            has_written(&work_dir, &format!("began as {role}")),
            "no script of a {role}"
        );
    }
    for written in ["datastore/member", "server/authority.crt"] {
        assert!(
            dir.path().join("data").join(written).exists(),
            "no {written} in the volumes"
        );
    }

    let (status, output) = daemon.interrupt();
    assert!(status.success(), "{output}");
    token.cancel();
    cluster.stopped().await;
    assert_eq!(runtime.names(&work_dir), [""; 0]);
    runtime.run(&["rmi", &image]);
}
