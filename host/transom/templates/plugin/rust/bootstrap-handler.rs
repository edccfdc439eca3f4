//! Makes every container print its host before it runs anything.

#![forbid(unsafe_code)]

use transom_sdk::bootstrap::{Bootstrap, Context, Prepared, Refusal, Role};
use transom_sdk::export_bootstrap;

/// The plugin. It takes no configuration.
#[derive(Debug)]
pub struct Prepares;

transom_sdk::plugin!(Prepares);

impl Bootstrap for Prepares {
    /// Pure: the same arguments give the same result.
    fn prepare(&self, context: Context, script: Vec<u8>) -> Result<Prepared, Refusal> {
        if script.is_empty() {
            return Err(refused("there is no script to run"));
        }
        let role = match context.role {
            Role::Server => "server",
            Role::Agent => "agent",
            Role::Datastore => "datastore",
        };
        let mut prepared =
            format!("echo '{role} {} on {}'\n", context.number, context.host).into_bytes();
        prepared.extend(script);
        let mut environment = context.environment;
        environment.push(("TRANSOM_ROLE".to_owned(), role.to_owned()));
        Ok(Prepared {
            script: prepared,
            environment,
            arguments: context.arguments,
        })
    }
}

/// Shown in the framework's status; the container is not started.
fn refused(message: &str) -> Refusal {
    Refusal {
        message: message.to_owned(),
        retry: false,
    }
}

export_bootstrap!(Prepares);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::plugin;

    #[test]
    fn plugin_takes_no_configuration() {
        assert!(plugin::<super::Prepares>("{}").is_ok());
        assert!(plugin::<super::Prepares>(r#"{"a": 1}"#).is_err());
    }
}
