//! Makes every container print its host before it runs anything.

#![forbid(unsafe_code)]

use transom_sdk::bootstrap::{Bootstrap, Context, Prepared, Refusal, Role};
use transom_sdk::export_bootstrap;

/// The plugin. It takes no configuration.
#[derive(Debug)]
pub struct HostPrinter;

transom_sdk::plugin!(HostPrinter);

impl Bootstrap for HostPrinter {
    /// A pure function: the same arguments always give the same result.
    fn prepare(&self, context: Context, script: Vec<u8>) -> Result<Prepared, Refusal> {
        if script.is_empty() {
            return Err(rejected("there is no script to run"));
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

/// A rejection. The framework's status shows the message, and the container is not started.
fn rejected(message: &str) -> Refusal {
    Refusal {
        message: message.to_owned(),
        retry: false,
    }
}

export_bootstrap!(HostPrinter);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::plugin;

    #[test]
    fn plugin_takes_no_configuration() {
        assert!(plugin::<super::HostPrinter>("{}").is_ok());
        assert!(plugin::<super::HostPrinter>(r#"{"a": 1}"#).is_err());
    }
}
