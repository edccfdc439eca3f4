//! The names of objects in requests to Kubernetes.

/// Whether an object can have this name. Other texts would change the meaning of a path: with an empty
/// name, `DELETE` would be a request to remove all nodes.
pub(super) fn is_object_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.bytes().next().is_some_and(plain)
        && name
            .bytes()
            .all(|byte| plain(byte) || matches!(byte, b'.' | b'-'))
}
