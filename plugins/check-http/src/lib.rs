//! http checks: the result is the status code of a GET request for the check's path.
//!
//! The component also performs health and readiness checks: extensions of the request determine
//! whether to use TLS, whether to verify the certificate, and whether the result is the whole
//! response.
//!
//! Any status is a result, 500 as well as 200: a check reports the status and does not interpret
//! it. Redirects are followed only if the configuration allows it; otherwise the 302 is the result.
//! Without a response the attempt fails and the check keeps its last result, as with checks by the
//! agent.

use serde::Deserialize;
use transom_sdk::probe::{
    Answer, Attempt, Failure, HttpRequest, HttpResponse, Outcome, Probe, Reason, Request, Step, Tls, failed,
};
use transom_sdk::{ConfigError, Description, Plugin, export_probe};

/// Maximum number of redirects; more would be a loop.
const MOST_REDIRECTS: u8 = 10;

/// Maximum bytes of a body that are read if the whole response is the result.
const MOST_BODY: u32 = 3072;
/// Maximum characters of a content type in the result.
const MOST_TYPE: usize = 100;
/// Maximum bytes of an outcome that the host accepts.
const MOST_OUTCOME: usize = 4096;

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
    /// The value of an extension of the request.
    fn extension(&self, name: &str) -> Option<&str> {
        let mut extensions = self.request.extensions.iter();
        extensions
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn tls(&self) -> Option<Tls> {
        (self.extension("scheme") == Some("https")).then(|| Tls {
            server_name: String::new(),
            verify: self.extension("tls-verify") != Some("false"),
        })
    }

    fn is_whole(&self) -> bool {
        self.extension("response") == Some("whole")
    }

    fn outcome(&self, response: &HttpResponse) -> Outcome {
        if self.is_whole() {
            Outcome::Custom(whole(response))
        } else {
            Outcome::Http(response.status)
        }
    }

    fn get(&self) -> Step {
        let Some(endpoint) = self.request.endpoint.clone() else {
            return failed(Reason::Invalid, "an http check needs a port; this one names none");
        };
        let path = &self.request.path;
        Step::Http(HttpRequest {
            method: "GET".to_owned(),
            endpoint,
            tls: self.tls(),
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
            // If only the status is the result, the body is not read.
            max_body: if self.is_whole() { MOST_BODY } else { 0 },
            redirects: self.redirects,
        })
    }
}

/// The response as a JSON object. The body is truncated so that the object fits into an outcome.
fn whole(response: &HttpResponse) -> String {
    let content_type = response
        .headers
        .iter()
        .find(|(name, _)| name == "content-type")
        .map_or("", |(_, value)| value.as_str());
    let content_type: String = content_type.chars().take(MOST_TYPE).collect();
    let text = String::from_utf8_lossy(&response.body);
    let mut most = text.chars().count();
    loop {
        let document = serde_json::json!({
            "status": response.status,
            "contentType": content_type,
            "body": text.chars().take(most).collect::<String>(),
        })
        .to_string();
        if document.len() <= MOST_OUTCOME || most == 0 {
            return document;
        }
        // An escaped character takes up to six bytes.
        most = most.saturating_sub((document.len() - MOST_OUTCOME).div_ceil(6).max(1));
    }
}

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => self.get(),
            Some(Answer::Http(Ok(response))) => Step::Done(self.outcome(&response)),
            Some(Answer::Http(Err(error))) => {
                Step::Failed(Failure::of(&error, &format!("GET {}", self.request.path)))
            }
            Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
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

    fn extended(extensions: &[(&str, &str)]) -> Request {
        Request {
            extensions: extensions
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..request()
        }
    }

    #[test]
    fn request_is_sent_over_tls_when_its_scheme_is_https() {
        let check = plugin::<CheckHttp>("{}").unwrap();
        for (extensions, verify) in [
            (&[("scheme", "https")][..], Some(true)),
            (&[("scheme", "https"), ("tls-verify", "true")], Some(true)),
            (&[("tls-verify", "false"), ("scheme", "https")], Some(false)),
            (&[("scheme", "http")], None),
            (&[("tls-verify", "false")], None),
        ] {
            let (_, steps) = drive(&*check, extended(extensions), 4, |_| response(200));
            let Step::Http(http) = &steps[0] else {
                panic!("{:?}", steps[0])
            };
            let found = http.tls.as_ref().map(|tls| tls.verify);
            assert_eq!(found, verify, "{extensions:?}");
        }
    }

    #[test]
    fn whole_response_is_the_result_if_the_request_demands_it() {
        let check = plugin::<CheckHttp>("{}").unwrap();
        let asked = || extended(&[("response", "whole")]);
        let answer = |body: &[u8]| {
            Answer::Http(Ok(HttpResponse {
                status: 503,
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: body.to_vec(),
                elapsed: 3,
            }))
        };
        let (end, steps) = drive(&*check, asked(), 4, |_| answer(b"{}"));
        assert!(matches!(&steps[0], Step::Http(http) if http.max_body == MOST_BODY));
        let End::Done(Outcome::Custom(document)) = end else {
            panic!("{end:?}")
        };
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let expected = serde_json::json!({"status": 503, "contentType": "application/json", "body": "{}"});
        assert_eq!(document, expected);

        // The largest body, of characters that are escaped with six bytes each.
        let (end, _) = drive(&*check, asked(), 4, |_| answer(&[1; MOST_BODY as usize]));
        let End::Done(Outcome::Custom(document)) = end else {
            panic!("{end:?}")
        };
        assert!(
            document.len() <= MOST_OUTCOME && document.len() > MOST_OUTCOME - 12,
            "{}",
            document.len()
        );
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
    fn redirects_over_the_maximum_are_rejected_with_their_pointer() {
        let errors = plugin::<CheckHttp>(r#"{"redirects": 11}"#).unwrap_err();
        assert_eq!(errors[0].pointer, "/redirects");
    }
}
