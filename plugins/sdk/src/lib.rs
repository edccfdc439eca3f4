//! SDK
#![deny(unsafe_code)]
#[doc(hidden)]
pub mod bindings;
pub mod log;
pub mod plugin;
pub mod probe;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use plugin::{ConfigError, Description, NoConfig, Plugin};
