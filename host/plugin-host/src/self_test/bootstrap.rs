//! Self-tests of world `bootstrap-handler`: a container's script, and the prepared one.
//!
//! ```toml
//! [[self-test]]
//! role = "agent"                           # or "server", "datastore"
//! script = "#!/bin/sh\nexec run"
//! environment = { A = "1" }                # also `arguments` and `attributes`
//! expect = { script = "…" }                # also `environment`, `arguments`; `refused = true` in place of it
//! ```

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::{Answer, PreparedCase, Testable, answer, ask};
use crate::{
    runtime::engine::{
        Instance,
        worlds::bootstrap::{Bootstrap, Call},
    },
    worlds::bootstrap::{Context, Prepared, Refusal, Role},
};

/// One container.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    role: GivenRole,
    script: String,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    expect: Expected,
    #[serde(default)]
    refused: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GivenRole {
    Server,
    Agent,
    Datastore,
}

/// Omitted keys are not compared.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<String>>,
}

/// What the handler is given.
pub(crate) struct Question {
    context: Context,
    script: Vec<u8>,
}

impl Testable for Bootstrap {
    type Case = Case;
    type Question = Question;
    type Found = Result<Prepared, Refusal>;

    fn prepare_case(case: Case) -> Result<PreparedCase<Self>, String> {
        let expected = if case.refused {
            answer("refused", true)
        } else {
            answer("expect", &case.expect)
        };
        let context = Context {
            role: match case.role {
                GivenRole::Server => Role::Server,
                GivenRole::Agent => Role::Agent,
                GivenRole::Datastore => Role::Datastore,
            },
            framework: "fw".to_owned(),
            task: "self-test.1".to_owned(),
            number: 0,
            host: "localhost".to_owned(),
            attributes: case.attributes.into_iter().collect(),
            image: "self-test".to_owned(),
            ports: Vec::new(),
            source: "self-test".to_owned(),
            digest: hex(&Sha256::digest(&case.script)),
            environment: case.environment.into_iter().collect(),
            arguments: case.arguments,
            extensions: Vec::new(),
        };
        let script = case.script.into_bytes();
        Ok(PreparedCase {
            question: Question { context, script },
            expected: Some(expected),
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        question: &Question,
    ) -> Result<Self::Found, String> {
        let (context, script) = (question.context.clone(), question.script.clone());
        ask(instance, shared, |reply| Call {
            context,
            script,
            reply,
        })
        .await
    }

    fn to_answer(_question: &Question, found: Self::Found) -> Answer {
        match found {
            Ok(prepared) => {
                let found = Expected {
                    script: Some(String::from_utf8_lossy(&prepared.script).into_owned()),
                    environment: Some(prepared.environment.into_iter().collect()),
                    arguments: Some(prepared.arguments),
                };
                answer("expect", found)
            }
            Err(_) => answer("refused", true),
        }
    }

    fn project(mut found: Answer, expected: &Answer) -> Answer {
        if let Some(found) = found.get_mut("expect").and_then(|it| it.as_object_mut())
            && let Some(expected) = expected.get("expect").and_then(|it| it.as_object())
        {
            found.retain(|key, _| expected.contains_key(key));
        }
        found
    }
}
