//! Answers that do not depend on the records.

use hickory_proto::op::{Edns, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use transom_discovery::{Config, Settings};

use crate::common::{Master, MasterScript, query, with_edns};
use crate::{document, snapshot, started, task};

#[tokio::test]
async fn answers_respect_the_edns_size() {
    let tasks: Vec<_> = (0..40).map(|n| task(n, "TASK_RUNNING")).collect();
    let (_master, discovery) = started(snapshot(1, &tasks), Settings::default()).await;
    let srv = query("_web._tcp.marathon.mesos.", RecordType::SRV);
    let plain = discovery.udp(&srv).await;
    assert!(plain.metadata.truncation && plain.answers.len() < 10 && plain.edns.is_none());
    assert!(plain.to_vec().unwrap().len() <= 512);
    let larger = discovery.udp(&with_edns(srv.clone(), 4096, 0)).await;
    assert!(larger.metadata.truncation && larger.answers.len() > plain.answers.len());
    // A query with EDNS gets an answer with EDNS, truncated or not, with the supported size.
    let small = discovery.udp(&with_edns(srv.clone(), 600, 0)).await;
    assert!(small.metadata.truncation && small.to_vec().unwrap().len() <= 600);
    for answer in [&larger, &small] {
        assert_eq!(answer.edns.as_ref().map(Edns::max_payload), Some(1232));
    }
    assert!(
        larger.to_vec().unwrap().len() <= 1232,
        "an answer over UDP is larger than 1232 bytes"
    );
    // Answers over TCP are complete, and one connection carries several queries.
    let all = discovery
        .tcp(&[srv.clone(), query("web.marathon.mesos.", RecordType::A), srv])
        .await;
    assert_eq!(
        all.iter().map(|answer| answer.answers.len()).collect::<Vec<_>>(),
        [40, 1, 40]
    );
    assert!(all.iter().all(|answer| !answer.metadata.truncation));
    discovery.stop().await;
}

#[tokio::test]
async fn additional_records_that_do_not_fit_are_omitted_without_tc() {
    let tasks: Vec<_> = (0..8).map(|n| task(n, "TASK_RUNNING")).collect();
    let (_master, discovery) = started(snapshot(1, &tasks), Settings::default()).await;
    let answer = discovery
        .udp(&query("_web._tcp.marathon.mesos.", RecordType::SRV))
        .await;
    assert_eq!(answer.answers.len(), 8);
    assert!(answer.additionals.len() < 8, "{answer:?}");
    assert!(!answer.metadata.truncation, "{answer:?}");
    let more = discovery
        .udp(&with_edns(
            query("_web._tcp.marathon.mesos.", RecordType::SRV),
            1232,
            0,
        ))
        .await;
    assert_eq!(more.additionals.len(), 8, "{more:?}");
    assert_eq!(more.edns.unwrap().max_payload(), 1232);
    discovery.stop().await;
}

#[tokio::test]
async fn unsupported_queries_get_the_rcode_of_the_rfc() {
    let (_master, discovery) = started(snapshot(1, &[]), Settings::default()).await;
    let ask = || query("leader.mesos.", RecordType::A);
    let mut notify = ask();
    notify.metadata.op_code = OpCode::Notify;
    let mut update = ask();
    update.metadata.op_code = OpCode::Update;
    let mut status = ask();
    status.metadata.op_code = OpCode::Status;
    let mut chaos = ask();
    chaos.queries[0].set_query_class(DNSClass::CH);
    let mut two = ask();
    two.add_query(two.queries[0].clone());
    let mut none = ask();
    none.queries.clear();
    let cases = [
        (ask(), ResponseCode::NoError),
        (notify, ResponseCode::Refused),
        (update, ResponseCode::Refused),
        (status, ResponseCode::NotImp),
        (chaos, ResponseCode::Refused),
        (two, ResponseCode::FormErr),
        (none, ResponseCode::FormErr),
        (query("example.com.", RecordType::A), ResponseCode::Refused),
        (query("mesos.", RecordType::AXFR), ResponseCode::Refused),
        (with_edns(ask(), 1232, 1), ResponseCode::BADVERS),
    ];
    for (query, code) in cases {
        let answer = discovery.udp(&query).await;
        // BADVERS and BADSIG have the same number, so numbers are compared.
        let (is, expected) = (u16::from(answer.metadata.response_code), u16::from(code));
        assert_eq!(is, expected, "{query:?}");
        assert_eq!(answer.metadata.id, 4660);
        assert_eq!(answer.metadata.authoritative, code == ResponseCode::NoError);
    }
    let metrics = discovery.metrics();
    for line in [
        "transom_discovery_queries_total{qtype=\"A\",rcode=\"NOERROR\"} 1",
        "transom_discovery_queries_total{qtype=\"A\",rcode=\"REFUSED\"} 4",
        "transom_discovery_queries_total{qtype=\"other\",rcode=\"FORMERR\"} 2",
        "transom_discovery_refused_total{reason=\"outside\"} 1",
        "transom_discovery_refused_total{reason=\"transfer\"} 1",
        "transom_discovery_zone_records ",
        "transom_discovery_zone_serial ",
        "transom_discovery_zone_age_seconds ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    discovery.stop().await;
}

#[tokio::test]
async fn start_fails_for_used_ports_and_invalid_settings() {
    let (_master, discovery) = started(snapshot(1, &[]), Settings::default()).await;
    let client = transom_cluster::Client::new(transom_cluster::Config::default()).unwrap();
    let loopback = [127, 0, 0, 1].into();
    let free = Settings {
        listener: loopback,
        http_listener: loopback,
        port: 0,
        http_port: 0,
        ..Settings::default()
    };
    let (dns, http) = (
        discovery.discovery.dns_addr().unwrap(),
        discovery.discovery.http_addr().unwrap(),
    );
    let cases = [
        (
            Settings {
                port: dns.port(),
                ..free.clone()
            },
            "--port dns=N",
        ),
        (
            Settings {
                http_port: http.port(),
                ..free.clone()
            },
            "--port discovery=N",
        ),
        (
            Settings {
                domain: "a..b".into(),
                ..free.clone()
            },
            "domain",
        ),
        (
            Settings {
                domain: "mesos.".into(),
                ..free.clone()
            },
            "domain",
        ),
        (
            Settings {
                dns_on: false,
                http_on: false,
                ..free.clone()
            },
            "both are off",
        ),
        (
            Settings {
                refresh_seconds: 0,
                ..free.clone()
            },
            "refresh_seconds",
        ),
        (
            Settings {
                ip_sources: vec![],
                ..free.clone()
            },
            "ip_sources",
        ),
        (
            Settings {
                soa_mname: "x".repeat(64),
                ..free
            },
            "soa_mname",
        ),
    ];
    for (settings, part) in cases {
        let mut registry = prometheus_client::registry::Registry::default();
        let token = tokio_util::sync::CancellationToken::new();
        let rejected = Config::from(settings)
            .start(client.clone(), &mut registry, token)
            .await
            .unwrap_err();
        assert!(rejected.to_string().contains(part), "{rejected}");
    }
    discovery.stop().await;
}

#[tokio::test]
async fn lookups_fail_before_the_first_zone() {
    let master = Master::start(MasterScript {
        rejection: 503,
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Settings::default()).await;
    assert!(!discovery.discovery.is_ready());
    let answer = discovery.udp(&query("leader.mesos.", RecordType::A)).await;
    assert_eq!(
        (answer.metadata.response_code, answer.metadata.authoritative),
        (ResponseCode::ServFail, false)
    );
    for path in [
        "/v1/hosts/leader.mesos",
        "/v1/services/_x._tcp.y.mesos",
        "/v1/enumerate",
        "/v1/axfr",
    ] {
        assert_eq!(discovery.get(path).await.0, 503, "{path}");
    }
    for path in ["/v1/version", "/v1/config"] {
        assert_eq!(discovery.get(path).await.0, 200, "{path}");
    }
    // The cluster becomes available later.
    master.set(|script| (script.document, script.snapshot) = (Some(document()), Some(snapshot(1, &[]))));
    discovery.ready().await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    discovery.stop().await;
}
