//! http checks: the status code of a GET of the check's path.
//!
//! Any status is a result, 500 as well as 200: a check reports and does not interpret. Redirects
//! are followed only if the configuration allows it; otherwise the 302 is the result. No response
//! is a failure, and the check keeps its last result, as with checks by the agent.

use serde::Deserialize;
use transom_sdk::probe::{
    Answer, Attempt, Failure, HttpRequest, Outcome, Probe, Reason, Request, Step, failed,
};
use transom_sdk::{ConfigError, Description, Plugin, export_probe};

/// More redirects than this are a loop.
const MOST_REDIRECTS: u8 = 10;

/// The operator's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many redirects to follow, at most ten.
    #[serde(default)]
    redirects: u8,
}

/// The plugin.
#[derive(Debug)]
pub struct CheckHttp {
    redirects: u8,
}

impl Plugin for CheckHttp {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "http checks: the status code that the task answers with",
            config_schema: Some(include_str!("config.schema.json")),
        }
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        if config.redirects > MOST_REDIRECTS {
            let message = format!("expected at most {MOST_REDIRECTS}, found {}", config.redirects);
            return Err(vec![ConfigError::at("/redirects", message)]);
        }
        Ok(Self {
            redirects: config.redirects,
        })
    }
}

impl Probe for CheckHttp {
    type Attempt = Look;

    fn attempt(&self, request: Request) -> Look {
        Look {
            request,
            redirects: self.redirects,
        }
    }
}

/// One attempt on one port.
#[derive(Debug)]
pub struct Look {
    request: Request,
    redirects: u8,
}

impl Look {
    fn get(&self) -> Step {
        let Some(endpoint) = self.request.endpoint.clone() else {
            return failed(Reason::Invalid, "an http check needs a port; this one names none");
        };
        let path = &self.request.path;
        Step::Http(HttpRequest {
            method: "GET".to_owned(),
            endpoint,
            tls: None,
            path: if path.starts_with('/') {
                path.clone()
            } else {
                format!("/{path}")
            },
            headers: vec![(
                "User-Agent".to_owned(),
                concat!("transom-check-http/", env!("CARGO_PKG_VERSION")).to_owned(),
            )],
            body: Vec::new(),
            // The status is all there is to learn.
            max_body: 0,
            redirects: self.redirects,
        })
    }
}

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => self.get(),
            Some(Answer::Http(Ok(response))) => Step::Done(Outcome::Http(response.status)),
            Some(Answer::Http(Err(error))) => {
                Step::Failed(Failure::of(&error, &format!("GET {}", self.request.path)))
            }
            Some(_) => failed(Reason::Internal, "an answer to something that was not asked"),
        }
    }
}

export_probe!(CheckHttp);

#[cfg(test)]
mod tests {
    use transom_sdk::probe::{HttpResponse, IoError};
    use transom_sdk::testing::{End, drive, plugin, request};

    use super::*;

    fn response(status: u16) -> Answer {
        Answer::Http(Ok(HttpResponse {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            elapsed: 3,
        }))
    }

    #[test]
    fn any_status_is_returned_as_the_result() {
        let check = plugin::<CheckHttp>("{}").unwrap();
        for status in [100, 200, 302, 404, 500, 599] {
            let (end, steps) = drive(&*check, request(), 4, |_| response(status));
            assert_eq!(end, End::Done(Outcome::Http(status)));
            assert_eq!(steps.len(), 2);
        }
    }

    #[test]
    fn request_is_sent_to_path_and_port_of_the_check() {
        for (path, asked, config, redirects) in [
            ("/", "/", "{}", 0),
            ("/health?deep=1", "/health?deep=1", r#"{"redirects": 3}"#, 3),
            ("health", "/health", "{}", 0),
            ("", "/", "{}", 0),
        ] {
            let check = plugin::<CheckHttp>(config).unwrap();
            let look = Request {
                path: path.to_owned(),
                ..request()
            };
            let (_, steps) = drive(&*check, look, 4, |_| response(200));
            let Step::Http(http) = &steps[0] else {
                panic!("{:?}", steps[0])
            };
            assert_eq!((http.method.as_str(), http.path.as_str()), ("GET", asked));
            assert_eq!(
                (http.endpoint.host.as_str(), http.endpoint.port),
                ("10.0.0.1", 31000)
            );
            assert_eq!((http.redirects, http.max_body, &http.tls), (redirects, 0, &None));
        }
    }

    #[test]
    fn request_without_a_response_is_a_failure() {
        let check = plugin::<CheckHttp>("{}").unwrap();
        let cases = [
            (IoError::Refused, Reason::Unreachable),
            (IoError::Unreachable, Reason::Unreachable),
            (IoError::Unresolved, Reason::Unreachable),
            (IoError::Closed, Reason::Unreachable),
            (IoError::TimedOut, Reason::TimedOut),
            (IoError::Denied, Reason::Denied),
            (IoError::Protocol("bad head".to_owned()), Reason::Invalid),
        ];
        for (error, reason) in cases {
            let (end, _) = drive(&*check, request(), 4, |_| Answer::Http(Err(error.clone())));
            let End::Failed(failure) = end else {
                panic!("{error:?}: {end:?}")
            };
            assert_eq!(failure.reason, reason, "{error:?}");
            assert!(failure.message.starts_with("GET /"), "{}", failure.message);
        }
    }

    #[test]
    fn a_check_without_a_port_is_invalid() {
        let check = plugin::<CheckHttp>("{}").unwrap();
        let (end, _) = drive(
            &*check,
            Request {
                endpoint: None,
                ..request()
            },
            4,
            |_| response(200),
        );
        assert!(
            matches!(
                end,
                End::Failed(Failure {
                    reason: Reason::Invalid,
                    ..
                })
            ),
            "{end:?}"
        );
    }

    #[test]
    fn redirects_over_the_maximum_are_refused_with_their_pointer() {
        let errors = plugin::<CheckHttp>(r#"{"redirects": 11}"#).unwrap_err();
        assert_eq!(errors[0].pointer, "/redirects");
    }
}
