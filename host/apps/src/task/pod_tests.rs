#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use serde_json::{Value, json};
use transom_scheduler::{AgentLocation, MemberPlacement};

use super::*;
use crate::settings::{CheckRunner, Checks};
use crate::testing::{agent, networked_record, pod};

const GROUP: &str = "shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.2";
const INSTANCE: &str = "shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987";
/// The incarnation is part of the id, because the executor of the previous tasks may still be
/// ending.
const EXECUTOR: &str = "instance-shop_web.0664256e-6771-11e5-94e1-be5b2935a987.2";

/// A pod with these containers and additional members.
fn with(containers: &Value, more: &Value) -> Pod {
    let mut body = json!({"id": "/shop/web", "containers": containers});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let mut pod = pod(&body);
    pod.version = "2018-01-01T00:00:00.000Z".parse().unwrap();
    pod
}

/// A pod of one container.
fn single(container: &Value, more: &Value) -> Pod {
    let mut body = json!({"name": "app", "resources": {}});
    body.as_object_mut()
        .unwrap()
        .extend(container.as_object().unwrap().clone());
    with(&json!([body]), more)
}

fn group(spec: &RunSpec) -> &Group {
    match &spec.build {
        Build::Group(group) => group,
        Build::Task(_) => panic!("a pod is a group"),
    }
}

/// The executor and the tasks of an instance.
fn built_with(pod: &Pod, host_ports: &[&[u16]], settings: &LaunchSettings) -> (Value, Vec<Value>) {
    let spec = pod_spec(&Arc::new(pod.clone()), BTreeSet::new(), settings);
    let build = &group(&spec).build;
    let members = host_ports.iter().enumerate();
    let placement = GroupPlacement {
        group: GROUP.into(),
        agent: AgentLocation {
            hostname: "h1".to_owned(),
            ..agent()
        },
        host_ports: Vec::new(),
        members: members
            .map(|(at, ports)| MemberPlacement {
                task: build.task_id(&GROUP.into(), at),
                host_ports: ports.to_vec(),
            })
            .collect(),
    };
    let tasks = (0..host_ports.len()).map(|at| json!(build.task(&placement, at)));
    (json!(build.executor(&placement)), tasks.collect())
}

fn built(pod: &Pod, host_ports: &[&[u16]]) -> (Value, Vec<Value>) {
    built_with(pod, host_ports, &LaunchSettings::default())
}

fn environment(task: &Value) -> BTreeMap<String, Value> {
    let variables = task["command"]["environment"]["variables"].as_array().unwrap();
    let named = variables
        .iter()
        .map(|it| (it["name"].as_str().unwrap().to_owned(), it.clone()));
    named.collect()
}

fn plain(task: &Value) -> BTreeMap<String, String> {
    let variables = environment(task).into_iter();
    variables
        .filter_map(|(name, it)| Some((name, it["value"].as_str()?.to_owned())))
        .collect()
}

#[test]
fn run_spec_has_the_executor_and_a_member_for_each_container() {
    let pod = with(
        &json!([
            {"name": "app", "resources": {"cpus": 0.5, "mem": 64, "disk": 1, "gpus": 2}, "endpoints": [
                {"name": "web", "hostPort": 80}, {"name": "admin"},
            ]},
            {"name": "helper", "resources": {"mem": 16}},
        ]),
        &json!({
            "scaling": {"kind": "fixed", "instances": 3}, "executorResources": {"mem": 48},
            "scheduling": {"placement": {"constraints": [{"fieldName": "rack", "operator": "CLUSTER", "value": "1"}]}},
        }),
    );
    let spec = pod_spec(&Arc::new(pod), BTreeSet::new(), &LaunchSettings::default());
    assert_eq!(
        (spec.id.as_str(), spec.version.as_str()),
        ("/shop/web", "2018-01-01T00:00:00.000Z")
    );
    assert_eq!((spec.instances, spec.gpus), (3, 0.0));
    assert_eq!((spec.cpus, spec.mem, spec.disk), (0.1, 48.0, 10.0));
    assert!(spec.ports.is_empty());
    assert_eq!(spec.roles, ["*"]);
    assert_eq!(spec.constraints.len(), 1);
    let [app, helper] = group(&spec).members.as_slice() else {
        panic!("{spec:?}")
    };
    assert_eq!((app.name.as_str(), helper.name.as_str()), ("app", "helper"));
    assert_eq!((app.cpus, app.mem, app.disk, app.gpus), (0.5, 64.0, 1.0, 2.0));
    assert_eq!(app.ports, [PortRequest::Fixed(80), PortRequest::Random]);
    assert_eq!((helper.cpus, helper.mem), (1.0, 16.0));
    assert!(helper.ports.is_empty());
}

