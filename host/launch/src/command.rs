//! The command of a task: the program, its variables, and the files that the agent fetches first.

use std::collections::BTreeMap;
use std::fmt;

use transom_cluster::v1::{self, CommandInfo, Secret, SecretReference, Uri, Variable};

use crate::{Container, Containerizer};

/// The program of a task, or of a check in its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program and its arguments, passed on unchanged. Empty: the image's own command.
    Argv(Vec<String>),
    /// Arguments for the image's own entry point.
    EntryPoint(Vec<String>),
}

impl Program {
    /// The message for this container; `None`: a process without a container.
    pub(crate) fn to_info(&self, container: Option<&Container>) -> CommandInfo {
        let (shell, value, arguments) = match self {
            Self::Shell(line) => (true, Some(line.clone()), Vec::new()),
            Self::Argv(argv) => {
                // Docker's containerizer puts `value` before the arguments. Without it `value` is
                // only the program, and the arguments must begin with its name (`argv[0]`).
                let docker =
                    container.is_some_and(|it| matches!(it.containerizer, Containerizer::Docker { .. }));
                let arguments = argv.iter().skip(usize::from(docker)).cloned().collect();
                (false, argv.first().cloned(), arguments)
            }
            Self::EntryPoint(arguments) => (false, None, arguments.clone()),
        };
        CommandInfo {
            shell: Some(shell),
            value,
            arguments,
            ..CommandInfo::default()
        }
    }
}

/// The command of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The program.
    pub program: Program,
    /// Its environment variables.
    pub environment: Environment,
    /// Files that the agent fetches into the sandbox before the start.
    pub uris: Vec<Uri>,
    /// The user of the agent that fetches the files and runs the program; `None`: the framework's
    /// user. Within a Docker container the image's user runs the program.
    pub user: Option<String>,
}

impl Command {
    /// A command without variables and files.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            environment: Environment::default(),
            uris: Vec::new(),
            user: None,
        }
    }

    /// The message for this container; `None`: a process without a container.
    pub(crate) fn into_info(self, container: Option<&Container>) -> CommandInfo {
        CommandInfo {
            environment: Some(self.environment.into()),
            uris: self.uris,
            user: self.user,
            ..self.program.to_info(container)
        }
    }
}

/// Environment variables by name. Values may be secrets: `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, VariableValue>);

/// The value of a variable.
#[derive(Clone, PartialEq, Eq)]
enum VariableValue {
    Plain(String),
    /// The name of a secret in the cluster's secret store.
    Secret(String),
}

impl Environment {
    /// Sets a variable; replaces an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), VariableValue::Plain(value.into()));
    }

    /// Sets a variable to a secret, by its name in the cluster's secret store; replaces an earlier
    /// value.
    pub fn set_secret(&mut self, name: impl Into<String>, reference: impl Into<String>) {
        self.0
            .insert(name.into(), VariableValue::Secret(reference.into()));
    }
}

impl Extend<(String, String)> for Environment {
    fn extend<I: IntoIterator<Item = (String, String)>>(&mut self, variables: I) {
        let plain = |(name, value)| (name, VariableValue::Plain(value));
        self.0.extend(variables.into_iter().map(plain));
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        let mut environment = Self::default();
        environment.extend(variables);
        environment
    }
}

/// A reference to a secret of the cluster's secret store.
pub(crate) fn secret(name: String) -> Secret {
    Secret {
        r#type: Some("REFERENCE".to_owned()),
        reference: Some(SecretReference { name, key: None }),
        value: None,
    }
}

impl From<Environment> for v1::Environment {
    fn from(environment: Environment) -> Self {
        let variables = environment.0.into_iter().map(|(name, value)| match value {
            VariableValue::Plain(value) => Variable {
                name,
                value: Some(value),
                ..Variable::default()
            },
            VariableValue::Secret(reference) => Variable {
                name,
                r#type: Some("SECRET".to_owned()),
                secret: Some(secret(reference)),
                value: None,
            },
        });
        Self {
            variables: variables.collect(),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn argv(argv: &[&str]) -> Vec<String> {
        argv.iter().map(|argument| (*argument).to_owned()).collect()
    }

    #[test]
    fn program_name_is_repeated_in_the_arguments_except_for_docker() {
        let mesos = Container::new(Containerizer::Mesos);
        let docker = Container::new(Containerizer::docker());
        let words = Program::Argv(argv(&["python", "-c", "a b", ""]));
        let with_name = json!({"shell": false, "value": "python", "arguments": ["python", "-c", "a b", ""]});
        let without = json!({"shell": false, "value": "python", "arguments": ["-c", "a b", ""]});
        let line = Program::Shell("echo $HOME".to_owned());
        let shell = json!({"shell": true, "value": "echo $HOME"});
        let entry_point = Program::EntryPoint(argv(&["--verbose"]));
        let arguments = json!({"shell": false, "arguments": ["--verbose"]});
        let empty = Program::Argv(Vec::new());
        let own = json!({"shell": false});
        for (program, container, expected) in [
            (&words, None, &with_name),
            (&words, Some(&mesos), &with_name),
            (&words, Some(&docker), &without),
            (&line, None, &shell),
            (&line, Some(&docker), &shell),
            (&entry_point, Some(&mesos), &arguments),
            (&entry_point, Some(&docker), &arguments),
            (&empty, None, &own),
            (&empty, Some(&docker), &own),
        ] {
            let info = serde_json::to_value(program.to_info(container)).unwrap();
            assert_eq!(&info, expected, "{program:?} in {container:?}");
        }
    }

    #[test]
    fn later_variables_replace_earlier_ones_and_all_are_sorted() {
        let mut environment: Environment = [("B", "1"), ("A", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        environment.set("C", "2");
        environment.extend([("B".to_owned(), "2".to_owned())]);
        let message = serde_json::to_value(v1::Environment::from(environment.clone())).unwrap();
        let expected = json!([
            {"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "2"},
        ]);
        assert_eq!(message["variables"], expected);
        assert_eq!(format!("{environment:?}"), r#"{"A", "B", "C"}"#);
    }

    #[test]
    fn variable_of_a_secret_has_its_reference_and_no_value() {
        let mut environment: Environment = [("A".to_owned(), "1".to_owned())].into_iter().collect();
        environment.set_secret("A", "/db/password");
        let message = serde_json::to_value(v1::Environment::from(environment)).unwrap();
        let secret = json!({"type": "REFERENCE", "reference": {"name": "/db/password"}});
        let expected = json!([{"name": "A", "type": "SECRET", "secret": secret}]);
        assert_eq!(message["variables"], expected);
    }
}
