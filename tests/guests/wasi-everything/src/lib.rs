//! A probe that uses interfaces of WASI, as components from other languages do, and reports the
//! results. The check's settings select the interface, see [`Use`].

use std::collections::BTreeMap;

use serde::Deserialize;
use transom_sdk::probe::{Answer, Attempt, Outcome, Probe, Reason, Request, Step, failed};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_probe};

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated"
)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "uses", generate_all });
}

use bindings::wasi::cli::environment::get_environment;
use bindings::wasi::clocks::wall_clock;
use bindings::wasi::random::random::{get_random_bytes, get_random_u64};
use bindings::wasi::sockets::instance_network::instance_network;
use bindings::wasi::sockets::ip_name_lookup::resolve_addresses;
use bindings::wasi::sockets::network::{ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use bindings::wasi::sockets::tcp_create_socket::create_tcp_socket;
use bindings::wasi::sockets::udp_create_socket::create_udp_socket;

/// The interface that an attempt uses.
#[derive(Debug, Deserialize)]
#[serde(tag = "use", rename_all = "kebab-case")]
pub enum Use {
    /// Reports the time of the clock as `{"seconds": N}`.
    Clock,
    /// Reports random numbers as `{"numbers": [N, N]}`.
    Random,
    /// Requests random bytes and reports `{"bytes": N}`.
    Bytes {
        /// Number of bytes.
        count: u64,
    },
    /// Reports the environment, with one member per variable.
    Environment,
    /// Connects to this port of 127.0.0.1 and reports `{"connect": CODE}`.
    Connect {
        /// The port.
        port: u16,
    },
    /// Creates a UDP socket and reports `{"datagrams": CODE}`.
    Datagrams,
    /// Resolves a name and reports `{"lookup": CODE}`.
    Lookup {
        /// The name.
        name: String,
    },
}

/// The plugin.
#[derive(Debug)]
pub struct WasiEverything;

impl Plugin for WasiEverything {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "uses what WASI has",
            config_schema: None,
        }
    }

    fn configure(NoConfig {}: NoConfig) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }
}

impl Probe for WasiEverything {
    type Attempt = SingleStep;

    fn attempt(&self, request: Request) -> SingleStep {
        SingleStep(request.settings)
    }
}

/// An attempt, which is completed in one step.
#[derive(Debug)]
pub struct SingleStep(String);

impl Attempt for SingleStep {
    fn next(&mut self, _: Option<Answer>) -> Step {
        match serde_json::from_str(&self.0) {
            Ok(what) => Step::Done(Outcome::Custom(report(what).to_string())),
            Err(error) => failed(Reason::Invalid, format!("settings: {error}")),
        }
    }
}

fn report(what: Use) -> serde_json::Value {
    match what {
        Use::Clock => serde_json::json!({"seconds": wall_clock::now().seconds}),
        Use::Random => serde_json::json!({"numbers": [get_random_u64(), get_random_u64()]}),
        Use::Bytes { count } => serde_json::json!({"bytes": get_random_bytes(count).len()}),
        Use::Environment => serde_json::json!(get_environment().into_iter().collect::<BTreeMap<_, _>>()),
        Use::Connect { port } => serde_json::json!({"connect": code(connect(port))}),
        Use::Datagrams => {
            serde_json::json!({"datagrams": code(create_udp_socket(IpAddressFamily::Ipv4).map(drop))})
        }
        Use::Lookup { name } => {
            let found = resolve_addresses(&instance_network(), &name).map(drop);
            serde_json::json!({"lookup": code(found)})
        }
    }
}

fn connect(port: u16) -> Result<(), ErrorCode> {
    let peer = IpSocketAddress::Ipv4(Ipv4SocketAddress {
        port,
        address: (127, 0, 0, 1),
    });
    create_tcp_socket(IpAddressFamily::Ipv4)?.start_connect(&instance_network(), peer)
}

/// `ok`, or the error's name as in the interface.
fn code(result: Result<(), ErrorCode>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(ErrorCode::AccessDenied) => "access-denied".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

export_probe!(WasiEverything);