#[test]
fn ids_have_upstreams_form() {
    let pod = with(
        &json!([{"name": "app", "resources": {}}, {"name": "helper", "resources": {}}]),
        &json!({}),
    );
    let spec = pod_spec(
        &Arc::new(pod.clone()),
        BTreeSet::new(),
        &LaunchSettings::default(),
    );
    let ids = [0, 1].map(|at| group(&spec).build.task_id(&GROUP.into(), at).to_string());
    assert_eq!(ids, [format!("{INSTANCE}.app.2"), format!("{INSTANCE}.helper.2")]);
    let (executor, tasks) = built(&pod, &[&[], &[]]);
    assert_eq!(executor["executor_id"]["value"], EXECUTOR);
    assert_eq!(
        (&tasks[0]["name"], &tasks[1]["name"]),
        (&json!("app"), &json!("helper"))
    );
}

#[test]
fn networks_and_port_mappings_are_at_the_executor() {
    let containers = json!([
        {"name": "app", "resources": {}, "endpoints": [
            {"name": "web", "containerPort": 80, "hostPort": 0, "protocol": ["http", "udp"], "labels": {"VIP_0": "/web:80"}},
            {"name": "same", "containerPort": 0, "hostPort": 0},
        ]},
        {"name": "helper", "resources": {}, "endpoints": [{"name": "admin", "containerPort": 9000, "hostPort": 31500}]},
    ]);
    let mapping = |host: u16, container: u16, protocol: &str| json!({"host_port": host, "container_port": container, "protocol": protocol});
    let mappings = json!([
        mapping(31000, 80, "tcp"),
        mapping(31000, 80, "udp"),
        mapping(31001, 31001, "tcp"),
        mapping(31500, 9000, "tcp"),
    ]);
    let labelled = json!({"mode": "container", "name": "weave", "labels": {"k": "v"}});
    for (network, infos) in [
        (
            json!({"mode": "container/bridge"}),
            json!([{"name": "mesos-bridge", "port_mappings": mappings}]),
        ),
        (
            labelled,
            json!([{
                "name": "weave", "port_mappings": mappings, "labels": {"labels": [{"key": "k", "value": "v"}]},
            }]),
        ),
    ] {
        let pod = with(&containers, &json!({"networks": [network], "labels": {"l": "1"}}));
        let (executor, tasks) = built(&pod, &[&[31000, 31001], &[31500]]);
        assert_eq!(executor["container"]["type"], "MESOS");
        assert_eq!(executor["container"]["network_infos"], infos);
        assert_eq!(executor["labels"]["labels"], json!([{"key": "l", "value": "1"}]));
        assert_eq!(tasks[0]["container"].get("network_infos"), None);
        let discovery = &tasks[0]["discovery"];
        assert_eq!(discovery["name"], "web.shop");
        let port = &discovery["ports"]["ports"][0];
        assert_eq!(
            (&port["number"], &port["protocol"]),
            (&json!(31000), &json!("http"))
        );
        let expected = json!([
            {"key": "VIP_0", "value": "/web:80"}, {"key": "network-scope", "value": "host"},
        ]);
        assert_eq!(port["labels"]["labels"], expected);
        assert_eq!(
            discovery["ports"]["ports"].as_array().unwrap().len(),
            3,
            "each protocol of an endpoint has an entry"
        );
        assert_eq!(
            tasks[1]["discovery"]["ports"]["ports"].as_array().unwrap().len(),
            1
        );
    }
    let host = single(&json!({"endpoints": [{"name": "web"}]}), &json!({}));
    let (executor, tasks) = built(&host, &[&[31000]]);
    assert_eq!(executor["container"], json!({"type": "MESOS", "mesos": {}}));
    let expected = json!([{"number": 31000, "name": "web", "protocol": "tcp"}]);
    assert_eq!(tasks[0]["discovery"]["ports"]["ports"], expected);
}

