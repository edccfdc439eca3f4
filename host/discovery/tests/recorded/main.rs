//! Replays questions that were recorded with mesos-dns, with the same cluster states and over real
//! ports, and compares the answers.
//!
//! Lists are compared without regard to order. The SOA record of a negative answer must have the zone
//! as its owner. Only cases of the class `must` are replayed. [`additions`] defines the additions to the
//! recorded answers that are allowed.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod additions;
#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use additions::{AllowedAdditions, Row, members, rows, sorted};
use common::{Followed, Master, MasterScript, query, wait_until};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{RData, Record, RecordType};
use serde_json::{Value, json};
use transom_discovery::{Config, Settings};

async fn started(state: &str, settings: Settings) -> Followed {
    let document = Some(serde_json::from_str(state).unwrap());
    let master = Master::start(MasterScript {
        document,
        rejection: 403,
        ..MasterScript::default()
    })
    .await;
    let masters = vec!["127.0.0.1:15050".to_owned()];
    let discovery = master
        .followed(Config {
            masters,
            ..Settings {
                refresh_seconds: 3600,
                ..settings
            }
            .into()
        })
        .await;
    discovery.ready().await;
    discovery
}

async fn http(discovery: &Followed, case: &Value, additions: &AllowedAdditions) -> Result<(), String> {
    let (request, expect) = (&case["request"], &case["expect"]);
    let (status, head, body) = discovery.http(request).await;
    let kind = expect["headers"]["Content-Type"]
        .as_str()
        .unwrap()
        .to_ascii_lowercase();
    if status != expect["status"] || !head.contains(&format!("content-type: {kind}")) {
        return Err(format!("{head} instead of {expect}"));
    }
    let expected = expect["body"].as_str().unwrap();
    let matches = match expect["compare"].as_str().unwrap() {
        "exact" => body == expected,
        "json-keys" => {
            let keys = |text: &str| {
                serde_json::from_str::<Value>(text)
                    .unwrap()
                    .as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
            };
            keys(&body) == keys(expected)
        }
        // The answer has a random one of several addresses, so the address is not compared.
        "json-varies" => {
            let without_ip = |text: &str| -> BTreeSet<String> {
                let mut rows: Value = serde_json::from_str(text).unwrap();
                for row in rows.as_array_mut().unwrap() {
                    row.as_object_mut().unwrap().remove("ip");
                }
                sorted(&rows)
            };
            without_ip(expected) == without_ip(&body)
        }
        _ => {
            let variants = expect["variants"]
                .as_array()
                .map(|all| all.iter().map(|v| v.as_str().unwrap()).collect());
            variants
                .unwrap_or_else(|| vec![expected])
                .into_iter()
                .any(|variant| additions.matches(&rows(variant), &rows(&body)))
        }
    };
    if matches {
        Ok(())
    } else {
        Err(format!("{body} instead of {expected}"))
    }
}

fn lines(records: &[Record]) -> BTreeSet<Row> {
    let line = |record: &Record| {
        let text = format!(
            "{} {} IN {} {}",
            record.name.to_ascii(),
            record.ttl,
            record.record_type(),
            record.data
        )
        // The library writes a backslash before a dash at the beginning of a label; the recorder
        // does not.
        .replace('\\', "")
        .to_ascii_lowercase();
        Row {
            text,
            service: match &record.data {
                RData::SRV(srv) => Some((record.name.to_ascii(), srv.target.to_ascii(), srv.port.into())),
                _ => None,
            },
        }
    };
    records.iter().map(line).collect()
}

async fn dns(discovery: &Followed, case: &Value, additions: &AllowedAdditions) -> Result<(), String> {
    let (request, expect) = (&case["request"], &case["expect"]);
    let kind: RecordType = request["qtype"].as_str().unwrap().parse().unwrap();
    let answer = discovery
        .udp(&query(request["qname"].as_str().unwrap(), kind))
        .await;
    let code = match answer.metadata.response_code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::NXDomain => "NXDOMAIN",
        _ => "another",
    };
    let md = &answer.metadata;
    let flags = [
        ("AA", md.authoritative),
        ("QR", true),
        ("RA", md.recursion_available),
        ("RD", md.recursion_desired),
        ("TC", md.truncation),
    ];
    let flags: Vec<_> = flags
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(flag, _)| flag)
        .collect();
    let expected = |section: &str| -> BTreeSet<String> {
        members(&expect[section])
            .map(|record| record.as_str().unwrap().to_ascii_lowercase())
            .collect()
    };
    // Removes the allowed additions, and returns whether there were any.
    let found = |records: &[Record], expected: &BTreeSet<String>| -> (BTreeSet<String>, bool) {
        let (more, found): (Vec<_>, Vec<_>) = lines(records)
            .into_iter()
            .partition(|row| !expected.contains(&row.text) && additions.allows(row));
        (found.into_iter().map(|row| row.text).collect(), !more.is_empty())
    };
    let (answers, more) = found(&answer.answers, &expected("answer"));
    let (additional, _) = found(&answer.additionals, &expected("additional"));
    let additional_is_due = if more {
        additional.is_superset(&expected("additional"))
    } else {
        additional == expected("additional")
    };
    let negative = answer.answers.is_empty();
    let soa = answer
        .authorities
        .iter()
        .any(|record| record.record_type() == RecordType::SOA && record.name.to_ascii() == "mesos.");
    let matches = expect["rcode"] == code
        && expect["flags"] == json!(flags)
        && answers == expected("answer")
        && negative == soa
        && (negative || !expect["additional"].is_array() || additional_is_due);
    if matches {
        Ok(())
    } else {
        Err(format!("{answer} instead of {expect}"))
    }
}

