//! The SQL server's certificate, with a real server.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use super::*;

fn task(secrets: &Arc<Secrets>, config: &Arc<Config>, kind: Kind) -> Value {
    let launch = Launch {
        secrets: Arc::clone(secrets),
        ..launch(config, kind, 0)
    };
    let mut placement = placement("t-1", &[31001, 31002]);
    placement.agent.hostname = "127.0.0.1".to_owned();
    serde_json::to_value(launch.build(&placement).unwrap()).unwrap()
}

fn one_off(secrets: &Arc<Secrets>, config: &Arc<Config>, port: u16, work: Work) -> Value {
    let task = OneOffTask {
        config: Arc::clone(config),
        secrets: Arc::clone(secrets),
        endpoints: Endpoints {
            datastore: vec![transom_common::HostPort::new("127.0.0.1", port)],
            server: None,
        },
        operation: "op".to_owned(),
        work,
    };
    serde_json::to_value(task.build(&placement("t-2", &[])).unwrap()).unwrap()
}

#[test]
fn sql_server_with_tls_has_its_keys_in_no_command_and_its_servers_have_the_authority() {
    let config = config_with(|_| {});
    let secrets = tls_secrets(Engine::Sql);
    let datastore = task(&secrets, &config, Kind::Datastore);
    let (command, found) = (&datastore["command"], variables(&datastore));
    assert_eq!(command["shell"], true);
    let line = command["value"].as_str().unwrap();
    for part in [
        "exec docker-entrypoint.sh --ssl-ca=\"${tls}ca.pem\"",
        "--require-secure-transport=ON",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains(&found["TRANSOM_TLS_MEMBER_KEY"]) && !line.contains("/var/lib/mysql"));
    assert!(!found.contains_key("TRANSOM_TLS_CLIENT_KEY") && !found.contains_key("ETCD_CERT_FILE"));
    let check = &datastore["health_check"]["command"]["arguments"];
    assert_eq!(check, &json!(["ping", "-h", "localhost"]));

    let server = task(&secrets, &config, Kind::Server);
    let found = variables(&server);
    let directory = "/var/lib/rancher/k3s/transom-tls";
    for (name, file) in [("CA", "ca"), ("CERT", "client"), ("KEY", "client-key")] {
        assert_eq!(
            found[&format!("K3S_DATASTORE_{name}FILE")],
            format!("{directory}/{file}.pem")
        );
    }
    assert!(found["K3S_DATASTORE_ENDPOINT"].starts_with("mysql://root:"));
    let key = &found["TRANSOM_TLS_CLIENT_KEY"];
    assert!(
        arguments(&server)
            .iter()
            .all(|argument| !argument.contains(key.as_str()))
    );
    let agent = variables(&task(&secrets, &config, Kind::Agent));
    assert!(!agent.keys().any(|name| name.starts_with("TRANSOM_TLS")));
    let plain = task(&super::secrets(), &config, Kind::Server);
    assert_eq!(plain["command"]["value"], "/mnt/mesos/sandbox/bootstrap");
}

/// In place of the image's entry point, which also starts a temporary server without network for the
/// image's scripts of the first start, and looks for its settings in more variables and in files.
const ENTRY_POINT: &str = r#"#!/bin/sh
set -e
user=$(id -un)
[ "$user" != root ] || user=mysql
mkdir "$HERE/data"
[ "$(id -u)" != 0 ] || chown "$user" "$HERE/data"
mariadb-install-db --no-defaults --datadir="$HERE/data" --user="$user" --auth-root-authentication-method=normal \
  --skip-test-db >"$HERE/install.log" 2>&1
cat >"$HERE/init" <<END
CREATE USER root@'%' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
ALTER USER root@localhost IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
CREATE DATABASE $MYSQL_DATABASE;
END
chmod 644 "$HERE/init"
exec mariadbd --no-defaults --user="$user" --datadir="$HERE/data" --port="$SQL_PORT" --bind-address=127.0.0.1 \
  --socket="$HERE/data/socket" --init-file="$HERE/init" --innodb-buffer-pool-size=16M "$@"
"#;

/// Runs a task's command in the folder, where its sandbox and its temporary files are.
fn shell(folder: &Path, info: &Value) -> Command {
    let line = info["command"]["value"].as_str().unwrap();
    let folder = folder.display().to_string();
    let mut command = Command::new("sh");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(["-c", &line.replace(SANDBOX, &folder)])
        .envs(variables(info))
        .env("PATH", format!("{folder}/bin:{path}:/usr/sbin"))
        .env("TMPDIR", &folder)
        .env("HERE", &folder);
    command
}