#[test]
fn container_has_its_image_mounts_and_options() {
    let pod = single(
        &json!({
            "image": {"kind": "DOCKER", "id": "shop/web:1", "forcePull": true, "pullConfig": {"secret": "s"}},
            "volumeMounts": [
                {"name": "shared", "mountPath": "/shared"},
                {"name": "agent", "mountPath": "/agent", "readOnly": true},
                {"name": "sandbox", "mountPath": "/sandbox"},
                {"name": "key", "mountPath": "/key"},
                {"name": "disk", "mountPath": "disk"},
            ],
            "tty": true, "linuxInfo": {"seccomp": {"profileName": "strict"}}, "labels": {"l": "1"},
            "resourceLimits": {"mem": "unlimited", "cpus": 2}, "lifecycle": {"killGracePeriodSeconds": 1.5},
            "artifacts": [{"uri": "http://f/a", "destPath": "b"}], "user": "app",
        }),
        &json!({
            "secrets": {"s": {"source": "/secret"}}, "user": "pod",
            "volumes": [
                {"name": "shared"}, {"name": "agent", "host": "/srv"}, {"name": "sandbox", "host": "data"},
                {"name": "key", "secret": "s"}, {"name": "disk", "persistent": {"size": 1}},
            ],
            "linuxInfo": {"ipcInfo": {"mode": "PRIVATE", "shmSize": 8}},
        }),
    );
    let (executor, tasks) = built(&pod, &[&[]]);
    let linux = json!({"ipc_mode": "PRIVATE", "shm_size": 8});
    assert_eq!(executor["container"]["linux_info"], linux);
    let secret = json!({"type": "REFERENCE", "reference": {"name": "/secret"}});
    let mount = |path: &str, mode: &str, source: Value| json!({"container_path": path, "mode": mode, "source": source});
    let below =
        |path: &str| json!({"type": "SANDBOX_PATH", "sandbox_path": {"type": "PARENT", "path": path}});
    let host = json!({"type": "HOST_PATH", "host_path": {"path": "/srv"}});
    assert_eq!(
        tasks[0]["container"],
        json!({
            "type": "MESOS",
            "mesos": {"image": {
                "type": "DOCKER", "cached": false, "docker": {"name": "shop/web:1", "config": secret},
            }},
            "volumes": [
                mount("/shared", "RW", below("volumes/shared")),
                mount("/agent", "RO", host),
                mount("/sandbox", "RW", below("data")),
                mount("/key", "RO", json!({"type": "SECRET", "secret": secret})),
                mount("disk", "RW", below("disk")),
            ],
            "linux_info": {"seccomp": {"profile_name": "strict"}, "share_cgroups": false},
            "tty_info": {},
        })
    );
    assert_eq!(tasks[0]["command"]["user"], "app");
    assert_eq!(tasks[0]["command"]["uris"][0]["output_file"], "b");
    assert_eq!(tasks[0]["labels"]["labels"], json!([{"key": "l", "value": "1"}]));
    assert_eq!(
        tasks[0]["kill_policy"]["grace_period"]["nanoseconds"],
        1_500_000_000
    );
    assert_eq!(tasks[0]["limits"]["cpus"]["value"], 2.0);
    let shared = single(&json!({}), &json!({"legacySharedCgroups": true, "user": "pod"}));
    let (_, tasks) = built(&shared, &[&[]]);
    assert_eq!(
        tasks[0]["container"]["linux_info"],
        json!({"share_cgroups": true})
    );
    assert_eq!(tasks[0]["command"]["user"], "pod");
    assert_eq!(tasks[0].get("kill_policy"), None);
}