async fn replay(suite: &str, state: &str, config: Settings, at_least: usize) {
    let discovery = started(state, config).await;
    // The only host name in these states is resolved in the background.
    if state.contains("\"hostname\": \"localhost\"") {
        wait_until("the lookup of a host name", async || {
            !discovery.a("nopid.mesos.").await.is_empty()
        })
        .await;
    }
    let (suite, additions): (Value, _) = (serde_json::from_str(suite).unwrap(), AllowedAdditions::of(state));
    let cases: Vec<_> = suite["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case["class"] == "must")
        // Every port rejects some paths that the recorded program normalised.
        .filter(|case| {
            let path = case["request"]["path"].as_str().unwrap_or("/");
            transom_web::check_target(&path.parse().unwrap()).is_ok()
        })
        .collect();
    assert!(cases.len() >= at_least, "{} cases", cases.len());
    let mut failed = Vec::new();
    for case in cases {
        let outcome = if case["kind"] == "http" {
            http(&discovery, case, &additions).await
        } else {
            dns(&discovery, case, &additions).await
        };
        if let Err(how) = outcome {
            failed.push(format!("{} {}: {how}", case["id"], case["request"]));
        }
    }
    assert!(
        failed.is_empty(),
        "{} failed: {}",
        failed.len(),
        failed.join("\n")
    );
    discovery.stop().await;
}

#[tokio::test]
async fn http_answers_match_the_recording() {
    let state = include_str!("../fixtures/state-fixture.json");
    replay(
        include_str!("../fixtures/cases-http-fixture.json"),
        state,
        Settings::default(),
        122,
    )
    .await;
}

#[tokio::test]
async fn answers_for_edge_cases_match_the_recording() {
    let state = include_str!("../fixtures/state-edge.json");
    replay(
        include_str!("../fixtures/cases-edge.json"),
        state,
        Settings::default(),
        267,
    )
    .await;
}

#[tokio::test]
async fn answers_with_short_labels_match_the_recording() {
    let state = include_str!("../fixtures/state-edge.json");
    let config = Settings {
        enforce_rfc952: true,
        ..Settings::default()
    };
    replay(
        include_str!("../fixtures/cases-edge-rfc952.json"),
        state,
        config,
        16,
    )
    .await;
}

#[tokio::test]
async fn additional_http_answers_have_their_shapes() {
    let discovery = started(
        include_str!("../fixtures/state-fixture.json"),
        Settings::default(),
    )
    .await;
    let (status, body) = discovery.get("/v1/hosts/nope.mesos?strict=true").await;
    assert_eq!((status, body.as_str()), (404, "404: No Such Name: nope.mesos"));
    assert_eq!(discovery.get("/v1/services/_a._b?x=1&strict=true").await.0, 404);
    assert_eq!(discovery.get("/v1/hosts/leader.mesos?strict=true").await.0, 200);
    assert_eq!(
        discovery.get("/v1/hosts/.*").await,
        (200, "[\n  {\n   \"host\": \"\",\n   \"ip\": \"\"\n  }\n ]".into())
    );
    let (status, body) = discovery.get("/v1/version").await;
    let version: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &version["Service"]), (200, &json!("Transom")));
    let (_, body) = discovery.get("/v1/config").await;
    let config: Value = serde_json::from_str(&body).unwrap();
    let keys = [
        "Masters",
        "Zk",
        "RefreshSeconds",
        "TTL",
        "Port",
        "Domain",
        "Resolvers",
        "Timeout",
        "Email",
        "Mname",
        "Listener",
        "HttpPort",
        "DnsOn",
        "HttpOn",
        "SOARname",
        "SOAMname",
        "SOASerial",
        "IPSources",
        "MesosCredentials",
    ];
    for key in keys {
        assert!(config.get(key).is_some(), "{key} in {config}");
    }
    assert_eq!(config["Port"], discovery.discovery.dns_addr().unwrap().port());
    let head = json!({"method": "HEAD", "path": "/v1/version"});
    let (status, _, body) = discovery.http(&head).await;
    assert_eq!((status, body.as_str()), (200, ""));
    let (status, head, _) = discovery
        .http(&json!({"method": "POST", "path": "/v1/version"}))
        .await;
    assert!(status == 405 && head.contains("\r\nallow: get"), "{head}");
    assert_eq!(
        discovery
            .http(&json!({"path": "/v1/version", "headers": {"Accept": "text/html"}}))
            .await
            .0,
        406
    );
    discovery.stop().await;
}

#[tokio::test]
async fn enumeration_can_be_turned_off() {
    let config = Settings {
        enumeration_on: false,
        ..Settings::default()
    };
    let discovery = started(include_str!("../fixtures/state-fixture.json"), config).await;
    assert_eq!(
        discovery.get("/v1/enumerate").await,
        (404, "404: Page Not Found".into())
    );
    discovery.stop().await;
}
