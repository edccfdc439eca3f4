//! Attempts that wait hold no instance.

use std::sync::Arc;

use tokio::{sync::Barrier, task::JoinSet};
use transom_plugins::probe::{Kind, Outcome};

use crate::support::{PATIENCE, Server, Site, request, response};

const ATTEMPTS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_attempts_wait_at_once_in_two_instances() {
    let site = Site::with(&[("check-http", "check-http", None)]).await;
    let all = Arc::new(Barrier::new(ATTEMPTS));
    let server = Server::http({
        let all = all.clone();
        move |_| {
            let all = all.clone();
            async move {
                // Nobody is answered before everybody has asked.
                all.wait().await;
                response(200, "", "")
            }
        }
    })
    .await;
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        let (plugins, mut asked) = (site.plugins.clone(), request(Some(&server.endpoint)));
        asked.timeout = PATIENCE;
        attempts.spawn(async move { plugins.probe(Kind::Http, asked, None).await });
    }
    let found = tokio::time::timeout(PATIENCE, attempts.join_all())
        .await
        .expect("all are answered");
    assert!(
        found.iter().all(|it| *it == Ok(Outcome::Http(200))),
        "{:?}",
        found.iter().find(|it| it.is_err())
    );
    let status = site.plugins.list().remove(0);
    assert!(status.instances <= 2, "{status:?}");
    assert_eq!((status.in_flight, status.traps, status.timeouts), (0, 0, 0));
    site.stop().await;
}
