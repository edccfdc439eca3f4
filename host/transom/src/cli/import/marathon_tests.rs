use std::io::Write;
use transom_config::Settings;

use super::*;

const COMMAND_LINE: &str = "# The flags of the old unit file.\n\
    java -Xmx512m -jar /opt/marathon.jar --master zk://u:zk-secret@z1:2181,z2:2181/mesos \\\n\
    --zk=zk://u:zk-secret@z1:2181/marathon --http_port 8081 --http_credentials 'ops:pass word' \\\n\
    --mesos_role dev --task_launch_timeout=90500 --hostname m1.example --disable_ha \\\n\
    --access_control_allow_origin \"https://ui.example,https://two.example\" --http_max_concurrent_requests 99 \\\n\
    --mesos_authentication_principal marathon --mesos_authentication_secret hunter2 --framework_name old \\\n\
    --zk_max_versions 9 --decline_offer_duration 5000 --some_new_flag x --local_port_min 12000 \\\n\
    --event_subscriber http_callback --http_endpoints http://u:hook-secret@hooks.example/marathon\n";

/// Converts flags; returns the TOML, and the settings that the daemon reads from it.
fn imported(flags: Flags) -> (String, Settings) {
    let components = Some(PathBuf::from("/opt/components"));
    let text = flags
        .into_toml("test", Path::new("/srv"), components)
        .expect("imported");
    let mut file = tempfile::Builder::new()
        .suffix(".toml")
        .tempfile()
        .expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let loaded = transom_config::load(Some(file.path()), transom_config::Overrides::default());
    let (settings, _) = loaded.unwrap_or_else(|error| panic!("{error}\n{text}"));
    (text, settings)
}

fn comments(text: &str) -> String {
    let comments = text.lines().take_while(|line| line.starts_with('#'));
    comments.collect::<Vec<_>>().join("\n")
}

fn flags(text: &str) -> Flags {
    Flags::from_text(text).expect("flags").expect("well-formed")
}

#[test]
fn a_command_line_becomes_settings_that_the_daemon_reads() {
    let (text, settings) = imported(flags(COMMAND_LINE));
    let apps = settings.apps.expect("on");
    assert_eq!(
        (apps.port, apps.role.as_str(), apps.hostname.as_str()),
        (8081, "dev", "m1.example")
    );
    assert_eq!(apps.api_username.as_deref(), Some("ops"));
    assert_eq!(apps.api_password.expect("set").reveal(), "pass word");
    assert_eq!((apps.task_launch_timeout_seconds, apps.max_versions), (91, 9));
    assert_eq!(apps.max_concurrent_requests, Some(99));
    assert_eq!(
        (apps.framework_name.as_str(), apps.local_port_min),
        ("old", 12_000)
    );
    assert_eq!(apps.allowed_origins.len(), 2);
    // Clients of Marathon read its form of the plans in events.
    assert_eq!(apps.events.plan_format, transom_config::PlanForm::Upstream);
    let cluster = settings.cluster;
    assert_eq!(cluster.master, "zk://u:zk-secret@z1:2181,z2:2181/mesos");
    assert_eq!(
        (cluster.principal.as_deref(), cluster.username.as_deref()),
        (Some("marathon"), Some("marathon"))
    );
    assert_eq!(cluster.password.expect("set").reveal(), "hunter2");
    assert_eq!(settings.store.server, "file:/srv/transom-store");

    let comments = comments(&text);
    for expected in [
        "# From Marathon's configuration: test.",
        "# Needs attention:\n# * --event_subscriber: callbacks need no switch",
        "# * --http_endpoints: add each URL with POST /v2/eventSubscriptions",
        "# * --zk: Marathon's state in ZooKeeper is not read",
        "# * --decline_offer_duration: the value is fixed",
        "# * --disable_ha: daemons that share a store",
        "# Unknown flags:\n# * some_new_flag",
        "this port listens on 127.0.0.1",
    ] {
        assert!(comments.contains(expected), "{expected}\n{comments}");
    }
    for secret in ["hunter2", "pass word", "zk-secret", "hook-secret"] {
        assert!(!comments.contains(secret), "{comments}");
    }
    assert!(!comments.contains("Required before"), "{comments}");
}

