//! Prepares the first script of a container of the Kubernetes framework: checks it and replaces
//! variables in it.
//!
//! A script must be text, begin with the line of an allowed interpreter, not exceed the maximum
//! size, and have one of the pinned digests, if there are any. `@NAME@` is replaced by the value of
//! a configured variable, and names such as `@TRANSOM_ROLE@` by properties of the container. An
//! unknown `@TRANSOM_...@` is an error; all other text stays unchanged.

use std::collections::BTreeMap;

use serde::Deserialize;
use transom_sdk::bootstrap::{Bootstrap, Context, Prepared, Refusal, Role};
use transom_sdk::{ConfigError, Description, Plugin, export_bootstrap};

/// Prefix of the names whose values the component itself provides.
const OWN: &str = "TRANSOM_";

/// The configuration: see `config.schema.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    max_bytes: usize,
    interpreters: Vec<String>,
    digests: Vec<String>,
    variables: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        let interpreters = [
            "/bin/sh",
            "/bin/bash",
            "/usr/bin/bash",
            "/usr/bin/env sh",
            "/usr/bin/env bash",
        ];
        Self {
            max_bytes: 1 << 20,
            interpreters: interpreters.map(str::to_owned).to_vec(),
            digests: Vec::new(),
            variables: BTreeMap::new(),
            environment: BTreeMap::new(),
        }
    }
}

/// The plugin.
#[derive(Debug)]
pub struct Checked(Config);

impl Plugin for Checked {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "bootstrap scripts: checks of size, interpreter and digest, and variables",
            config_schema: Some(include_str!("config.schema.json")),
        }
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        let own = config.variables.keys().filter(|name| name.starts_with(OWN));
        let errors: Vec<ConfigError> = own
            .map(|name| {
                let message = format!("names that begin with {OWN} are those of the component itself");
                ConfigError::at(format!("/variables/{name}"), message)
            })
            .collect();
        if errors.is_empty() {
            Ok(Self(config))
        } else {
            Err(errors)
        }
    }
}

impl Bootstrap for Checked {
    fn prepare(&self, context: Context, script: Vec<u8>) -> Result<Prepared, Refusal> {
        let config = &self.0;
        if script.len() > config.max_bytes {
            return Err(rejected(format!(
                "the script has {} bytes; the maximum is {} (`max-bytes`)",
                script.len(),
                config.max_bytes
            )));
        }
        let pinned = &config.digests;
        if !pinned.is_empty()
            && !pinned
                .iter()
                .any(|digest| digest.eq_ignore_ascii_case(&context.digest))
        {
            return Err(rejected(format!(
                "the script has the digest {}, which is not one of `digests`",
                context.digest
            )));
        }
        let text = text(script)?;
        self.check_interpreter(&text)?;
        let script = self.render(&text, &context)?;
        let mut environment = context.environment;
        for (name, value) in &config.environment {
            environment.retain(|(known, _)| known != name);
            environment.push((name.clone(), value.clone()));
        }
        Ok(Prepared {
            script: script.into_bytes(),
            environment,
            arguments: context.arguments,
        })
    }
}

impl Checked {
    fn check_interpreter(&self, text: &str) -> Result<(), Refusal> {
        let first = text.lines().next().unwrap_or_default();
        let Some(command) = first.strip_prefix("#!") else {
            return Err(rejected(
                "line 1 of the script names no interpreter; expected a line such as #!/bin/sh".to_owned(),
            ));
        };
        let words: Vec<&str> = command.split_whitespace().collect();
        let allowed = self.0.interpreters.iter().any(|interpreter| {
            let interpreter: Vec<&str> = interpreter.split_whitespace().collect();
            let options = words.strip_prefix(interpreter.as_slice());
            options.is_some_and(|options| options.iter().all(|option| option.starts_with('-')))
        });
        if allowed {
            return Ok(());
        }
        Err(rejected(format!(
            "line 1 of the script names the interpreter {:?}, which is not one of `interpreters`",
            words.join(" ")
        )))
    }

    /// Replaces each `@NAME@` in a script.
    fn render(&self, text: &str, context: &Context) -> Result<String, Refusal> {
        let mut rendered = String::with_capacity(text.len());
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let mut rest = line;
            while let Some(at) = rest.find('@') {
                let after = &rest[at + 1..];
                let name = after.split('@').next().unwrap_or_default();
                let is_name = after.len() > name.len() && is_name(name);
                let value = if is_name { self.value(name, context) } else { None };
                match value {
                    Some(value) => {
                        rendered.push_str(&rest[..at]);
                        rendered.push_str(&value);
                        rest = &after[name.len() + 1..];
                    }
                    None if is_name && name.starts_with(OWN) => {
                        return Err(rejected(format!(
                            "line {number} of the script has @{name}@, which this component does not know"
                        )));
                    }
                    None => {
                        rendered.push_str(&rest[..=at]);
                        rest = after;
                    }
                }
            }
            rendered.push_str(rest);
        }
        Ok(rendered)
    }

    fn value(&self, name: &str, context: &Context) -> Option<String> {
        if let Some(value) = self.0.variables.get(name) {
            return Some(value.clone());
        }
        let role = match context.role {
            Role::Server => "server",
            Role::Agent => "agent",
            Role::Datastore => "datastore",
        };
        match name.strip_prefix(OWN)? {
            "ROLE" => Some(role.to_owned()),
            "FRAMEWORK" => Some(context.framework.clone()),
            "TASK" => Some(context.task.clone()),
            "NUMBER" => Some(context.number.to_string()),
            "IMAGE" => Some(context.image.clone()),
            "SOURCE" => Some(context.source.clone()),
            _ => None,
        }
    }
}

