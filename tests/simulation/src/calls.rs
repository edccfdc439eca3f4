//! The calls that daemons make to the master.

use std::fmt;

use serde_json::Value;

use crate::network::Request;

/// A call, as far as the invariants need it.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its type, or the path of a request for a document.
    kind: String,
    /// The framework's id; the name in a call that subscribes.
    pub(crate) framework: Option<String>,
    /// The tasks that it launches, kills or acknowledges.
    pub(crate) tasks: Vec<String>,
    /// The status that it acknowledges.
    pub(crate) acknowledged: Option<String>,
}

impl Call {
    pub(crate) fn of(request: &Request) -> Self {
        let call: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = call["type"].as_str().unwrap_or(&request.path).to_owned();
        let tasks = match kind.as_str() {
            "ACCEPT" => {
                let operations = call["accept"]["operations"].as_array().into_iter().flatten();
                let infos = operations.filter_map(|operation| operation["launch"]["task_infos"].as_array());
                infos
                    .flatten()
                    .filter_map(|info| text(&info["task_id"]))
                    .collect()
            }
            "ACKNOWLEDGE" => text(&call["acknowledge"]["task_id"]).into_iter().collect(),
            "KILL" => text(&call["kill"]["task_id"]).into_iter().collect(),
            _ => Vec::new(),
        };
        let subscribed = &call["subscribe"]["framework_info"]["name"];
        Self {
            framework: text(&call["framework_id"]).or_else(|| subscribed.as_str().map(str::to_owned)),
            acknowledged: call["acknowledge"]["uuid"].as_str().map(str::to_owned),
            kind,
            tasks,
        }
    }

    pub(crate) fn is_launch(&self) -> bool {
        self.kind == "ACCEPT"
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match self.tasks.as_slice() {
            [] => Ok(()),
            tasks => write!(f, " {}", tasks.join(" ")),
        }
    }
}

fn text(id: &Value) -> Option<String> {
    Some(id["value"].as_str()?.to_owned())
}
