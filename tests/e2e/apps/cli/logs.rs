//! `transom apps logs`, `transom job logs` and the other commands about jobs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

use super::{FinishedCommand, Shell, program};

/// The part of a task's id by which tables name it.
fn short(task: &Value) -> String {
    let id = task["id"].as_str().expect("an id");
    let (_, unique) = id.split_once(".instance-").expect("an instance");
    unique[..8].to_owned()
}

/// A command that is followed line by line.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("transom runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    fn next_line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    /// Waits for the end; the remaining lines are its output.
    fn finish(self) -> FinishedCommand {
        let rest: Vec<String> = self.lines.map_while(Result::ok).collect();
        let output = self.child.wait_with_output().expect("an end");
        FinishedCommand {
            out: rest.join("\n"),
            ..output.into()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_of_tasks_is_raw_in_a_pipe_and_harmless_on_a_terminal() {
    let shell = Shell::start().await;
    let output = r"printf 'one\n\033[31mred\033[0m \033]0;title\007\377\n'; echo oops >&2; exec sleep 1000";
    shell
        .site
        .post_app(&json!({"id": "/shop/noisy", "cmd": output, "cpus": 0.1, "mem": 32, "instances": 2}))
        .await;
    let tasks = shell.site.wait_until_running("/shop/noisy", 2).await;
    let task = tasks[0]["id"].as_str().expect("an id");
    eventually("the output of the tasks", async || {
        let logs = shell.run(&["logs", "/shop/noisy"]);
        let complete = logs.code == Some(0) && logs.out.lines().count() == 4 && logs.err.lines().count() == 2;
        if complete {
            Ok(())
        } else {
            Err(format!("{logs:?}"))
        }
    })
    .await;
    // Of several tasks, each line begins with the short id.
    let logs = shell.run(&["logs", "/shop/noisy"]);
    for task in &tasks {
        let one = format!("{} one", short(task));
        let oops = format!("{} oops", short(task));
        assert!(logs.out.lines().any(|line| line == one), "{logs:?}");
        assert!(logs.err.lines().any(|line| line == oops), "{logs:?}");
    }
    // In a pipe, the bytes are those of the task, also with the short id.
    for name in [task, &short(&tasks[0])] {
        let mut command = program(&shell.site, &["apps", "logs", name, "--stream", "stdout"]);
        let raw = command.output().expect("transom runs");
        assert_eq!(
            raw.stdout, b"one\n\x1b[31mred\x1b[0m \x1b]0;title\x07\xff\n",
            "{raw:?}"
        );
        assert!(raw.stderr.is_empty(), "{raw:?}");
    }
    assert_eq!(
        shell.stdout_of(&["logs", task, "-n", "0", "--stream", "stdout"]),
        ""
    );
    // `script` runs a command on a terminal.
    let on_terminal = terminal(&shell.site, &["apps", "logs", task, "--stream", "stdout"]);
    assert!(
        on_terminal.contains("red \\u{1b}]0;title\\u{7}\u{fffd}"),
        "{on_terminal:?}"
    );
    assert!(!on_terminal.contains(['\u{1b}', '\u{7}']), "{on_terminal:?}");

    // A task without a sandbox, an unknown name, and an app without a failed task.
    let agents = shell.site.cluster.work_dir().join("agents");
    remove_sandbox(&agents, task);
    let gone = shell.stderr_of_failure(1, &["logs", task]);
    assert!(
        gone.contains(task) && gone.contains("its sandbox was removed"),
        "{gone}"
    );
    let unknown = shell.stderr_of_failure(1, &["logs", "/shop/noisi"]);
    assert!(unknown.contains("no app, pod or task is called"), "{unknown}");
    let none = shell.stderr_of_failure(1, &["logs", "--previous", "/shop/noisy"]);
    assert!(none.contains("no task of /shop/noisy has failed"), "{none}");
    // The port that reads the output is another one.
    let mut command = program(&shell.site, &["apps", "logs", task]);
    let free = transom_testkit::free_port();
    command.env("TRANSOM_ADMIN_URL", format!("http://127.0.0.1:{free}"));
    let unreachable = FinishedCommand::from(command.output().expect("transom runs"));
    assert_eq!(unreachable.code, Some(3), "{unreachable:?}");
    assert!(
        unreachable.err.contains("--admin") && unreachable.err.contains("admin port"),
        "{unreachable:?}"
    );
    shell.stop();
}

/// Runs a command on a terminal of 80 columns; returns what it prints.
pub(super) fn terminal(site: &Site, arguments: &[&str]) -> String {
    let inner = program(site, arguments);
    let mut command = Command::new("script");
    let words: Vec<_> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    command.args([
        "-qec",
        &format!("stty cols 80 && {}", words.join(" ")),
        "/dev/null",
    ]);
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("script, of util-linux");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes the sandboxes of a task from the agents.
fn remove_sandbox(agents: &std::path::Path, task: &str) {
    let mut folders = vec![agents.to_owned()];
    let mut removed = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if !entry.file_type().expect("a type").is_dir() {
                continue;
            }
            if path.file_name().is_some_and(|name| name == task) {
                fs::remove_dir_all(&path).expect("removed");
                removed += 1;
            } else {
                folders.push(path);
            }
        }
    }
    assert!(removed > 0, "no sandbox of {task}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_followed_to_its_end_and_the_app_to_its_replacement() {
    let shell = Shell::start().await;
    let flags = tempfile::tempdir().expect("a directory");
    let flag = |task: &str| flags.path().join(task);
    let cmd = format!(
        "echo start; while [ ! -e '{}'/$MESOS_TASK_ID ]; do sleep 0.05; done; echo bye; exit 3",
        flags.path().display()
    );
    shell
        .site
        .post_app(&json!({"id": "/ends", "cmd": cmd, "cpus": 0.1, "mem": 32, "backoffSeconds": 0}))
        .await;
    let first = shell.site.wait_until_running("/ends", 1).await.remove(0);
    let id = first["id"].as_str().expect("an id").to_owned();
    let mut of_task = Follower::start(program(&shell.site, &["apps", "logs", "--follow", &id]));
    let mut of_app = Follower::start(program(&shell.site, &["apps", "logs", "--follow", "ends"]));
    assert_eq!(of_task.next_line(), "start");
    assert_eq!(of_app.next_line(), format!("{} start", short(&first)));
    fs::write(flag(&id), "").expect("written");
    let ended = of_task.finish();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "bye"), "{ended:?}");
    let expected = format!("{id} ended: TASK_FAILED: Command exited with status 3");
    assert_eq!(ended.err.trim_end(), expected);
    assert_eq!(of_app.next_line(), format!("{} bye", short(&first)));
    // The app goes on with the task that replaces the first one.
    let second = shell.site.wait_until_running("/ends", 1).await.remove(0);
    assert_eq!(of_app.next_line(), format!("{} start", short(&second)));

    let previous = shell.stdout_of(&["logs", "--previous", "ends"]);
    assert_eq!(previous, "start\nbye\n");
    assert_eq!(shell.stdout_of(&["logs", &id, "--lines", "1"]), "bye\n");
    shell.stdout_of(&["delete", "ends"]);
    let deleted = of_app.finish();
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(deleted.err.contains("ended: TASK_KILLED"), "{deleted:?}");
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_gigabyte_is_read_at_once_and_a_lost_agent_is_an_error() {
    let shell = Shell::start().await;
    let cmd = r"truncate -s 1G stdout; printf '\nsecond last\nlast\n' >> stdout; exec sleep 1000";
    shell
        .site
        .post_app(&json!({"id": "/long", "cmd": cmd, "cpus": 0.1, "mem": 32}))
        .await;
    let task = shell.site.wait_until_running("/long", 1).await.remove(0);
    let tail = ["logs", "long", "--lines", "2", "--stream", "stdout"];
    eventually("the end of the output", async || {
        let logs = shell.run(&tail);
        if logs.out == "second last\nlast\n" {
            Ok(())
        } else {
            Err(format!("{:?}, {}", logs.code, logs.err))
        }
    })
    .await;
    // The beginning of the third last line is a gigabyte away; only a bounded part is read.
    let started = Instant::now();
    let three = shell.run(&["logs", "long", "--lines", "3", "--stream", "stdout"]);
    assert_eq!(three.code, Some(0));
    assert!(three.out.len() <= 9 << 20, "{} bytes", three.out.len());
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );

    // The agent's file server is gone with the agent.
    let agent = task["slaveId"].clone();
    shell
        .site
        .fault(&json!({"fault": "kill-agent", "agent": agent}))
        .await;
    let id = task["id"].as_str().expect("an id");
    let error = eventually("an error about the agent", async || {
        let logs = shell.run(&["logs", id]);
        if logs.code == Some(0) {
            Err(format!("{logs:?}"))
        } else {
            Ok(logs.err)
        }
    })
    .await;
    let is_clear = [
        "the agent does not answer",
        "lists no agent with this id",
        "has ended",
    ];
    assert!(is_clear.iter().any(|text| error.contains(text)), "{error}");
    shell.stop();
}

