//! The calls that daemons make to the master.

use std::fmt;

use serde_json::Value;

use crate::network::Request;

/// A call, as far as the invariants need it.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its type, or the path of a request for a document.
    kind: String,
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
        Self {
            acknowledged: call["acknowledge"]["uuid"].as_str().map(str::to_owned),
            kind,
            tasks,
        }
    }

    /// Whether it is a request for a document rather than a call of a framework.
    pub(crate) fn is_of_document(&self) -> bool {
        self.kind.starts_with('/')
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
