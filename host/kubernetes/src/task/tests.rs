//! Compares tasks with recorded messages of upstream, in the fields that determine how a container runs.

use serde_json::{Value, json};

use super::*;
use crate::testing::{config_with, placement, secrets};

mod bare;
mod sql;

/// The task's message as JSON.
fn info(config: &Arc<Config>, kind: Kind, number: u32, host_ports: &[u16]) -> Value {
    let launch = launch(config, kind, number);
    serde_json::to_value(launch.build(&placement("t-1", host_ports)).unwrap()).unwrap()
}

fn launch(config: &Arc<Config>, kind: Kind, number: u32) -> Launch {
    let settings = config.kinds.of(kind).clone();
    let metadata = Metadata {
        kind,
        number,
        incarnation: 1,
    };
    let endpoints = Endpoints::default();
    let draft = Launch::draft(config, &settings, metadata, &endpoints, "t-1");
    let script = (kind != Kind::Datastore).then(|| Script {
        url: "http://fw.test:10000/bootstrap/d/t".to_owned(),
        draft,
    });
    Launch {
        config: Arc::clone(config),
        settings,
        metadata,
        secrets: secrets(),
        endpoints,
        script,
        member: None,
        preparation: None,
    }
}

fn variables(info: &Value) -> BTreeMap<String, String> {
    let variables = info["command"]["environment"]["variables"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    variables
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

fn parameters(info: &Value) -> Vec<String> {
    let parameters = info["container"]["docker"]["parameters"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    parameters
        .iter()
        .map(|it| format!("{}={}", text(&it["key"]), text(&it["value"])))
        .collect()
}

fn arguments(info: &Value) -> Vec<&str> {
    let arguments = info["command"]["arguments"].as_array().unwrap();
    arguments.iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn sql_datastore_is_as_recorded() {
    let config = config_with(|_| {});
    let info = info(&config, Kind::Datastore, 0, &[31001]);
    assert_eq!(info["name"], "m3s:datastore");
    let expected = json!({
        "type": "DOCKER",
        "volumes": [{
            "mode": "RW", "container_path": "/var/lib/mysql",
            "source": {"type": "DOCKER_VOLUME", "docker_volume": {"driver": "local", "name": "/data/k3s/datastore"}},
        }],
        "hostname": "m3sdatastore.local",
        "docker": {
            "image": "docker.io/mariadb:10.8.3", "network": "BRIDGE", "force_pull_image": true,
            "port_mappings": [{"host_port": 31001, "container_port": 3306, "protocol": "tcp"}],
            "parameters": [{"key": "cap-add", "value": "NET_ADMIN"}, {"key": "memory-swap", "value": "2g"}],
        },
        "network_infos": [{"name": ""}],
    });
    assert_eq!(info["container"], expected);
    let check = &info["health_check"];
    let command = json!({"shell": false, "value": "mysqladmin", "arguments": ["ping", "-h", "localhost"]});
    assert_eq!(check["command"], command);
    assert_eq!(check["delay_seconds"], Value::Null);
    let announced = json!({
        "visibility": "EXTERNAL", "name": "m3s:datastore",
        "ports": {"ports": [{"number": 31001, "name": "datastore", "protocol": "tcp"}]},
    });
    assert_eq!(info["discovery"], announced);
    assert_eq!(
        info["limits"],
        json!({"cpus": {"value": 1.0}, "mem": {"value": 1000.0}})
    );
    let variables = variables(&info);
    for (name, value) in [
        ("SERVICE_NAME", "m3s:datastore"),
        ("MYSQL_ROOT_PASSWORD", "stored"),
        ("MYSQL_DATABASE", "k3s"),
        ("TZ", "Etc/UTC"),
        ("MESOS_TASK_ID", "t-1"),
    ] {
        assert_eq!(variables[name], value, "{name}");
    }
    assert_eq!(info["command"]["shell"], false);
    assert_eq!(info["command"]["uris"], Value::Null);
}

#[test]
fn kvstore_runs_etcd_and_checks_it_after_a_minute() {
    let config = config_with(|config| {
        config.settings.ds_etcd = true;
        config.settings.ds_port = 2379;
    });
    let info = info(&config, Kind::Datastore, 0, &[31001]);
    let command = "\nexec /usr/local/bin/etcd --listen-client-urls http://0.0.0.0:2379 --election-timeout '50000' \
                   --heartbeat-interval '5000'";
    assert_eq!(info["command"]["shell"], true);
    let line = info["command"]["value"].as_str().unwrap();
    assert!(line.ends_with(command), "{line}");
    assert_eq!(info["container"]["volumes"][0]["container_path"], "/default.etcd");
    let variables = variables(&info);
    assert_eq!(
        variables["ETCD_ADVERTISE_CLIENT_URLS"],
        "http://m3sdatastore.local:2379"
    );
    assert_eq!(variables["ALLOW_NONE_AUTHENTICATION"], "yes");
    assert_eq!(info["health_check"]["delay_seconds"], 60.0);
    let line = "etcdctl endpoint health --endpoints=http://127.0.0.1:2379";
    assert_eq!(info["health_check"]["command"]["value"], line);
}

fn tls_secrets(engine: Engine) -> Arc<Secrets> {
    let config = config_with(|config| {
        config.settings.ds_etcd = engine == Engine::Kvstore;
        (config.settings.ds_etcd_tls, config.settings.ds_mysql_tls) = (true, true);
    });
    let record = crate::secrets::DatastoreRecord::complete(None, &config, false).unwrap();
    let secrets = Secrets::new("tok".into(), &record, &config, jiff::Timestamp::now());
    Arc::new(secrets.unwrap())
}

#[test]
fn kvstore_with_tls_has_its_keys_in_no_command_and_its_servers_have_the_certificates() {
    let config = config_with(|config| {
        config.settings.ds_etcd = true;
        config.settings.ds_port = 2379;
    });
    let secrets = tls_secrets(Engine::Kvstore);
    let member = MemberStart {
        start: crate::plan::Start::New,
        others: vec![transom_common::HostPort::new("h1", 2)],
        home: None,
    };
    let task = |kind, member| {
        let launch = Launch {
            secrets: Arc::clone(&secrets),
            member,
            ..launch(&config, kind, 0)
        };
        let info = launch.build(&placement("t-1", &[31001, 31002])).unwrap();
        serde_json::to_value(info).unwrap()
    };
    let (single, clustered) = (task(Kind::Datastore, None), task(Kind::Datastore, Some(member)));
    for info in [&single, &clustered] {
        let variables = variables(info);
        for (name, value) in [
            ("ETCD_CLIENT_CERT_AUTH", "true"),
            ("ETCD_TRUSTED_CA_FILE", "/default.etcd/transom-tls-ca.pem"),
            ("ETCD_KEY_FILE", "/default.etcd/transom-tls-member-key.pem"),
            ("ETCDCTL_CERT", "/default.etcd/transom-tls-client.pem"),
        ] {
            assert_eq!(variables[name], value, "{name}");
        }
        assert!(variables["ETCD_ADVERTISE_CLIENT_URLS"].starts_with("https://"));
        let command = info["command"]["value"].as_str().unwrap();
        assert!(
            command.starts_with("tls='/default.etcd/transom-tls-'\n"),
            "{command}"
        );
        assert!(!command.contains(&variables["TRANSOM_TLS_MEMBER_KEY"]));
        let check = info["health_check"]["command"]["value"].as_str().unwrap();
        assert_eq!(
            check,
            "etcdctl endpoint health --endpoints=https://127.0.0.1:2379"
        );
    }
    let peers = variables(&clustered);
    assert_eq!(peers["ETCD_PEER_CLIENT_CERT_AUTH"], "true");
    assert_eq!(
        (&*peers["KVSTORE_SELF"], &*peers["KVSTORE_OTHERS"]),
        ("https://127.0.0.1:2379", "https://h1:2")
    );
    assert!(peers["ETCD_LISTEN_PEER_URLS"].starts_with("https://"));

    let server = task(Kind::Server, None);
    let found = variables(&server);
    assert_eq!(found["K3S_DATASTORE_ENDPOINT"], "https://m3sdatastore.local:2379");
    assert_eq!(
        found["K3S_DATASTORE_CAFILE"],
        "/var/lib/rancher/k3s/transom-tls/ca.pem"
    );
    assert_eq!(server["command"]["value"], "/bin/sh");
    let arguments = arguments(&server);
    assert!(arguments[1].ends_with("exec \"$@\""), "{arguments:?}");
    assert_eq!(arguments[2..4], ["sh", "/mnt/mesos/sandbox/bootstrap"]);
    let key = &found["TRANSOM_TLS_CLIENT_KEY"];
    assert!(arguments.iter().all(|argument| !argument.contains(key.as_str())));
    let agent = variables(&task(Kind::Agent, None));
    assert!(
        !agent.keys().any(|name| name.starts_with("TRANSOM_TLS")),
        "{agent:?}"
    );
}

/// The process of a datastore, which ends with its handle.
struct Member(std::process::Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn real_member_accepts_only_clients_with_a_certificate() {
    use crate::kvstore::{EtcdGateway, Kvstore};

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = config_with(|config| {
        config.settings.ds_etcd = true;
        config.settings.volume_ds = data.display().to_string();
        config.settings.containers = false;
    });
    let ports = [0, 0].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    let ports = ports.map(|listener| listener.local_addr().unwrap().port());
    let secrets = tls_secrets(Engine::Kvstore);
    let launch = Launch {
        secrets: Arc::clone(&secrets),
        member: Some(MemberStart {
            start: crate::plan::Start::New,
            others: Vec::new(),
            home: None,
        }),
        ..launch(&config, Kind::Datastore, 0)
    };
    let mut placement = placement("t-1", &ports);
    placement.agent.hostname = "127.0.0.1".to_owned();
    let info = serde_json::to_value(launch.build(&placement).unwrap()).unwrap();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let child = std::process::Command::new("sh")
        .args(["-c", info["command"]["value"].as_str().unwrap()])
        .envs(variables(&info))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    let _member = Member(child.unwrap());

    let address = transom_common::HostPort::new("127.0.0.1", ports[0]);
    let plain = EtcdGateway::new().unwrap();
    let client = plain.with_tls(secrets.tls.as_ref().unwrap()).unwrap();
    transom_testkit::eventually("the member to lead", || async {
        let status = client
            .status(&address)
            .await
            .map_err(|error| transom_common::error_chain(&error))?;
        if status.has_leader {
            Ok(())
        } else {
            Err("no leader".to_owned())
        }
    })
    .await;
    let foreign = plain
        .with_tls(tls_secrets(Engine::Kvstore).tls.as_ref().unwrap())
        .unwrap();
    assert!(plain.status(&address).await.is_err(), "without TLS");
    assert!(
        foreign.status(&address).await.is_err(),
        "with the certificate of another authority"
    );
    let anonymous = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let url = format!("https://{address}/v3/kv/range");
    assert!(
        anonymous.post(url).body("{}").send().await.is_err(),
        "without a certificate"
    );
    for entry in std::fs::read_dir(data.join("transom-tls")).unwrap() {
        use std::os::unix::fs::PermissionsExt;
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}

#[test]
fn health_check_does_not_end_a_member_of_a_clustered_kvstore() {
    let config = config_with(|config| config.settings.ds_etcd = true);
    let member = MemberStart {
        start: crate::plan::Start::Join,
        others: Vec::new(),
        home: None,
    };
    for (member, expected) in [(None, Value::Null), (Some(member), json!(u32::MAX))] {
        let launch = Launch {
            member,
            ..launch(&config, Kind::Datastore, 0)
        };
        let info = launch.build(&placement("t-1", &[31001, 31002])).unwrap();
        let info = serde_json::to_value(info).unwrap();
        assert_eq!(info["health_check"]["consecutive_failures"], expected);
    }
}

#[test]
fn server_runs_the_script_with_its_command_and_the_values_of_the_offer() {
    let config = config_with(|_| {});
    let info = info(&config, Kind::Server, 0, &[31000, 31003]);
    let command = &info["command"];
    assert_eq!(command["value"], "/mnt/mesos/sandbox/bootstrap");
    let expected = [
        "/usr/local/bin/k3s",
        "server",
        "--flannel-backend=vxlan",
        "--tls-san=m3sserver",
        "--node-label",
        "m3s.aventer.biz/taskid=t-1",
        "--node-taint",
        "node-role.kubernetes.io/master=NoSchedule:NoSchedule",
        "--tls-san=agent1.test",
    ];
    assert_eq!(arguments(&info), expected);
    let script = json!([{
        "value": "http://fw.test:10000/bootstrap/d/t", "executable": true, "extract": false, "cache": false,
        "output_file": "bootstrap",
    }]);
    assert_eq!(command["uris"], script);
    let docker = &info["container"]["docker"];
    assert_eq!(docker["privileged"], true);
    let mappings = json!([
        {"host_port": 31000, "container_port": 6443, "protocol": "tcp"},
        {"host_port": 31003, "container_port": 8080, "protocol": "tcp"},
    ]);
    assert_eq!(docker["port_mappings"], mappings);
    let expected = [
        "cap-add=NET_ADMIN",
        "cap-add=SYS_ADMIN",
        "shm-size=30gb",
        "memory-swap=2g",
        "ulimit=nofile=1048576",
    ];
    assert_eq!(parameters(&info), expected);
    let variables = variables(&info);
    for (name, value) in [
        ("K3SFRAMEWORK_TYPE", "server"),
        ("K3S_URL", "https://m3sserver.local:6443"),
        ("K3S_TOKEN", "tok"),
        ("KUBERNETES_VERSION", "v1.31.5"),
        ("KUBECONFIG", "/etc/rancher/k3s/k3s.yaml"),
        ("K3SFRAMEWORK_CPU_MILLIS", "100"),
        ("K3SFRAMEWORK_MEM_MIB", "1200"),
        (
            "K3S_DATASTORE_ENDPOINT",
            "mysql://root:stored@tcp(m3sdatastore.local:3306)/k3s",
        ),
    ] {
        assert_eq!(variables[name], value, "{name}");
    }
}

#[test]
fn agent_has_its_own_host_name_and_its_task_as_a_label() {
    let config = config_with(|config| {
        config.settings.orch_agent_tcp_port = 9000;
        config.kinds.agent.labels = vec![("traefik.enable".to_owned(), "true".to_owned())];
    });
    let info = info(&config, Kind::Agent, 2, &[31004, 31005, 31006]);
    assert_eq!(info["container"]["hostname"], "m3sagent-2.local");
    let arguments = arguments(&info);
    let expected = [
        "/usr/local/bin/k3s",
        "agent",
        "--snapshotter=native",
        "--with-node-id",
        "t-1",
        "--node-label",
        "m3s.aventer.biz/taskid=t-1",
        "--kubelet-arg",
        "node-labels",
        "m3s.aventer.biz/taskid=t-1",
    ];
    assert_eq!(arguments, expected);
    let ports = info["discovery"]["ports"]["ports"].as_array().unwrap();
    let announced: Vec<_> = ports
        .iter()
        .map(|port| (&port["name"], &port["protocol"]))
        .collect();
    let (names, protocols) = (
        json!(["m3s-http", "m3s-https", "m3s-tcp"]),
        json!(["http", "https", "tcp"]),
    );
    for (at, found) in announced.into_iter().enumerate() {
        assert_eq!(found, (&names[at], &protocols[at]));
    }
    assert_eq!(
        info["labels"]["labels"],
        json!([{"key": "traefik.enable", "value": "true"}])
    );
    assert!(!variables(&info).contains_key("K3S_DATASTORE_ENDPOINT"));
}

#[test]
fn settings_of_the_containers_reach_docker() {
    let config = config_with(|config| {
        config.settings.container_cni = "mini".to_owned();
        config.settings.domain = "mini".to_owned();
        config.settings.cgroup_v2 = true;
        config.settings.restrict_disk_allocation = true;
        config.settings.container_runtime = Some("runcvm".to_owned());
        config.settings.enforce_task_limits = false;
        config.settings.orch_container = true;
        config.settings.enable_registry_mirror = true;
        config.settings.orch_enable_taint = false;
        config.settings.orch_node_env = vec!["A=b=c".to_owned()];
        config.kinds.server.docker_parameters = vec![("tmpfs".to_owned(), "/run:exec".to_owned())];
    });
    let server = info(&config, Kind::Server, 1, &[31001, 31002]);
    assert_eq!(server["container"]["hostname"], "m3sserver-1.mini");
    assert_eq!(server["container"]["docker"]["network"], "USER");
    assert_eq!(server["container"]["network_infos"], json!([{"name": "mini"}]));
    let expected = [
        "cap-add=NET_ADMIN",
        "cap-add=SYS_ADMIN",
        "shm-size=30gb",
        "memory-swap=2g",
        "ulimit=nofile=1048576",
        "tmpfs=/run:exec",
        "storage-opt=size=1000mb",
        "runtime=runcvm",
        "network-alias=m3sserver",
        "network-alias=m3sserver.mini",
        "network-alias=m3sserver-1",
        "network-alias=m3sserver-1.mini",
        "cgroupns=private",
    ];
    assert_eq!(parameters(&server), expected);
    assert_eq!(server["limits"], Value::Null);
    assert_eq!(variables(&server)["A"], "b=c");
    let arguments = arguments(&server);
    for word in [
        "--container-runtime-endpoint",
        "unix:///var/run/cri-dockerd.sock",
        "--embedded-registry",
    ] {
        assert!(arguments.contains(&word), "{word}");
    }
    assert!(!arguments.contains(&"--node-taint"));
    let datastore = info(&config, Kind::Datastore, 0, &[31001]);
    let aliases = |info: &Value| -> Vec<String> {
        let all = parameters(info).into_iter();
        all.filter_map(|it| Some(it.strip_prefix("network-alias=")?.to_owned()))
            .collect()
    };
    let expected = ["datastore", "datastore.mini", "m3sdatastore", "m3sdatastore.mini"];
    assert_eq!(aliases(&datastore), expected);
    // The name that the agents have been given belongs to every server, whatever its number.
    let agent = info(&config, Kind::Agent, 2, &[31001, 31002]);
    let url = variables(&agent)["K3S_URL"].clone();
    let host = url.trim_start_matches("https://").trim_end_matches(":6443");
    for number in [0, 1, 2] {
        let server = info(&config, Kind::Server, number, &[31001, 31002]);
        assert!(aliases(&server).iter().any(|alias| alias == host), "{number}");
    }

    let config = config_with(|config| config.settings.cluster_cni = Some("weave".to_owned()));
    let datastore = info(&config, Kind::Datastore, 0, &[31001]);
    assert_eq!(datastore["container"]["docker"]["network"], "BRIDGE");
    assert_eq!(
        datastore["container"]["network_infos"],
        json!([{"name": "weave"}])
    );
}

#[test]
fn only_the_first_server_requests_the_first_port_unless_one_is_configured() {
    use transom_scheduler::PortRequest::{Fixed, Range};
    for (port, kind, number, expected) in [
        (0, Kind::Datastore, 0, vec![Range(31001, 32000)]),
        (0, Kind::Server, 0, vec![Range(31000, 32000); 2]),
        (0, Kind::Server, 1, vec![Range(31001, 32000); 2]),
        (0, Kind::Agent, 0, vec![Range(31001, 32000); 2]),
        (6500, Kind::Server, 0, vec![Fixed(6500), Range(31000, 32000)]),
        (6500, Kind::Server, 1, vec![Fixed(6500), Range(31001, 32000)]),
        (6500, Kind::Agent, 0, vec![Range(31001, 32000); 2]),
    ] {
        let config = config_with(|config| config.settings.orch_server_port = port);
        let requests = ports::requests(&config, kind, number, false, &[]);
        assert_eq!(requests, expected, "{port} {kind} {number}");
    }
}

#[test]
fn constraint_matches_a_host_name_case_insensitively() {
    let found = constraints(Some("Agent1.test"));
    let expected = Constraint::Field {
        field: "@hostname".to_owned(),
        operator: "LIKE".to_owned(),
        operand: Some("(?i)Agent1\\.test".to_owned()),
    };
    assert_eq!(found, [expected]);
    assert!(constraints(None).is_empty());
}

#[test]
fn without_containers_the_script_is_a_process_with_its_ports_in_variables() {
    let config = config_with(|config| {
        config.settings.containers = false;
        config.settings.ds_command = Some("exec etcd".to_owned());
    });
    let server = info(&config, Kind::Server, 0, &[31000, 31001]);
    assert_eq!(server["container"], Value::Null);
    assert_eq!(server["command"]["value"], "./bootstrap");
    assert_eq!(server["limits"], Value::Null, "equal to the resources");
    let larger = config_with(|config| {
        config.settings.containers = false;
        config.kinds.server.mem_limit = Some(4000.0);
    });
    let limits = &info(&larger, Kind::Server, 0, &[31000, 31001])["limits"];
    assert_eq!(*limits, json!({"mem": {"value": 4000.0}}));
    let arguments = arguments(&server);
    assert_eq!(arguments[0], "./bootstrap", "the name of the program");
    assert!(arguments.contains(&"--https-listen-port=31000"), "{arguments:?}");
    assert!(
        arguments.contains(&"--data-dir=/data/k3s/server"),
        "{arguments:?}"
    );
    assert_eq!(variables(&server)["PORT1"], "31001");
    let datastore = info(&config, Kind::Datastore, 0, &[31002]);
    assert_eq!(datastore["command"]["value"], "exec etcd");
    assert_eq!(variables(&datastore)["PORT0"], "31002");
    assert_eq!(datastore["health_check"], Value::Null);
}

#[test]
fn several_servers_run_on_different_agents_unless_they_are_pinned() {
    let constraints = |wanted: u32, host: Option<&str>| {
        let config = config_with(|config| {
            config.kinds.server.constraint = host.map(str::to_owned);
        });
        let settings = config.kinds.server.clone();
        let launch = Launch {
            config: Arc::clone(&config),
            settings,
            metadata: Metadata {
                kind: Kind::Server,
                number: 1,
                incarnation: 1,
            },
            secrets: secrets(),
            endpoints: Endpoints::default(),
            script: None,
            member: None,
            preparation: None,
        };
        let spec = launch.run_spec("v".to_owned(), wanted);
        let operators = spec.constraints.into_iter().map(|constraint| match constraint {
            Constraint::Field { operator, .. } => operator,
            other @ Constraint::Expression(_) => panic!("{other:?}"),
        });
        operators.collect::<Vec<_>>()
    };
    assert_eq!(constraints(2, None), ["GROUP_BY"]);
    assert_eq!(constraints(2, Some("agent1.test")), ["LIKE"]);
    assert!(constraints(1, None).is_empty());
}
