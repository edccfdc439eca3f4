use std::io::Write;

use super::*;

fn read(text: &str) -> Result<Settings, String> {
    let mut file = tempfile::Builder::new()
        .suffix(".toml")
        .tempfile()
        .expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    load(Some(file.path()), Overrides::default())
        .map(|(settings, _)| settings)
        .map_err(|e| e.to_string())
}

#[test]
fn section_enables_its_service() {
    let settings = read("[apps]\n").expect("valid");
    assert!(settings.apps.is_some());
    assert!(settings.discovery.is_none());
}

#[test]
fn errors_do_not_contain_secrets() {
    for text in [
        "[admin]\npassword = 1234567\n",
        "[apps]\napi_password = [1234567]\n",
        "[kubernetes.blue]\nauth_password = 1234567\n",
        "[[plugins.oci.credentials]]\nregistry = \"r\"\nusername = \"u\"\npassword = 1234567\n",
    ] {
        let error = read(text).expect_err(text);
        assert!(
            error.contains("password") && !error.contains("1234567"),
            "{error}"
        );
    }
}

#[test]
fn destinations_of_callbacks_are_checked() {
    let error = read("[apps.callbacks]\nallow = [\"bad host!!\"]\n").expect_err("invalid");
    assert!(
        error.contains("`apps.callbacks.allow` contains \"bad host!!\": expected a host"),
        "{error}"
    );
}