#[test]
fn program_is_a_shell_line_arguments_or_the_images_own() {
    let image = json!({"kind": "DOCKER", "id": "i"});
    let argv = json!({"command": {"argv": ["run", "-v"]}});
    let replacing = json!({"command": {"argv": ["run", "-v"]}, "overrideEntrypoint": true});
    let whole = json!({"shell": false, "value": "run", "arguments": ["run", "-v"]});
    for (container, expected) in [
        (
            json!({"exec": {"command": {"shell": "exec web"}}}),
            json!({"shell": true, "value": "exec web"}),
        ),
        (json!({"exec": argv}), whole.clone()),
        (
            json!({"exec": argv, "image": image}),
            json!({"shell": false, "arguments": ["run", "-v"]}),
        ),
        (json!({"exec": replacing, "image": image}), whole),
        (json!({"image": image}), json!({"shell": false})),
    ] {
        let (_, mut tasks) = built(&single(&container, &json!({})), &[&[]]);
        let command = tasks[0]["command"].as_object_mut().unwrap();
        command.remove("environment");
        assert_eq!(json!(command), expected, "{container}");
    }
}

#[test]
fn environment_has_exactly_upstreams_variables() {
    let pod = with(
        &json!([
            {
                "name": "app", "resources": {"cpus": 0.5, "mem": 64}, "endpoints": [
                    {"name": "http-api", "containerPort": 80, "hostPort": 0}, {"name": "udp", "containerPort": 53},
                ],
                "environment": {"B": "container", "HOST": "mine"}, "labels": {"tier": "front"},
            },
            {"name": "helper", "resources": {}, "endpoints": [{"name": "admin", "containerPort": 0, "hostPort": 0}]},
        ]),
        &json!({
            "networks": [{"mode": "container", "name": "weave"}], "labels": {"tier": "all", "a.b": "c"},
            "environment": {"A": "pod", "B": "pod", "KEY": {"secret": "s"}}, "secrets": {"s": {"source": "/s"}},
        }),
    );
    let settings = LaunchSettings {
        env_vars_prefix: "x_".into(),
        ..LaunchSettings::default()
    };
    let (_, tasks) = built_with(&pod, &[&[31000], &[31001]], &settings);
    let task = format!("{INSTANCE}.app.2");
    let expected: BTreeMap<String, String> = [
        ("A", "pod"),
        ("B", "container"),
        ("HOST", "h1"),
        ("MESOS_TASK_ID", &task),
        ("MESOS_EXECUTOR_ID", EXECUTOR),
        ("MARATHON_APP_ID", "/shop/web"),
        ("MARATHON_APP_VERSION", "2018-01-01T00:00:00.000Z"),
        ("MARATHON_CONTAINER_ID", "app"),
        ("MARATHON_CONTAINER_RESOURCE_CPUS", "0.5"),
        ("MARATHON_CONTAINER_RESOURCE_MEM", "64.0"),
        ("MARATHON_CONTAINER_RESOURCE_DISK", "0.0"),
        ("MARATHON_CONTAINER_RESOURCE_GPUS", "0"),
        ("MARATHON_APP_LABELS", "A_B TIER"),
        ("MARATHON_APP_LABEL_A_B", "c"),
        ("MARATHON_APP_LABEL_TIER", "front"),
        ("X_ENDPOINT_HTTP_API", "80"),
        ("X_EP_HOST_HTTP_API", "31000"),
        ("X_EP_CONTAINER_HTTP_API", "80"),
        ("X_ENDPOINT_UDP", "53"),
        ("X_EP_CONTAINER_UDP", "53"),
        ("X_ENDPOINT_ADMIN", "31001"),
        ("X_EP_HOST_ADMIN", "31001"),
        ("X_EP_CONTAINER_ADMIN", "31001"),
    ]
    .iter()
    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    .collect();
    assert_eq!(plain(&tasks[0]), expected);
    let key = &environment(&tasks[0])["KEY"];
    assert_eq!(key["secret"]["reference"]["name"], "/s");
    let host = single(&json!({"endpoints": [{"name": "web"}]}), &json!({}));
    let (_, tasks) = built(&host, &[&[31000]]);
    let env = plain(&tasks[0]);
    let named = env.iter().filter(|(name, _)| name.starts_with('E'));
    let named: Vec<_> = named
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(named, [("ENDPOINT_WEB", "31000"), ("EP_HOST_WEB", "31000")]);
}

