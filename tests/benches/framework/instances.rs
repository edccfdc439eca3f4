//! The memory of a daemon with many frameworks.

use std::fmt::Write;

use serde_json::{Value, json};
use transom_tests::kubernetes::Tasks;
use transom_tests::site::Site;

use crate::{resident_mib, wait_until};

const INSTANCES: usize = 20;
/// Number of tasks of each framework: a datastore, a server and an agent.
const TASKS: usize = 3;

/// Measures memory while every task is running.
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
    let site = Site::start_with(&sections).await;
    wait_until("every task to be launched", async || {
        site.cluster.launches().len() >= INSTANCES * TASKS
    })
    .await;
    let resident = resident_mib(&site);
    site.cluster.stop_after(site.daemon);
    json!({"count": INSTANCES, "resident_mib": resident})
}
