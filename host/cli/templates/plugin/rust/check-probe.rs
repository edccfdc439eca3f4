//! Checks whether a task's response contains a word.

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
pub struct WordProbe(Config);

impl Plugin for WordProbe {
    type Config = Config;

    fn describe() -> Description {
        describe!(include_str!("../config.schema.json"))
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        Ok(Self(config))
    }
}

impl Probe for WordProbe {
    type Attempt = WordAttempt;

    fn attempt(&self, request: Request) -> WordAttempt {
        let word = self.0.word.clone();
        WordAttempt { word, request }
    }
}

/// One attempt at one task. It performs no I/O: it returns steps, and the host performs them.
#[derive(Debug)]
pub struct WordAttempt {
    word: String,
    request: Request,
}

impl Attempt for WordAttempt {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => self.first_step(),
            Some(Answer::Http(Ok(response))) => {
                let found = String::from_utf8_lossy(&response.body).contains(&self.word);
                let result = serde_json::json!({"found": found, "status": response.status});
                Step::Done(Outcome::Custom(result.to_string()))
            }
            Some(Answer::Http(Err(error))) => Step::Failed(Failure::of(&error, "HTTP request")),
            Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
        }
    }
}

impl WordAttempt {
    fn first_step(&self) -> Step {
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

export_probe!(WordProbe);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{plugin, request};

    use super::*;

    #[test]
    fn probe_requests_the_path_of_the_check() {
        let probe = plugin::<WordProbe>(r#"{"word": "well"}"#).unwrap();
        let mut attempt = probe.attempt(Request {
            path: "/health".to_owned(),
            ..request()
        });
        let step = attempt.next(None);
        assert!(matches!(step, Step::Http(http) if http.path == "/health"));
    }
}