#[test]
fn health_check_probes_the_port_in_the_container() {
    let bridge = json!({"networks": [{"mode": "container/bridge"}]});
    let times = json!({
        "gracePeriodSeconds": 1, "intervalSeconds": 3, "timeoutSeconds": 2, "delaySeconds": 0,
        "maxConsecutiveFailures": 0,
    });
    let with_times = |mut check: Value| {
        let more = times.as_object().unwrap().clone();
        check.as_object_mut().unwrap().extend(more);
        check
    };
    for (check, kind, expected) in [
        (
            json!({"http": {"endpoint": "web", "path": "/h", "scheme": "HTTPS"}}),
            "http",
            json!({"port": 80, "path": "/h", "scheme": "https"}),
        ),
        (
            json!({"http": {"endpoint": "admin"}}),
            "http",
            json!({"port": 31001}),
        ),
        (json!({"tcp": {"endpoint": "web"}}), "tcp", json!({"port": 80})),
        (
            json!({"exec": {"command": {"argv": ["true"]}}}),
            "command",
            json!({"shell": false, "value": "true", "arguments": ["true"]}),
        ),
    ] {
        let endpoints = json!([
            {"name": "admin", "hostPort": 0}, {"name": "web", "containerPort": 80, "hostPort": 0},
        ]);
        let container = json!({"endpoints": endpoints, "healthCheck": with_times(check.clone())});
        let (_, tasks) = built(&single(&container, &bridge), &[&[31001, 31000]]);
        let found = &tasks[0]["health_check"];
        assert_eq!(found[kind], expected, "{check}");
        assert_eq!(found["consecutive_failures"], u32::MAX, "0 never kills");
        assert_eq!(
            (&found["grace_period_seconds"], &found["delay_seconds"]),
            (&json!(1.0), &json!(0.0))
        );
    }
}

#[test]
fn task_has_a_check_only_when_the_agent_makes_it() {
    let cluster = Checks {
        network_from: CheckRunner::Agent,
        exec_from: CheckRunner::Agent,
        ..Checks::default()
    };
    let endpoint = json!([{"name": "web"}]);
    let check = json!({"http": {"endpoint": "web", "path": "/p"}});
    let exec = json!({"exec": {"command": {"shell": "true"}}});
    for (container, more, checks, expected) in [
        (json!({"check": check}), json!({}), Checks::default(), Value::Null),
        (
            json!({"check": check}),
            json!({}),
            cluster,
            json!({"port": 31000, "path": "/p"}),
        ),
        (
            json!({}),
            json!({"check": check}),
            cluster,
            json!({"port": 31000, "path": "/p"}),
        ),
    ] {
        let mut container = container;
        container["endpoints"] = endpoint.clone();
        let settings = LaunchSettings {
            checks,
            ..LaunchSettings::default()
        };
        let (_, tasks) = built_with(&single(&container, &more), &[&[31000]], &settings);
        assert_eq!(tasks[0]["check"]["http"], expected, "{container} {more}");
    }
    let (_, tasks) = built(&single(&json!({"check": exec}), &json!({})), &[&[]]);
    assert_eq!(tasks[0]["check"]["type"], "COMMAND");
}

