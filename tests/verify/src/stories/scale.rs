//! An app is scaled to some dozens of tasks and back.

use anyhow::ensure;
use serde_json::json;

use super::{app, ports};
use crate::comparisons::{Ids, check_ports_distinct};
use crate::site::Site;

const APP: &str = "/scale";

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    site.post_app(&app(APP, 30, &json!({"portDefinitions": ports(1)})))
        .await?;
    let mut before = Ids::new();
    for count in [30, 5, 20, 0, 10] {
        if count != 30 {
            site.change_app(APP, &json!({"instances": count})).await?;
        }
        let now = site.wait_until_running(APP, count).await?.ids;
        let kept = now.intersection(&before).count();
        ensure!(
            kept == count.min(before.len()),
            "of {} tasks {kept} were kept when the app was scaled to {count}",
            before.len()
        );
        check_ports_distinct(1, &site.active(APP).await?)?;
        site.progress(&format!("{count} tasks"));
        before = now;
    }
    site.delete_app(APP).await?;
    // 30 at first, 15 more when it grows from 5 to 20, and 10 after zero.
    site.verify_launched(APP, 55).await
}