/// The folder of a server's certificate.
fn certificates(folder: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.join("member-key.pem").exists());
    found.next().expect("the server's certificate")
}

#[tokio::test]
async fn real_sql_server_accepts_only_connections_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // As /tmp, because the server's user makes temporary files.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(folder.join("bin")).unwrap();
    let entry_point = folder.join("bin/docker-entrypoint.sh");
    fs::write(&entry_point, ENTRY_POINT).unwrap();
    for path in [&folder.join("bin"), &entry_point] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (config, secrets) = (config_with(|_| {}), tls_secrets(Engine::Sql));
    let info = task(&secrets, &config, Kind::Datastore);
    let log = fs::File::create(folder.join("log")).unwrap();
    let child = shell(folder, &info)
        .env("SQL_PORT", port.to_string())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let pid = child.id();
    let _server = Member(child);

    let client = |password: &str, options: &[&str]| {
        let output = Command::new("mariadb")
            .args([
                "--no-defaults",
                "--protocol=tcp",
                "--host=127.0.0.1",
                "--user=root",
            ])
            .args(["--skip-column-names", "--batch", &format!("--port={port}")])
            .args(options)
            .args(["-e", "SHOW STATUS LIKE 'Ssl_version'", "k3s"])
            .env("MYSQL_PWD", password)
            .output();
        text(&output.expect("mariadb"))
    };
    let file = |name: &str, authority: &crate::secrets::Authority| {
        fs::write(folder.join(name), &authority.certificate).unwrap();
        format!("--ssl-ca={}", folder.join(name).display())
    };
    let authority = file("own.pem", &secrets.tls.as_ref().unwrap().authority);
    let foreign = tls_secrets(Engine::Sql);
    let foreign = file("foreign.pem", &foreign.tls.as_ref().unwrap().authority);
    let password = secrets.password.reveal();

    let verified = [authority.as_str(), "--ssl-verify-server-cert"];
    transom_testkit::eventually("the SQL server", || async {
        client(password, &verified).map(|found| assert!(found.contains("TLSv1"), "{found}"))
    })
    .await;
    client(password, &["--skip-ssl"]).expect_err("the right password without TLS");
    client(password, &[&foreign]).expect_err("the certificate is of another authority");
    for wrong in ["password", ""] {
        let error = client(wrong, &verified).unwrap_err();
        assert!(error.contains("Access denied"), "{error}");
    }
    let ping = Command::new("mariadb-admin")
        .args(["--no-defaults", "ping", "-h", "localhost"])
        .arg(format!("--socket={}", folder.join("data/socket").display()))
        .output();
    text(&ping.unwrap()).expect("the health check connects without TLS");

    let directory = certificates(folder);
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    let file = directory.join("member-key.pem");
    let metadata = fs::metadata(&file).unwrap();
    let owner = fs::metadata(folder.join("data")).unwrap().uid();
    assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o600, owner));
    let key = fs::read_to_string(file).unwrap();
    let encoded = &variables(&info)["TRANSOM_TLS_MEMBER_KEY"];
    for name in ["environ", "cmdline"] {
        let shown = fs::read(format!("/proc/{pid}/{name}")).unwrap();
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains(if name == "environ" { "MYSQL_" } else { "mariadbd" }));
        for secret in [key.as_str(), encoded.as_str(), "TRANSOM_TLS"] {
            assert!(!shown.contains(secret), "{name}");
        }
        assert!(name == "environ" || !shown.contains(password));
    }
    back_up_and_restore(folder, &secrets, &config, port);
}

/// Runs the tasks of a backup and of a restore, which need TLS.
fn back_up_and_restore(folder: &Path, secrets: &Arc<Secrets>, config: &Arc<Config>, port: u16) {
    let run = |secrets: &Arc<Secrets>, work: Work| {
        let output = shell(folder, &one_off(secrets, config, port, work)).output();
        let output = text(&output.unwrap());
        let result = fs::read_to_string(folder.join("result"));
        (output, result.unwrap_or_default())
    };
    let (output, result) = run(secrets, Work::Dump);
    let sha256 = result.trim().strip_prefix("done ").map(str::to_owned);
    let sha256 = sha256.unwrap_or_else(|| panic!("{output:?} {result}"));
    let load = Work::Load {
        url: "http://fw.test/backup".to_owned(),
        sha256,
        again: false,
    };
    let (output, result) = run(secrets, load);
    assert_eq!(result.trim(), "done", "{output:?}");
    let left = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let left = left.filter(|path| path.join("client-key.pem").exists()).count();
    assert_eq!(left, 0, "the files of one-off tasks are removed");
}

fn text(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}