/// A pod in a container network with an endpoint of each kind.
fn networked() -> Pod {
    with(
        &json!([
            {"name": "app", "resources": {}, "endpoints": [
                {"name": "fixed", "containerPort": 80}, {"name": "any", "containerPort": 0},
                {"name": "mapped", "containerPort": 0, "hostPort": 0},
            ]},
            {"name": "helper", "resources": {}, "endpoints": [{"name": "any-too", "containerPort": 0}]},
        ]),
        &json!({"networks": [{"mode": "container", "name": "weave"}]}),
    )
}

#[test]
fn endpoints_have_the_same_ports_whenever_they_are_computed() {
    let pod = networked();
    let found = endpoints(&pod, GROUP, &[vec![31000], vec![]]);
    let numbers = |ports: &[InstancePort<'_>]| -> Vec<_> {
        ports.iter().map(|port| (port.host, port.container)).collect()
    };
    let app = numbers(&found[0]);
    assert_eq!((app[0], app[2]), ((None, Some(80)), (Some(31000), Some(31000))));
    let (any, too) = (app[1], numbers(&found[1])[0]);
    assert!(any.0.is_none() && any.1.unwrap() > 1024, "{any:?}");
    assert_ne!(any.1, too.1, "the containers of an instance share a network");
    let record = [vec![31000], vec![]];
    assert_eq!(endpoints(&pod, GROUP, &record), found);
    let other = endpoints(&pod, "shop_web.instance-x._app.1", &record);
    assert_ne!(numbers(&other[0])[1], any, "another instance has other ports");
    let missing: [&[u16]; 0] = [];
    let names: Vec<_> = endpoints(&pod, GROUP, &missing)[0]
        .iter()
        .map(|port| port.name)
        .collect();
    assert_eq!(
        names,
        [Some("fixed"), Some("any")],
        "only endpoints without a port of the agent"
    );
}

#[test]
fn endpoint_is_reached_at_the_agent_or_at_the_address_of_the_container() {
    let address = json!([{"name": "weave", "ip_addresses": [{"ip_address": "10.32.0.1"}]}]);
    let pod = networked();
    let ports = endpoints(&pod, GROUP, &[vec![31000], vec![]]);
    let at = |pod: &Pod, networks: &Value, port: &InstancePort<'_>| {
        let found = endpoint_address(pod, &networked_record(&[31000], networks), port);
        found.map(|found| format!("{}:{}", found.host, found.port))
    };
    assert_eq!(at(&pod, &address, &ports[0][0]).as_deref(), Some("10.32.0.1:80"));
    assert_eq!(
        at(&pod, &address, &ports[0][2]).as_deref(),
        Some("10.32.0.1:31000")
    );
    assert_eq!(at(&pod, &json!([]), &ports[0][0]), None);
    assert_eq!(at(&pod, &json!([]), &ports[0][2]).as_deref(), Some("h1:31000"));
    let host = single(&json!({"endpoints": [{"name": "web"}]}), &json!({}));
    let ports = endpoints(&host, GROUP, &[[31000]]);
    assert_eq!(at(&host, &address, &ports[0][0]).as_deref(), Some("h1:31000"));
}

#[test]
fn tasks_of_another_configuration_do_not_count_as_placed() {
    let pod = Arc::new(single(&json!({}), &json!({})));
    for (current, counts) in [(BTreeSet::from([pod.version]), true), (BTreeSet::new(), false)] {
        let spec = pod_spec(&pod, current, &LaunchSettings::default());
        let counted = group(&spec)
            .build
            .counts_as_placed(&networked_record(&[], &json!([])));
        assert_eq!(counted, counts);
    }
}
