//! Attempts that wait for input and output occupy no instance.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{Barrier, Semaphore, mpsc},
    task::JoinSet,
};
use transom_plugin_host::probe::{CommandLine, CommandOutput, IoError, Kind, Outcome, Runner};

use crate::support::{Server, Site, TIMEOUT, request, response};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_concurrent_requests_use_two_instances() {
    const ATTEMPTS: usize = 1000;
    // The limits are generous, because on a busy machine a step may wait long for one of the two
    // instances.
    let manifest = "world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n\
                    [limits]\nmemory = \"16MiB\"\nwall-clock = \"1m\"\nattempt-time = \"10m\"\n";
    let site = Site::with(&[("check-http", "check-http", Some(manifest))]).await;
    let all = Arc::new(Barrier::new(ATTEMPTS));
    let server = Server::http({
        let all = all.clone();
        move |_| {
            let all = all.clone();
            async move {
                // The server responds only when all requests have arrived.
                all.wait().await;
                response(200, "", "")
            }
        }
    })
    .await;
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        let (plugins, mut probe_request) = (site.plugins.clone(), request(Some(&server.endpoint)));
        probe_request.timeout = TIMEOUT;
        attempts.spawn(async move { plugins.probe(Kind::Http, probe_request, None).await });
    }
    // The first failed attempt is reported immediately, because the server would never respond to
    // the others.
    while let Some(found) = tokio::time::timeout(TIMEOUT, attempts.join_next())
        .await
        .expect("all attempts end")
    {
        assert_eq!(found.expect("no panic"), Ok(Outcome::Http(200)));
    }
    let status = site.plugins.list().remove(0);
    assert!(status.instances <= 2, "{status:?}");
    assert_eq!((status.in_flight, status.traps, status.timeouts), (0, 0, 0));
    site.stop().await;
}

/// Commands that run until they are released.
struct CallMeter {
    started: mpsc::UnboundedSender<()>,
    release: Semaphore,
}

#[async_trait]
impl Runner for CallMeter {
    async fn run(&self, _: CommandLine, _: Duration) -> Result<CommandOutput, IoError> {
        self.started.send(()).unwrap();
        self.release.acquire().await.unwrap().forget();
        Ok(CommandOutput {
            exit_code: 0,
            stdout: vec![],
            stderr: vec![],
        })
    }
}

/// The attempts run commands and open no sockets, so that the limit of open files does not matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_thousand_concurrent_attempts_use_two_instances() {
    const ATTEMPTS: usize = 7000;
    let manifest = "world = \"check-probe\"\n[grants]\ncommand = true\n[limits]\nmemory = \"16MiB\"\nwall-clock = \"1m\"\n";
    let site = Site::with(&[("check-command", "check-command", Some(manifest))]).await;
    let (started, mut started_runs) = mpsc::unbounded_channel();
    let runner_gate = Arc::new(CallMeter {
        started,
        release: Semaphore::new(0),
    });
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        let (plugins, mut probe_request) = (site.plugins.clone(), request(None));
        probe_request.command = Some("true".into());
        probe_request.timeout = TIMEOUT * 2;
        let runner: Arc<dyn Runner> = Arc::<CallMeter>::clone(&runner_gate);
        attempts.spawn(async move { plugins.probe(Kind::Exec, probe_request, Some(runner)).await });
    }
    tokio::time::timeout(TIMEOUT, async {
        for _ in 0..ATTEMPTS {
            started_runs.recv().await.unwrap();
        }
    })
    .await
    .expect("all commands start");
    let status = site.status("check-command");
    assert_eq!(status.in_flight, ATTEMPTS as u64);
    assert!((1..=2).contains(&status.instances), "{status:?}");
    assert!(status.memory_peak <= 16 << 20, "{status:?}");
    runner_gate.release.add_permits(ATTEMPTS);
    let found = tokio::time::timeout(TIMEOUT, attempts.join_all())
        .await
        .expect("all attempts end");
    assert!(
        found.iter().all(|it| *it == Ok(Outcome::Command(0))),
        "{:?}",
        found.iter().find(|it| it.is_err())
    );
    let status = site.status("check-command");
    assert_eq!((status.in_flight, status.traps, status.timeouts), (0, 0, 0));
    site.stop().await;
}
