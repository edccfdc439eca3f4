//! Checks that the smallest plugin is as small as the documentation states.

#[test]
fn the_smallest_plugin_is_under_twenty_lines() {
    let lines = include_str!("../src/lib.rs").lines().count();
    assert!(lines < 20, "{lines} lines");
}
