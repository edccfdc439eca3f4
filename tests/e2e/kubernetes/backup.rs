//! Backup and restore of a real datastore: Debian's etcd and `MariaDB` as tasks of the framework.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::process::{binary, user};
use transom_tests::site::Site;

use crate::kubernetes::real::{self, kubectl};

const PASSWORD: &str = "s3cret of the 'datastore'";

/// A site whose datastore is a process with its data and backups in `folder`.
async fn start(folder: &Path, more: &str) -> Site {
    let data = folder.display();
    Site::start_with(&format!(
        "[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
         ds_cpu = 0.1\nds_mem = 64\nds_disk = 1\norch_ds_constraint = \"127.0.0.1\"\n\
         volume_ds = \"{data}/datastore\"\norch_container = false\norch_server_cpu = 0.1\norch_server_mem = 32\n\
         orch_server_disk = 1\norch_agent_count = 0\nportrange_from = 1024\nportrange_to = 65535\n{more}\n\
         [kubernetes.backup]\ndir = \"{data}/backups\"\nkeep = 3\nmem = 32\ndisk = 1\n",
        user(),
    ))
    .await
}

/// The task of the running datastore, and its port.
async fn datastore(site: &Site) -> Result<(String, String), String> {
    let explained = site.get(&site.kubernetes("/explain")).await?;
    let task = &explained["tasks"]["datastore"][0];
    match (
        task["state"].as_str(),
        task["id"].as_str(),
        task["ports"][0].as_u64(),
    ) {
        (Some("TASK_RUNNING"), Some(id), Some(port)) => Ok((id.to_owned(), port.to_string())),
        _ => Err(explained.to_string()),
    }
}

async fn datastore_port(site: &Site) -> String {
    eventually("a running datastore", || async { Ok(datastore(site).await?.1) }).await
}

async fn send(site: &Site, method: reqwest::Method, path: &str) -> (u16, Value) {
    let request = site.http.request(method, site.kubernetes(path));
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a text");
    (status, serde_json::from_str(&text).unwrap_or(Value::from(text)))
}

async fn post(site: &Site, path: &str) -> (u16, Value) {
    send(site, reqwest::Method::POST, path).await
}

/// Starts a backup; returns its name.
pub(crate) async fn back_up(site: &Site) -> String {
    let name = eventually("the datastore to be healthy", || async {
        match post(site, "/datastore/backups").await {
            (202, answer) => Ok(answer["name"].as_str().expect("a name").to_owned()),
            (status, answer) => Err(format!("{status} {answer}")),
        }
    });
    name.await
}

/// Starts a restore, and restarts the daemon during it.
pub(crate) async fn restart_during_restore(site: &mut Site, restore: &str) {
    let (status, answer) = post(site, restore).await;
    assert_eq!(status, 202, "{answer}");
    site.kill_daemon();
    site.start_daemon().await;
}

/// Waits until the backup or restore of this name has ended; returns the reason of its failure.
pub(crate) async fn wait_until_over(site: &Site, what: &str, name: &str) -> Option<String> {
    eventually(what, || async {
        let document = site.get(&site.kubernetes("/datastore/backups")).await?;
        let last = &document[format!("last_{what}")];
        if document["operation"].is_null() && last["backup"] == name {
            return Ok(last["reason"].as_str().map(str::to_owned));
        }
        Err(document.to_string())
    })
    .await
}

pub(crate) async fn wait_for_phase(site: &Site, phase: &str) {
    eventually(phase, || async {
        let document = site.get(&site.kubernetes("/datastore/backups")).await?;
        if document["operation"]["phase"] == phase {
            Ok(())
        } else {
            Err(document.to_string())
        }
    })
    .await;
}

