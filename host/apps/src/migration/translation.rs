//! The translation of a Marathon's state into records.

use std::collections::BTreeMap;

use transom_cluster::operator::GetState;
use transom_cluster::v1::FrameworkInfo;

use super::definitions::Definitions;
use super::marathon::Marathon;
use super::report::Report;
use super::task_index::TaskIndex;
use super::{Records, settings, tasks};
use crate::Settings;

/// Translates a Marathon's state for a service with this configuration, which will subscribe with
/// `framework`. `state` is the master's view, which must be read after Marathon's responses.
///
/// The records are complete only if the report is accepted.
pub fn translate(
    marathon: &Marathon,
    state: &GetState,
    config: &Settings,
    framework: &FrameworkInfo,
) -> (Report, Records) {
    let mut report = Report {
        findings: marathon.findings.clone(),
        ..Report::default()
    };
    let id = settings::compare(marathon, state, framework, &mut report);
    for deployment in &marathon.deployments {
        let name = deployment["id"].as_str().unwrap_or("?");
        report.reject(
            format!("deployment {name}"),
            "It is running: let Marathon finish it, or cancel it.",
        );
    }
    let agents = state.get_agents.iter();
    let awaited = agents.map(|all| all.recovered_agents.len()).sum::<usize>();
    if awaited > 0 {
        report.reject(
            "the master",
            format!(
                "It has been elected, and agents have not registered with it yet ({awaited}), whose tasks it does not \
                 list. Repeat the import when they have registered or are unreachable."
            ),
        );
    }
    let index = TaskIndex::new(marathon);
    let mut definitions = Definitions::read(marathon, config, &index, &mut report);
    let launched = match &id {
        Some(id) => tasks::launched(&index, state, id, &mut definitions, &mut report),
        None => Vec::new(),
    };
    let mut records = Records {
        origin: format!("Marathon {}", id.as_deref().unwrap_or_default()),
        framework_id: id.clone(),
        records: BTreeMap::new(),
    };
    report.framework_id = id;
    report.carried = definitions.carried(&launched);
    if let Err(error) = definitions.write(&mut records.records) {
        report.reject("definitions", format!("They cannot be written: {error}."));
    }
    for record in &launched {
        match serde_json::to_value(record) {
            Ok(value) => drop(records.records.insert(record.key(), value)),
            Err(error) => report.reject(
                format!("task {}", record.id),
                format!("It cannot be written: {error}."),
            ),
        }
    }
    (report.sorted(), records)
}