#[test]
fn load_names_mistakes_with_their_key() {
    for (text, expected) in [
        ("[apps]\nprot = 1\n", "unknown key `apps.prot` "),
        ("[apps]\nprot = 1\n", "did you mean `port`?"),
        ("[app]\nport = 1\n", "unknown key `app`"),
        ("[apps]\nport = \"x\"\n", "`apps.port`"),
        ("[apps]\nport = 70000\n", "`apps.port`"),
        (
            "[apps.checks]\nnetwork_from = \"moon\"\n",
            "expected one of daemon, agent",
        ),
        ("[apps\n", "TOML parse error"),
        (
            "[plugins.oci]\nrefresh_seconds = 0\n",
            "`plugins.oci.refresh_seconds` is 0",
        ),
        (
            "[plugins.recording]\nsample_percent = 0\n",
            "`plugins.recording.sample_percent` is 0: it must be between 1 and 100",
        ),
        (
            "[plugins.recording]\nmax_bytes = 1000\n",
            "`plugins.recording.max_bytes` is 1000: it must be between 1048576 and 1099511627776",
        ),
        (
            "[plugins.recording]\nmax_age_seconds = 59\n",
            "`plugins.recording.max_age_seconds` is 59: it must be between 60 and 31536000",
        ),
        (
            "[plugins]\ncompile_timeout_seconds = 0\n",
            "`plugins.compile_timeout_seconds` is 0: it must be between 1 and 3600 seconds",
        ),
        (
            "[plugins]\ncompile_memory_bytes = 1000\n",
            "`plugins.compile_memory_bytes` is 1000: it must be between 268435456 and 68719476736 bytes",
        ),
        ("[[plugins.oci.credentials]]\nuser = \"u\"\n", "registry"),
        ("[plugins.signatures]\nkey = []\n", "did you mean `keys`?"),
        ("[apps]\nlistener = \"0.0.0.0\"\n", "`apps.listener` is 0.0.0.0"),
        (
            "[apps]\nenv_vars_prefix = \"MY-\"\n",
            "`apps.env_vars_prefix` is \"MY-\"; expected letters, digits and underscores",
        ),
        ("[apps]\nenv_vars_prefix = \"1_\"\n", "not beginning with a digit"),
        (
            "[apps]\ndefault_network_name = \"-x\"\n",
            "`apps.default_network_name` is \"-x\"; expected at most 63 letters",
        ),
        ("[apps]\nenable_features = [\"secret\"]\n", "is `secret` (in"),
        (
            "[apps]\nmax_versions = 0\nmax_apps = 0\n",
            "`apps.max_versions` is 0: it must be between 1 and 1000",
        ),
        (
            "[workflow]\nmax_jobs_bytes = 1000\n",
            "`workflow.max_jobs_bytes` is 1000: it must be at least 1048576",
        ),
        (
            "[admin]\nlistener = \"10.0.0.1\"\n",
            "`admin.listener` is 10.0.0.1",
        ),
        ("[admin]\nusername = \"u\"\n", "`admin.password` is missing"),
        ("[admin]\npassword = \"p\"\n", "`admin.username` is missing"),
        (
            "[admin]\nlistener = \"10.0.0.1\"\nusername = \"u\"\n",
            "`admin.password` is missing",
        ),
        (
            "[admin]\nusername = \"u:v\"\npassword = \"p\"\n",
            "`admin.username` is \"u:v\"",
        ),
        (
            "[admin]\nusername = \"u\"\npassword = \"\"\n",
            "`admin.password` is empty",
        ),
        (
            "[apps]\nallowed_hosts = [\"http://marathon.mesos:8080\"]\n",
            "without scheme and port",
        ),
        ("[apps]\nallowed_hosts = [\"a:80\"]\n", "`apps.allowed_hosts"),
        (
            "[workflow]\nallowed_origins = [\"ui.example.com\"]\n",
            "`workflow.allowed_origins",
        ),
        (
            "[admin]\nallowed_origins = [\"null\"]\n",
            "\"null\" is not an origin",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(
            error.contains(expected),
            "{text:?} gave {error:?}, expected {expected:?}"
        );
    }
}

/// Values that a service would ignore, or only reject when it starts.
#[test]
fn values_without_effect_are_rejected() {
    for (text, expected) in [
        (
            "[log]\nlevel = \"inof\"\n",
            "`log.level`: unknown log level `inof`",
        ),
        ("[cluster]\nmaster = \"10.0.0.1\"\n", "`cluster.master`: "),
        ("[cluster]\nmaster = \"\"\n", "`cluster.master`: "),
        ("[cluster]\nmaster = \"zk:/h:1/m\"\n", "`cluster.master`: "),
        (
            "[cluster]\nfallback_masters = [\"h:99999\"]\n",
            "`cluster.fallback_masters`: ",
        ),
        ("[cluster]\nusername = \"u\"\n", "`cluster.password` is missing"),
        (
            "[cluster]\nkey_file = \"k\"\n",
            "`cluster.certificate_file` is missing",
        ),
        (
            "[cluster]\nstate_timeout_seconds = 0\n",
            "`cluster.state_timeout_seconds` is 0",
        ),
        ("[store]\nserver = \"redsi://h:1\"\n", "`store.server`: "),
        ("[store]\nserver = \"file:\"\n", "`store.server`: "),
        ("[store]\nuser = \"u\"\n", "`store.server`: "),
        (
            "[plugins.oci]\ninsecure_registries = [\"http://r:5000\"]\n",
            "`plugins.oci.insecure_registries` is \"http://r:5000\"; expected `host`",
        ),
        (
            "[[plugins.oci.credentials]]\nregistry = \"r/x\"\nuser = \"u\"\npassword = \"p\"\n",
            "`plugins.oci.credentials.registry` is \"r/x\"",
        ),
        (
            "[[plugins.oci.credentials]]\nregistry = \"r\"\nuser = \"u\"\n",
            "expected exactly one of password and password_file",
        ),
        (
            "[discovery]\nip_sources = [\"moon\"]\n",
            "`discovery.ip_sources`: ",
        ),
        (
            "[discovery]\nforward_policy = \"ordered\"\n",
            "`ordered` is now `sequential`",
        ),
        ("[discovery]\nresolvers = [\"dns\"]\n", "`discovery.resolvers`: "),
        (
            "[discovery]\nrefresh_seconds = 0\n",
            "`discovery.refresh_seconds`: ",
        ),
        ("[discovery]\ndomain = \"a_b\"\n", "`discovery.domain`: "),
        ("[workflow]\nmaster = \"h\"\n", "`workflow.master`: "),
        (
            "[workflow]\noperator_api_url = \"10.0.0.1:11000\"\n",
            "`workflow.operator_api_url` is not a URL",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(
            error.starts_with(expected) || error.contains(expected),
            "{text:?} gave {error:?}"
        );
        assert!(error.lines().count() == 1, "{error}");
        assert!(error.contains(", line "), "{error}");
    }
}

#[test]
fn all_faults_are_reported_together_in_words_with_their_lines() {
    let error = read(
        "[apps]\nport = 70000\nlistener = 127.0.0.1\nprot = 1\nmax_body = true\nmax_apps = 0\n\
         trusted_networks = [\"10.0.0.0/8\",\n  \"moon\"]\n[log]\nlevel = \"inof\"\nformat = \"xml\"\n\
         [workflow]\nmesos_ssl = \"yes\"\napi_username = \"u\"\n[cluster]\nmaster = \"h\"\n\
         [admin]\nlistener = \"10.0.0\"\n[discovery]\nipsources = []\nttl = -1\nsoa_mname = \"a..b\"\n",
    )
    .expect_err("faults");
    for (line, expected) in [
        (2, "`apps.port` is 70000"),
        (2, "expected a whole number, 0 to 65535"),
        (3, "needs quotes, as in \"127.0.0.1\""),
        (4, "unknown key `apps.prot`"),
        (5, "`apps.max_body` is true"),
        (6, "`apps.max_apps` is 0"),
        (8, "`apps.trusted_networks.1`"),
        (10, "unknown log level `inof`"),
        (11, "`log.format` is `xml`"),
        (13, "`workflow.cluster_ssl` is the text \"yes\""),
        (13, "expected true or false, without quotes"),
        (12, "`workflow.api_password` is missing"),
        (16, "`cluster.master`: "),
        (
            18,
            "`admin.listener`: invalid IP address syntax; expected an address in quotes",
        ),
        (20, "did you mean `ip_sources`?"),
        (21, "`discovery.ttl` is -1"),
        (22, "`discovery.soa_mname`: "),
    ] {
        let found = error
            .lines()
            .any(|text| text.contains(&format!("line {line}")) && text.contains(expected));
        assert!(found, "{line} {expected}: {error}");
    }
    assert_eq!(error.lines().count(), 15, "{error}");
}

#[test]
fn faults_of_shared_keys_are_reported_once() {
    let error = read("[kubernetes]\nport = 70000\nds_mem = -1\n[kubernetes.a]\n[kubernetes.b]\ntz = 1\n")
        .expect_err("faults");
    assert_eq!(error.matches("`kubernetes.port` is 70000").count(), 1, "{error}");
    assert!(
        error.contains("`kubernetes.b.tz` is 1 (in ") && error.contains(", line 6)"),
        "{error}"
    );
    assert!(
        error.contains("`kubernetes.ds_mem`") && error.contains(", line 3)"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn many_faults_are_counted() {
    let keys: Vec<_> = (0..150).map(|number| format!("unknown{number} = 1")).collect();
    let error = read(&format!("[apps]\n{}\n", keys.join("\n"))).expect_err("faults");
    assert_eq!(error.lines().count(), 101, "{error}");
    assert!(error.ends_with("\nand 50 more"), "{error}");
}

#[test]
fn attributes_that_match_no_agent_are_rejected() {
    for (text, expected) in [
        (
            "[workflow]\ncluster_attributes = [\"a:b\", \"airflow\"]\n",
            "`workflow.cluster_attributes` has \"airflow\"",
        ),
        (
            "[workflow]\nmesos_attributes = [\"gpu:true?:cpu\"]\n",
            "has \"gpu:true?:cpu\"",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(expected), "{text:?} gave {error:?}");
    }
}

#[test]
fn exposed_admin_port_needs_credentials_or_networks() {
    for more in [
        "username = \"u\"\npassword = \"p\"\n",
        "trusted_networks = [\"10.0.0.0/8\"]\n",
    ] {
        let text = format!("[admin]\nlistener = \"0.0.0.0\"\n{more}");
        let settings = read(&text).expect("valid");
        assert_eq!(settings.admin.listener.to_string(), "0.0.0.0");
    }
    let hosts = "[admin]\nallowed_hosts = [\"*.Example.com\", \"fd00::1\"]\n";
    let actual: Vec<String> = read(hosts)
        .expect("valid")
        .admin
        .allowed_hosts
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(actual, ["*.example.com", "[fd00::1]"]);
}

#[test]
fn admin_reads_only_its_section() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |text: &str| {
        let path = dir.path().join("t.toml");
        std::fs::write(&path, text).expect("written");
        path
    };
    // The password of `[workflow]` is missing, as if it were only in the daemon's environment. A client
    // of the admin port does not need it.
    let text = "[workflow]\napi_username = \"u\"\n[admin]\nport = 1\nusername = \"a\"\npassword = \"p\"\n";
    let admin_settings = admin(&file(text)).expect("a section");
    assert_eq!(
        (admin_settings.port, admin_settings.username.as_deref()),
        (1, Some("a"))
    );
    assert_eq!(
        admin_settings
            .password
            .map(|it| it.reveal().to_owned())
            .as_deref(),
        Some("p")
    );
    assert_eq!(admin(&file("[apps]\n")).expect("defaults").port, 9990);
    for (text, expected) in [
        ("[admin]\nprot = 1\n", "did you mean `port`?"),
        ("[admin\n", "TOML parse error"),
    ] {
        let error = admin(&file(text)).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = admin(&dir.path().join("none")).expect_err("no file").to_string();
    assert!(error.contains("no configuration at"), "{error}");
}

#[test]
fn other_matchers_may_use_other_attribute_forms() {
    let text = "[plugins.use]\nmatcher = \"ours\"\n[workflow]\ncluster_attributes = [\"airflow\"]\n";
    let workflow = read(text).expect("valid").workflow.expect("on");
    assert_eq!(workflow.cluster_attributes, ["airflow"]);
}

#[test]
fn plugins_of_one_extension_point_have_valid_distinct_names_and_are_at_most_eight() {
    let plugins = |text: &str| read(&format!("[plugins.use]\n{text}\n"));
    let settings = plugins("matcher = [\"attributes\", \"ours\"]").expect("valid");
    assert_eq!(settings.plugins.bindings.matcher.names(), ["attributes", "ours"]);
    assert_eq!(settings.plugins.bindings.filter.names(), ["events"]);
    let names: Vec<String> = (0..9).map(|number| format!("\"p{number}\"")).collect();
    for (text, expected) in [
        (
            "matcher = []".to_owned(),
            "`plugins.use.matcher` has 0 plugins; expected 1 to 8",
        ),
        (
            format!("filter = [{}]", names.join(", ")),
            "`plugins.use.filter` has 9 plugins; expected 1 to 8",
        ),
        (
            "filter = [\"a\", \"b\", \"a\"]".to_owned(),
            "`plugins.use.filter` has \"a\" twice",
        ),
        (
            "matcher = 5".to_owned(),
            "expected the name of a plugin or a list of names",
        ),
        (
            "filter = [\"events\", \"../escape\"]".to_owned(),
            "`plugins.use.filter`: \"../escape\" is not the name of a plugin",
        ),
        (
            "tcp = \"\"".to_owned(),
            "`plugins.use.tcp`: \"\" is not the name of a plugin",
        ),
    ] {
        let error = format!("{:#}", plugins(&text).expect_err(&text));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn command_line_overrides_file() {
    let mut file = tempfile::Builder::new()
        .suffix(".toml")
        .tempfile()
        .expect("a temporary file");
    file.write_all(b"[apps]\nport = 1\nrole = \"dev\"\n")
        .expect("written");
    let mut overrides = Overrides::default();
    overrides.set("apps.port", 2_u16);
    let (settings, figment) = load(Some(file.path()), overrides).expect("valid");
    let apps = settings.apps.expect("on");
    assert_eq!((apps.port, apps.role.as_str()), (2, "dev"));
    assert_eq!(
        figment.find_metadata("apps.port").expect("known").name,
        "the command line"
    );
}

#[test]
fn relative_paths_are_resolved_against_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    std::fs::write(
        &file,
        "[apps]\ntls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\nui_dir = \"ui\"\n[plugins]\ndir = \"p\"\n[plugins.signatures]\nkeys = [\"a.pub\", \"/b.pub\"]\n[plugins.oci]\nca_file = \"ca\"\n",
    )
    .expect("written");
    let (settings, _) = load(Some(&file), Overrides::default()).expect("valid");
    assert_eq!(settings.plugins.dir, dir.path().join("p"));
    assert_eq!(settings.plugins.oci.ca_file, Some(dir.path().join("ca")));
    let apps = settings.apps.expect("on");
    assert_eq!(apps.tls_certificate, Some(dir.path().join("c.pem")));
    assert_eq!(apps.ui_dir, Some(dir.path().join("ui")));
    let keys = settings.plugins.signatures.keys;
    assert_eq!(keys, [dir.path().join("a.pub"), PathBuf::from("/b.pub")]);
}
