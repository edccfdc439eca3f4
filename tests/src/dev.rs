//! `transom dev`, as `cargo xtask dev` starts it after its build.

use std::path::Path;

use transom_testkit::free_ports;

use crate::process::{Transom, components};

/// Starts it in `dir`, with free ports and further arguments.
pub fn start(dir: &Path, more: &[&str]) -> Transom {
    let (components, first) = (components(), free_ports(300));
    let (components, ports) = (components.to_string_lossy(), format!("{first}-{}", first + 299));
    let mut arguments = vec!["dev", "--components", &components, "--ports", &ports];
    for port in [
        "apps=0",
        "dns=0",
        "discovery=0",
        "workflow=0",
        "admin=0",
        "cluster=0",
    ] {
        arguments.extend(["--port", port]);
    }
    arguments.extend(more);
    Transom::start(dir, arguments)
}

/// The address of a service in the greeting of `transom dev`, without the suffix `path`. The
/// greeting is read forwards: a test must request the services in the order in which they are
/// printed.
pub fn address(dev: &mut Transom, name: &str, path: &str) -> String {
    dev.wait_for_line(name, |line| {
        let address = line.trim().strip_prefix(name)?.trim().strip_suffix(path)?;
        Some(address.to_owned())
    })
}
