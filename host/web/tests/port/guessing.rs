//! Guesses of the password.

use std::time::Instant;

use http::{StatusCode, header};
use transom_web::{LoopbackTrust, PortConfig};

use super::{Port, user};
use axum::Router;
use axum::routing::get;

async fn port() -> Port {
    let config = PortConfig {
        credentials: Some(user("full")),
        loopback_trust: LoopbackTrust::UnlessCredentials,
        ..PortConfig::new("guessed", 0)
    };
    Port::start(config, Router::new().route("/", get(async || "in"))).await
}

fn guess(number: usize) -> transom_web::Credentials {
    transom_web::Credentials {
        username: "full".to_owned(),
        password: format!("guess {number}").into(),
    }
}

async fn ask(port: &Port, credentials: &transom_web::Credentials) -> reqwest::Response {
    let request = port.ask("GET", "/");
    let request = request.header(header::AUTHORIZATION, credentials.authorization());
    request.send().await.unwrap()
}

#[tokio::test]
async fn guesses_are_slowed_down_and_the_right_password_is_not() {
    let port = port().await;
    let began = Instant::now();
    for number in 0..5 {
        assert_eq!(ask(&port, &guess(number)).await.status(), 401);
    }
    let free = began.elapsed();
    for number in 5..9 {
        assert_eq!(ask(&port, &guess(number)).await.status(), 401);
    }
    // 0.1 + 0.2 + 0.4 + 0.8 s.
    let delayed = began.elapsed().saturating_sub(free);
    assert!(delayed.as_millis() >= 1500, "{delayed:?}");

    // While many guesses are answered late or not at all, the right password is answered.
    let guesses = (0..40).map(|number| {
        let request = port.ask("GET", "/");
        request
            .header(header::AUTHORIZATION, guess(number).authorization())
            .send()
    });
    let guesses: Vec<_> = guesses.map(tokio::spawn).collect();
    let mut statuses = Vec::new();
    for (number, guess) in guesses.into_iter().enumerate() {
        if number == 20 {
            let answer = ask(&port, &user("full")).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.text().await.unwrap(), "in");
        }
        statuses.push(guess.await.unwrap().unwrap());
    }
    assert!(
        statuses
            .iter()
            .all(|answer| matches!(answer.status().as_u16(), 401 | 429))
    );
    let rejected = statuses.iter().filter(|answer| answer.status() == 429);
    assert!(rejected.clone().count() >= 32, "{statuses:?}");
    assert!(
        rejected
            .clone()
            .all(|answer| answer.headers().contains_key("retry-after"))
    );
    port.stop().await;
}

#[tokio::test]
async fn requests_without_credentials_are_no_guesses() {
    let port = port().await;
    for _ in 0..100 {
        assert_eq!(port.ask("GET", "/").send().await.unwrap().status(), 401);
    }
    assert_eq!(ask(&port, &user("full")).await.status(), 200);
    port.stop().await;
}

#[tokio::test]
async fn guesses_that_are_given_up_count() {
    let port = port().await;
    // The client closes each connection without waiting for the answer.
    let mut statuses = Vec::new();
    for number in 0..200 {
        let request = port.ask("GET", "/");
        let request = request.header(header::AUTHORIZATION, guess(number).authorization());
        let sent = request.timeout(std::time::Duration::from_millis(20)).send().await;
        statuses.extend(sent.map(|answer| answer.status().as_u16()));
    }
    // From some guess on, this address, which never had the right password, gets no comparison any more.
    assert!(statuses.contains(&429), "{statuses:?}");
    port.stop().await;
}
