//! Real members of a kvstore in an image like the default one: a shell, `etcd` and `etcdctl`, and no
//! other program.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use transom_common::HostPort;
use transom_testkit::eventually;

use super::*;
use crate::backup::script::{RESULT, parse_result};
use crate::plan::Start;

const KEY: &str = "/registry/key";

/// An image, with the certificates of a kvstore.
struct BareImage {
    folder: tempfile::TempDir,
    secrets: Arc<Secrets>,
}

/// Where a member runs and listens.
struct Place {
    number: u32,
    ports: [u16; 2],
    folder: PathBuf,
}

impl Place {
    fn address(&self) -> HostPort {
        HostPort::new("127.0.0.1", self.ports[0])
    }

    fn data(&self, path: &str) -> PathBuf {
        self.folder.join("data").join(path)
    }

    /// The sizes of the files of former data.
    fn sizes(&self, path: &str) -> Vec<u64> {
        let files = fs::read_dir(self.data(path)).unwrap().flatten();
        files.map(|file| file.metadata().unwrap().len()).collect()
    }
}

fn free_ports() -> [u16; 2] {
    let ports = [0, 0].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    ports.map(|listener| listener.local_addr().unwrap().port())
}

impl BareImage {
    fn new(shell: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (program, name) in [(shell, "sh"), ("etcd", "etcd"), ("etcdctl", "etcdctl")] {
            symlink(Path::new("/usr/bin").join(program), folder.path().join(name)).unwrap();
        }
        let secrets = tls_secrets(Engine::Kvstore);
        Self { folder, secrets }
    }

    fn place(&self, number: u32) -> Place {
        let folder = self.folder.path().join(format!("agent-{number}"));
        fs::create_dir_all(folder.join("data")).unwrap();
        Place {
            number,
            ports: free_ports(),
            folder,
        }
    }

    /// A command in this image. The paths of the container are in the folder of the place.
    fn command(&self, info: &Value, place: &Place) -> Command {
        let folder = place.folder.display().to_string();
        let here = |text: &str| {
            text.replace(data_volume::KVSTORE_DATA, &format!("{folder}/data"))
                .replace(SANDBOX, &folder)
                .replace("tls=/transom-tls-", &format!("tls={folder}/transom-tls-"))
                .replace("/usr/local/bin/etcd ", "etcd ")
                .replace("0.0.0.0", "127.0.0.1")
                // A single member starts with the first heartbeat.
                .replace("'50000'", "1000")
                .replace("'5000'", "100")
        };
        let mut command = Command::new(self.folder.path().join("sh"));
        command
            .args(["-c", &here(info["command"]["value"].as_str().unwrap())])
            .env_clear()
            .env("ETCD_LISTEN_PEER_URLS", "http://127.0.0.1:0")
            .envs(
                variables(info)
                    .into_iter()
                    .map(|(name, value)| (name, here(&value))),
            )
            .env("MESOS_TASK_ID", "t-1")
            .env("PATH", self.folder.path());
        command
    }

    fn config(place: &Place) -> Arc<Config> {
        config_with(|config| {
            config.settings.ds_etcd = true;
            config.settings.ds_port = place.ports[0];
            config.settings.ds_peer_port = place.ports[1];
            config.settings.mapped_addresses = true;
        })
    }

    /// Starts a datastore; `start`: how a member of several starts, and the others.
    fn start(
        &self,
        place: &Place,
        start: Option<(Start, &[&Place])>,
        preparation: Option<Preparation>,
    ) -> Member {
        let launch = Launch {
            secrets: Arc::clone(&self.secrets),
            member: start.as_ref().map(|(start, others)| MemberStart {
                start: *start,
                others: others.iter().map(|other| other.address()).collect(),
                home: None,
            }),
            preparation,
            ..launch(&Self::config(place), Kind::Datastore, place.number)
        };
        let mut offer = placement("t-1", &place.ports);
        offer.agent.hostname = "127.0.0.1".to_owned();
        let info = serde_json::to_value(launch.build(&offer).unwrap()).unwrap();
        let log = place.folder.join("log");
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.command(&info, place);
        command.current_dir(&place.folder);
        if start.is_some() {
            // Elections need not take seconds here.
            command
                .env("ETCD_HEARTBEAT_INTERVAL", "100")
                .env("ETCD_ELECTION_TIMEOUT", "1000");
        }
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn();
        Member(child.unwrap())
    }

