//! DNS: whether discovery answers for its zone, and whether the resolver of this machine finds the
//! zone, as it does when the site's name servers delegate it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use transom_config::{Discovery, Settings};

use super::Finding;

const CHECK: &str = "dns";
/// Timeout of a query to the daemon's own DNS port.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the system's resolver, which may try several servers.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(6);

pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let Some(discovery) = settings.discovery.as_ref().filter(|section| section.dns_on) else {
        return vec![Finding::skipped(
            CHECK,
            "discovery or its DNS listener is disabled",
        )];
    };
    let domain = discovery.domain.trim_end_matches('.');
    let (own_port, delegation) = tokio::join!(check_own_port(discovery, domain), check_delegation(domain));
    vec![own_port, delegation]
}

/// Queries the configured port for the zone's SOA record.
async fn check_own_port(discovery: &Discovery, domain: &str) -> Finding {
    let ip = match discovery.listener {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let server = SocketAddr::new(ip, discovery.port);
    match timeout(TIMEOUT, query_soa(server, domain)).await {
        Ok(Ok(answer)) => match (answer.metadata.response_code, answer.answers.len()) {
            (ResponseCode::NoError, 1..) => {
                Finding::ok(CHECK, format!("{server} answers for the zone {domain}"))
            }
            (ResponseCode::ServFail, _) => Finding::error(
                CHECK,
                format!("{server} has no records yet (SERVFAIL)"),
                "Discovery needs one response from a master: see the check `master`.",
            ),
            (code, _) => Finding::error(
                CHECK,
                format!("{server} does not answer for the zone {domain}: {code}"),
                "Another name server uses this port, or the daemon runs with another `discovery.domain`.",
            ),
        },
        // No daemon is running. The check of ports reports a port that another program uses.
        Ok(Err(error)) => Finding::skipped(CHECK, format!("no daemon answers at {server} ({error})")),
        Err(_) => Finding::skipped(CHECK, format!("no daemon answers at {server} within {TIMEOUT:?}")),
    }
}

async fn query_soa(server: SocketAddr, domain: &str) -> anyhow::Result<Message> {
    let mut query = Message::new(1, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(
        Name::from_str(&format!("{domain}."))?,
        RecordType::SOA,
    ));
    let unspecified: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0)).await?;
    // On a connected UDP socket, a closed port is an error of `recv`.
    socket.connect(server).await?;
    socket.send(&query.to_bytes()?).await?;
    let mut packet = [0; 4096];
    let length = socket.recv(&mut packet).await?;
    Ok(Message::from_bytes(&packet[..length])?)
}

/// Whether the system's resolver finds the leading master's name, which the zone always contains.
async fn check_delegation(domain: &str) -> Finding {
    let name = format!("leader.{domain}");
    // The trailing dot keeps the resolver from trying search domains.
    let result = timeout(RESOLVER_TIMEOUT, tokio::net::lookup_host((format!("{name}."), 0))).await;
    let address = match result {
        Ok(Ok(mut addresses)) => addresses.next(),
        Ok(Err(_)) => None,
        Err(_) => {
            return Finding::warning(
                "delegation",
                format!("the resolver of this machine did not answer for {name} within {RESOLVER_TIMEOUT:?}"),
                "Check the servers in /etc/resolv.conf.",
            );
        }
    };
    match address {
        Some(address) => Finding::ok(
            "delegation",
            format!("the resolver of this machine finds {name} ({})", address.ip()),
        ),
        None => Finding::warning(
            "delegation",
            format!("the resolver of this machine does not find {name}"),
            format!(
                "Delegate the zone {domain} to the daemon in the site's name servers, or forward it to them; \
                 docs/discovery.md shows how. Clients that query the daemon directly do not need that."
            ),
        ),
    }
}
