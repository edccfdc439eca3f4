//! The program of a container and its environment variables.

use super::{
    super::spec::{Containerizer, SANDBOX_PATH},
    decode_secret, process,
};
use crate::{state::Launch, wire::json as doc};
use serde_json::{Value, json};

/// The entry point and the arguments of a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) entrypoint: Option<String>,
    pub(super) arguments: Vec<String>,
}

/// Whether a `CommandInfo` is a shell command, which is the default.
fn is_shell(info: &Value) -> bool {
    info["shell"] != false
}

fn arguments(info: &Value) -> Vec<String> {
    let arguments = doc::list(info, &["arguments"]).iter();
    arguments.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The program of a `CommandInfo`. Docker's containerizer passes `value` and the arguments to the
/// image's entry point; the Mesos containerizer runs `value` instead of it, and the first argument
/// is the program's name.
pub(super) fn of(info: &Value, containerizer: Containerizer) -> Result<Command, String> {
    let value = doc::text(info, &["value"]).map(str::to_owned);
    if is_shell(info) {
        let line = value.ok_or("Shell specified but no command value provided")?;
        return Ok(Command {
            entrypoint: Some("/bin/sh".to_owned()),
            arguments: vec!["-c".to_owned(), line],
        });
    }
    let own_arguments = arguments(info);
    Ok(match (value, containerizer) {
        (Some(program), Containerizer::Mesos) => Command {
            entrypoint: Some(program),
            arguments: own_arguments.into_iter().skip(1).collect(),
        },
        (value, _) => Command {
            entrypoint: None,
            arguments: value.into_iter().chain(own_arguments).collect(),
        },
    })
}

/// The program and arguments of a check or of a nested container, for running it inside a container.
pub(crate) fn exec(info: &Value, containerizer: Containerizer) -> Option<Vec<String>> {
    let value = doc::text(info, &["value"])?.to_owned();
    if is_shell(info) {
        return Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), value]);
    }
    let skip = usize::from(containerizer == Containerizer::Mesos);
    let remaining = arguments(info).into_iter().skip(skip);
    Some(std::iter::once(value).chain(remaining).collect())
}

/// The environment variables of a container.
pub(super) fn environment(
    launch: &Launch,
    containerizer: Containerizer,
    name: &str,
) -> Result<Vec<(String, String)>, String> {
    let task_variables = variables(&launch.info["command"])?;
    let sandbox = ("MESOS_SANDBOX".to_owned(), SANDBOX_PATH.to_owned());
    let mut result: Vec<(String, String)> = Vec::new();
    match containerizer {
        Containerizer::Docker => {
            result.extend(task_variables);
            result.push(sandbox);
            result.push(("MESOS_CONTAINER_NAME".to_owned(), name.to_owned()));
        }
        Containerizer::Mesos => {
            // The image sets its own PATH.
            let agent_variables = process::environment(launch).into_iter();
            let agent_variables =
                agent_variables.filter(|(name, _)| !["PATH", "MESOS_SANDBOX"].contains(name));
            result.extend(agent_variables.map(|(name, value)| (name.to_owned(), value)));
            result.push(sandbox);
            result.extend(task_variables);
        }
    }
    Ok(result)
}

/// The variables of a `CommandInfo`.
pub(crate) fn variables(info: &Value) -> Result<Vec<(String, String)>, String> {
    let mut result = Vec::new();
    for variable in doc::list(info, &["environment", "variables"]) {
        let Some(name) = variable["name"]
            .as_str()
            .filter(|name| !name.is_empty() && !name.contains(['=', '\0']))
        else {
            continue;
        };
        let value = match variable.get("secret") {
            Some(value) => String::from_utf8(decode_secret(value)?)
                .map_err(|_| format!("The secret of the variable '{name}' is not valid UTF-8"))?,
            None => variable["value"].as_str().unwrap_or_default().to_owned(),
        };
        if value.contains('\0') {
            return Err(format!("The value of the variable '{name}' contains a zero byte"));
        }
        result.push((name.to_owned(), value));
    }
    Ok(result)
}

/// Changes the task so that its commands run as processes without a container; `None` if it relies
/// on the image's own command.
pub(super) fn without_image(info: &Value, containerizer: Containerizer) -> Option<Value> {
    doc::text(info, &["command", "value"])?;
    let mut info = info.clone();
    if containerizer == Containerizer::Docker {
        for path in ["/command", "/health_check/command", "/check/command/command"] {
            if let Some(command) = info.pointer_mut(path).filter(|command| !is_shell(command)) {
                // The first argument of a process is its name (argv[0]).
                let argv: Vec<String> = exec(command, containerizer)?;
                command["arguments"] = json!(argv);
            }
        }
    }
    if let Value::Object(fields) = &mut info {
        fields.remove("container");
    }
    Some(info)
}