/// Whether a text can be the name in `@NAME@`.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_uppercase())
        && bytes.all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Checks that the script is text, and returns it.
fn text(script: Vec<u8>) -> Result<String, Refusal> {
    if script.is_empty() {
        return Err(rejected("the script is empty".to_owned()));
    }
    let text = String::from_utf8(script).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        rejected(format!("the script is not text: byte {at} is not valid UTF-8"))
    })?;
    match text.find('\0') {
        Some(at) => Err(rejected(format!("the script is not text: byte {at} is NUL"))),
        None => Ok(text),
    }
}

/// A rejection without retries, because an unchanged script would be rejected again.
fn rejected(message: String) -> Refusal {
    Refusal {
        message,
        retry: false,
    }
}

export_bootstrap!(Checked);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::plugin;

    use super::*;

    const SCRIPT: &str = "#!/bin/sh -e\nexec \"$@\"\n";

    fn context() -> Context {
        Context {
            role: Role::Agent,
            framework: "fw".to_owned(),
            task: "t-1".to_owned(),
            number: 3,
            host: String::new(),
            attributes: Vec::new(),
            image: "image:1".to_owned(),
            ports: vec![(0, 80)],
            source: "file:///script".to_owned(),
            digest: "ab".repeat(32),
            environment: vec![("A".to_owned(), "1".to_owned())],
            arguments: vec!["k3s".to_owned(), "agent".to_owned()],
            extensions: Vec::new(),
        }
    }

    fn prepare(config: &str, script: &[u8]) -> Result<Prepared, Refusal> {
        plugin::<Checked>(config)
            .expect("a configuration")
            .prepare(context(), script.to_vec())
    }

    #[test]
    fn valid_script_passes_unchanged_with_its_environment_and_arguments() {
        let prepared = prepare("{}", SCRIPT.as_bytes()).unwrap();
        assert_eq!(prepared.script, SCRIPT.as_bytes());
        assert_eq!(
            (prepared.environment, prepared.arguments),
            (context().environment, context().arguments)
        );
    }

    #[test]
    fn bad_scripts_are_rejected_with_the_reason() {
        let large = format!("#!/bin/sh\n{}", "#".repeat(1 << 20));
        for (config, script, expected) in [
            ("{}", &b""[..], "is empty"),
            ("{}", b"echo", "line 1 of the script names no interpreter"),
            (
                "{}",
                b"#!/usr/bin/python3\n",
                "names the interpreter \"/usr/bin/python3\"",
            ),
            ("{}", b"#!/bin/sh /tmp/other\n", "names the interpreter"),
            ("{}", b"#!/bin/sh\n\xff", "byte 10 is not valid UTF-8"),
            ("{}", b"#!/bin/sh\n\0", "byte 10 is NUL"),
            ("{}", large.as_bytes(), "the maximum is 1048576"),
            (r#"{"max-bytes": 5}"#, SCRIPT.as_bytes(), "the maximum is 5"),
            (
                r#"{"interpreters": ["/bin/bash"]}"#,
                SCRIPT.as_bytes(),
                "which is not one of `interpreters`",
            ),
            (
                "{}",
                b"#!/bin/sh\n\necho @TRANSOM_ROAL@\n",
                "line 3 of the script has @TRANSOM_ROAL@",
            ),
        ] {
            let rejection = prepare(config, script).unwrap_err();
            assert!(
                rejection.message.contains(expected),
                "{expected}: {}",
                rejection.message
            );
            assert!(!rejection.retry);
        }
    }

    #[test]
    fn only_pinned_digests_pass() {
        let pinned = format!(r#"{{"digests": ["{}", "{}"]}}"#, "00".repeat(32), "AB".repeat(32));
        assert!(prepare(&pinned, SCRIPT.as_bytes()).is_ok());
        let other = format!(r#"{{"digests": ["{}"]}}"#, "00".repeat(32));
        let rejection = prepare(&other, SCRIPT.as_bytes()).unwrap_err();
        assert!(
            rejection.message.contains("not one of `digests`"),
            "{}",
            rejection.message
        );
    }

    #[test]
    fn variables_are_rendered_and_other_text_stays() {
        let config = r#"{"variables": {"MIRROR": "m.example"}, "environment": {"A": "2", "B": "3"}}"#;
        let script =
            "#!/bin/sh\nmirror=@MIRROR@ @TRANSOM_ROLE@-@TRANSOM_NUMBER@ u@h @UNKNOWN@ a@b@c @@MIRROR@\n";
        let prepared = prepare(config, script.as_bytes()).unwrap();
        let expected = "#!/bin/sh\nmirror=m.example agent-3 u@h @UNKNOWN@ a@b@c @m.example\n";
        assert_eq!(String::from_utf8(prepared.script).unwrap(), expected);
        let expected = [("A".to_owned(), "2".to_owned()), ("B".to_owned(), "3".to_owned())];
        assert_eq!(prepared.environment, expected);
    }

    #[test]
    fn wrong_configurations_are_rejected() {
        for config in [
            r#"{"variables": {"TRANSOM_ROLE": "x"}}"#,
            r#"{"maximum": 1}"#,
            r#"{"max-bytes": "many"}"#,
        ] {
            assert!(plugin::<Checked>(config).is_err(), "{config}");
        }
    }
}
