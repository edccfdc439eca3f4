//! The SDK of Transom plugins.
//!
//! A plugin is a WebAssembly component that implements one of four worlds. For each world this
//! crate has traits to implement, and a macro that makes your crate such a component:
//!
//! | world | traits | macro |
//! |---|---|---|
//! | `check-probe`: checks a task | [`Probe`](probe::Probe), [`Attempt`](probe::Attempt) | [`export_probe!`] |
//! | `attribute-matcher`: decides which agents may run a task | [`Matcher`](matcher::Matcher), [`AgentSet`](matcher::AgentSet) | [`export_matcher!`] |
//! | `event-filter`: decides which events a subscriber receives | [`Filter`](events::Filter), [`View`](events::View) | [`export_filter!`] |
//! | `bootstrap-handler`: prepares the first script of a container | [`Bootstrap`](bootstrap::Bootstrap) | [`export_bootstrap!`] |
//!
//! Every plugin also implements [`Plugin`]: it describes itself and is created from its
//! configuration. [`plugin!`] implements the trait for a type without configuration, and
//! [`describe!`] reads the description from `Cargo.toml`. [`log`] writes to the plugin's log.
//! Plugins cannot do input or output; a probe returns steps, and the host performs them. A panic is
//! a trap: the host discards the instance and counts a fault of the plugin.
//!
//! # Example
//!
//! A probe that checks whether a task's greeting contains a word. `Cargo.toml` has `crate-type =
//! ["cdylib", "rlib"]`: `cdylib` for the component, and `rlib` so that unit tests run natively with
//! [`testing`].
//!
//! ```
//! use serde::Deserialize;
//! use transom_sdk::probe::{Answer, Attempt, Failure, Outcome, Probe, Reason, Request, Step, failed};
//! use transom_sdk::{ConfigError, Description, Plugin, export_probe, log, testing};
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     word: String,
//! }
//!
//! struct WordProbe {
//!     word: String,
//! }
//!
//! impl Plugin for WordProbe {
//!     type Config = Config;
//!
//!     fn describe() -> Description {
//!         Description {
//!             name: "word-probe",
//!             version: "1.0.0",
//!             summary: "checks whether a task's greeting contains a word",
//!             config_schema: Some(r#"{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}"#),
//!         }
//!     }
//!
//!     fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
//!         if config.word.is_empty() {
//!             return Err(vec![ConfigError::at("/word", "expected a word, found nothing")]);
//!         }
//!         Ok(Self { word: config.word })
//!     }
//! }
//!
//! impl Probe for WordProbe {
//!     type Attempt = WordAttempt;
//!
//!     fn attempt(&self, request: Request) -> WordAttempt {
//!         WordAttempt { word: self.word.clone(), request }
//!     }
//! }
//!
//! struct WordAttempt {
//!     word: String,
//!     request: Request,
//! }
//!
//! impl Attempt for WordAttempt {
//!     fn next(&mut self, last: Option<Answer>) -> Step {
//!         match last {
//!             None => match self.request.endpoint.take() {
//!                 Some(endpoint) => Step::Connect((endpoint, None)),
//!                 None => failed(Reason::Invalid, "the check names no port"),
//!             },
//!             Some(Answer::Connected(Ok(_))) => Step::Receive(1024),
//!             Some(Answer::Received(Ok(bytes))) => {
//!                 log::debug!("{} bytes from {}", bytes.len(), self.request.task);
//!                 let found = String::from_utf8_lossy(&bytes).contains(&self.word);
//!                 Step::Done(Outcome::Custom(format!(r#"{{"found": {found}}}"#)))
//!             }
//!             Some(Answer::Connected(Err(error)) | Answer::Received(Err(error))) => {
//!                 Step::Failed(Failure::of(&error, "reading the greeting"))
//!             }
//!             Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
//!         }
//!     }
//! }
//!
//! export_probe!(WordProbe);
//!
//! // And its test:
//! # fn main() {
//! let plugin = testing::plugin::<WordProbe>(r#"{"word": "hello"}"#).ok().unwrap();
//! let (end, steps) = testing::drive(&*plugin, testing::request(), 10, |step| match step {
//!     Step::Connect(_) => Answer::Connected(Ok(1)),
//!     _ => Answer::Received(Ok(b"hello, world".to_vec())),
//! });
//! assert_eq!(end, testing::End::Done(Outcome::Custom(r#"{"found": true}"#.to_owned())));
//! assert_eq!(steps.len(), 3);
//! assert!(testing::plugin::<WordProbe>(r#"{"word": ""}"#).is_err());
//! # }
//! ```

/// Includes the README, so that its example is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[doc(hidden)]
pub mod bindings;
pub mod bootstrap;
pub mod events;
pub mod log;
pub mod matcher;
pub mod plugin;
pub mod probe;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use plugin::{ConfigError, Description, NoConfig, Plugin};
