//! Checks whether a task's answer contains a word.

#![forbid(unsafe_code)]

use serde::Deserialize;
use transom_sdk::probe::{
    Answer, Attempt, Failure, HttpRequest, Outcome, Probe, Reason, Request, Step, failed,
};
use transom_sdk::{ConfigError, Description, Plugin, describe, export_probe};

/// The operator's `[config]`, as described by `config.schema.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    word: String,
}

/// The plugin, built from its configuration.
#[derive(Debug)]
pub struct LooksFor(Config);

impl Plugin for LooksFor {
    type Config = Config;

    fn describe() -> Description {
        describe!(include_str!("../config.schema.json"))
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        Ok(Self(config))
    }
}

impl Probe for LooksFor {
    type Attempt = Look;

    fn attempt(&self, request: Request) -> Look {
        let word = self.0.word.clone();
        Look { word, request }
    }
}

/// One attempt at one task. It does no I/O: it returns the next step, and the host performs it.
#[derive(Debug)]
pub struct Look {
    word: String,
    request: Request,
}

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => self.ask(),
            Some(Answer::Http(Ok(response))) => {
                let found = String::from_utf8_lossy(&response.body).contains(&self.word);
                let result = serde_json::json!({"found": found, "status": response.status});
                Step::Done(Outcome::Custom(result.to_string()))
            }
            Some(Answer::Http(Err(error))) => Step::Failed(Failure::of(&error, "asking the task")),
            Some(_) => failed(
                Reason::Internal,
                "an answer to something that was not asked",
            ),
        }
    }
}

impl Look {
    fn ask(&self) -> Step {
        let Some(endpoint) = self.request.endpoint.clone() else {
            return failed(Reason::Invalid, "the check names no port");
        };
        Step::Http(HttpRequest {
            method: "GET".to_owned(),
            endpoint,
            tls: None,
            path: self.request.path.clone(),
            headers: Vec::new(),
            body: Vec::new(),
            max_body: 64 * 1024,
            redirects: 0,
        })
    }
}

export_probe!(LooksFor);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{plugin, request};

    use super::*;

    #[test]
    fn probe_requests_the_path_of_the_check() {
        let probe = plugin::<LooksFor>(r#"{"word": "well"}"#).unwrap();
        let mut look = probe.attempt(Request {
            path: "/health".to_owned(),
            ..request()
        });
        assert!(matches!(look.next(None), Step::Http(asked) if asked.path == "/health"));
    }
}
