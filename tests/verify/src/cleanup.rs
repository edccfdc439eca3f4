//! The end of a run: it leaves nothing on the cluster or on this machine.

use std::time::Duration;

use tokio::time::Instant;
use transom_testkit::retry_until;

use crate::site::{Site, text};

/// How long the daemon may take to delete what stories left.
const TIDY: Duration = Duration::from_secs(20);
/// How long the master may take until no task is left.
const GONE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(400);

/// Stops the daemon, tears all frameworks of the run down and waits until none of their tasks is
/// active. Returns what did not work, with the command that does it by hand.
pub(crate) async fn clean_up(site: &mut Site) -> Vec<String> {
    site.progress.line("cleaning up");
    let mut problems = Vec::new();
    site.deadline = Instant::now() + TIDY;
    // Where the principal may not tear frameworks down, this is what ends their tasks.
    if tokio::time::timeout(TIDY, site.tidy()).await.is_err() {
        site.progress.line("deleting the apps timed out");
    }
    // Before its framework is torn down, or it would register another one.
    if let Some(daemon) = site.daemon.take()
        && let Err(error) = daemon.stop().await
    {
        problems.push(format!("{error:#}; it was killed"));
    }
    match site.master.frameworks(&site.run).await {
        Ok(frameworks) => {
            for framework in frameworks {
                if let Err(error) = site.master.tear_down(&framework.id).await {
                    problems.push(format!(
                        "framework {} ({}): {error}; by hand: curl -X POST http://{}/teardown -d frameworkId={}",
                        framework.id,
                        framework.name,
                        site.master.address(),
                        framework.id,
                    ));
                }
            }
        }
        Err(error) => problems.push(format!("frameworks whose names begin with {}: {error}", site.run)),
    }
    if problems.is_empty()
        && let Err(error) = gone(site).await
    {
        problems.push(error);
    }
    problems
}

/// Waits until the master has no framework of the run any more.
async fn gone(site: &Site) -> Result<(), String> {
    let what = format!("frameworks {}* to be gone", site.run);
    retry_until(Instant::now() + GONE, POLL, &what, || async {
        let left = site.master.frameworks(&site.run).await.map_err(text)?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await
}
