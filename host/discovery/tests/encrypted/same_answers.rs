//! Discovery answers the same over HTTPS as over TCP, with the same access control.

use std::path::Path;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rustls_pki_types::CertificateDer;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use transom_discovery::Settings;

use crate::common::{Followed, Master, MasterScript, WAIT_TIMEOUT, query, with_edns};
use crate::{certify, connect};

pub(crate) async fn discovery(dir: &Path, config: Settings) -> Followed {
    let task = json!({
        "name": "web", "task_id": {"value": "web.1"}, "framework_id": {"value": "F"},
        "agent_id": {"value": "c1d2-S0"}, "state": "TASK_RUNNING",
        "resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31000}]}}],
    });
    let agent = json!({
        "agent_info": {"hostname": "a", "id": {"value": "c1d2-S0"}},
        "pid": "slave(1)@10.0.0.10:5051",
    });
    let framework = json!({"framework_info": {"user": "u", "name": "marathon", "id": {"value": "F"}}});
    let snapshot = json!({
        "get_agents": {"agents": [agent]},
        "get_frameworks": {"frameworks": [framework]},
        "get_tasks": {"tasks": [task]},
    });
    let master = Master::start(MasterScript {
        snapshot: Some(snapshot),
        ..MasterScript::default()
    })
    .await;
    let config = Settings {
        tls_certificate: Some(dir.join("cert.pem")),
        tls_key: Some(dir.join("key.pem")),
        ..config
    };
    let followed = master.followed(config).await;
    followed.ready().await;
    followed
}

/// Status, head and body of a POST over HTTP/1.1.
async fn post(
    followed: &Followed,
    trusted: &CertificateDer<'static>,
    query: &[u8],
) -> (u16, String, Vec<u8>) {
    let addr = followed.discovery.https_addr().unwrap();
    let mut stream = connect(addr, trusted, &[b"http/1.1"]).await.unwrap();
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/dns-message\r\n\r\n",
        query.len()
    );
    stream
        .write_all(&[head.as_bytes(), query].concat())
        .await
        .unwrap();
    let mut response = Vec::new();
    let read = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut response)).await;
    read.unwrap().unwrap();
    let end = response
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), response[end + 4..].to_vec())
}

pub(crate) fn queries() -> Vec<Message> {
    let mut status = query("web.marathon.mesos.", RecordType::A);
    status.metadata.op_code = OpCode::Status;
    let mut two = query("web.marathon.mesos.", RecordType::A);
    two.queries.push(two.queries[0].clone());
    let mut many_records = query("web.marathon.mesos.", RecordType::A);
    let record = Record::from_rdata(Name::root(), 0, RData::A(A([10, 0, 0, 1].into())));
    many_records.additionals = vec![record; 9];
    vec![
        query("web.marathon.mesos.", RecordType::A),
        query("WEB.marathon.MESOS.", RecordType::A),
        query("web.marathon.mesos.", RecordType::AAAA),
        query("_web._tcp.marathon.mesos.", RecordType::SRV),
        query("missing.mesos.", RecordType::A),
        query("mesos.", RecordType::SOA),
        query("mesos.", RecordType::NS),
        query("web.marathon.mesos.", RecordType::ANY),
        query("mesos.", RecordType::AXFR),
        query("example.org.", RecordType::A),
        with_edns(query("web.marathon.mesos.", RecordType::A), 512, 0),
        with_edns(query("web.marathon.mesos.", RecordType::A), 512, 1),
        status,
        two,
        many_records,
    ]
}

#[tokio::test]
async fn answers_over_https_are_those_over_tcp() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let config = Settings {
        https_port: Some(0),
        ..Settings::default()
    };
    let followed = discovery(dir.path(), config).await;
    let queries = queries();
    let over_tcp = followed.tcp(&queries).await;
    for (query, expected) in queries.iter().zip(over_tcp) {
        let (status, head, body) = post(&followed, &trusted, &query.to_vec().unwrap()).await;
        assert_eq!(
            (status, Message::from_vec(&body).unwrap()),
            (200, expected),
            "{query}"
        );
        assert!(head.contains("cache-control: "), "{head}");
    }
    // A malformed message with a header is answered with FORMERR, and anything else with 400.
    let packet = queries[0].to_vec().unwrap();
    let (status, _, body) = post(&followed, &trusted, &packet[..packet.len() - 2]).await;
    let code = Message::from_vec(&body).unwrap().metadata.response_code;
    assert_eq!((status, code), (200, ResponseCode::FormErr));
    let mut response = packet.clone();
    response[2] |= 0x80;
    for not_a_query in [&packet[..11], &[], &response] {
        assert_eq!(
            post(&followed, &trusted, not_a_query).await.0,
            400,
            "{not_a_query:?}"
        );
    }
    followed.stop().await;
}

#[tokio::test]
async fn access_control_and_rate_limiting_apply_over_https() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let config = Settings {
        https_port: Some(0),
        responses_per_second: 1,
        allow_transfer: vec!["127.0.0.0/8".parse().unwrap()],
        allow_recursion: vec!["10.0.0.0/8".parse().unwrap()],
        resolvers: vec!["127.0.0.1:1".into()],
        ..Settings::default()
    };
    let followed = discovery(dir.path(), config).await;
    let post = async |query: Message| post(&followed, &trusted, &query.to_vec().unwrap()).await;
    let (status, head, body) = post(query("example.org.", RecordType::A)).await;
    let code = Message::from_vec(&body).unwrap().metadata.response_code;
    assert_eq!((status, code), (200, ResponseCode::Refused));
    assert!(head.contains("cache-control: no-store"), "{head}");
    // The transfer is allowed, but is a series of messages, which HTTPS cannot carry.
    assert_eq!(post(query("mesos.", RecordType::AXFR)).await.0, 400);
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(post(query("web.marathon.mesos.", RecordType::A)).await.0);
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
    followed.stop().await;
}
