use super::{
    super::{
        limits::Limits,
        spec::{Containerizer, Image, Mount, Network, PublishedPort},
    },
    *,
};
use std::net::{IpAddr, Ipv4Addr};

fn plain() -> Spec {
    Spec {
        containerizer: Containerizer::Docker,
        name: "mesos-c1".to_owned(),
        labels: vec![("transom.cluster", "/w".to_owned())],
        image: Image::default(),
        network: Network::Host,
        published: Vec::new(),
        network_info: None,
        hostname: None,
        mounts: Vec::new(),
        volume_driver: None,
        directories: Vec::new(),
        environment: Vec::new(),
        limits: Limits::default(),
        user: None,
        workdir: None,
        privileged: false,
        parameters: Vec::new(),
        shm_size_mb: None,
        entrypoint: None,
        arguments: Vec::new(),
    }
}

fn to_strings(to_strings: &[&str]) -> Vec<String> {
    to_strings.iter().map(|word| (*word).to_owned()).collect()
}

fn mount(source: Option<&str>, read_only: bool) -> Mount {
    Mount {
        source: source.map(str::to_owned),
        target: "/data".to_owned(),
        read_only,
    }
}

/// Containers that differ from [`plain`] in one property, with the expected options.
fn cases() -> Vec<(&'static str, Spec, &'static str)> {
    let mut cases = network_cases();
    cases.extend(other_cases());
    cases
}

fn network_cases() -> Vec<(&'static str, Spec, &'static str)> {
    let port = |protocol: &str| PublishedPort {
        address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        host: 31000,
        container: 80,
        protocol: protocol.to_owned(),
    };
    vec![
        ("nothing", plain(), "--network host i"),
        (
            "ports",
            Spec {
                network: Network::Bridge,
                published: vec![
                    port("tcp"),
                    port("udp"),
                    PublishedPort {
                        address: "::1".parse().unwrap(),
                        ..port("tcp")
                    },
                ],
                hostname: Some("web".to_owned()),
                ..plain()
            },
            "--network bridge --publish 127.0.0.2:31000:80/tcp --publish 127.0.0.2:31000:80/udp \
             --publish [::1]:31000:80/tcp --hostname web i",
        ),
        (
            "another network",
            Spec {
                network: Network::Named("weave".to_owned()),
                ..plain()
            },
            "--network weave i",
        ),
        (
            "the network of a group",
            Spec {
                network: Network::Container("mesos-g".to_owned()),
                ..plain()
            },
            "--network container:mesos-g i",
        ),
    ]
}

fn other_cases() -> Vec<(&'static str, Spec, &'static str)> {
    vec![
        (
            "variables",
            Spec {
                environment: vec![
                    ("A".to_owned(), "1 2".to_owned()),
                    ("B".to_owned(), String::new()),
                ],
                ..plain()
            },
            "--env A=1 2 --env B= --network host i",
        ),
        (
            "mounts",
            Spec {
                mounts: vec![
                    mount(Some("/srv"), true),
                    mount(Some("named"), false),
                    mount(None, false),
                ],
                volume_driver: Some("nfs".to_owned()),
                ..plain()
            },
            "--volume /srv:/data:ro --volume named:/data:rw --volume /data --volume-driver nfs --network host i",
        ),
        (
            "limits",
            Spec {
                limits: Limits {
                    cpu_shares: Some(512),
                    cpu_quota: Some(150_000),
                    memory: Some(64),
                    memory_reservation: Some(32),
                },
                ..plain()
            },
            "--cpu-shares 512 --cpu-period 100000 --cpu-quota 150000 --memory 64b --memory-reservation 32b --network host i",
        ),
        (
            "a program",
            Spec {
                user: Some("1000:100".to_owned()),
                workdir: Some("/w".to_owned()),
                shm_size_mb: Some(64),
                entrypoint: Some("/bin/sh".to_owned()),
                arguments: to_strings(&["-c", "echo $A"]),
                ..plain()
            },
            "--network host --user 1000:100 --workdir /w --shm-size 64m --entrypoint /bin/sh i -c echo $A",
        ),
        (
            "options of Docker",
            Spec {
                privileged: true,
                parameters: vec![
                    ("cap-add".to_owned(), "NET_ADMIN".to_owned()),
                    ("cap-add".to_owned(), "SYS_ADMIN".to_owned()),
                ],
                ..plain()
            },
            "--network host --privileged --cap-add=NET_ADMIN --cap-add=SYS_ADMIN i",
        ),
    ]
}

