//! Calls that change something.

use http::Method;
use transom_framework::ActorError;

use super::site::{PREFIXES, Site, running};
use crate::core::command::Rejection;

#[tokio::test]
async fn scale_returns_the_difference_and_is_shown_immediately() {
    for prefix in PREFIXES {
        let site = Site::start();
        site.views.publish(running());
        for (method, kind, count, command, difference) in [
            (Method::GET, "agent", "4", "scale agent 4", "2"),
            (Method::PUT, "agent", "3", "scale agent 3", "-1"),
            (Method::POST, "agent", "+3", "scale agent 3", "0"),
            (Method::GET, "server", "1", "scale server 1", "0"),
            (Method::GET, "server", "100", "scale server 100", "99"),
            (Method::GET, "kvstore", "3", "scale datastore 3", "2"),
            (Method::GET, "etcd", "3", "scale datastore 3", "0"),
            (Method::GET, "datastore", "0", "scale datastore 0", "-3"),
            (Method::GET, "ds", "1", "scale datastore 1", "1"),
        ] {
            let answer = site.ask(method, &format!("{prefix}/{kind}/scale/{count}")).await;
            let is_node = ["agent", "server"].contains(&kind);
            let content_type = if is_node { "application/json" } else { "text/plain" };
            answer.is(content_type, difference);
            assert_eq!(site.received_commands(), [command]);
        }
        let shown = site.get(&format!("{prefix}/agent/scale")).await;
        shown.is("application/json", r#"{"Scale":3,"Running":1}"#);
    }
}

#[tokio::test]
async fn invalid_numbers_are_rejected_before_the_core() {
    let site = Site::start();
    for prefix in PREFIXES {
        for (text, status) in [
            ("abc", 406),
            ("-1", 406),
            ("1.5", 406),
            ("-99999999999999999999999", 406),
            ("%20", 406),
            ("101", 422),
            ("4294967296", 422),
            ("18446744073709551616", 422),
            ("99999999999999999999999999999999999999999999999999999999", 422),
        ] {
            for kind in ["agent", "server", "kvstore"] {
                let path = format!("{prefix}/{kind}/scale/{text}");
                let answer = site.get(&path).await;
                answer.is_error(&path, status);
                assert!(answer.text.len() < 200, "{answer:?}");
            }
        }
        for text in ["x", "-1", "0.5"] {
            let path = format!("{prefix}/agent/cpus/{text}");
            site.put(&path).await.is_error(&path, 406);
        }
    }
    assert_eq!(site.received_commands(), [""; 0]);
}

#[tokio::test]
async fn changes_reach_the_core() {
    let site = Site::start();
    for prefix in PREFIXES {
        for (path, command, text) in [
            (
                "agent/cordon",
                "cordon true",
                "Nodes Cordoned, Scheduling will be disabled",
            ),
            (
                "agent/uncordon",
                "cordon false",
                "Nodes Uncordoned, Scheduling will now resume",
            ),
            ("cluster/shutdown", "stop", ""),
            ("cluster/stop", "stop", ""),
            ("cluster/start", "start", ""),
            ("cluster/restart", "restart Servers", "Restart Scheduled."),
            ("server/restart", "restart Servers", "Restart Scheduled."),
            ("agent/restart", "restart Agents", "Restart Scheduled."),
            ("ds/restart", "restart All", "Restart Scheduled."),
            ("kvstore/restart", "restart All", "Restart Scheduled."),
            ("agent/cpus/2", "adjust agent Cpus false 2", "Resources Updated"),
            (
                "ds/cpusLimit/2",
                "adjust datastore Cpus true 2",
                "Resources Updated",
            ),
            (
                "server/memory/2000",
                "adjust server Memory false 2000",
                "Resources Updated",
            ),
            (
                "server/memoryLimit/1",
                "adjust server Memory true 1",
                "Resources Updated",
            ),
            ("agent/disk/1", "adjust agent Disk false 1", "Resources Updated"),
            (
                "etcd/diskLimit/0",
                "adjust datastore Disk true 0",
                "Resources Updated",
            ),
        ] {
            let answer = site.put(&format!("{prefix}/{path}")).await;
            answer.is("application/json", text);
            assert_eq!(site.received_commands(), [command], "{path}");
        }
        let answer = site.ask(Method::DELETE, &format!("{prefix}/framework")).await;
        answer.is("application/json", "");
        assert_eq!(site.received_commands(), ["forget"]);
    }
}

#[tokio::test]
async fn a_restart_that_waits_says_why() {
    let site = Site::start();
    for prefix in PREFIXES {
        site.core.lock().unwrap().waits = Some("agent 1 is not ready".to_owned());
        let answer = site.put(&format!("{prefix}/server/restart")).await;
        let text = "The restart waits and continues automatically: agent 1 is not ready.";
        answer.is("application/json", text);
        let answer = site.put(&format!("{prefix}/server/restart")).await;
        answer.is("application/json", "Restart Scheduled.");
    }
}

#[tokio::test]
async fn rejections_of_the_core_have_the_expected_status() {
    let site = Site::start();
    let above = || Rejection::AboveMaximum {
        count: 50,
        maximum: 40,
    };
    for prefix in PREFIXES {
        for (method, path, rejection, status, message) in [
            (Method::GET, "agent/scale/50", above(), 422, "maximum, 40"),
            (
                Method::PUT,
                "agent/scale/9",
                Rejection::OutsideAutoscale {
                    count: 9,
                    min: 1,
                    max: 8,
                },
                422,
                "`agents.autoscale`: `min` is 1, `max` is 8",
            ),
            (
                Method::GET,
                "kvstore/scale/2",
                Rejection::EvenKvstore(2),
                422,
                "odd numbers",
            ),
            (
                Method::GET,
                "ds/scale/3",
                Rejection::SeveralSqlDatastores(3),
                422,
                "one SQL datastore",
            ),
            (
                Method::PUT,
                "cluster/start",
                Rejection::AlreadyStarted,
                406,
                "nothing to start",
            ),
            (
                Method::PUT,
                "agent/restart",
                Rejection::NothingToRestart,
                406,
                "nothing to restart",
            ),
            (
                Method::PUT,
                "agent/cpus/0",
                Rejection::BadResource("0 CPUs".to_owned()),
                422,
                "0 CPUs",
            ),
            (
                Method::DELETE,
                "framework",
                Rejection::MasterUnavailable,
                406,
                "master",
            ),
            (
                Method::PUT,
                "agent/cordon",
                Rejection::Actor(ActorError::Stopped),
                503,
                "Try again",
            ),
        ] {
            site.reject(rejection);
            let path = format!("{prefix}/{path}");
            let answer = site.ask(method, &path).await;
            answer.is_error(&path, status);
            if !path.starts_with("/api/m3s") {
                assert!(answer.text.contains(message), "{answer:?}");
            }
            assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
        }
    }
}
