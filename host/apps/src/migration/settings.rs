//! Compares the framework of a Marathon with the one that the service will subscribe as.

use serde_json::Value;
use transom_cluster::operator::GetState;
use transom_cluster::v1::{CapabilityType, FrameworkInfo};

use super::marathon::Marathon;
use super::report::Report;

/// Compares both frameworks. Returns the id of Marathon's, if it has one.
pub(super) fn compare(
    marathon: &Marathon,
    state: &GetState,
    ours: &FrameworkInfo,
    report: &mut Report,
) -> Option<String> {
    let id = marathon.info["frameworkId"].as_str().filter(|id| !id.is_empty());
    let Some(id) = id else {
        report.reject(
            "Marathon",
            "It has no framework id, because it has never subscribed with a master.",
        );
        return None;
    };
    let frameworks = state.get_frameworks.iter().flat_map(|all| &all.frameworks);
    let mut infos = frameworks.map(|framework| &framework.framework_info);
    let is_this = |info: &&FrameworkInfo| info.id.as_ref().is_some_and(|known| known.as_str() == id);
    let Some(theirs) = infos.find(is_this) else {
        report.reject(
            format!("framework {id}"),
            "The master does not know this framework of Marathon, or has removed it; is it another cluster's?",
        );
        return Some(id.to_owned());
    };
    if state.invalid_entries > 0 {
        report.reject(
            "master",
            format!("{} entries of its answer cannot be read.", state.invalid_entries),
        );
    }
    compare_infos(theirs, ours, report);
    let config = |name: &str| marathon.info["marathon_config"].get(name);
    if let Some(host) = config("hostname").and_then(Value::as_str)
        && ours.hostname.as_deref() != Some(host)
    {
        let here = ours.hostname.as_deref().unwrap_or_default();
        report.differs(
            "apps.hostname",
            format!("Marathon's is {host}, here it is {here}: clients need the new address."),
        );
    }
    Some(id.to_owned())
}

/// A setting, Marathon's value, this service's value, and the consequence of a difference.
type Pair<'a> = (&'static str, String, String, &'static str);

fn compare_infos(theirs: &FrameworkInfo, ours: &FrameworkInfo, report: &mut Report) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let seconds = |seconds: Option<f64>| seconds.unwrap_or_default().to_string();
    let roles = |info: &FrameworkInfo| match (&info.role, info.roles.as_slice()) {
        (Some(role), []) => role.clone(),
        (None, []) => "*".to_owned(),
        (_, roles) => roles.join(","),
    };
    let rejected: [Pair<'_>; 2] = [
        (
            "cluster.principal",
            text(&theirs.principal),
            text(&ours.principal),
            "the principal of a framework cannot change",
        ),
        (
            "apps.role",
            roles(theirs),
            roles(ours),
            "tasks and reservations belong to the role",
        ),
    ];
    let differs: [Pair<'_>; 4] = [
        (
            "apps.framework_name",
            theirs.name.clone(),
            ours.name.clone(),
            "names of tasks in DNS end with it",
        ),
        (
            "apps.user",
            theirs.user.clone(),
            ours.user.clone(),
            "the master keeps the first user; new tasks run as the new one",
        ),
        (
            "apps.failover_timeout",
            seconds(theirs.failover_timeout),
            seconds(ours.failover_timeout),
            "the new one holds from the first subscription on",
        ),
        (
            "checkpoint",
            theirs.checkpoint.unwrap_or_default().to_string(),
            ours.checkpoint.unwrap_or_default().to_string(),
            "the master keeps the first value",
        ),
    ];
    for (setting, theirs, here, why) in rejected {
        // Marathon subscribes with the roles of all its apps; this service's role may be one of
        // them.
        let covered = setting == "apps.role" && theirs.split(',').any(|role| role == here);
        if theirs != here && !covered {
            report.reject(setting, compared_text(&theirs, &here, why));
        } else if theirs != here {
            report.differs(
                setting,
                compared_text(&theirs, &here, "other roles are added with their apps"),
            );
        }
    }
    for (setting, theirs, here, why) in differs {
        if theirs != here {
            report.differs(setting, compared_text(&theirs, &here, why));
        }
    }
    let gpus = CapabilityType::GpuResources;
    if theirs.can(&gpus) && !ours.can(&gpus) {
        report.differs(
            "apps.enable_features",
            "Marathon uses GPUs: without \"gpu_resources\" none are offered.",
        );
    }
}

fn compared_text(theirs: &str, ours: &str, why: &str) -> String {
    let shown = |text: &str| match text {
        "" => "not set".to_owned(),
        text => format!("{text:?}"),
    };
    format!(
        "Marathon's is {}, here it is {}: {why}.",
        shown(theirs),
        shown(ours)
    )
}