fn output(output: &Output) -> Result<String, String> {
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// `transom fw` with the master of the site.
pub(crate) fn fw(site: &Site, folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let file = folder.join("cli.toml");
    let text = format!("[master]\naddress = \"{}\"\n", site.cluster.master);
    fs::write(&file, text).expect("written");
    let ran = Command::new(binary())
        .arg("fw")
        .args(arguments)
        .env("CLUSTER_CLI_CONFIG", &file)
        .output();
    output(&ran.expect("transom"))
}

fn etcdctl(port: &str, arguments: &[&str]) -> Result<String, String> {
    let ran = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints=http://127.0.0.1:{port}"))
        .args(arguments)
        .output();
    output(&ran.expect("etcdctl"))
}

/// The value of a key; empty if the key does not exist.
async fn value(site: &Site, key: &str) -> String {
    let port = datastore_port(site).await;
    eventually("etcd to answer", || async {
        etcdctl(&port, &["get", "--print-value-only", key])
    })
    .await
}

async fn put(site: &Site, key: &str, value: &str) {
    let port = datastore_port(site).await;
    eventually("etcd to answer", || async {
        etcdctl(&port, &["put", key, value])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(
    clippy::too_many_lines,
    reason = "one story from the first backup to the last restore"
)]
async fn etcd_is_backed_up_and_restored_also_when_the_daemon_is_killed() {
    let folder = tempfile::tempdir().expect("a directory");
    let etcd = "exec etcd --data-dir $DATA_DIR --listen-client-urls http://127.0.0.1:$PORT0 \
                --listen-peer-urls http://127.0.0.1:0";
    let settings = format!(
        "ds_etcd = true\nds_mysql = false\nds_command = \"{etcd}\"\n\
         orch_server_count = 0\n"
    );
    let mut site = start(folder.path(), &settings).await;
    put(&site, "first", "1").await;

    // The daemon is killed during the backup.
    let name = back_up(&site).await;
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);
    put(&site, "first", "changed").await;
    put(&site, "second", "2").await;

    // The daemon is killed while it stops the datastore, and again while it loads the backup.
    let restore = format!("/datastore/backups/{name}/restore");
    restart_during_restore(&mut site, &restore).await;
    wait_for_phase(&site, "load").await;
    let (status, answer) = post(&site, &restore).await;
    assert_eq!(status, 409, "{answer}");
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(wait_until_over(&site, "restore", &name).await, None);
    assert_eq!(value(&site, "first").await, "1");
    assert_eq!(value(&site, "second").await, "");

    // The same from the command line.
    put(&site, "third", "3").await;
    let second = fw(&site, folder.path(), &["backup", "fw", "--wait"]).expect("a backup");
    put(&site, "third", "changed").await;
    let table = fw(&site, folder.path(), &["backups", "fw"]).expect("a table");
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows[1].contains(&name) && rows[2].contains(&second), "{table}");
    let unconfirmed = fw(&site, folder.path(), &["restore", "fw", &second]).expect_err("rejected");
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    let restored = fw(&site, folder.path(), &["restore", "fw", &second, "--yes"]).expect("restored");
    assert_eq!(restored, format!("{second} is restored"));
    assert_eq!(value(&site, "third").await, "3");

    // Damaged and unknown backups change nothing.
    let file = folder.path().join(format!("backups/{name}.backup"));
    let mut data = fs::read(&file).expect("the data");
    fs::write(&file, &data[..data.len() - 1]).expect("written");
    let (status, answer) = post(&site, &restore).await;
    assert_eq!(
        (status, answer["message"].to_string().contains("damaged")),
        (422, true),
        "{answer}"
    );
    data[0] ^= 1;
    fs::write(&file, &data).expect("written");
    let (status, answer) = post(&site, &restore).await;
    assert_eq!(
        (status, answer["message"].to_string().contains("digest")),
        (422, true),
        "{answer}"
    );
    let rejected = fw(&site, folder.path(), &["restore", "fw", "unknown", "--yes"]).expect_err("rejected");
    assert!(rejected.contains("no backup unknown"), "{rejected}");
    let (status, answer) = send(
        &site,
        reqwest::Method::DELETE,
        &format!("/datastore/backups/{name}"),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    assert!(!file.exists());

    // Without a datastore a backup is rejected.
    put_path(&site, "/cluster/shutdown").await;
    eventually("the datastore to end", || async {
        let explained = site.get(&site.kubernetes("/explain")).await?;
        let ended = explained["tasks"]["datastore"]
            .as_array()
            .is_some_and(Vec::is_empty);
        if ended { Ok(()) } else { Err(explained.to_string()) }
    })
    .await;
    let rejected = fw(&site, folder.path(), &["backup", "fw", "--wait"]).expect_err("rejected");
    assert!(
        rejected.contains("No member of the datastore is healthy"),
        "{rejected}"
    );
    put_path(&site, "/cluster/start").await;
    assert_eq!(value(&site, "third").await, "3");

    // If etcd rejects a snapshot, the former data is restored.
    let file = folder.path().join(format!("backups/{second}"));
    let data = b"no snapshot".to_vec();
    fs::write(file.with_extension("backup"), &data).expect("written");
    let manifest = fs::read_to_string(file.with_extension("json")).expect("the manifest");
    let mut manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    manifest["size"] = data.len().into();
    manifest["sha256"] = sha256(&file.with_extension("backup")).into();
    fs::write(file.with_extension("json"), manifest.to_string()).expect("written");
    let failed = fw(&site, folder.path(), &["restore", "fw", &second, "--yes"]).expect_err("rejected");
    assert!(failed.contains("the former data is back"), "{failed}");
    assert_eq!(value(&site, "third").await, "3");

    // A backup larger than the maximum size is deleted.
    site.kill_daemon();
    let config = fs::read_to_string(site.config()).expect("a configuration");
    fs::write(
        site.config(),
        config.replace("keep = 3", "keep = 3\nmax_bytes = 100"),
    )
    .expect("written");
    site.start_daemon().await;
    let failed = fw(&site, folder.path(), &["backup", "fw", "--wait"]).expect_err("rejected");
    assert!(failed.contains("at most 100 are possible"), "{failed}");
    let files = fs::read_dir(folder.path().join("backups")).expect("a directory");
    assert_eq!(files.count(), 2, "those of the other backup");
    site.cluster.stop_after(site.daemon);
}

async fn put_path(site: &Site, path: &str) {
    let (status, answer) = send(site, reqwest::Method::PUT, path).await;
    assert_eq!(status, 200, "{path}: {answer}");
}

pub(crate) fn sha256(file: &Path) -> String {
    let ran = Command::new("sha256sum").arg(file).output().expect("sha256sum");
    let text = output(&ran).expect("a digest");
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers_continue_with_restored_data_after_all_of_it_was_lost() {
    let Some(programs) = real::programs("kubernetes_backup") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let backups = folder.path().join("backups");
    let settings = format!(
        "[kubernetes.backup]\ndir = \"{}\"\nmem = 32\ndisk = 1\n",
        backups.display()
    );
    let site = real::start_with(&programs, folder.path(), 2, &settings).await;
    let file = folder.path().join("kubeconfig");
    real::wait_for_ready_nodes(&site, &file, 3).await;
    let create = |name| kubectl(&file, &["create", "configmap", name, "--from-literal=key=value"]);
    create("kept").expect("created");
    let name = fw(&site, folder.path(), &["backup", "fw", "--wait"]).expect("a backup");
    create("later").expect("created");

    let (task, _) = datastore(&site).await.expect("a datastore");
    fs::rename(folder.path().join("datastore"), folder.path().join("lost")).expect("lost");
    site.cluster.kill_process(&task);
    eventually("an empty datastore", || async {
        let (_, port) = datastore(&site).await?;
        match etcdctl(
            &port,
            &[
                "get",
                "--prefix",
                "--keys-only",
                "/registry/configmaps/default/kept",
            ],
        )? {
            found if found.is_empty() => Ok(()),
            found => Err(found),
        }
    })
    .await;

    let restored = fw(&site, folder.path(), &["restore", "fw", &name, "--yes"]).expect("restored");
    assert_eq!(restored, format!("{name} is restored"));
    real::wait_for_ready_nodes(&site, &file, 3).await;
    let found = kubectl(&file, &["get", "configmaps", "--output=name"]).expect("configmaps");
    assert!(
        found.contains("configmap/kept") && !found.contains("later"),
        "{found}"
    );
    create("after").expect("the server writes to the datastore");
    site.cluster.stop_after(site.daemon);
}

/// Starts a SQL server in `DATA_DIR` on `PORT0`, as the image's entry point does.
const MARIADB: &str = r#"#!/bin/sh
set -e
run=$(mktemp -d)
if [ ! -e "$DATA_DIR/ready" ]; then
  rm -rf "$DATA_DIR"
  mariadb-install-db --no-defaults --datadir="$DATA_DIR" --user="$(id -un)" --auth-root-authentication-method=normal \
    --skip-test-db >install.log 2>&1
  touch "$DATA_DIR/ready"
fi
quoted=$(printf '%s' "$MYSQL_ROOT_PASSWORD" | sed "s/'/''/g")
printf "ALTER USER root@localhost IDENTIFIED BY '%s';\nCREATE DATABASE IF NOT EXISTS %s;\n" "$quoted" "$MYSQL_DATABASE" >"$run/init"
exec mariadbd --no-defaults --user="$(id -un)" --datadir="$DATA_DIR" --port="$PORT0" --bind-address=127.0.0.1 \
  --socket="$run/socket" --pid-file="$run/pid" --init-file="$run/init" --innodb-buffer-pool-size=16M
"#;

async fn sql(site: &Site, statement: &str) -> String {
    let port = datastore_port(site).await;
    eventually("the SQL server to answer", || async {
        sql_as(&port, PASSWORD, statement)
    })
    .await
}

/// Runs a statement as `root` with this password.
fn sql_as(port: &str, password: &str, statement: &str) -> Result<String, String> {
    let ran = Command::new("mariadb")
        .args([
            "--no-defaults",
            "--protocol=tcp",
            "--host=127.0.0.1",
            "--user=root",
        ])
        .args(["--skip-column-names", "--batch", "k3s", "-e", statement])
        .arg(format!("--port={port}"))
        .env("MYSQL_PWD", password)
        .output();
    output(&ran.expect("mariadb"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_server_is_backed_up_and_restored_and_its_password_stays_secret() {
    let folder = tempfile::tempdir().expect("a directory");
    let (server, bootstrap) = (
        folder.path().join("mariadb.sh"),
        folder.path().join("bootstrap.sh"),
    );
    let endpoint = folder.path().join("endpoint");
    fs::write(&server, MARIADB).expect("written");
    // The stand-in for the orchestrator's server stores the address of its datastore in a file.
    let text = format!(
        "#!/bin/sh\nprintf '%s' \"$K3S_DATASTORE_ENDPOINT\" >'{0}.part' && mv '{0}.part' '{0}'\nexec sleep 1000\n",
        endpoint.display()
    );
    fs::write(&bootstrap, text).expect("written");
    let settings = format!(
        "ds_command = \"exec sh '{}'\"\nds_mysql_password = \"{PASSWORD}\"\nbootstrap_url = \"file://{}\"\n",
        server.display(),
        bootstrap.display()
    );
    let mut site = start(folder.path(), &settings).await;
    let port = datastore_port(&site).await;
    let found = eventually("a server with its datastore", || async {
        fs::read_to_string(&endpoint).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(
        found,
        format!("mysql://root:{PASSWORD}@tcp(127.0.0.1:{port})/k3s")
    );
    let scaled = site.http.put(site.kubernetes("/server/scale/0")).send().await;
    assert!(scaled.expect("an answer").status().is_success());

    sql(
        &site,
        "CREATE TABLE kine (name TEXT); INSERT INTO kine VALUES ('first')",
    )
    .await;
    sql(&site, "CREATE PROCEDURE names() SELECT name FROM kine").await;
    let name = back_up(&site).await;
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);
    let dump = fs::read_to_string(folder.path().join(format!("backups/{name}.backup"))).expect("a dump");
    assert!(dump.contains("'first'") && !dump.contains(PASSWORD), "{dump}");

    sql(
        &site,
        "INSERT INTO kine VALUES ('second'); CREATE TABLE later (x INT); DROP PROCEDURE names",
    )
    .await;
    let (status, answer) = post(&site, &format!("/datastore/backups/{name}/restore")).await;
    assert_eq!(status, 202, "{answer}");
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(wait_until_over(&site, "restore", &name).await, None);
    assert_eq!(sql(&site, "SHOW TABLES").await, "kine");
    assert_eq!(sql(&site, "CALL names()").await, "first");

    let secret = PASSWORD.split(' ').next().expect("a word");
    for path in ["/explain", "/datastore/backups", "/status/fw", "/openapi.json"] {
        let answer = site
            .get(&site.kubernetes(path))
            .await
            .expect("an answer")
            .to_string();
        assert!(!answer.contains(secret), "{path}: {answer}");
    }
    let daemon = site.daemon.take().expect("a daemon");
    let (status, log) = daemon.interrupt();
    assert!(status.success(), "{status}");
    assert!(
        log.contains("backup or restore succeeded") && !log.contains(secret),
        "{log}"
    );
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_server_rejects_the_former_default_and_accepts_the_random_password() {
    let folder = tempfile::tempdir().expect("a directory");
    let server = folder.path().join("mariadb.sh");
    fs::write(&server, MARIADB).expect("written");
    let settings = format!(
        "ds_command = \"exec sh {}\"\norch_server_count = 0\n",
        server.display()
    );
    let mut site = start(folder.path(), &settings).await;
    let port = datastore_port(&site).await;
    let printed = eventually("the credentials", || async {
        fw(&site, folder.path(), &["credentials", "fw"])
    })
    .await;
    let line = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(line("username: "), Some("root"), "{printed}");
    let password = line("password: ").expect("a password").to_owned();
    eventually("the SQL server to answer", || async {
        sql_as(&port, &password, "SELECT 1")
    })
    .await;
    for wrong in ["password", ""] {
        let rejected = sql_as(&port, wrong, "SELECT 1").expect_err("rejected");
        assert!(rejected.contains("Access denied"), "{rejected}");
    }

    // The dump needs the password, and a restarted daemon has the same one.
    site.kill_daemon();
    site.start_daemon().await;
    let name = back_up(&site).await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);

    // Another password in the configuration changes nothing before it is adopted.
    site.kill_daemon();
    let config = fs::read_to_string(site.config()).expect("a configuration");
    let config = config.replace("ds_cpu", "ds_mysql_password = \"changed\"\nds_cpu");
    fs::write(site.config(), config).expect("written");
    site.start_daemon().await;
    eventually("the reason", || async {
        let explained = site.get(&site.kubernetes("/explain")).await?;
        let waiting = explained["waiting"].to_string();
        if waiting.contains("DS_MYSQL_PASSWORD") {
            Ok(())
        } else {
            Err(waiting)
        }
    })
    .await;
    sql_as(&port, &password, "SELECT 1").expect("the datastore was not touched");
    let change = "ALTER USER root@localhost IDENTIFIED BY 'changed'";
    sql_as(&port, &password, change).expect("changed");
    fw(&site, folder.path(), &["credentials", "fw", "--adopt"]).expect("adopted");
    eventually("the datastore with the new password", || async {
        let (_, port) = datastore(&site).await?;
        sql_as(&port, "changed", "SELECT 1")
    })
    .await;
    let name = back_up(&site).await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);

    let (status, log) = site.daemon.take().expect("a daemon").interrupt();
    assert!(status.success(), "{status}");
    assert!(!log.contains(&password), "{log}");
    site.cluster.stop();
}
