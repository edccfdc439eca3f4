use super::{
    super::spec::{Mount, Network, SANDBOX_PATH},
    *,
};
use crate::state::{TaskGroup, TaskKey};
use std::{net::SocketAddr, path::PathBuf};

fn launch(info: Value) -> Launch {
    Launch {
        key: TaskKey {
            framework: "F".into(),
            task: "t1".into(),
        },
        agent: "S0".into(),
        agent_addr: SocketAddr::from(([127, 0, 0, 2], 5051)),
        info,
        executor_id: "t1".to_owned(),
        container: "c1".to_owned(),
        directory: PathBuf::from("/sandbox"),
        user: "root".to_owned(),
        volumes: Vec::new(),
        supports_killing_state: true,
        group: None,
        in_executor: false,
        is_executor: false,
        variables: Vec::new(),
    }
}

/// A task for Docker's containerizer.
fn docker(docker: Value, more: Value) -> Value {
    let mut info = json!({
        "command": {"shell": false},
        "container": {"type": "DOCKER", "docker": {"image": "alpine"}},
        "resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31001}]}}],
    });
    merge(&mut info["container"]["docker"], docker);
    merge(&mut info, more);
    info
}

/// A task for the Mesos containerizer.
fn mesos(more: Value) -> Value {
    let image = json!({"type": "DOCKER", "docker": {"name": "alpine"}, "cached": true});
    let mut info = json!({
        "command": {"shell": false},
        "container": {"type": "MESOS", "mesos": {"image": image}},
    });
    merge(&mut info, more);
    info
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn read(info: Value) -> Result<Spec, String> {
    spec(&launch(info), "/w", Some((0, 0)))
}

#[test]
fn tasks_with_an_image_run_as_configured() {
    let with = docker(json!({}), json!({"command": {"shell": true, "value": "true"}}));
    let own = docker(json!({}), json!({}));
    let plain = json!({"command": {"value": "true"}, "container": {"type": "MESOS", "mesos": {}}});
    for images in [Images::Auto, Images::Podman, Images::Docker] {
        assert!(matches!(plan(images, &with), Plan::Container));
        assert!(matches!(plan(images, &mesos(json!({}))), Plan::Container));
    }
    assert!(matches!(plan(Images::None, &with), Plan::Rejected(why) if why.contains("disabled")));
    assert!(
        matches!(plan(Images::Process, &own), Plan::Rejected(why) if why.contains("no command of its own"))
    );
    let Plan::ProcessInstead { info, notice } = plan(Images::Process, &with) else {
        panic!("a process");
    };
    assert_eq!(notice, "The command runs as a process, without its image alpine");
    assert!(!has_image(&info), "{info}");
    for (_, images) in Images::ALL {
        assert!(matches!(plan(images, &plain), Plan::Process), "{images}");
    }
}

#[test]
fn commands_run_as_processes_get_their_name_as_first_argument() {
    let argv = json!({"shell": false, "value": "sleep", "arguments": ["1"]});
    let info = docker(
        json!({}),
        json!({"command": argv, "health_check": {"type": "COMMAND", "command": argv},
               "check": {"type": "COMMAND", "command": {"command": argv}}}),
    );
    let Plan::ProcessInstead { info, .. } = plan(Images::Process, &info) else {
        panic!("a process");
    };
    let expected = json!(["sleep", "1"]);
    for path in [
        "/command/arguments",
        "/health_check/command/arguments",
        "/check/command/command/arguments",
    ] {
        assert_eq!(info.pointer(path), Some(&expected), "{path}");
    }
}

#[test]
fn entry_point_and_arguments_depend_on_the_containerizer() {
    let shell = json!({"shell": true, "value": "echo $A"});
    let argv = json!({"shell": false, "value": "a", "arguments": ["a", "b"]});
    let entry = json!({"shell": false, "arguments": ["b"]});
    let cases = [
        (
            docker(json!({}), json!({"command": shell})),
            Some("/bin/sh"),
            vec!["-c", "echo $A"],
        ),
        (
            mesos(json!({"command": shell})),
            Some("/bin/sh"),
            vec!["-c", "echo $A"],
        ),
        (
            docker(json!({}), json!({"command": argv})),
            None,
            vec!["a", "a", "b"],
        ),
        (mesos(json!({"command": argv})), Some("a"), vec!["b"]),
        (docker(json!({}), json!({"command": entry})), None, vec!["b"]),
        (mesos(json!({"command": entry})), None, vec!["b"]),
        (docker(json!({}), json!({})), None, vec![]),
    ];
    for (info, entrypoint, arguments) in cases {
        let spec = read(info.clone()).unwrap();
        assert_eq!(spec.entrypoint.as_deref(), entrypoint, "{info}");
        assert_eq!(spec.arguments, arguments, "{info}");
    }
    let without = read(docker(json!({}), json!({"command": {"shell": true}})));
    assert_eq!(
        without.unwrap_err(),
        "Shell specified but no command value provided"
    );
}

#[test]
fn commands_inside_containers_need_a_value() {
    use Containerizer::{Docker, Mesos};
    let argv = json!({"shell": false, "value": "a", "arguments": ["a", "b"]});
    let cases = [
        (
            json!({"value": "exit 1"}),
            Mesos,
            Some(vec!["/bin/sh", "-c", "exit 1"]),
        ),
        (argv.clone(), Mesos, Some(vec!["a", "b"])),
        (argv, Docker, Some(vec!["a", "a", "b"])),
        (json!({"shell": false}), Docker, None),
    ];
    for (info, containerizer, expected) in cases {
        let to_strings = exec(&info, containerizer);
        let to_strings: Option<Vec<&str>> = to_strings
            .as_ref()
            .map(|it| it.iter().map(String::as_str).collect());
        assert_eq!(to_strings, expected, "{info}");
    }
}

#[test]
fn variables_depend_on_the_containerizer() {
    let own = json!({"command": {"environment": {"variables": [
        {"name": "A", "value": "1"},
        {"name": "S", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": "c2VjcmV0"}}},
        {"name": "B=", "value": "2"},
    ]}}});
    let of = |info| read(info).unwrap().environment;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        of(docker(json!({}), own.clone())),
        [
            pair("A", "1"),
            pair("S", "secret"),
            pair("MESOS_SANDBOX", SANDBOX_PATH),
            pair("MESOS_CONTAINER_NAME", "mesos-c1"),
        ]
    );
    let all = of(mesos(own));
    for expected in [
        pair("A", "1"),
        pair("MESOS_SANDBOX", SANDBOX_PATH),
        pair("MESOS_EXECUTOR_ID", "t1"),
        pair("MESOS_AGENT_ENDPOINT", "127.0.0.2:5051"),
    ] {
        assert!(all.contains(&expected), "{expected:?}");
    }
    assert!(!all.iter().any(|(name, _)| name == "PATH"));
    let reference = json!({"name": "S", "secret": {"type": "REFERENCE", "reference": {"name": "db"}}});
    let why = read(mesos(
        json!({"command": {"environment": {"variables": [reference]}}}),
    ))
    .unwrap_err();
    assert_eq!(
        why,
        "Secret 'db' cannot be resolved: this cluster takes secrets by value only"
    );
}

#[test]
fn networks_of_docker_have_their_ports_at_the_agents_address() {
    let port = json!({"host_port": 31000, "container_port": 80.0, "protocol": "udp"});
    let named = json!({"container": {"network_infos": [{"name": "weave"}]}});
    let cases = [
        (docker(json!({}), json!({})), Network::Host, 0),
        (docker(json!({"network": "NONE"}), json!({})), Network::None, 0),
        (
            docker(json!({"network": "BRIDGE", "port_mappings": [port]}), json!({})),
            Network::Bridge,
            1,
        ),
        (
            docker(json!({"network": "USER"}), named),
            Network::Named("weave".to_owned()),
            0,
        ),
    ];
    for (info, network, ports) in cases {
        let spec = read(info.clone()).unwrap();
        assert_eq!(spec.network, network, "{info}");
        assert_eq!(spec.published.len(), ports, "{info}");
        for one in spec.published {
            let address = SocketAddr::new(one.address, one.host).to_string();
            assert_eq!((address.as_str(), one.container), ("127.0.0.2:31000", 80));
            assert_eq!(one.protocol, "udp");
        }
    }
}

#[test]
fn invalid_options_are_rejected_as_by_an_agent() {
    let port = json!({"port_mappings": [{"host_port": 31000, "container_port": 80}]});
    let other = json!({"network": "BRIDGE", "port_mappings": [{"host_port": 32000, "container_port": 80}]});
    let bridge = json!({"network": "BRIDGE", "port_mappings": [{"host_port": 31000, "container_port": 80}]});
    let user = json!({"network": "USER"});
    let infos = |infos: Value| json!({"container": {"network_infos": infos}});
    let volume = |volume: Value| json!({"container": {"volumes": [volume]}});
    let cases = [
        (
            docker(port, json!({})),
            "Port mappings are only supported for bridge and user-defined networks",
        ),
        (docker(other, json!({})), "Port [32000] not included in resources"),
        (
            docker(bridge, json!({"resources": []})),
            "Port mappings require port resources",
        ),
        (
            docker(user.clone(), json!({})),
            "No network info found in container info",
        ),
        (
            docker(user.clone(), infos(json!([{}]))),
            "No network name found in network info",
        ),
        (
            docker(user, infos(json!([{"name": "a"}, {"name": "b"}]))),
            "Only a single network can be defined in Docker run",
        ),
        (
            docker(json!({"network": "WEAVE"}), json!({})),
            "Unsupported Network mode: WEAVE",
        ),
        (
            docker(json!({}), json!({"container": {"hostname": "web"}})),
            "Unable to set hostname with host network mode",
        ),
        (
            docker(json!({"image": ""}), json!({})),
            "No image is specified in the DockerInfo of the task",
        ),
        (
            mesos(json!({"container": {"mesos": {"image": {"type": "APPC"}}}})),
            "Unsupported container image type: APPC",
        ),
        (
            docker(
                json!({}),
                volume(json!({"container_path": "data", "host_path": "data", "mode": "RW"})),
            ),
            "Both host_path 'data' and container_path 'data' of a volume are relative",
        ),
        (
            docker(
                json!({}),
                volume(json!({"container_path": "/data", "host_path": "../x", "mode": "RW"})),
            ),
            "'../x' is not a path inside the sandbox",
        ),
        (
            mesos(volume(
                json!({"container_path": "/data", "source": {"type": "SECRET"}}),
            )),
            "Unsupported volume type 'SECRET'",
        ),
        (
            mesos(volume(json!({"container_path": "/da:ta", "host_path": "/x"}))),
            "A volume's path must not contain a colon: '/x' at '/da:ta'",
        ),
    ];
    for (info, expected) in cases {
        assert_eq!(read(info).unwrap_err(), expected);
    }
}

#[test]
fn volumes_of_each_kind_are_mounted_from_their_directories() {
    let driver = json!({"type": "DOCKER_VOLUME", "docker_volume": {"name": "v", "driver": "nfs"}});
    let own = json!({"type": "SANDBOX_PATH", "sandbox_path": {"type": "SELF", "path": "own"}});
    let shared = json!({"type": "SANDBOX_PATH", "sandbox_path": {"type": "PARENT", "path": "shared"}});
    let path = json!({"type": "HOST_PATH", "host_path": {"path": "/srv"}});
    let volumes = json!({"container": {"volumes": [
        {"container_path": "/a", "host_path": "/srv", "mode": "RO"},
        {"container_path": "b", "source": path, "mode": "RW"},
        {"container_path": "/c", "host_path": "c", "mode": "RW"},
        {"container_path": "/d", "source": driver, "mode": "RW"},
        {"container_path": "/e", "source": own, "mode": "RW"},
        {"container_path": "/f", "source": shared, "mode": "RW"},
    ]}});
    let mut launch = launch(mesos(volumes));
    launch.volumes = vec![(PathBuf::from("/volumes/1"), PathBuf::from("kept"))];
    launch.group = Some(TaskGroup {
        info: json!({}),
        container: "g".to_owned(),
        directory: PathBuf::from("/group"),
        volumes: Vec::new(),
    });
    let spec = spec(&launch, "/w", None).unwrap();
    let mount = |source: &str, target: &str, read_only: bool| Mount {
        source: Some(source.to_owned()),
        target: target.to_owned(),
        read_only,
    };
    let expected = [
        mount("/sandbox", SANDBOX_PATH, false),
        mount("/volumes/1", "/mnt/mesos/sandbox/kept", false),
        mount("/srv", "/a", true),
        mount("/srv", "/mnt/mesos/sandbox/b", false),
        mount("/sandbox/c", "/c", false),
        mount("v", "/d", false),
        mount("/sandbox/own", "/e", false),
        mount("/group/shared", "/f", false),
    ];
    assert_eq!(spec.mounts, expected);
    assert_eq!(spec.volume_driver.as_deref(), Some("nfs"));
    let created = ["/sandbox/c", "/sandbox/own", "/group/shared"].map(PathBuf::from);
    assert_eq!(spec.directories, created);
}

#[test]
fn only_docker_accepts_a_path_as_the_name_of_a_volume() {
    let volume =
        json!({"type": "DOCKER_VOLUME", "docker_volume": {"name": "/data/server", "driver": "local"}});
    let volumes = json!({"volumes": [{"container_path": "/a", "source": volume, "mode": "RW"}]});
    let spec = read(docker(json!({}), json!({ "container": volumes }))).unwrap();
    let mount = spec.mounts.last().unwrap();
    assert_eq!(
        (mount.source.as_deref(), mount.target.as_str()),
        (Some("/data/server"), "/a")
    );
    assert_eq!(
        (spec.directories, spec.volume_driver),
        (vec![PathBuf::from("/data/server")], None)
    );
    let rejected = read(mesos(json!({ "container": volumes }))).unwrap_err();
    assert_eq!(rejected, "A Docker volume has no name, or an invalid one");
}

#[test]
fn tasks_of_a_group_share_its_network() {
    let of = |executor: Value, container: Value| {
        let mut launch = launch(mesos(json!({ "container": container })));
        launch.group = Some(TaskGroup {
            info: json!({ "container": executor }),
            container: "g".to_owned(),
            directory: PathBuf::from("/group"),
            volumes: Vec::new(),
        });
        spec(&launch, "/w", None).unwrap()
    };
    let port = json!({"host_port": 31000, "container_port": 80});
    let bridge = json!({"network_infos": [{"name": "mesos-bridge", "port_mappings": [port]}]});
    assert_eq!(of(json!({}), json!({})).network, Network::Host);
    assert_eq!(
        of(json!({"network_infos": [{}]}), json!({})).network,
        Network::Host
    );
    let inside = of(bridge.clone(), json!({}));
    assert_eq!(inside.network, Network::Container("mesos-g".to_owned()));
    // The group's container publishes the ports.
    assert!(inside.published.is_empty());
    let alone = read(mesos(json!({ "container": bridge }))).unwrap();
    assert_eq!((alone.network, alone.published.len()), (Network::Bridge, 1));
}

#[test]
fn images_users_and_options_depend_on_the_containerizer() {
    let options =
        json!({"force_pull_image": true, "privileged": true, "parameters": [{"key": "user", "value": "7"}]});
    let docker = read(docker(options, json!({}))).unwrap();
    assert_eq!(
        (docker.image.name.as_str(), docker.image.force_pull),
        ("alpine", true)
    );
    assert!(docker.privileged);
    assert_eq!(docker.parameters, [("user".to_owned(), "7".to_owned())]);
    assert_eq!(docker.user, None);

    let image = json!({"cached": false, "docker": {"config": {"type": "VALUE", "value": {"data": "e30="}}}});
    let mesos = read(mesos(
        json!({"container": {"mesos": {"image": image}, "linux_info": {"shm_size": 64.0}}}),
    ))
    .unwrap();
    assert!(mesos.image.force_pull);
    assert_eq!(mesos.image.config.as_deref(), Some(&b"{}"[..]));
    assert_eq!(mesos.user.as_deref(), Some("0:0"));
    assert_eq!(mesos.shm_size_mb, Some(64));
    assert_eq!(
        mesos.labels,
        [
            ("transom.cluster", "/w".to_owned()),
            ("transom.agent", "S0".to_owned()),
            ("transom.framework", "F".to_owned()),
            ("transom.task", "t1".to_owned()),
        ]
    );
}
