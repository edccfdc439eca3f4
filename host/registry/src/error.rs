//! Errors of the settings, which are found at startup, before anything is fetched or verified.

/// Why keys or registry settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A configured public key is invalid.
    #[error("invalid public key {name}: {message}")]
    PublicKey {
        /// Its name as configured.
        name: String,
        /// The error, and the expected format.
        message: String,
    },
    /// The settings for registries are invalid.
    #[error("invalid registry settings (plugins.oci): {message}")]
    Settings {
        /// The error, as text.
        message: String,
    },
    /// The runtime is shutting down, or a task panicked.
    #[error("the registry client failed during startup")]
    Panicked,
}
