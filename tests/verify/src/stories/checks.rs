//! Checks: their results are shown with the task and have no effect on it.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{app, ports};
use crate::site::Site;

/// An HTTP server on the task's first port, with the programs that the agent has.
const SERVER: &str = r#"
if command -v python3 >/dev/null; then mkdir -p served && cd served && exec python3 -m http.server "$PORT0"; fi
if command -v perl >/dev/null; then exec perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die $!;
setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); bind(S, sockaddr_in($ENV{PORT0}, INADDR_ANY)) or die $!; listen(S, 64) or die $!;
while (accept(C, S)) { sysread(C, $r, 8192); syswrite(C, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"); close(C) }'; fi
echo "neither python3 nor perl on this agent" >&2; exit 127"#;

/// An app with a check, and the expected result.
struct Case {
    id: &'static str,
    definition: Value,
    check: Value,
    /// JSON pointer into `checkResult`.
    pointer: &'static str,
    expected: Value,
}

fn cases() -> [Case; 5] {
    let case = |id, definition: &Value, check, pointer, expected| Case {
        id,
        definition: definition.clone(),
        check,
        pointer,
        expected,
    };
    let server = json!({"cmd": SERVER, "cpus": 0.1, "mem": 48, "portDefinitions": ports(1)});
    let idle = json!({"portDefinitions": ports(1)});
    let http = json!({"http": {"portIndex": 0, "path": "/"}});
    let tcp = json!({"tcp": {"portIndex": 0}});
    let exec = |shell: &str| json!({"exec": {"command": {"shell": shell}}});
    let (status, succeeded, code) = ("/http/statusCode", "/tcp/succeeded", "/command/exitCode");
    [
        case("/checks-http", &server, http, status, json!(200)),
        case("/checks-tcp", &server, tcp.clone(), succeeded, json!(true)),
        case("/checks-tcp-closed", &idle, tcp, succeeded, json!(false)),
        case("/checks-exec", &idle, exec("test -d ."), code, json!(0)),
        case("/checks-exec-fails", &idle, exec("exit 3"), code, json!(3)),
    ]
}

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let cases = cases();
    for Case {
        id,
        definition,
        check,
        ..
    } in &cases
    {
        let mut definition = app(id, 1, definition);
        definition["check"] = check.clone();
        for (name, seconds) in [("intervalSeconds", 3), ("timeoutSeconds", 2), ("delaySeconds", 0)] {
            definition["check"][name] = json!(seconds);
        }
        site.post_app(&definition).await?;
    }
    for case in &cases {
        let task = site.wait_until_running(case.id, 1).await?;
        wait_for_result(site, case).await?;
        // A result has no effect on the task.
        site.verify_kept(case.id, &task).await?;
    }
    site.progress("results of 5 checks are shown");
    for Case { id, .. } in &cases {
        site.delete_app(id).await?;
        site.verify_launched(id, 1).await?;
    }
    Ok(())
}

/// Waits until the task of an app shows the expected result.
async fn wait_for_result(site: &Site, case: &Case) -> anyhow::Result<()> {
    let Case {
        id,
        pointer,
        expected,
        ..
    } = case;
    let url = site.apps(&format!("/v2/apps{id}/tasks?embed=checkFailure"))?;
    let what = format!("checkResult{pointer} = {expected} of the task of {id}");
    let waited = site.wait(&what, async || {
        let document = site.get(&url).await?;
        let task = &document["tasks"][0];
        let (state, result, failure) = (&task["state"], &task["checkResult"], &task["checkFailure"]);
        ensure!(
            result.pointer(pointer) == Some(expected),
            "state {state}, checkResult {result}, checkFailure {failure}"
        );
        Ok(())
    });
    waited.await.context(
        "a check has no such result; http and tcp checks need the ports of tasks to be reachable from this machine, and \
         python3 or perl on the agent",
    )
}