    /// Runs a one-off task for the datastore at this place.
    fn run(&self, place: &Place, work: Work) -> Option<crate::backup::phase::OneOffOutcome> {
        let task = OneOffTask {
            config: Self::config(place),
            secrets: Arc::clone(&self.secrets),
            endpoints: Endpoints {
                datastore: vec![place.address()],
                server: None,
            },
            operation: "op".to_owned(),
            work,
        };
        let info = serde_json::to_value(task.build(&placement("t-2", &[])).unwrap()).unwrap();
        let output = self.command(&info, place).output().unwrap();
        let result = fs::read_to_string(place.folder.join(RESULT));
        parse_result(&result.unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    /// Runs `etcdctl` with the certificate that the member at this place wrote for its client.
    fn etcdctl(&self, place: &Place, arguments: &[&str]) -> Result<String, String> {
        let file = |name: &str| place.data(&format!("transom-tls-{name}.pem"));
        let output = Command::new(self.folder.path().join("etcdctl"))
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_CACERT", file("ca"))
            .env("ETCDCTL_CERT", file("client"))
            .env("ETCDCTL_KEY", file("client-key"))
            .args([
                &format!("--endpoints=https://{}", place.address()),
                "--command-timeout=5s",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!(
                "{} {}",
                text(&output.stderr),
                fs::read_to_string(place.folder.join("log")).unwrap_or_default()
            ))
        }
    }

    async fn put(&self, place: &Place, value: &str) {
        eventually("the key to be written", || async {
            self.etcdctl(place, &["put", KEY, value])
        })
        .await;
    }

    async fn wait_for_value(&self, place: &Place, value: &str) {
        eventually(&format!("the value {value}"), || async {
            let found = self.etcdctl(place, &["get", KEY, "--print-value-only"])?;
            if found == value { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Waits until this number of members vote, and all have started.
    async fn wait_for_voters(&self, place: &Place, count: usize) {
        eventually(&format!("{count} voters"), || async {
            let list = self.etcdctl(place, &["member", "list"])?;
            let voters = list
                .lines()
                .filter(|line| line.contains(", started, ") && line.ends_with("false"));
            if (voters.count(), list.lines().count()) == (count, count) {
                Ok(())
            } else {
                Err(list)
            }
        })
        .await;
    }
}

/// Former data with this text in its files.
fn leave_former_data(place: &Place) {
    for file in ["member/wal/0.wal", "member/snap/db"] {
        let file = place.data(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "former data").unwrap();
    }
}

async fn members_start_return_and_join(shell: &str) {
    let image = BareImage::new(shell);
    let [first, mut second, third] = [0, 1, 2].map(|number| image.place(number));
    let one = image.start(&first, Some((Start::New, &[])), None);
    image.put(&first, "kept").await;
    let key = fs::metadata(first.data("transom-tls-member-key.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);

    // A member joins over former data, which it cannot remove: it empties them.
    leave_former_data(&second);
    let two = image.start(&second, Some((Start::Join, &[&first])), None);
    image.wait_for_voters(&first, 2).await;
    assert!(second.data("data-1/member/wal").exists());
    for path in ["member/wal", "member/snap"] {
        assert_eq!(second.sizes(path), [0], "{path}");
    }
    let three = image.start(&third, Some((Start::Join, &[&first, &second])), None);
    image.wait_for_voters(&first, 3).await;
    assert!(third.data("member/wal").exists() && !third.data("current").exists());

    // It returns with its data at other ports, while the others have the quorum.
    drop(two);
    second.ports = free_ports();
    let two = image.start(&second, Some((Start::Return, &[&first, &third])), None);
    image.wait_for_value(&second, "kept").await;
    let peer = format!("https://127.0.0.1:{}", second.ports[1]);
    eventually("its new address", || async {
        let list = image.etcdctl(&first, &["member", "list"])?;
        if list.contains(&peer) { Ok(()) } else { Err(list) }
    })
    .await;

    // It joins again, in place of itself.
    drop(two);
    let two = image.start(&second, Some((Start::Join, &[&first, &third])), None);
    image.wait_for_voters(&second, 3).await;
    assert!(second.data("data-2/member/wal").exists());
    assert!(second.sizes("data-1/member/wal").iter().all(|size| *size == 0));

    // All end, and return.
    drop((one, two, three));
    let _all = [&first, &second, &third].map(|it| image.start(it, Some((Start::Return, &[])), None));
    for place in [&first, &second, &third] {
        image.wait_for_value(place, "kept").await;
    }
}

async fn backup_is_made_restored_and_reverted(shell: &str, clustered: bool) {
    let image = BareImage::new(shell);
    let place = image.place(0);
    let start = |preparation| image.start(&place, clustered.then_some((Start::New, &[][..])), preparation);
    let restore = || Preparation::Restore {
        operation: "op".to_owned(),
        url: "http://fw.test/backup".to_owned(),
        // Without `sha256sum` etcd's digest in the snapshot is the only one that is verified.
        sha256: "0".repeat(64),
    };
    let mut member = start(None);
    image.put(&place, "before").await;
    let done = Some(crate::backup::phase::OneOffOutcome::Done(String::new()));
    assert_eq!(image.run(&place, Work::Check), done);
    assert_eq!(image.run(&place, Work::Dump), done);
    let backup = place.folder.join("backup");
    let snapshot = fs::read(&backup).unwrap();
    let (data, digest) = snapshot.split_at(snapshot.len() - 32);
    assert_eq!(
        Sha256::digest(data)[..],
        *digest,
        "the digest that is verified in place of `sha256sum`'s"
    );
    image.put(&place, "later").await;

    // A damaged snapshot leaves the data alone.
    drop(member);
    let mut damaged = snapshot.clone();
    damaged[20_000] ^= 1;
    fs::write(&backup, damaged).unwrap();
    assert!(!start(Some(restore())).0.wait().unwrap().success());
    member = start(None);
    image.wait_for_value(&place, "later").await;

    // The second restore is one after a crash.
    for _ in 0..2 {
        drop(member);
        fs::write(&backup, &snapshot).unwrap();
        member = start(Some(restore()));
        image.wait_for_value(&place, "before").await;
        assert_eq!(fs::metadata(&backup).unwrap().len(), 0);
    }
    for preparation in [
        None,
        Some(Preparation::Revert {
            operation: "op".into(),
        }),
    ] {
        let expected = if preparation.is_some() { "later" } else { "before" };
        drop(member);
        member = start(preparation);
        image.wait_for_value(&place, expected).await;
    }
    drop(member);
    let _member = start(Some(Preparation::Revert {
        operation: "op".into(),
    }));
    image.wait_for_value(&place, "later").await;
    for restored in ["data-2/member/wal", "data-3/member/snap"] {
        let sizes = place.sizes(restored);
        assert!(sizes.iter().all(|size| *size == 0), "{restored} {sizes:?}");
    }
}

#[tokio::test]
async fn members_start_return_and_join_with_no_program_but_bash() {
    members_start_return_and_join("bash-static").await;
}

#[tokio::test]
async fn members_start_return_and_join_with_no_program_but_dash() {
    members_start_return_and_join("dash").await;
}

#[tokio::test]
async fn backup_of_a_member_is_restored_with_no_program_but_bash() {
    backup_is_made_restored_and_reverted("bash-static", true).await;
}

#[tokio::test]
async fn backup_of_a_single_kvstore_is_restored_with_no_program_but_dash() {
    backup_is_made_restored_and_reverted("dash", false).await;
}
