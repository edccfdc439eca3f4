//! Executes `examples/framework/README.md` literally: from `transom cluster` to `kubectl get
//! nodes`, scaling up and down, and the end.
//!
//! Only ports and the state's folder differ. `transom cluster` and `transom serve` are processes of
//! the test; one shell runs the other commands. If this machine has no k3s or the user is not root,
//! the stand-in of `tests/orchestrator` is installed as `k3s`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::Value;
use transom_testkit::{eventually, free_ports};
use transom_tests::http;
use transom_tests::process::{Transom, binary, components, user};
use transom_tests::readme::{Shell, blocks};

use crate::kubernetes::real::programs;

/// The ports of the page and its files: master, API, admin.
const PORTS: [&str; 3] = ["5050", "10000", "9990"];
/// The range of ports of the embedded cluster's tasks.
const TASK_PORTS: [&str; 2] = ["31000", "32499"];
const STATE: &str = "/var/lib/transom-example";
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether the tasks run a k3s of this machine.
fn tasks_run_k3s() -> bool {
    let found = |folder: &str| Path::new(folder).join("k3s").is_file();
    user() == "root" && USUAL_PATH.split(':').any(found)
}

/// A folder with the files of the repository that the page's commands use, on other ports.
fn repository(replace: &dyn Fn(&str) -> String) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let (target, folder) = (dir.path().join("target"), dir.path().join("examples/framework"));
    fs::create_dir_all(target.join("debug")).expect("made");
    fs::create_dir_all(&folder).expect("made");
    symlink(binary(), target.join("debug/transom")).expect("linked");
    symlink(components(), target.join("components")).expect("linked");
    for name in ["one-machine.toml", "cluster.toml", "cli.toml"] {
        fs::write(folder.join(name), replace(&example(name))).expect("written");
    }
    dir
}

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/framework");
    fs::read_to_string(folder.join(name)).expect("a file")
}

/// Installs the stand-in as `k3s` in a folder; returns the variables that let tasks find it.
fn install_stand_in(dir: &Path, programs: &str) -> String {
    let folder = dir.join("stand-in");
    fs::create_dir(&folder).expect("made");
    let script = folder.join("k3s");
    let program = binary().with_file_name("orchestrator");
    let text = format!(
        "#!/bin/sh\nTRANSOM_KUBERNETES='{programs}' exec '{}' \"$@\"\n",
        program.display()
    );
    fs::write(&script, text).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    format!("PATH={}:{USUAL_PATH}", folder.display())
}

/// Starts a command of the page that runs until it is terminated.
fn start(dir: &Path, command: &str, variables: &[(&str, &str)]) -> Transom {
    let arguments = command
        .strip_prefix("target/debug/transom ")
        .expect("transom is started");
    Transom::start_with(dir, arguments.split_whitespace(), variables)
}

/// Waits until the framework has subscribed.
async fn wait_until_subscribed(admin: &str) {
    eventually("the daemon to be subscribed", || async {
        let answer = http().get(format!("http://127.0.0.1:{admin}/ready")).send().await;
        let ready: Value = match answer {
            Ok(answer) => answer.json().await.map_err(|error| error.to_string())?,
            Err(error) => return Err(error.to_string()),
        };
        if ready["services"]["kubernetes"]["framework"]["subscribed"] == true {
            Ok(())
        } else {
            Err(ready.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_framework_readme_work_as_written() {
    let Some(programs) = programs("framework_readme") else {
        return;
    };
    let free = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let ports = free
        .each_ref()
        .map(|it| it.local_addr().expect("an address").port().to_string());
    drop(free);
    let first = free_ports(300);
    let task_ports = [first.to_string(), (first + 299).to_string()];
    let state = tempfile::tempdir().expect("a directory");
    let state_dir = state.path().to_string_lossy().into_owned();
    let replace = |text: &str| {
        let pairs = PORTS.iter().zip(&ports).chain(TASK_PORTS.iter().zip(&task_ports));
        let text = pairs.fold(text.replace(STATE, &state_dir), |text, (from, to)| {
            text.replace(&format!(":{from}"), &format!(":{to}"))
                .replace(&format!("= {from}\n"), &format!("= {to}\n"))
        });
        text.replace(&TASK_PORTS.join("-"), &task_ports.join("-"))
    };
    let page = replace(&example("README.md"));
    let blocks = blocks(&page);
    let [
        build,
        cluster,
        serve,
        list,
        wait,
        explain,
        ask,
        more,
        fewer,
        end,
        check,
    ] = blocks[..]
    else {
        panic!("the page does not have the blocks that this test expects: {blocks:#?}");
    };
    assert_eq!(build, "cargo build\ncargo xtask plugins\n");
    let dir = repository(&replace);
    let k3s = tasks_run_k3s();

    let user = user();
    let mut variables = vec![("FRAMEWORK_USER", user.as_str()), ("HEARTBEAT_INTERVAL", "1s")];
    let node_env = install_stand_in(dir.path(), &programs);
    if !k3s {
        variables.push(("ORCH_NODE_ENV", &node_env));
    }
    let mut cluster = start(dir.path(), cluster, &[]);
    cluster.wait_for_line("the master's address", |line| {
        line.starts_with("cluster master on ").then_some(())
    });
    let daemon = start(dir.path(), serve, &variables);
    wait_until_subscribed(&ports[2]).await;

    let mut shell = Shell::start(dir.path(), &[]);
    let listed = shell.run(list);
    let address = format!("http://127.0.0.1:{}", ports[1]);
    assert!(listed.contains(&address) && listed.contains(" fw"), "{listed}");
    shell.run(wait);
    let explained = shell.run(explain);
    assert!(explained.contains("127.0.0.2"), "{explained}");
    let output_of_ask = shell.run(ask);
    assert!(
        output_of_ask.contains("\"Server\":\"TASK_RUNNING\""),
        "{output_of_ask}"
    );
    assert!(output_of_ask.lines().any(|line| line == "ok"), "{output_of_ask}");
    assert!(
        output_of_ask.contains("\"Version\":\"v1.") && output_of_ask.contains(" Ready "),
        "{output_of_ask}"
    );
    if k3s {
        println!("skipped: the commands for more nodes: two kubelets cannot share this machine");
    } else {
        let scaled = shell.run(more);
        assert!(scaled.lines().any(|line| line == "2"), "{scaled}");
        let scaled = shell.run(fewer);
        assert!(scaled.lines().any(|line| line == "-2"), "{scaled}");
    }
    shell.run(end);
    let checked = shell.run(check);
    assert!(
        checked.contains("kubernetes.container_cni") && !checked.contains("change-me"),
        "{checked}"
    );
    shell.end();
    for process in [daemon, cluster] {
        let (status, output) = process.interrupt();
        assert!(status.success(), "{output}");
    }
}
