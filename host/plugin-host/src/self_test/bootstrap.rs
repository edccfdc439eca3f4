//! Self-tests of world `bootstrap-handler`: a container's script, and the prepared one.
//!
//! ```toml
//! [[self-test]]
//! role = "agent"                           # or "server", "datastore"
//! script = "#!/bin/sh\nexec run"
//! environment = { A = "1" }                # also `arguments` and `attributes`
//! expect = { script = "…" }                # also `environment`, `arguments`; `refused = true` in place of it
//! ```
//!
//! Also: `framework`, `task`, `number`, `host`, `image`, `ports` (pairs), `source`, `extensions`
//! (pairs). A script that is not UTF-8 is `{ hex = "…" }`. Names and values are given as pairs if
//! their order matters. `refused = { retry = true }` expects a rejection with this value of `retry`.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::{
    CaseAgents, CaseAnswer, PreparedCase, Testable, ask, case_answer,
    forms::{Bytes, Pairs},
};
use crate::{
    runtime::engine::{
        Instance,
        worlds::bootstrap::{Bootstrap, Call},
    },
    worlds::bootstrap::{Context, Prepared, Rejection, Role},
};

/// One container.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    role: GivenRole,
    #[serde(skip_serializing_if = "Option::is_none")]
    framework: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(default)]
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<(u16, u16)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<(String, String)>,
    script: Bytes,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    environment: Pairs<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    attributes: Pairs<String>,
    #[serde(default, skip_serializing_if = "Expected::is_empty")]
    expect: Expected,
    #[serde(rename = "refused", default, skip_serializing_if = "Rejected::is_none")]
    rejected: Rejected,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum GivenRole {
    Server,
    Agent,
    Datastore,
}

/// The expected result. Omitted keys are not compared.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<String>>,
}

impl Expected {
    fn is_empty(&self) -> bool {
        self.script.is_none() && self.environment.is_none() && self.arguments.is_none()
    }

    fn of(prepared: &Prepared) -> Expected {
        Expected {
            script: Some(Bytes::of(&prepared.script)),
            environment: Some(prepared.environment.iter().cloned().collect()),
            arguments: Some(prepared.arguments.clone()),
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Rejected {
    Any(bool),
    Exactly { retry: bool },
}

impl Default for Rejected {
    fn default() -> Self {
        Rejected::Any(false)
    }
}

impl Rejected {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde needs")]
    fn is_none(&self) -> bool {
        matches!(self, Rejected::Any(false))
    }
}

/// The arguments of the handler.
pub(crate) struct Question {
    context: Context,
    script: Vec<u8>,
    /// Whether `retry` of a rejection is compared.
    is_exact: bool,
}

impl Testable for Bootstrap {
    type Case = Case;
    type Question = Question;
    type Output = Result<Prepared, Rejection>;

    fn prepare_case(case: Case, _: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let expected = if case.rejected.is_none() {
            case_answer("expect", &case.expect)
        } else {
            case_answer("refused", case.rejected)
        };
        let text = |given: Option<String>, default: &str| given.unwrap_or_else(|| default.to_owned());
        let script = case.script.into_bytes();
        let context = Context {
            role: match case.role {
                GivenRole::Server => Role::Server,
                GivenRole::Agent => Role::Agent,
                GivenRole::Datastore => Role::Datastore,
            },
            framework: text(case.framework, "fw"),
            task: text(case.task, "self-test.1"),
            number: case.number,
            host: text(case.host, "localhost"),
            attributes: case.attributes.into_pairs(),
            image: text(case.image, "self-test"),
            ports: case.ports,
            source: text(case.source, "self-test"),
            digest: hex(&Sha256::digest(&script)),
            environment: case.environment.into_pairs(),
            arguments: case.arguments,
            extensions: case.extensions,
        };
        let is_exact = matches!(case.rejected, Rejected::Exactly { .. });
        Ok(PreparedCase {
            question: Question {
                context,
                script,
                is_exact,
            },
            expected: Some(expected),
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        question: &Question,
    ) -> Result<Self::Output, String> {
        let (context, script) = (question.context.clone(), question.script.clone());
        ask(instance, shared, |reply| Call {
            context,
            script,
            reply,
        })
        .await
    }

    fn to_answer(question: &Question, found: Self::Output) -> CaseAnswer {
        match found {
            Ok(prepared) => case_answer("expect", Expected::of(&prepared)),
            Err(Rejection { retry, .. }) if question.is_exact => {
                case_answer("refused", Rejected::Exactly { retry })
            }
            Err(_) => case_answer("refused", true),
        }
    }

    fn project(mut found: CaseAnswer, expected: &CaseAnswer) -> CaseAnswer {
        if let Some(found) = found.get_mut("expect").and_then(|it| it.as_object_mut())
            && let Some(expected) = expected.get("expect").and_then(|it| it.as_object())
        {
            found.retain(|key, _| expected.contains_key(key));
        }
        found
    }
}

/// Converts a recorded call to a case.
pub(super) fn recorded(
    context: &Context,
    script: &[u8],
    prepared: Option<&Result<Prepared, Rejection>>,
) -> Case {
    Case {
        role: match context.role {
            Role::Server => GivenRole::Server,
            Role::Agent => GivenRole::Agent,
            Role::Datastore => GivenRole::Datastore,
        },
        framework: Some(context.framework.clone()),
        task: Some(context.task.clone()),
        number: context.number,
        host: Some(context.host.clone()),
        image: Some(context.image.clone()),
        ports: context.ports.clone(),
        source: Some(context.source.clone()),
        extensions: context.extensions.clone(),
        script: Bytes::of(script),
        environment: Pairs::of(context.environment.clone()),
        arguments: context.arguments.clone(),
        attributes: Pairs::of(context.attributes.clone()),
        expect: match prepared {
            Some(Ok(prepared)) => Expected::of(prepared),
            Some(Err(_)) | None => Expected::default(),
        },
        rejected: match prepared {
            Some(Err(Rejection { retry, .. })) => Rejected::Exactly { retry: *retry },
            Some(Ok(_)) | None => Rejected::default(),
        },
    }
}
