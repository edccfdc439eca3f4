//! `--timeout` with a daemon that does not answer.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{FinishedCommand, command};

/// The daemon here is a script: it sends these answers, each a status with a body, in this order, and
/// leaves all further requests unanswered. Returns its URL.
fn daemon_that_hangs_after(answers: Vec<(&'static str, Value)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        let mut unanswered = Vec::new();
        let mut answers = answers.into_iter();
        for mut stream in listener.incoming().flatten() {
            let Some((status, body)) = answers.next() else {
                unanswered.push(stream);
                continue;
            };
            let reader = BufReader::new(stream.try_clone().expect("a stream"));
            let head = reader.lines().map_while(Result::ok);
            let _: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
            let body = body.to_string();
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).expect("written");
        }
    });
    url
}

#[test]
fn timeout_ends_a_command_whose_request_is_not_answered() {
    let deployment = "5f3c2a10-0b1c-4d6e-8f00-0123456789ab";
    let app = json!({"app": {"id": "/web", "instances": 2, "tasksRunning": 1}});
    let ok = |document: &Value| ("200 OK", document.clone());
    let running = json!([{"id": deployment, "affectedApps": ["/web"], "currentStep": 1, "totalSteps": 2}]);
    let no_stream = ("404 Not Found", json!({}));
    let wait_for_app = ["wait", "web", "--timeout", "1"];
    let wait_for_deployment = ["wait", deployment, "--timeout", "1"];
    let queue = json!({"queue": []});
    for (arguments, answers, expected) in [
        (&wait_for_app[..], vec![], "no response from the daemon"),
        (
            &wait_for_app,
            vec![ok(&app), ok(&app), ok(&queue)],
            "/web is not ready after 1 s: /web: 1",
        ),
        (&wait_for_deployment, vec![], "no response from the daemon"),
        (
            &wait_for_deployment,
            vec![no_stream, ok(&running), ok(&running)],
            "is not done yet: step 1 of 2",
        ),
        (
            &["restart", "web", "--timeout", "1"],
            vec![ok(&app), ("404 Not Found", json!({}))],
            "unknown whether it accepted the change",
        ),
    ] {
        let url = daemon_that_hangs_after(answers.clone());
        let begun = Instant::now();
        let finished = FinishedCommand::from(command(&url, arguments).output().expect("transom runs"));
        assert_eq!(finished.code, Some(1), "{arguments:?} {answers:?}: {finished:?}");
        assert!(
            finished.err.contains(expected),
            "{arguments:?} {answers:?}: {finished:?}"
        );
        // A request has a timeout of two minutes.
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{arguments:?} {answers:?}"
        );
    }
}
