//! Completion in the shells themselves.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use transom_tests::process::binary;

use super::{Shell, program};

/// Runs a script in a shell that has the completion and finds the program; returns what it prints.
fn in_shell(shell: &str, site: &Shell, script: &str) -> String {
    let environment = program(&site.site, &[]);
    let mut command = Command::new(shell);
    if shell == "zsh" {
        command.arg("-f");
    }
    let program = binary();
    let folder = program.parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
    // In the locale C fish finds no program below a folder whose name is not ASCII.
    command.env("LC_ALL", "C.UTF-8");
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.args(["-c", script]).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{shell}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{shell}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The candidates for the last of these words.
fn completed(shell: &str, site: &Shell, words: &[&str]) -> Vec<String> {
    let current = words.last().expect("a word");
    let line = words.join(" ");
    let script = match shell {
        "bash" => format!(
            "source <(transom completions bash); COMP_WORDS=({line} {}); COMP_CWORD={}; COMP_TYPE=9; \
             _clap_complete_transom transom '{current}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            if current.is_empty() { "''" } else { "" },
            words.len() - 1
        ),
        // The last step of zsh, in which it shows the candidates, prints them here.
        "zsh" => format!(
            "compdef() {{ }}; _describe() {{ print -l -- \"${{(@P)argv[3]}}\" }}; source <(transom completions zsh); \
             words=({line} {}); CURRENT={}; _clap_dynamic_completer_transom",
            if current.is_empty() { "''" } else { "" },
            words.len()
        ),
        _ => format!("transom completions fish | source; complete -C '{line}'"),
    };
    let text = in_shell(shell, site, &script);
    let candidates = text.lines().map(|line| {
        let end = if shell == "zsh" { ':' } else { '\t' };
        line.split(end).next().unwrap_or_default().trim().to_owned()
    });
    candidates.filter(|candidate| !candidate.is_empty()).collect()
}

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_completed_in_each_shell_and_a_silent_daemon_does_not_delay_it() {
    let mut shell = Shell::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    for id in ["/shop/web", "/shop/api"] {
        shell
            .site
            .post_app(&json!({"id": id, "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 32}))
            .await;
    }
    let task = shell.site.wait_until_running("/shop/web", 1).await.remove(0);
    let id = task["id"].as_str().expect("an id");
    let short = id.split_once(".instance-").expect("an instance").1[..8].to_owned();
    let job = json!({"workflow_task_id": "nightly", "command": ["true"], "cpus": 10_000});
    let url = format!("http://{}/v0/queue_command", shell.site.addresses["workflow"]);
    let answer = shell
        .site
        .http
        .post(url)
        .json(&job)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    for name in SHELLS {
        let of = |words: &[&str]| completed(name, &shell, &[&["transom"], words].concat());
        assert_eq!(of(&["apps", "show", "/shop/w"]), ["/shop/web"], "{name}");
        assert_eq!(of(&["apps", "show", "shop/a"]), ["shop/api"], "{name}");
        assert_eq!(of(&["apps", "kill", &short[..7]]), [short.as_str()], "{name}");
        assert_eq!(of(&["job", "show", "nig"]), ["nightly"], "{name}");
        assert!(
            of(&["plugin", "show", "attri"]).contains(&"attributes".to_owned()),
            "{name}"
        );
        assert!(
            of(&["agents", "show", ""])
                .iter()
                .any(|host| host.starts_with("127.0.0.")),
            "{name}"
        );
        // Commands and options, without a daemon.
        assert_eq!(of(&["apps", "expla"]), ["explain"], "{name}");
        assert!(
            of(&["apps", "logs", "--fol"]).contains(&"--follow".to_owned()),
            "{name}"
        );
    }
    // A daemon that accepts connections and does not answer, and no daemon.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    shell
        .site
        .addresses
        .insert("apps".to_owned(), silent.local_addr().expect("an address"));
    let started = Instant::now();
    for name in SHELLS {
        assert!(
            completed(name, &shell, &["transom", "apps", "show", "/"]).is_empty(),
            "{name}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    drop(silent);
    for name in SHELLS {
        assert!(
            completed(name, &shell, &["transom", "apps", "show", "/"]).is_empty(),
            "{name}"
        );
    }
    shell.stop();
}
