//! Names of plugins.

/// Valid plugin names.
pub const VALID_NAMES: &str =
    "1 to 64 of the characters a to z, A to Z, 0 to 9, `.`, `_` and `-`, starting with a letter or a digit";

/// Whether a text is a valid plugin name. It is the name of the component's file without `.wasm`.
pub fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}
