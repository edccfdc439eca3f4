//! Request targets: rejected on every port, or forwarded byte for byte.

use axum::Router;
use axum::extract::Request;
use transom_web::PortConfig;

use super::{Port, standby};

/// Answers with the target that it received.
fn echo() -> Router {
    Router::new().fallback(async |request: Request| format!("{} {}", request.method(), request.uri()))
}

async fn leader_and_standby() -> (Port, Port) {
    let leader = Port::start(PortConfig::new("apps", 0), echo()).await;
    let standby = standby(PortConfig::new("apps", 0), leader.addr).await;
    (leader, standby)
}

#[tokio::test]
async fn target_reaches_the_leader_byte_for_byte() {
    let (leader, standby) = leader_and_standby().await;
    for target in [
        "/",
        "/v2/apps//id/",
        "//a//b",
        "/{a}/^|\"b",
        "/a;b=1,c/'d'/(e)!$&*+:@~",
        "/%c3%bc%C3%9C%20%25%3f%23",
        "/\u{fc}",
        "/%zz/%2/%",
        "/%252e%252e/..../a..b",
        "/a?b=../%2e%2F%00&'c'/;:@",
        "/a?",
        "/a??b",
    ] {
        let answer = standby.send_line(&format!("GET {target} HTTP/1.1")).await;
        assert!(answer.ends_with(&format!("GET {target}")), "{target}: {answer}");
        let absolute = standby
            .send_line(&format!("GET http://localhost{target} HTTP/1.1"))
            .await;
        assert!(
            absolute.ends_with(&format!("GET {target}")),
            "{target}: {absolute}"
        );
    }
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn target_that_programs_read_differently_is_rejected_before_anything_else() {
    let (leader, standby) = leader_and_standby().await;
    for target in [
        r"/bootstrap/..\api\fw\v0\agent\scale\3",
        "/bootstrap/.%2e/api/fw/v0/agent/scale/3",
        "/bootstrap/%2e%2e/api/fw/v0/agent/scale/3",
        "/bootstrap/..%5capi",
        "/bootstrap/../api",
        "/a/./b",
        "/a/..",
        "/a%2fb",
        "/a%00",
        "/a%7f",
        "http://localhost/a/../b",
        r"http://localhost/a\b",
    ] {
        for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "BREW"] {
            for port in [&leader, &standby] {
                let answer = port.send_line(&format!("{method} {target} HTTP/1.1")).await;
                assert!(answer.starts_with("HTTP/1.1 400 "), "{method} {target}: {answer}");
                assert!(method == "HEAD" || answer.contains(r#"{"message":"#), "{answer}");
            }
        }
    }
    standby.stop().await;
    leader.stop().await;
}