const WORKFLOW: &str = "[workflow]\nport = 0\ncontainers = false\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_listed_shown_followed_and_killed() {
    let site = Site::start_with(WORKFLOW).await;
    let flags = tempfile::tempdir().expect("a directory");
    let flag = flags.path().join("end");
    let run = |arguments: &[&str]| -> FinishedCommand {
        program(&site, &[&["job"], arguments].concat())
            .output()
            .expect("transom runs")
            .into()
    };
    let queue = async |body: Value| {
        let url = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
        let answer = site.http.post(url).json(&body).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "{:?}", answer.text().await);
    };
    let script = format!(
        "echo begins; echo oops >&2; while [ ! -e '{}' ]; do sleep 0.05; done; echo done; exit 4",
        flag.display()
    );
    queue(json!({"workflow_task_id": "works", "command": ["/bin/sh", "-c", script], "cpus": 0.1, "mem_limit": 16})).await;
    queue(json!({"workflow_task_id": "waits", "command": ["true"], "attributes": ["gpu:true"]})).await;
    let mut follower = Follower::start(program(&site, &["job", "logs", "--follow", "works"]));
    assert_eq!(follower.next_line(), "begins");
    let list = eventually("the reason of the pending job", async || {
        let list = run(&["list"]);
        // The output may arrive before the state.
        if list.out.contains("no active agent") && list.out.contains("running") {
            Ok(list.out)
        } else {
            Err(format!("{list:?}"))
        }
    })
    .await;
    let row = |name: &str| {
        let row = list.lines().find(|line| line.trim_start().starts_with(name));
        row.unwrap_or_else(|| panic!("no {name}: {list}")).to_owned()
    };
    assert!(
        row("works").contains("running") && row("waits").contains("pending"),
        "{list}"
    );
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    let shown = run(&["show", "waits"]).out;
    assert!(
        shown.contains("`gpu:true`") && shown.contains("advice"),
        "{shown}"
    );
    let active = run(&["list", "--state", "active", "-o", "name"]).out;
    let mut active: Vec<&str> = active.lines().collect();
    active.sort_unstable();
    assert_eq!(active, ["waits", "works"]);

    fs::write(&flag, "").expect("written");
    let ended = follower.finish();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "done"), "{ended:?}");
    assert!(ended.err.contains("oops"), "{ended:?}");
    assert!(
        ended
            .err
            .contains("works ended: TASK_FAILED: Command exited with status 4"),
        "{ended:?}"
    );
    assert_eq!(
        run(&["logs", "works", "-n", "1", "--stream", "stdout"]).out,
        "done\n"
    );
    let json: Value = serde_json::from_str(&run(&["list", "-o", "json"]).out).expect("JSON");
    assert_eq!(json["jobs"].as_array().map(Vec::len), Some(2), "{json}");

    let unknown = run(&["kill", "waits", "nothing"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("no job is called nothing"), "{unknown:?}");
    assert!(
        run(&["kill", "waits", "works"])
            .out
            .contains("works has already ended: TASK_FAILED")
    );
    eventually("the killed job", async || {
        let failed = run(&["list", "--state", "failed", "-o", "name"]).out;
        if failed.lines().any(|line| line == "waits") {
            Ok(())
        } else {
            Err(failed)
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}
