//! A change of a group of 10,000 apps, and a daemon that is killed in the middle of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

const APPS: usize = 10_000;

/// A group of `APPS` apps without instances.
fn group(command: &str) -> Value {
    let app = |number: usize| json!({"id": format!("app{number}"), "cmd": command, "cpus": 0.1, "mem": 16, "instances": 0});
    json!({"id": "/large", "apps": (0..APPS).map(app).collect::<Vec<_>>()})
}

/// Sends the group. If there is no response within `limit`, kills the daemon and starts it again.
/// Returns whether the change was made, as far as a response tells, and the elapsed time.
async fn put(site: &mut Site, command: &str, limit: Duration) -> (bool, Duration) {
    let begun = Instant::now();
    let url = site.apps("/v2/groups?force=true");
    let request = site.http.put(url).json(&group(command)).timeout(limit).send();
    let answered = match request.await {
        Ok(answer) => {
            let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
            // A debug build on a busy machine takes longer than the 30 s that a client waits at most.
            if status == 503 && text.contains("may still be applied") {
                eventually("the change to be made", || async {
                    let found = commands(site).await;
                    let made = found == [(command.to_owned(), APPS)];
                    made.then_some(()).ok_or_else(|| format!("{found:?}"))
                })
                .await;
            } else {
                assert!(status.is_success(), "{status} {text}");
            }
            true
        }
        Err(error) => {
            assert!(error.is_timeout(), "{error:?}");
            site.kill_daemon();
            site.start_daemon().await;
            false
        }
    };
    (answered, begun.elapsed())
}

/// The commands of the group's apps, and the number of apps with each.
async fn commands(site: &Site) -> Vec<(String, usize)> {
    let listed = site.get(&site.apps("/v2/apps")).await.expect("apps");
    let mut commands: Vec<(String, usize)> = Vec::new();
    for app in listed["apps"].as_array().expect("a list") {
        let command = app["cmd"].as_str().expect("a command").to_owned();
        match commands.iter_mut().find(|(known, _)| *known == command) {
            Some((_, count)) => *count += 1,
            None => commands.push((command, 1)),
        }
    }
    commands
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_killed_in_a_change_of_ten_thousand_apps_has_committed_all_or_nothing() {
    let mut site = Site::start().await;
    let (answered, whole) = put(&mut site, "first", Duration::from_mins(5)).await;
    assert!(answered, "the first change is not interrupted");
    assert_eq!(commands(&site).await, [("first".to_owned(), APPS)]);

    // Changes are interrupted at different times, until one was interrupted before and one after
    // its commit: later after one that was lost, earlier after one that was made, whatever else
    // the machine does.
    let (mut made, mut lost) = (0, 0);
    let mut before = "first".to_owned();
    let mut limit = whole.mul_f64(0.8);
    for number in 0..8 {
        let next = format!("change {number}");
        let (answered, _) = put(&mut site, &next, limit).await;
        let found = commands(&site).await;
        match found.as_slice() {
            [(command, APPS)] if *command == next => {
                made += 1;
                limit = limit.mul_f64(0.5);
            }
            [(command, APPS)] if *command == before && !answered => {
                lost += 1;
                limit = limit.mul_f64(1.3);
            }
            other => panic!("after {next}, answered: {answered}: {other:?}"),
        }
        before.clone_from(&found[0].0);
        eventually("no deployment to be left", || async {
            let remaining = site.get(&site.apps("/v2/deployments")).await?;
            let none = remaining.as_array().is_some_and(Vec::is_empty);
            if none {
                Ok(())
            } else {
                Err(remaining.to_string().chars().take(300).collect())
            }
        })
        .await;
        if made > 0 && lost > 0 {
            break;
        }
    }
    assert!(lost > 0, "no change was interrupted before its commit");
    let (answered, _) = put(&mut site, "last", Duration::from_mins(5)).await;
    assert!(answered);
    assert_eq!(commands(&site).await, [("last".to_owned(), APPS)]);
    site.cluster.stop_after(site.daemon);
}