#[test]
fn each_part_of_a_container_has_its_options() {
    let options = RuntimeOptions {
        supports_limits: true,
        ..RuntimeOptions::default()
    };
    let start = "run --name mesos-c1 --pull never --label transom.cluster=/w ";
    for (what, spec, expected) in cases() {
        let all = run(&spec, "i", &options).join(" ");
        assert_eq!(all.strip_prefix(start), Some(expected), "{what}: {all}");
    }
}

#[test]
fn runtime_without_limits_gets_no_limit_options() {
    let options = RuntimeOptions {
        global_options: to_strings(&["--runtime", "runc"]),
        run: to_strings(&["--ulimit", "nofile=1:1"]),
        supports_limits: false,
    };
    let spec = Spec {
        limits: Limits {
            memory: Some(64),
            ..Limits::default()
        },
        ..plain()
    };
    assert_eq!(
        run(&spec, "i", &options).join(" "),
        "--runtime runc run --name mesos-c1 --pull never --label transom.cluster=/w --ulimit nofile=1:1 --network host i"
    );
}

#[test]
fn options_of_a_task_are_lowered_to_the_limits_of_the_machine() {
    let options = |supports_limits: bool, run: &[&str]| RuntimeOptions {
        global_options: Vec::new(),
        run: to_strings(run),
        supports_limits,
    };
    let (hard_limits, none) = (
        &["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=-1:-1"][..],
        &[][..],
    );
    for (key, value, options, expected) in [
        (
            "memory-swap",
            "2g",
            options(true, hard_limits),
            Some("--memory-swap=2g"),
        ),
        ("memory-swap", "2g", options(false, hard_limits), None),
        (
            "shm-size",
            "30gb",
            options(false, hard_limits),
            Some("--shm-size=30gb"),
        ),
        (
            "ulimit",
            "nofile=1048576",
            options(true, hard_limits),
            Some("--ulimit=nofile=20000"),
        ),
        (
            "ulimit",
            "nofile=1024:1048576",
            options(true, hard_limits),
            Some("--ulimit=nofile=1024:20000"),
        ),
        (
            "ulimit",
            "nofile=-1:-1",
            options(true, hard_limits),
            Some("--ulimit=nofile=20000:20000"),
        ),
        (
            "ulimit",
            "nproc=9999999",
            options(true, hard_limits),
            Some("--ulimit=nproc=9999999"),
        ),
        (
            "ulimit",
            "nofile=1048576",
            options(true, none),
            Some("--ulimit=nofile=1048576"),
        ),
        (
            "ulimit",
            "core",
            options(true, hard_limits),
            Some("--ulimit=core"),
        ),
    ] {
        let found = parameter(key, value, &options);
        assert_eq!(found.as_deref(), expected, "{key}={value} {options:?}");
    }
}

#[test]
fn commands_inside_a_container_have_its_name_and_their_own_variables() {
    let options = RuntimeOptions {
        global_options: to_strings(&["--runtime", "runc"]),
        ..RuntimeOptions::default()
    };
    let environment = [("A".to_owned(), "1".to_owned())];
    let all = exec(
        "mesos-c1",
        &environment,
        &to_strings(&["/bin/sh", "-c", "true"]),
        &options,
    );
    assert_eq!(
        all.join(" "),
        "--runtime runc exec --env A=1 mesos-c1 /bin/sh -c true"
    );
}