#[test]
fn a_folder_and_variables_are_read_and_the_folder_takes_precedence() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in [
        ("master", "zk://z:2181/mesos\n"),
        ("http_port", "8082"),
        ("?disable_ha", ""),
        ("mesos-role", "dev\n"),
        (".hidden", "x"),
        ("http_port~", "1"),
    ] {
        std::fs::write(dir.path().join(name), content).expect("written");
    }
    let folder = Flags::from_folder(dir.path()).expect("a folder");
    let variables = flags(
        "# /etc/default/marathon\nexport MARATHON_HTTP_PORT=1\nMARATHON_HOSTNAME=\"m.1\"\nMARATHON_MESOS_USER='svc'\n\
         MARATHON_DISABLE_CHECKPOINT=\nMARATHON_HTTP_CREDENTIALS=u:a b\nMARATHON_APP_ID=/own\nMARATHON_JAVA_ARGS=-Xmx1g\nPATH=/bin\n",
    );
    let (text, settings) = imported(folder.or_insert_all(variables));
    let apps = settings.apps.expect("on");
    assert_eq!((apps.port, apps.role.as_str()), (8082, "dev"));
    assert_eq!((apps.hostname.as_str(), apps.user.as_str()), ("m.1", "svc"));
    assert_eq!(apps.api_password.expect("set").reveal(), "a b");
    assert_eq!(settings.cluster.master, "zk://z:2181/mesos");
    let comments = comments(&text);
    assert!(
        comments.contains("--disable_ha:") && comments.contains("--disable_checkpoint:"),
        "{comments}"
    );
    assert!(!comments.contains("Unknown"), "{comments}");
    let empty = tempfile::tempdir().expect("a directory");
    let error = Flags::from_folder(empty.path()).expect_err("empty").to_string();
    assert!(error.contains("expected one for each flag"), "{error}");
}

#[test]
fn credentials_for_an_exposed_listener_are_reported_as_missing() {
    let text = flags("--http_address 0.0.0.0 --access_control_allow_origin *");
    let text = text.into_toml("test", Path::new("/srv"), None).expect("imported");
    let comments = comments(&text);
    for expected in [
        "Required before the service can start:\n# * `apps.listener` is 0.0.0.0",
        "* --access_control_allow_origin is \"*\": pages of every site",
        "* No components were found",
    ] {
        assert!(comments.contains(expected), "{expected}\n{comments}");
    }
    assert!(!text.contains("allowed_origins ="), "{text}");
}

