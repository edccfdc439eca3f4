//! Calls of world `bootstrap-handler`.

use sha2::{Digest, Sha256};
use transom_common::text::hex;
use transom_plugin_cases::{
    Answer, answer,
    bootstrap::{Case, Expected, GivenRole, Rejected},
    forms::{Bytes, Pairs},
};

use crate::worlds::bootstrap::{Context, Prepared, Rejection, Role};

/// Converts a call to a case.
pub(crate) fn case(context: &Context, script: &[u8]) -> Case {
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
        expect: Expected::default(),
        rejected: Rejected::default(),
    }
}

/// Converts a case to the arguments of a handler.
pub(crate) fn arguments(case: Case) -> (Context, Vec<u8>) {
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
    (context, script)
}

/// Converts an answer. `is_exact`: with the value of `retry` of a rejection.
pub(crate) fn answer_of(found: &Result<Prepared, Rejection>, is_exact: bool) -> Answer {
    match found {
        Ok(prepared) => {
            let expected = Expected {
                script: Some(Bytes::of(&prepared.script)),
                environment: Some(prepared.environment.iter().cloned().collect()),
                arguments: Some(prepared.arguments.clone()),
            };
            answer("expect", expected)
        }
        Err(Rejection { retry, .. }) if is_exact => answer("refused", Rejected::Exactly { retry: *retry }),
        Err(_) => answer("refused", true),
    }
}
