//! Names of jobs with markup and escape sequences, in the terminal and in the log.
//! `tests/dashboard/daemon.mjs` tests them in the dashboard.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::binary;
use transom_tests::site::Site;

/// All output of `transom ARGUMENTS`.
async fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    let ran = tokio::task::spawn_blocking(move || command.output());
    let output = ran.await.expect("no panic").expect("transom runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Whether a terminal would interpret the character, or it changes the direction of text.
fn is_acted_on(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_jobs_with_markup_and_escape_sequences_are_shown_as_text() {
    let mut site = Site::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    let workflow = format!("http://{}", site.addresses["workflow"]);
    let queue = async |job: Value| {
        let request = site.http.post(format!("{workflow}/v0/queue_command"));
        let answer = request.json(&job).send().await.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("a body"));
        assert!(!text.contains(is_acted_on), "{text:?}");
        (status, text)
    };
    // Control characters and slashes are not permitted in a name; direction marks and markup are.
    for (name, expected) in [
        ("\u{1b}]0;gone\u{7}", "control characters"),
        ("\u{202e}a/b", "without /"),
    ] {
        let (status, text) = queue(json!({"workflow_task_id": name, "command": "true"})).await;
        assert!(status == 422 && text.contains(expected), "{status} {text}");
    }
    let name = "<img src=x onerror=alert('job')>\u{202e}\u{2066}evil";
    let waits = json!({"workflow_task_id": name, "command": "true", "image": name, "cpus": 9000});
    assert_eq!(queue(waits).await.0, 200);
    eventually("the waiting job in the overview", || async {
        let found = site.get(&site.admin("/v1/overview")).await?;
        let services = found["services"].as_array().into_iter().flatten();
        let mut workflow = services.filter(|it| it["name"] == "workflow");
        let waits = workflow.any(|it| it["waiting"][0]["instances"] == 1);
        waits.then_some(()).ok_or_else(|| found.to_string())
    })
    .await;

    let url = site.admin("");
    let other = format!("other {name}");
    let mut seen = Vec::new();
    for arguments in [
        &["status", "--url", &url][..],
        &["top", "--url", &url],
        &["status", "--url", &url, "--output", "json"],
        &[
            "job", "run", "--url", &workflow, "--id", &other, "--cpus", "0.1", "--shell", "--", "true",
        ],
        &[
            "job",
            "run",
            "--url",
            &workflow,
            "--id",
            "red\u{1b}[31m",
            "--",
            "true",
        ],
    ] {
        let printed = run(arguments).await;
        assert!(!printed.contains(is_acted_on), "{arguments:?}: {printed:?}");
        seen.push(printed);
    }
    assert!(seen[3].contains("TASK_FINISHED"), "{}", seen[3]);
    assert!(seen[4].contains("control characters"), "{}", seen[4]);
    // The audit events contain the names in the paths of requests.
    let mut task: reqwest::Url = workflow.parse().expect("a URL");
    let mut path = task.path_segments_mut().expect("a path");
    path.extend(["v0", "task", name]);
    drop(path);
    let deleted = site.http.delete(task);
    assert_eq!(deleted.send().await.expect("an answer").status().as_u16(), 200);
    let daemon = site.daemon.as_mut().expect("a daemon");
    daemon.wait_for_line("the audit event", |line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        (entry["target"] == "transom::audit" && entry["method"] == "DELETE").then_some(())
    });
    let log = daemon.output();
    assert!(!log.contains(is_acted_on), "{log:?}");
}
