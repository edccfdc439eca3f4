//! DNS and the lookup API contain the records of running tasks.

use std::collections::BTreeSet;

use anyhow::{Error, ensure};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_tests::dns;

use super::{app, ports};
use crate::site::Site;

const APP: &str = "/discovery";

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let host = format!("discovery.{}.mesos.", site.apps_framework);
    let service = format!("_discovery._tcp.{}.mesos.", site.apps_framework);
    site.post_app(&app(APP, 2, &json!({"portDefinitions": ports(1)})))
        .await?;
    for count in [2, 3, 1] {
        if count != 2 {
            site.change_app(APP, &json!({"instances": count})).await?;
        }
        site.wait_until_running(APP, count).await?;
        wait_for_answers(site, &host, &service).await?;
        site.progress(&format!("A and SRV records match {count} running tasks"));
    }
    verify_lookups(site, &host, &service).await?;
    site.delete_app(APP).await?;
    site.wait("the records of a deleted app to be gone", async || {
        for (name, kind) in [(&host, RecordType::A), (&service, RecordType::SRV)] {
            let answer = ask(site, name, kind).await?;
            let is_nxdomain = answer.code == ResponseCode::NXDomain;
            ensure!(
                is_nxdomain && answer.addresses.is_empty() && answer.services.is_empty(),
                "{kind} {name}: {answer:?}"
            );
        }
        Ok(())
    })
    .await
}

/// The answer over UDP.
async fn ask(site: &Site, name: &str, kind: RecordType) -> anyhow::Result<dns::Answer> {
    dns::ask(site.dns()?, name, kind).await.map_err(Error::msg)
}

/// The expected answers according to the master.
struct Expected {
    /// For each task its possible addresses.
    addresses: Vec<BTreeSet<String>>,
    ports: Vec<u16>,
}

async fn expected(site: &Site) -> anyhow::Result<Expected> {
    let tasks = site.active(APP).await?;
    let agents = site.master.agents(&site.options.role).await?;
    let addresses = tasks.iter().map(|task| {
        let mut addresses = task.addresses.clone();
        // A task's address may be in a separate network; it is then found at its agent's address.
        if let Some(agent) = agents.iter().find(|agent| agent.id == task.agent)
            && let Some((address, _)) = agent.endpoint.rsplit_once(':')
        {
            addresses.insert(address.to_owned());
        }
        addresses
    });
    let mut ports: Vec<u16> = tasks.iter().flat_map(|task| task.ports.clone()).collect();
    ports.sort_unstable();
    Ok(Expected {
        addresses: addresses.collect(),
        ports,
    })
}

/// Waits until A records contain an address of every task and no other, SRV records contain their
/// ports, and each SRV target has an address.
async fn wait_for_answers(site: &Site, host: &str, service: &str) -> anyhow::Result<()> {
    let Expected { addresses, ports } = expected(site).await?;
    let what = format!("A {host} and SRV {service} for the running tasks");
    site.wait(&what, async || {
        let a = ask(site, host, RecordType::A).await?;
        let found: BTreeSet<String> = a.addresses.iter().map(ToString::to_string).collect();
        let all: BTreeSet<String> = addresses.iter().flatten().cloned().collect();
        let each = addresses.iter().all(|task| !task.is_disjoint(&found));
        ensure!(
            each && found.is_subset(&all),
            "A {host}: {a:?}; tasks run at {addresses:?}"
        );
        let srv = ask(site, service, RecordType::SRV).await?;
        let mut answered: Vec<u16> = srv.services.iter().map(|(_, port)| *port).collect();
        answered.sort_unstable();
        ensure!(
            answered == ports,
            "SRV {service}: {srv:?}; tasks have the ports {ports:?}"
        );
        for (target, _) in &srv.services {
            let a = ask(site, target, RecordType::A).await?;
            ensure!(
                !a.addresses.is_empty(),
                "the SRV target {target} has no address: {a:?}"
            );
        }
        Ok(())
    })
    .await
}

/// Verifies that the lookup API agrees with DNS, and DNS over TCP with DNS over UDP.
async fn verify_lookups(site: &Site, host: &str, service: &str) -> anyhow::Result<()> {
    let udp = ask(site, host, RecordType::A).await?;
    let tcp = dns::ask_tcp(site.dns()?, host, RecordType::A).await;
    let tcp = tcp.map_err(Error::msg)?;
    ensure!(udp == tcp, "UDP answers {udp:?} for {host}, TCP {tcp:?}");
    let addresses: BTreeSet<String> = udp.addresses.iter().map(ToString::to_string).collect();
    let hosts = site.get(&site.discovery(&format!("/v1/hosts/{host}"))?).await?;
    ensure!(
        members(&hosts, "ip") == addresses,
        "/v1/hosts answers {hosts} for {host}, DNS {addresses:?}"
    );
    let srv = ask(site, service, RecordType::SRV).await?;
    let ports: BTreeSet<String> = srv.services.iter().map(|(_, port)| port.to_string()).collect();
    let services = site
        .get(&site.discovery(&format!("/v1/services/{service}"))?)
        .await?;
    ensure!(
        members(&services, "port") == ports,
        "/v1/services answers {services} for {service}, DNS {ports:?}"
    );
    Ok(())
}

fn members(document: &Value, name: &str) -> BTreeSet<String> {
    let entries = document.as_array().into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry[name].as_str()?.to_owned()))
        .collect()
}
