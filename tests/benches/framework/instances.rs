//! The memory of a daemon with many frameworks.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use transom_tests::kubernetes::Tasks;
use transom_tests::process::binary;
use transom_tests::site::Site;

use crate::{resident_mib, until};

const INSTANCES: usize = 20;
/// Tasks of each: a datastore, a server and an agent.
const TASKS: usize = 3;

/// With every task running, or the reason why the daemon does not take the sections.
pub(crate) async fn memory() -> Value {
    eprintln!("{INSTANCES} instances");
    let tasks: Vec<Tasks> = (0..INSTANCES).map(|_| Tasks::with_nodes_only()).collect();
    let mut sections = String::new();
    for (number, tasks) in tasks.iter().enumerate() {
        let section = tasks
            .section(1)
            .replace("[kubernetes]", &format!("[kubernetes.i{number}]"));
        write!(
            sections,
            "{section}framework_name = \"i{number}\"\nrole = \"i{number}\"\n"
        )
        .expect("written");
    }
    if let Err(reason) = check(&sections) {
        return json!({"count": INSTANCES, "resident_mib": null, "reason": reason});
    }
    let site = Site::start_with(&sections).await;
    until("every task to be launched", async || {
        site.cluster.launches().len() >= INSTANCES * TASKS
    })
    .await;
    let resident = resident_mib(&site);
    site.cluster.stop_after(site.daemon);
    json!({"count": INSTANCES, "resident_mib": resident})
}

/// Whether the daemon accepts the sections.
fn check(sections: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("transom.toml");
    fs::write(&file, sections).expect("written");
    let checked = Command::new(binary())
        .args(["config", "check", "--config"])
        .arg(&file)
        .output();
    let checked = checked.expect("transom");
    if checked.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&checked.stderr);
    // Behind it are the known keys.
    Err(told.split([';', '\n']).next().unwrap_or_default().to_owned())
}
