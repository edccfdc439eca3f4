//! Self-tests of world `bootstrap-handler`: a container's script, and what it becomes.
//!
//! ```toml
//! [[self-test]]
//! role = "agent"                           # or "server", "datastore"
//! script = "#!/bin/sh\nexec run"
//! environment = { A = "1" }                # also `arguments` and `attributes`
//! expect = { script = "…" }                # also `environment`, `arguments`; `refused = true` in place of it
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{ask, expect};
use crate::{
    engine::{
        Live,
        worlds::bootstrap::{Bootstrap, Job},
    },
    text::hex,
    types::bootstrap::{Context, Role},
};

/// One container.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Test {
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

/// What is left out is not looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    script: Option<String>,
    environment: Option<BTreeMap<String, String>>,
    arguments: Option<Vec<String>>,
}

pub(super) async fn run(live: &mut Live<Bootstrap>, test: Test) -> Result<(), String> {
    let context = Context {
        role: match test.role {
            GivenRole::Server => Role::Server,
            GivenRole::Agent => Role::Agent,
            GivenRole::Datastore => Role::Datastore,
        },
        framework: "fw".to_owned(),
        task: "self-test.1".to_owned(),
        number: 0,
        host: "localhost".to_owned(),
        attributes: test.attributes.into_iter().collect(),
        image: "self-test".to_owned(),
        ports: Vec::new(),
        source: "self-test".to_owned(),
        digest: hex(&Sha256::digest(&test.script)),
        environment: test.environment.into_iter().collect(),
        arguments: test.arguments,
        extra: Vec::new(),
    };
    let script = test.script.into_bytes();
    let prepared = ask(live, |reply| Job {
        context,
        script,
        reply,
    })
    .await?;
    let prepared = match prepared {
        Ok(_) if test.refused => return Err("it prepares what it was expected to refuse".to_owned()),
        Ok(prepared) => prepared,
        Err(_) if test.refused => return Ok(()),
        Err(refusal) => return Err(format!("it refuses: {refusal}")),
    };
    if let Some(script) = &test.expect.script {
        expect(&String::from_utf8_lossy(&prepared.script).into_owned(), script)?;
    }
    if let Some(environment) = &test.expect.environment {
        expect(&prepared.environment.into_iter().collect(), environment)?;
    }
    test.expect
        .arguments
        .as_ref()
        .map_or(Ok(()), |arguments| expect(&prepared.arguments, arguments))
}
