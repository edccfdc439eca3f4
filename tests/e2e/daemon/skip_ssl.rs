//! `SKIP_SSL` against a master with a certificate that no authority signed.

use std::fs;
use std::path::Path;

use transom_testkit::wait_for;
use transom_tests::process::Transom;
use transom_tests::site::copy_components;

use crate::kubernetes::cli::stand_in::{Response, Server};

/// A daemon with these variables and a configuration file without settings of the master.
fn start(dir: &Path, variables: &[(&str, &str)]) -> Transom {
    copy_components(&dir.join("plugins"));
    let text = format!(
        "[store]\nserver = \"file:{}\"\n[plugins]\ndir = \"plugins\"\n[apps]\nport = 0\n[admin]\nport = 0\n",
        dir.join("store").display()
    );
    fs::write(dir.join("transom.toml"), text).expect("written");
    Transom::start_with(dir, ["serve", "--config", "transom.toml"], variables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_masters_are_verified_unless_only_the_environment_enables_tls() {
    for (skip_ssl, expected) in [(None, false), (Some("true"), false), (Some("false"), true)] {
        let master = Server::start_with_tls(|_| Response::of(503, "no leader"));
        let address = master.address.to_string();
        let dir = tempfile::tempdir().expect("a directory");
        let mut variables = vec![("CLUSTER_MASTER", address.as_str()), ("CLUSTER_SSL", "true")];
        variables.extend(skip_ssl.map(|value| ("SKIP_SSL", value)));
        let daemon = start(dir.path(), &variables);
        if expected {
            wait_for("the certificate to be rejected", async || {
                daemon.output().contains("invalid peer certificate")
            })
            .await;
            assert!(master.calls().is_empty(), "{skip_ssl:?}");
        } else {
            wait_for("a request to the master", async || !master.calls().is_empty()).await;
        }
        let warned = daemon
            .output()
            .contains("certificates of the masters are not verified");
        assert_eq!(warned, !expected, "{skip_ssl:?}: {}", daemon.output());
        let (status, output) = daemon.interrupt();
        assert!(status.success(), "{output}");
    }
}
