//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use clap::{Args, ValueEnum as _};

use crate::stories::Name;

/// The options of a run.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A master: `http://host:port` or `host:port`. A master that does not lead redirects to the
    /// leading one.
    #[arg(long, value_parser = authority)]
    pub master: String,
    /// The user for masters and agents that require credentials; also the frameworks' principal.
    #[arg(long, requires = "password")]
    pub username: Option<String>,
    /// That user's password. A variable is not shown in the process table.
    #[arg(
        long,
        requires = "username",
        env = "TRANSOM_VERIFY_PASSWORD",
        hide_env_values = true
    )]
    pub password: Option<String>,
    /// The role whose offers are used.
    #[arg(long, default_value = "*")]
    pub role: String,
    /// The user as whom tasks run on the agents.
    #[arg(long, default_value = "root", value_name = "NAME")]
    pub task_user: String,
    /// The stories to run, separated by commas. Default: all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<Name>,
    /// Timeout of each story in seconds.
    #[arg(long, default_value = "180", value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400).map(Duration::from_secs))]
    pub limit: Duration,
    /// Directory for the logs. Default: a temporary directory, which is kept if something failed.
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
}

impl Options {
    /// User and password for masters and agents that require them.
    pub fn credentials(&self) -> Option<(String, String)> {
        self.username.clone().zip(self.password.clone())
    }

    /// The stories to run, each once and in their order.
    pub fn stories(&self) -> Vec<Name> {
        let all = Name::value_variants().iter().copied();
        all.filter(|name| self.only.is_empty() || self.only.contains(name))
            .collect()
    }
}

/// `host:port` of the given master.
fn authority(master: &str) -> Result<String, String> {
    let expected = "expected http://HOST:PORT or HOST:PORT of a master, such as http://10.0.0.1:5050";
    if master.starts_with("https://") {
        return Err(format!(
            "masters with TLS are not supported by this command; {expected}"
        ));
    }
    if master.starts_with("zk://") {
        return Err(format!("name one of the masters itself; {expected}"));
    }
    let authority = master.strip_prefix("http://").unwrap_or(master);
    let authority = authority.trim_end_matches('/');
    let port = authority
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(1..))) if !host.is_empty() && !host.contains(['/', '@']) => Ok(authority.to_owned()),
        _ => Err(expected.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    impl Options {
        /// The options of these arguments, with any master.
        pub(crate) fn of(arguments: &[&str]) -> Self {
            let arguments = [&["verify", "--master", "h:5050"], arguments].concat();
            Arguments::try_parse_from(arguments).unwrap().options
        }
    }

    #[test]
    fn master_is_accepted_as_url_and_as_authority() {
        for given in ["http://10.0.0.1:5050", "http://10.0.0.1:5050/", "10.0.0.1:5050"] {
            assert_eq!(authority(given).as_deref(), Ok("10.0.0.1:5050"), "{given}");
        }
        assert_eq!(authority("http://[::1]:5050").as_deref(), Ok("[::1]:5050"));
        for given in [
            "10.0.0.1",
            "http://",
            ":5050",
            "https://h:5050",
            "zk://h:2181/mesos",
            "h:0",
            "http://h:1/x:2",
            "u@h:5050",
        ] {
            let error = authority(given).unwrap_err();
            assert!(error.contains("http://HOST:PORT"), "{given}: {error}");
        }
    }

    #[test]
    fn stories_run_once_and_in_their_order() {
        let some = Options::of(&["--only", "kill,checks", "--only", "kill"]);
        assert_eq!(some.stories(), [Name::Checks, Name::Kill]);
        assert_eq!(Options::of(&[]).stories(), Name::value_variants());
    }
}
