//! The clean-up of a run: nothing stays on the cluster or on this machine.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use crate::site::Site;

/// Time for the daemon to delete what stories left.
const TIDY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for the master to remove the frameworks and their tasks.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// Stops the daemon, tears down all frameworks of the run and waits until none of their tasks is
/// active. Returns the steps that failed, with the command that executes them manually.
pub(crate) async fn clean_up(site: &mut Site) -> Vec<String> {
    site.line("cleaning up");
    let mut problems = Vec::new();
    site.deadline = Instant::now() + TIDY_TIMEOUT;
    // If the principal may not tear frameworks down, only this ends their tasks.
    if tokio::time::timeout(TIDY_TIMEOUT, site.remove_leftovers())
        .await
        .is_err()
    {
        site.line("deleting the apps timed out");
    }
    // The daemon is stopped before its framework is torn down, because it would register another
    // one.
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
    if problems.is_empty() {
        site.deadline = Instant::now() + REMOVAL_TIMEOUT;
        let what = format!("frameworks {}* to be gone", site.run);
        let removed = site.wait_master(&what, async || {
            let frameworks = site.master.frameworks(&site.run).await?;
            ensure!(frameworks.is_empty(), "{frameworks:?}");
            Ok(())
        });
        problems.extend(removed.await.err().map(|error| error.to_string()));
    }
    problems
}