#[test]
fn wrong_value_is_an_error_that_names_it_unless_it_may_be_a_secret() {
    for (text, expected) in [
        ("--http_port x", "--http_port is \"x\": expected a whole number"),
        ("--http_port --master m:1", "--http_port has no value"),
        (
            "--http_credentials s3cret",
            "--http_credentials: expected USER:PASSWORD",
        ),
        (
            "--failover_timeout soon",
            "--failover_timeout is \"soon\": expected a whole number",
        ),
        (
            "--local_port_min 70000",
            "--local_port_min is \"70000\": expected a whole number, 0 to 65535",
        ),
    ] {
        let error = flags(text)
            .into_toml("test", Path::new("/"), None)
            .expect_err(text)
            .to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    let error = Flags::from_text("--master 'm")
        .expect("flags")
        .expect_err("open")
        .to_string();
    assert!(error.contains("a quote is not closed"), "{error}");
}

#[test]
fn features_without_counterpart_are_dropped_with_a_note() {
    let (text, settings) = imported(flags(
        "MARATHON_MASTER=zk://zk1:2181/mesos\n\
         MARATHON_ENABLE_FEATURES=vips,task_killing,external_volumes,gpu_resources,maintenance_mode,moon\n\
         MARATHON_GPU_SCHEDULING_BEHAVIOR=undefined\n",
    ));
    let apps = settings.apps.expect("on");
    assert_eq!(apps.enable_features.len(), 3, "{text}");
    assert_eq!(
        apps.gpu_scheduling_behavior,
        transom_config::GpuScheduling::Restricted
    );
    let comments = comments(&text);
    for expected in [
        "# * --enable_features \"vips\": ports with a VIP label need no switch",
        "# * --enable_features \"maintenance_mode\": it is on",
        "# * --enable_features \"moon\": there is no such feature",
        "# * --gpu_scheduling_behavior is \"undefined\"",
    ] {
        assert!(comments.contains(expected), "{expected}\n{comments}");
    }
}

#[test]
fn credentials_of_the_launcher_are_read_unless_the_flag_is_set() {
    for (text, expected) in [
        ("MESOSPHERE_HTTP_CREDENTIALS=ops:secret\n", "secret"),
        (
            "MARATHON_HTTP_CREDENTIALS=ops:own\nexport MESOSPHERE_HTTP_CREDENTIALS=ops:secret\n",
            "own",
        ),
    ] {
        let (text, settings) = imported(flags(text));
        let apps = settings.apps.expect("on");
        assert_eq!(apps.api_username.as_deref(), Some("ops"));
        assert_eq!(apps.api_password.expect("set").reveal(), expected, "{text}");
    }
}

#[test]
fn lines_that_need_a_shell_are_named_and_not_executed() {
    let (text, settings) = imported(flags(
        ": ${MARATHON_HTTP_PORT=8081}\nMARATHON_HOSTNAME=\"${HOST_IP}\"\n\
         MARATHON_FRAMEWORK_NAME=$(hostname -f)\nMARATHON_MESOS_USER='$literal'\n\
         MARATHON_FAILOVER_TIMEOUT=3600 # an hour\nMARATHON_MESOS_ROLE=`id -un`\nPATH=/bin\n",
    ));
    let apps = settings.apps.expect("on");
    assert_eq!((apps.port, apps.hostname.as_str()), (8080, ""));
    assert_eq!(
        (apps.framework_name.as_str(), apps.role.as_str()),
        ("marathon", "*")
    );
    assert_eq!((apps.user.as_str(), apps.failover_timeout), ("$literal", 3600));
    let comments = comments(&text);
    for expected in [
        "# * line 1 is not read: it needs a shell",
        "# * line 2: the value of MARATHON_HOSTNAME is not read, because it needs a shell",
        "# * line 3: the value of MARATHON_FRAMEWORK_NAME is not read",
        "# * line 5: the comment after MARATHON_FAILOVER_TIMEOUT is dropped",
        "# * line 6: the value of MARATHON_MESOS_ROLE is not read",
    ] {
        assert!(comments.contains(expected), "{expected}\n{comments}");
    }
    assert!(!comments.contains("line 7"), "{comments}");

    let (text, settings) = imported(flags(
        "java -jar marathon.jar --hostname $(hostname -f) --http_port 81",
    ));
    assert_eq!(settings.apps.expect("on").port, 81);
    assert!(
        text.contains("# * the value of --hostname is not read, because it needs a shell"),
        "{text}"
    );
}

#[test]
fn empty_values_are_left_out_with_a_note() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in [("mesos_user", "\n"), ("http_port", "82"), ("hostname", "")] {
        std::fs::write(dir.path().join(name), content).expect("written");
    }
    let (text, settings) = imported(Flags::from_folder(dir.path()).expect("a folder"));
    let apps = settings.apps.expect("on");
    assert_eq!((apps.port, apps.user.as_str()), (82, "root"));
    for flag in ["mesos_user", "hostname"] {
        assert!(
            text.contains(&format!("# * --{flag} is empty: it is left out")),
            "{text}"
        );
    }
    let (text, _) = imported(flags("MARATHON_MESOS_USER=\nMARATHON_HTTP_CREDENTIALS=\n"));
    assert!(text.contains("--http_credentials is empty"), "{text}");
}

#[test]
fn file_of_another_program_contains_no_flags() {
    for text in ["[mesos]\nmaster = m --x\n", "", "# --flag\n", "{\"zk\": 1}"] {
        assert!(Flags::from_text(text).is_none(), "{text}");
    }
}
