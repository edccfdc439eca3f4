//! A secondary name server: NSD, from Debian's package.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tempfile::TempDir;
use transom_testkit::{eventually, free_port};
use transom_tests::master::{Master, MasterResponse};
use transom_tests::{dns, http};

use super::{Lookups, STATE_A};

/// Number of additional tasks: the transfer of the whole zone must be much larger than that of one
/// task.
const TASKS: usize = 200;

/// The state document with additional tasks.
fn document(tasks: usize) -> String {
    let mut document: Value = serde_json::from_str(STATE_A).unwrap();
    let list = document.pointer_mut("/frameworks/0/tasks").unwrap();
    let list = list.as_array_mut().unwrap();
    let one = list[0].clone();
    list.extend((0..tasks).map(|n| {
        let mut task = one.clone();
        task["id"] = json!(format!("more.{n}"));
        task["name"] = json!(format!("more-{n}"));
        task
    }));
    document.to_string()
}

/// NSD, without a control port. All its files are in its folder. It ends when it is dropped.
struct Nsd {
    child: Child,
    addr: SocketAddr,
    dir: TempDir,
}

impl Nsd {
    fn start(addr: SocketAddr, primary: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "server:\n server-count: 1\n ip-address: {}@{}\n username: \"\"\n chroot: \"\"\n zonesdir: \"{}\"\n \
             pidfile: \"{}\"\n xfrdfile: \"{}\"\n xfrdir: \"{}\"\n zonelistfile: \"{}\"\n database: \"\"\n verbosity: 3\n\
             remote-control:\n control-enable: no\n\
             zone:\n name: \"mesos.\"\n zonefile: \"{}\"\n request-xfr: {}@{} NOKEY\n allow-notify: 127.0.0.1 NOKEY\n",
            addr.ip(),
            addr.port(),
            dir.path().display(),
            path("pid"),
            path("xfrd"),
            dir.path().display(),
            path("zones"),
            path("zone"),
            primary.ip(),
            primary.port(),
        );
        fs::write(path("nsd.conf"), config).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let program = ["/usr/sbin/nsd", "nsd"]
            .into_iter()
            .find(|it| Path::new(it).exists());
        let child = Command::new(program.unwrap_or("nsd"))
            .args(["-d", "-c", &path("nsd.conf")])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("nsd starts: is the Debian package `nsd` there?");
        Self { child, addr, dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// The sizes in bytes of the updates that NSD has applied to its zone.
    fn updates(&self) -> Vec<usize> {
        let log = self.log();
        let sizes = log.lines().filter_map(|line| {
            let (_, size) = line
                .split_once("received update to serial ")?
                .1
                .split_once(" of ")?;
            size.split(' ').next()?.parse().ok()
        });
        sizes.collect()
    }

    async fn wait_for_answer(&self, name: &str) {
        eventually(&format!("{name} from the secondary"), || async {
            match dns::ask(self.addr, name, RecordType::A).await {
                Ok(answer) if answer.code == ResponseCode::NoError && !answer.addresses.is_empty() => Ok(()),
                other => Err(format!("{other:?}\n{}", self.log())),
            }
        })
        .await;
    }
}

impl Drop for Nsd {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        // On SIGTERM, NSD ends its child processes.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// The number of transfers of a kind that the daemon has sent.
async fn transfers(admin: SocketAddr, kind: &str) -> usize {
    let url = format!("http://{admin}/metrics");
    let metrics = http().get(url).send().await.unwrap().text().await.unwrap();
    let counter = format!("transom_discovery_queries_total{{qtype=\"{kind}\",rcode=\"NOERROR\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&counter));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn secondary_loads_the_zone_and_follows_it_by_incremental_transfers() {
    let master = Master::start(MasterResponse::document(document(TASKS))).await;
    let secondary = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let keys = json!({
        "masters": [master.address.to_string()], "alsoNotify": [secondary.to_string()],
        "allowTransfer": ["127.0.0.0/8"],
    });
    let mut lookups = Lookups::start_with(&keys, &["-admin=127.0.0.1:0"]);
    let admin: SocketAddr = lookups.daemon.wait_for_line("the admin port", |line| {
        let (_, rest) = line.split_once("listener=\"admin\" addr=")?;
        rest.split_whitespace().next()?.parse().ok()
    });
    lookups.wait_for_answer(super::WEB_ADDRESS_A).await;

    let nsd = Nsd::start(secondary, lookups.dns);
    let last = |tasks: usize| format!("more-{}.marathon.mesos.", tasks - 1);
    nsd.wait_for_answer(&last(TASKS)).await;
    let (whole, by_changes) = (transfers(admin, "AXFR").await, transfers(admin, "IXFR").await);
    assert!(whole > 0, "{}", nsd.log());
    let all = nsd.updates().iter().copied().max().unwrap_or_default();
    let before = nsd.updates().len();

    // The zone's refresh interval is a minute; earlier updates are caused by NOTIFY.
    for more in 1..=2 {
        master.set_response(MasterResponse::document(document(TASKS + more)));
        nsd.wait_for_answer(&last(TASKS + more)).await;
    }
    assert!(
        nsd.log().contains("notify for mesos. from 127.0.0.1"),
        "{}",
        nsd.log()
    );
    assert_eq!(transfers(admin, "AXFR").await, whole, "{}", nsd.log());
    assert!(transfers(admin, "IXFR").await > by_changes);
    let changes = nsd.updates().split_off(before);
    assert!(!changes.is_empty(), "{}", nsd.log());
    assert!(changes.iter().all(|size| size * 5 < all), "{changes:?} of {all}");

    // Removed records are removed from the secondary, too.
    master.set_response(MasterResponse::document(document(TASKS)));
    eventually("the last task to be gone from the secondary", || async {
        match dns::ask(secondary, &last(TASKS + 2), RecordType::A).await {
            Ok(answer) if answer.code == ResponseCode::NXDomain => Ok(()),
            other => Err(format!("{other:?}\n{}", nsd.log())),
        }
    })
    .await;
    drop(nsd);
    let (status, output) = lookups.daemon.interrupt();
    assert!(status.success(), "{output}");
}
