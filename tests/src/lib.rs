//! The common part of the end-to-end tests: the real binary as a child process, its HTTP and DNS
//! clients, and functions that wait.
//!
//! Nothing here depends on a crate's internals: programs are started, used over the network, and
//! killed. Every wait is for a condition and has a deadline; every child process is killed when its
//! handle is dropped.
// Helpers of tests may panic. Their fields need no documentation, because the names describe them.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used
)]

pub mod airflow;
pub mod authors;
pub mod booted_root;
pub mod breaking_proxy;
pub mod collector;
pub mod debian;
pub mod dev;
pub mod dns;
pub mod events;
pub mod gate;
pub mod kubernetes;
pub mod load;
pub mod lossy_proxy;
pub mod master;
pub mod metrics;
pub mod plugin;
pub mod process;
pub mod program;
pub mod prometheus;
pub mod readme;
pub mod registry;
pub mod site;
pub mod upgrade;

use std::path::PathBuf;
use std::process::Command;

/// The examples on the page for plugin authors compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/plugins/authors.md")]
pub struct PluginsPage;

/// A file or folder that `cargo xtask test` installs for the tests, next to the build: such as
/// `python/marathon/bin/python`.
pub fn installed(path: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("the test's own path");
    executable
        .ancestors()
        .map(|dir| dir.join(path))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no {path} found: `cargo xtask test` installs everything that tests need"))
}

/// Gives a program such as curl or cargo the proxies of this machine, for what it downloads, and none
/// for loopback. `cargo xtask test` passes them in one variable, as `NAME=VALUE` lines, because it
/// sets a proxy that does not answer for all other programs.
pub fn set_proxies(command: &mut Command) -> &mut Command {
    let mut direct = "127.0.0.1,localhost".to_owned();
    if let Ok(lines) = std::env::var("TRANSOM_DOWNLOAD_PROXIES") {
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env_remove(name);
        }
        for (name, value) in lines.lines().filter_map(|line| line.split_once('=')) {
            command.env(name, value);
            if name.eq_ignore_ascii_case("no_proxy") {
                direct = format!("{direct},{value}");
            }
        }
    }
    command.env("no_proxy", &direct).env("NO_PROXY", direct)
}

/// An HTTP client for loopback.
pub fn http() -> reqwest::Client {
    http_builder().build().expect("a client")
}

/// An HTTP client without proxy and TLS, to be configured further.
pub fn http_builder() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}
