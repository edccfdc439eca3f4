use crate::file::Toml;
use crate::{Overrides, load, rows};

use super::*;

fn read(text: &str) -> Result<(Settings, Figment), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    std::fs::write(&file, text).expect("written");
    load(Some(&file), Overrides::default()).map_err(|error| error.to_string())
}

#[test]
fn instances_inherit_what_they_do_not_set() {
    let (settings, _) = read(
        "[kubernetes]\nport = 10000\norch_agent_count = 3\nrole = \"all\"\nds_disk = 5\n\
         [kubernetes.bootstrap]\nmax_bytes = 7\ntimeout_seconds = 8\n\
         [kubernetes.prod]\nport = 10001\norch_agent_count = 5\nframework_role = \"own\"\n\
         [kubernetes.prod.bootstrap]\nmax_bytes = 9\n\
         [kubernetes.dev-2]\nframework_name = \"m3s\"\nvolume_ds = \"/ssd\"\n",
    )
    .expect("valid");
    let instances = settings.kubernetes();
    let actual: Vec<_> = instances
        .iter()
        .map(|it| {
            (
                it.instance.section,
                it.instance.path.as_str(),
                it.framework_name.as_str(),
            )
        })
        .collect();
    let expected = [
        ("kubernetes.dev-2", "/dev-2", "m3s"),
        ("kubernetes.prod", "", "prod"),
    ];
    assert_eq!(actual, expected);
    let [dev, prod] = instances[..] else {
        panic!("two instances")
    };
    assert_eq!(
        (dev.port, dev.orch_agent_count, dev.role.as_str()),
        (10000, 3, "all")
    );
    assert_eq!(
        (prod.port, prod.orch_agent_count, prod.role.as_str()),
        (10001, 5, "own")
    );
    assert_eq!((dev.bootstrap.max_bytes, dev.bootstrap.timeout_seconds), (7, 8));
    assert_eq!((prod.bootstrap.max_bytes, prod.bootstrap.timeout_seconds), (9, 8));
    assert_eq!(dev.volume_orch_server, "/data/k3s/server/dev-2/");
    assert_eq!(prod.volume_ds, "/data/k3s/datastore/prod/");
    assert_eq!(dev.volume_ds, "/ssd");
    assert_eq!((dev.ds_disk, prod.ds_disk), (5.0, 5.0));
}

#[test]
fn section_without_names_is_the_single_instance() {
    let (settings, _) =
        read("[kubernetes]\nframework_role = \"r\"\n[kubernetes.bootstrap]\nmax_bytes = 7\n").expect("valid");
    let [only] = settings.kubernetes()[..] else {
        panic!("one instance")
    };
    let actual = (
        only.instance.section,
        only.framework_name.as_str(),
        only.role.as_str(),
        only.bootstrap.max_bytes,
    );
    assert_eq!(actual, ("kubernetes", "fw", "r", 7));
    assert_eq!(only.volume_ds, "/data/k3s/datastore/");
    let (settings, _) = read("[kubernetes.a]\n").expect("valid");
    assert!(settings.kubernetes.is_some());
    assert_eq!(settings.kubernetes().len(), 1);
    assert!(read("[apps]\n").expect("valid").0.kubernetes().is_empty());
}

