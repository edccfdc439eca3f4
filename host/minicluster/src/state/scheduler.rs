//! Scheduler calls: validation and dispatch.

use super::{FrameworkId, State};
use crate::wire::json as doc;
use base64::Engine;
use serde_json::Value;
use std::time::Instant;

/// The response to a call: a status and, for errors, a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn accepted() -> Self {
        Self {
            status: 202,
            body: String::new(),
        }
    }

    pub(crate) fn ok() -> Self {
        Self {
            status: 200,
            body: String::new(),
        }
    }

    pub(crate) fn bad_request(body: impl Into<String>) -> Self {
        Self {
            status: 400,
            body: body.into(),
        }
    }
}

/// Checks the rules that the message tables cannot express: whether the field for the call's type
/// is present, and some rules between fields.
pub(crate) fn validate(call: &Value, principal: Option<&str>) -> Result<(), String> {
    let reject = |what: &str| Err(format!("Failed to validate scheduler::Call: {what}"));
    let Some(kind) = doc::text(call, &["type"]) else {
        return reject("Expecting 'type' to be present");
    };
    if kind == "SUBSCRIBE" {
        let Some(subscribe) = call.get("subscribe") else {
            return reject("Expecting 'subscribe' to be present");
        };
        let info_id = doc::text(subscribe, &["framework_info", "id", "value"]).unwrap_or_default();
        if info_id != doc::text(call, &["framework_id", "value"]).unwrap_or_default() {
            return reject("'framework_id' differs from 'subscribe.framework_info.id'");
        }
        let named = doc::text(subscribe, &["framework_info", "principal"]);
        return match (principal, named) {
            (Some(authenticated), Some(named)) if authenticated != named => reject(&format!(
                "Authenticated principal '{authenticated}' does not match principal '{named}' set in `FrameworkInfo`"
            )),
            _ => Ok(()),
        };
    }
    if call.get("framework_id").is_none() {
        return reject("Expecting 'framework_id' to be present");
    }
    let field = match kind {
        "TEARDOWN" | "REVIVE" | "SUPPRESS" => return Ok(()),
        other => other.to_ascii_lowercase(),
    };
    let Some(arguments) = call.get(&field) else {
        return reject(&format!("Expecting '{field}' to be present"));
    };
    if kind == "UPDATE_FRAMEWORK" {
        let info_id = doc::text(arguments, &["framework_info", "id", "value"]).unwrap_or_default();
        if info_id != doc::text(call, &["framework_id", "value"]).unwrap_or_default() {
            return reject("'framework_id' differs from 'update_framework.framework_info.id'");
        }
    }
    if matches!(kind, "ACKNOWLEDGE" | "ACKNOWLEDGE_OPERATION_STATUS") {
        let uuid = doc::text(arguments, &["uuid"]).unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(uuid)
            .unwrap_or_default();
        if bytes.len() != 16 {
            return reject("Not a valid UUID");
        }
    }
    Ok(())
}

impl State {
    /// Handles every call except SUBSCRIBE. `call` is validated; `stream_id` is from the header
    /// `Mesos-Stream-Id`.
    pub(crate) fn scheduler_call(
        &mut self,
        call: &Value,
        stream_id: Option<&str>,
        principal: Option<&str>,
        now: Instant,
    ) -> Reply {
        let id = FrameworkId::from(doc::text(call, &["framework_id", "value"]).unwrap_or_default());
        if let Some(rejection) = self.reject_caller(&id, stream_id, principal) {
            return rejection;
        }
        let roles = |part: &str| roles_of(&call[part]);
        match doc::text(call, &["type"]).unwrap_or_default() {
            "TEARDOWN" => self.remove_framework(&id),
            "ACCEPT" => self.accept(&id, &call["accept"], now),
            "DECLINE" => self.decline(&id, &call["decline"], now),
            "ACCEPT_INVERSE_OFFERS" => {
                self.answer_inverse_offers(&id, &call["accept_inverse_offers"], "ACCEPT", now);
            }
            "DECLINE_INVERSE_OFFERS" => {
                self.answer_inverse_offers(&id, &call["decline_inverse_offers"], "DECLINE", now);
            }
            "REVIVE" => self.revive(&id, &roles("revive"), now),
            "SUPPRESS" => self.suppress(&id, &roles("suppress")),
            "KILL" => self.kill(&id, &call["kill"]),
            "SHUTDOWN" => self.shutdown_executor(&id, &call["shutdown"]),
            "ACKNOWLEDGE" => self.acknowledge(&id, &call["acknowledge"], now),
            "RECONCILE" => self.reconcile(&id, &call["reconcile"]),
            "ACKNOWLEDGE_OPERATION_STATUS" => {
                self.acknowledge_operation(&id, &call["acknowledge_operation_status"]);
            }
            "MESSAGE" => self.message(&id, &call["message"]),
            "RECONCILE_OPERATIONS" => self.reconcile_operations(&id, &call["reconcile_operations"]),
            "UPDATE_FRAMEWORK" => return self.update_framework(&id, &call["update_framework"], now),
            // The allocator ignores requests.
            _ => {}
        }
        Reply::accepted()
    }

    /// Rejects calls of unknown frameworks, of frameworks without a stream, and on streams that
    /// were replaced.
    fn reject_caller(
        &self,
        id: &FrameworkId,
        stream_id: Option<&str>,
        principal: Option<&str>,
    ) -> Option<Reply> {
        let Some(framework) = self.frameworks.get(id) else {
            return Some(Reply::bad_request("Framework cannot be found"));
        };
        let named = doc::text(&framework.info, &["principal"]);
        if let (Some(authenticated), Some(named)) = (principal, named)
            && authenticated != named
        {
            return Some(Reply::bad_request(format!(
                "Authenticated principal '{authenticated}' does not match principal '{named}' set in `FrameworkInfo`"
            )));
        }
        let Some(stream) = &framework.stream else {
            return Some(Reply {
                status: 403,
                body: "Framework is not subscribed".to_owned(),
            });
        };
        let Some(sent_id) = stream_id else {
            return Some(Reply::bad_request(
                "All non-subscribe calls should include the 'Mesos-Stream-Id' header",
            ));
        };
        (sent_id != stream.id).then(|| {
            Reply::bad_request(format!(
                "The stream ID '{sent_id}' included in this request didn't match the stream ID currently associated with framework ID {id}"
            ))
        })
    }
}

/// `roles` and the older `role` of REVIVE and SUPPRESS.
fn roles_of(arguments: &Value) -> Vec<String> {
    let single = doc::text(arguments, &["role"]).map(str::to_owned);
    doc::list(arguments, &["roles"])
        .iter()
        .filter_map(|role| role.as_str().map(str::to_owned))
        .chain(single)
        .collect()
}
