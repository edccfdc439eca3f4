//! Takes the place of the orchestrator's program in a container image.
//!
//! `server` creates a certificate authority, starts kube-apiserver, kube-controller-manager and
//! kube-scheduler with the given datastore, and writes the client configuration. Like `agent` it
//! registers a node and renews its lease; no node runs a pod. With `--nodes-only` it serves an API
//! that contains only nodes, for tests that need no control plane.
//!
//! Arguments and variables are those that the framework passes to k3s. The control plane's programs
//! are in the folder `TRANSOM_KUBERNETES`. They end with this process, even if it is killed.
//! Several servers need a shared folder, `TRANSOM_ORCHESTRATOR_SHARED`.

mod api;
mod certificates;
mod control_plane;
mod node;
mod nodes_api;
mod shared;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Api;
use crate::control_plane::ControlPlane;
use crate::node::Node;
use crate::nodes_api::NodesApi;
use crate::shared::SharedFolder;

/// The arguments that the framework passes to k3s; some of them are ignored.
#[derive(Debug, Parser)]
struct Arguments {
    /// `server` or `agent`.
    role: String,
    /// Names and addresses in the server's certificate.
    #[arg(long)]
    tls_san: Vec<String>,
    #[arg(long, default_value_t = 6443)]
    https_listen_port: u16,
    /// Address on which the API listens. Default: the last address in `--tls-san`.
    #[arg(long)]
    bind_address: Option<IpAddr>,
    /// Serves an API that contains only nodes, without a control plane.
    #[arg(long)]
    nodes_only: bool,
    #[arg(long, default_value = "data")]
    data_dir: PathBuf,
    /// `NAME=VALUE`
    #[arg(long)]
    node_label: Vec<String>,
    /// Suffix of the node's name.
    #[arg(long)]
    with_node_id: Option<String>,
    /// Options that k3s passes to its kubelet. Ignored.
    #[arg(long, num_args = 1..=3)]
    kubelet_arg: Vec<String>,
    #[arg(long)]
    node_taint: Vec<String>,
    /// Components of k3s to disable. Ignored, because there are none.
    #[arg(long)]
    disable: Vec<String>,
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("the variable {name} is not set"))
}

/// A current-thread runtime: the programs are killed when the thread that started them ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let outcome = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => run(arguments).await,
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orchestrator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut ended = signal(SignalKind::terminate())?;
    let token = variable("K3S_TOKEN")?;
    match arguments.role.as_str() {
        "server" if arguments.nodes_only => {
            let api = NodesApi::bind(&arguments, &token).await?;
            let url = url(&arguments);
            tokio::select! {
                _ = ended.recv() => Ok(()),
                outcome = serve(&arguments, &url, &token) => outcome,
                outcome = api.serve() => outcome,
            }
        }
        "server" => {
            let mut control_plane = ControlPlane::start(&arguments, &token)?;
            let url = url(&arguments);
            let outcome = tokio::select! {
                _ = ended.recv() => Ok(()),
                outcome = serve(&arguments, &url, &token) => outcome,
                outcome = control_plane.ended() => outcome,
            };
            control_plane.stop().await;
            outcome
        }
        "agent" => {
            let mut api = Api::new(&variable("K3S_URL")?, &token)?;
            let id = arguments.with_node_id.as_deref();
            let mut node = Node::new(
                "agent",
                id.context("--with-node-id is missing")?,
                &arguments.node_label,
            );
            tokio::select! {
                _ = ended.recv() => Ok(()),
                () = node.keep(&mut api) => Ok(()),
            }
        }
        role => bail!("unknown role {role}; expected server or agent"),
    }
}

/// The part of `server` after its programs have been started.
async fn serve(arguments: &Arguments, url: &str, token: &str) -> anyhow::Result<()> {
    let mut api = Api::new(url, token)?;
    api.ready().await;
    let id = variable("MESOS_TASK_ID")?;
    SharedFolder::of(arguments)?.announce(&id, url)?;
    control_plane::write_client_config(arguments)?;
    println!("the API answers at {url}");
    let mut node = Node::new("server", &id, &arguments.node_label);
    node.keep(&mut api).await;
    Ok(())
}

/// The URL of the API for programs in the server's container.
fn url(arguments: &Arguments) -> String {
    let mut address = address(arguments);
    if address.is_unspecified() {
        address = Ipv4Addr::LOCALHOST.into();
    }
    format!("https://{address}:{}", arguments.https_listen_port)
}

/// The address on which the API listens: the option, else the last address in the certificate's
/// names, else loopback.
fn address(arguments: &Arguments) -> IpAddr {
    if let Some(address) = arguments.bind_address {
        return address;
    }
    let mut addresses = arguments.tls_san.iter().rev().flat_map(|name| name.parse());
    addresses.next().unwrap_or(IpAddr::from([127, 0, 0, 1]))
}