#[test]
fn instance_with_own_credentials_or_certificate_inherits_no_part_of_them() {
    let shared = "[kubernetes]\nauth_username = \"u\"\nauth_password = \"p\"\ntls_certificate = \"c\"\ntls_key = \"k\"\n";
    let (settings, _) = read(&format!("{shared}[kubernetes.a]\nport = 1\n")).expect("valid");
    let inherited = settings.kubernetes()[0];
    assert_eq!(inherited.auth_username.as_deref(), Some("u"));
    assert!(inherited.tls_key.as_ref().is_some_and(|path| path.is_absolute()));
    let error = read(&format!(
        "{shared}[kubernetes.a]\nport = 1\nauth_username = \"v\"\n"
    ))
    .expect_err("half");
    assert!(
        error.contains("`kubernetes.a.auth_password` (AUTH_PASSWORD) is missing"),
        "{error}"
    );
    let error = read(&format!(
        "{shared}[kubernetes.a]\nport = 1\nssl_crt_base64 = \"\"\n"
    ))
    .expect_err("half");
    assert!(!error.contains("both set"), "{error}");
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn faults_name_the_sections() {
    for (text, expected) in [
        (
            "[kubernetes.a]\nprot = 1\n",
            &["unknown key `kubernetes.a.prot` (in", "did you mean `port`?"][..],
        ),
        (
            "[kubernetes.a]\nport = \"x\"\n",
            &["`kubernetes.a.port` is the text"],
        ),
        (
            "[kubernetes.a.deeper]\nx = 1\n",
            &["unknown key `kubernetes.a.deeper`"],
        ),
        (
            "[kubernetes]\nprot = 1\n[kubernetes.a]\n",
            &["unknown key `kubernetes.prot`", "did you mean `port`?"],
        ),
        (
            "[kubernetes.port]\nrole = \"r\"\n",
            &[
                "`kubernetes.port` is a table (in",
                "no instance can have the name of a key of [kubernetes]",
            ],
        ),
        (
            "[kubernetes.Prod]\n",
            &["[kubernetes.Prod]", "lowercase letters, digits and hyphens"],
        ),
        ("[kubernetes.a_b]\n", &["\"a_b\" is not a valid instance name"]),
        (
            "[kubernetes_instances.a]\n",
            &["unknown key `kubernetes_instances`"],
        ),
        (
            "[kubernetes]\nframework_name = \"x\"\n[kubernetes.a]\n",
            &["`kubernetes.framework_name` (FRAMEWORK_NAME) is set"],
        ),
        (
            "[kubernetes.a]\nauth_username = \"u\"\nauth_password = \"p\"\n",
            &[
                "`kubernetes.a.auth_username` has no effect",
                "`kubernetes.a.port`",
            ],
        ),
        (
            "[kubernetes.a]\n[kubernetes.b]\nframework_name = \"a\"\n",
            &["`kubernetes.a.framework_name` and `kubernetes.b.framework_name` are both \"a\""],
        ),
        (
            "[kubernetes.a]\nvolume_ds = \"/d\"\n[kubernetes.b]\nvolume_orch_server = \"/d/\"\n",
            &["`kubernetes.a.volume_ds` and `kubernetes.b.volume_orch_server` are both \"/d\""],
        ),
        (
            "[kubernetes.a]\n[kubernetes.a-1]\n",
            &[
                "`kubernetes.a-1.volume_ds` is \"/data/k3s/datastore/a-1\", which is the volume of task 1 of `kubernetes.a.volume_ds`",
                "`kubernetes.a-1.volume_orch_server` is",
            ],
        ),
        (
            "[kubernetes.a]\nport = 7\n[kubernetes.b]\nport = 7\n",
            &["`kubernetes.a.port` and `kubernetes.b.port` are both 7"],
        ),
        (
            "[kubernetes.a]\n[kubernetes.b]\nport = 10000\n",
            &["`kubernetes.port` and `kubernetes.b.port` are both 10000"],
        ),
        (
            "[kubernetes]\nds_count = 0\nds_endpoint = \"mysql://u:hidden@h/k\"\n[kubernetes.a]\n[kubernetes.b]\n",
            &["`kubernetes.a.ds_endpoint` and `kubernetes.b.ds_endpoint` are the same"],
        ),
        (
            "[kubernetes.bootstrap]\nadvertise = \"fw:10000\"\n[kubernetes.a]\nport = 7\n",
            &["set `kubernetes.a.bootstrap.advertise`"],
        ),
        (
            "[kubernetes.bootstrap]\nport = 10001\n[kubernetes.a]\nport = 7\n",
            &["set `kubernetes.a.bootstrap.port`"],
        ),
        (
            "[apps]\n[kubernetes.marathon]\n",
            &["`kubernetes.marathon.framework_name` is \"marathon\", the same as `apps.framework_name`"],
        ),
        (
            "[kubernetes]\nlistener = \"10.0.0.1\"\n[kubernetes.a]\n",
            &["`kubernetes.listener` is 10.0.0.1"],
        ),
        (
            "[kubernetes.a]\nlistener = \"10.0.0.1\"\nhostname = \"h\"\n",
            &[
                "`kubernetes.a.listener` is 10.0.0.1",
                "kubernetes.a.auth_username",
            ],
        ),
    ] {
        let error = read(text).expect_err(text);
        for expected in expected {
            assert!(
                error.contains(expected),
                "{text:?} gave {error:?}, expected {expected:?}"
            );
        }
        assert!(!error.contains("hidden"), "{error}");
    }
    for text in [
        "[kubernetes.a]\nport = 0\n[kubernetes.b]\nport = 0\n",
        "[kubernetes.a]\n[kubernetes.a-x]\n[kubernetes.a-]\n[kubernetes.b-1]\n",
        "[kubernetes.a]\nlistener = \"127.0.0.1\"\nport = 7\n[kubernetes.b]\nlistener = \"127.0.0.2\"\nport = 7\n",
        "[kubernetes.a]\nport = 10000\n[kubernetes.b]\nport = 7\n",
        "[kubernetes.bootstrap]\nadvertise = \"fw\"\n[kubernetes.a]\nport = 7\n",
        "[kubernetes]\ncontainers = false\n[kubernetes.a]\nds_command = \"x\"\n",
    ] {
        assert!(read(text).is_ok(), "{text:?}: {:?}", read(text));
    }
}

#[test]
fn all_faults_are_listed_and_an_inherited_one_only_once() {
    let error = read(
        "[kubernetes]\norch_agent_cpu = 0\n[kubernetes.a]\nds_mem = -1.0\nhostname = \"h\"\n\
         [kubernetes.b]\nframework_name = \"a\"\norch_agent_string = \"\"\n",
    )
    .expect_err("faults");
    let lines: Vec<_> = error.lines().collect();
    let starts = [
        "`kubernetes.a.hostname` has no effect",
        "`kubernetes.orch_agent_cpu`",
        "`kubernetes.a.ds_mem`",
        "`kubernetes.b.orch_agent_string`",
        "`kubernetes.a.framework_name` and",
    ];
    assert_eq!(lines.len(), starts.len(), "{error}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn report_has_every_instance_with_the_sources_of_its_values() {
    let (settings, figment) =
        read("[kubernetes]\nds_port = 7\n[kubernetes.a]\norch_agent_count = 2\n").expect("valid");
    let rows = rows(&settings, &figment).expect("rows");
    for (key, value, source) in [
        ("kubernetes.ds_port", "7", "t.toml"),
        ("kubernetes.a.ds_port", "7", "t.toml"),
        ("kubernetes.a.orch_agent_count", "2", "t.toml"),
        ("kubernetes.a.orch_server_count", "1", "default"),
        ("kubernetes.a.framework_name", "\"a\"", "default of an instance"),
        (
            "kubernetes.a.volume_ds",
            "\"/data/k3s/datastore/a/\"",
            "default of an instance",
        ),
        ("kubernetes.a.bootstrap.max_bytes", "1048576", "default"),
    ] {
        let row = rows
            .iter()
            .find(|row| row.key == key)
            .unwrap_or_else(|| panic!("{key}"));
        assert_eq!(row.value, value, "{key}");
        assert!(row.source.ends_with(source), "{key}: {}", row.source);
    }
    assert!(rows.iter().all(|row| row.key != "kubernetes.framework_name"));
    assert!(rows.iter().all(|row| !row.key.contains("instances")));
}

#[test]
fn keys_of_instances_are_read_from_variables() {
    let names = BTreeSet::from(["a".to_owned(), "a-b".to_owned(), "orch".to_owned()]);
    // The same keys as from variables: TRANSOM_KUBERNETES_A_PORT=1 and so on.
    let source = Toml::Text(
        "[kubernetes]\na_port = 1\na_b_port = 2\norch_agent_count = 3\norch_role = \"r\"\nother_port = 4\na_prot = 5\n",
    );
    let source = WithInstances {
        source,
        names: &names,
    };
    let figment = Figment::new().merge(source);
    for (key, expected) in [
        ("kubernetes_instances.a.port", Some(1)),
        ("kubernetes_instances.a-b.port", Some(2)),
        ("kubernetes.orch_agent_count", Some(3)),
        ("kubernetes.other_port", Some(4)),
        ("kubernetes.a_prot", Some(5)),
        ("kubernetes.a_port", None),
    ] {
        assert_eq!(figment.extract_inner::<u16>(key).ok(), expected, "{key}");
    }
    let role = figment.extract_inner::<String>("kubernetes_instances.orch.role");
    assert_eq!(role.ok().as_deref(), Some("r"));
}

#[test]
fn volume_of_an_instance_ends_with_its_name() {
    for (shared, expected) in [
        ("/data/k3s/server/", "/data/k3s/server/n/"),
        ("/data/k3s/server", "/data/k3s/server/n"),
        ("/data", "/data/n"),
        ("volume", "volume-n"),
        ("/", "/n/"),
    ] {
        assert_eq!(instance_volume(shared, "n"), expected);
    }
}

#[test]
fn keys_include_aliases_and_tables() {
    for key in [
        "port",
        "framework_role",
        "trusted_networks",
        "bootstrap",
        "volume_ds",
    ] {
        assert!(KEYS.contains(&key), "{key}");
    }
    assert!(!KEYS.contains(&"instance"));
}
