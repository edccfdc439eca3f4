//! What the documentation says of the smallest plugin.

#[test]
fn the_smallest_plugin_is_under_twenty_lines() {
    let lines = include_str!("../src/lib.rs").lines().count();
    assert!(lines < 20, "{lines} lines");
}
