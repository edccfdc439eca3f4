//! The SDK of Transom plugins.
//!
//! A plugin is a WebAssembly component of one of four worlds. This crate gives each world as traits
//! to implement and a macro that makes the crate such a component:
//!
//! | world | traits | macro |
//! |---|---|---|
//! | `check-probe`: look at this task | [`Probe`](probe::Probe), [`Attempt`](probe::Attempt) | [`export_probe!`] |
//! | `attribute-matcher`: which agents may run this task | [`Matcher`](matcher::Matcher), [`AgentSet`](matcher::AgentSet) | [`export_matcher!`] |
//! | `event-filter`: what this subscriber sees | [`Filter`](events::Filter), [`View`](events::View) | [`export_filter!`] |
//! | `bootstrap-handler`: what this container runs first | [`Bootstrap`](bootstrap::Bootstrap) | [`export_bootstrap!`] |
//!
//! Every plugin is a [`Plugin`] as well: it describes itself and is made of its configuration.
//! [`plugin!`] says that for a type without configuration, and [`describe!`] takes the description
//! from `Cargo.toml`. [`log`] writes to its log. Plugins do no input or output of their own; what a
//! probe wants done it asks the host for, step by step. A panic is a trap: the host drops the
//! instance and counts it against the plugin.
//!
//! # Example
//!
//! A probe that looks for a word in what a task answers. `Cargo.toml` has `crate-type = ["cdylib",
//! "rlib"]`: the first for the component, the second so that unit tests run natively with
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
//! struct LooksFor {
//!     word: String,
//! }
//!
//! impl Plugin for LooksFor {
//!     type Config = Config;
//!
//!     fn describe() -> Description {
//!         Description {
//!             name: "looks-for",
//!             version: "1.0.0",
//!             summary: "whether a task greets with the right word",
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
//! impl Probe for LooksFor {
//!     type Attempt = Look;
//!
//!     fn attempt(&self, request: Request) -> Look {
//!         Look { word: self.word.clone(), request }
//!     }
//! }
//!
//! struct Look {
//!     word: String,
//!     request: Request,
//! }
//!
//! impl Attempt for Look {
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
//!                 Step::Failed(Failure::of(&error, "listening to the task"))
//!             }
//!             Some(_) => failed(Reason::Internal, "an answer to something that was not asked"),
//!         }
//!     }
//! }
//!
//! export_probe!(LooksFor);
//!
//! // And its test:
//! # fn main() {
//! let plugin = testing::plugin::<LooksFor>(r#"{"word": "hello"}"#).ok().unwrap();
//! let (end, steps) = testing::drive(&*plugin, testing::request(), 10, |step| match step {
//!     Step::Connect(_) => Answer::Connected(Ok(1)),
//!     _ => Answer::Received(Ok(b"hello, world".to_vec())),
//! });
//! assert_eq!(end, testing::End::Done(Outcome::Custom(r#"{"found": true}"#.to_owned())));
//! assert_eq!(steps.len(), 3);
//! assert!(testing::plugin::<LooksFor>(r#"{"word": ""}"#).is_err());
//! # }
//! ```

/// Its example is tested.
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
