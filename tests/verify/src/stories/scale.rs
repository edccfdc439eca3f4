//! An app is scaled to some dozens of tasks and back.

use anyhow::{anyhow, ensure};
use serde_json::json;

use super::{app, ports};
use crate::comparisons;
use crate::site::Site;

const STORY: &str = "scale";
const APP: &str = "/scale";

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let framework = site.framework(&site.apps_framework()).await?;
    site.post_app(&app(APP, 30, &json!({"portDefinitions": ports(1)})))
        .await?;
    let mut before = None;
    for count in [30, 5, 20, 0, 10] {
        if count != 30 {
            site.change_app(APP, &json!({"instances": count})).await?;
        }
        site.wait_until_running(APP, count).await?;
        let now = site.wait_until_agreed(APP, count).await?;
        if let Some(before) = before {
            let kept = now.intersection(&before).count();
            let fewer = count.min(before.len());
            ensure!(
                kept == fewer,
                "of {} tasks {kept} were kept when the app was scaled to {count}",
                before.len()
            );
        }
        let tasks = site.master.tasks(&framework).await?;
        let tasks: Vec<_> = comparisons::of(APP, &tasks).cloned().collect();
        comparisons::check_ports_distinct(1, &tasks).map_err(|error| anyhow!(error))?;
        site.progress(STORY, &format!("{count} tasks"));
        before = Some(now);
    }
    site.delete_app(APP).await?;
    // 30 at first, 15 more when it grows from 5 to 20, and 10 after zero.
    site.verify_launched(&site.apps_framework(), APP, 55).await
}
