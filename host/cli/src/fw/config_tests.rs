use super::*;

fn config(text: &str) -> Config {
    Config::parse("/c.toml".into(), text).expect(text)
}

fn read_error(text: &str) -> String {
    format!("{:#}", config(text).connection().expect_err(text))
}

#[test]
fn file_is_named_by_variables_and_the_neutral_one_takes_precedence() {
    let with = |set: &[(&str, &str)]| {
        let set: Vec<_> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), PathBuf::from(value)))
            .collect();
        file(move |name| {
            let actual = set.iter().find(|(set, _)| set == name);
            actual.map(|(_, value)| value.clone())
        })
    };
    for (set, expected) in [
        (&[("HOME", "/h")][..], "/h/.mesos/config.toml"),
        (&[("HOME", "/h"), ("MESOS_CLI_CONFIG", "/m")], "/m"),
        (&[("MESOS_CLI_CONFIG", "/m"), ("CLUSTER_CLI_CONFIG", "/c")], "/c"),
        (
            &[("CLUSTER_CLI_CONFIG", ""), ("HOME", "/h")],
            "/h/.mesos/config.toml",
        ),
    ] {
        assert_eq!(with(set).expect("a file"), Path::new(expected), "{set:?}");
    }
    assert!(with(&[]).is_err());
}

#[test]
fn master_is_read_and_other_keys_of_the_published_command_line_are_ignored() {
    let config = config(
        "plugins = [\"/a/b\"]\nother = 1\n[master]\naddress = \"a:5050\"\nprincipal = \"p\"\nsecret = \"s\"\n\
         [agent]\nssl = true\n",
    );
    let master = config.connection().expect("a master");
    assert_eq!(master.masters, ["a:5050"]);
    let credentials = master.credentials.expect("credentials");
    assert_eq!(
        (credentials.username.as_str(), credentials.password.reveal()),
        ("p", "s")
    );
    assert!(
        master.credential_keys.contains("/c.toml") && master.tls.is_none(),
        "{master:?}",
        master = master.credential_keys
    );
}

#[test]
fn masters_address_has_a_scheme_and_a_port_or_their_defaults() {
    for (address, expected) in [
        ("a:5050", Some(("a:5050", false))),
        ("http://a:5050/", Some(("a:5050", false))),
        ("https://a:5050", Some(("a:5050", true))),
        ("https://a", Some(("a:443", true))),
        ("a", Some(("a:80", false))),
        ("http://[::1]:5050", Some(("[::1]:5050", false))),
        ("ftp://a:1", None),
        ("a:b", None),
        ("", None),
        ("http://u:p@a:1", None),
        ("a:5050/master", None),
    ] {
        let actual = master_address(address).ok();
        let actual = actual.as_ref().map(|(text, secure)| (text.as_str(), *secure));
        assert_eq!(actual, expected, "{address}");
    }
}

#[test]
fn masters_certificate_is_verified_only_with_ssl_verify() {
    for (line, verify) in [("", false), ("ssl_verify = true", true)] {
        let master = config(&format!("[master]\naddress = \"https://a:1\"\n{line}\n")).connection();
        let tls = master.expect("a master").tls.expect("TLS");
        assert_eq!(tls.verify, verify, "{line}");
    }
}

#[test]
fn masters_are_found_in_zookeeper() {
    let text = "[master.zookeeper]\naddresses = [\"a:2181\", \"b:2181\"]\npath = \"/mesos\"\n";
    let master = config(text).connection().expect("masters");
    assert_eq!(master.masters, ["zk://a:2181,b:2181/mesos"]);
    for text in [
        "[master.zookeeper]\npath = \"/mesos\"\n",
        "[master.zookeeper]\naddresses = []\npath = \"/mesos\"\n",
        "[master.zookeeper]\naddresses = [1]\npath = \"/mesos\"\n",
        "[master.zookeeper]\naddresses = [\"a:1\"]\npath = \"mesos\"\n",
        "[master]\nzookeeper = 1\n",
    ] {
        let error = read_error(text);
        assert!(
            error.contains("[master.zookeeper]") && error.contains("/c.toml"),
            "{error}"
        );
    }
}

#[test]
fn missing_or_wrong_master_is_reported_with_file_and_key() {
    for (text, key) in [
        ("plugins = []", "[master]"),
        ("master = 1", "[master]"),
        ("[master]", "`address`"),
        ("[master]\naddress = 1", "`address`"),
        ("[master]\naddress = \"a b\"", "`address`"),
        ("[master]\naddress = \"a:1\"\nzookeeper = {}", "`zookeeper`"),
        ("[master]\naddress = \"a:1\"\nprincipal = \"p\"", "`secret`"),
        ("[master]\naddress = \"a:1\"\nsecret = \"hidden\"", "`principal`"),
        (
            "[master]\naddress = \"a:1\"\nprincipal = 1\nsecret = \"hidden\"",
            "`principal`",
        ),
        ("[master]\naddress = \"a:1\"\nssl_verify = \"no\"", "`ssl_verify`"),
    ] {
        let error = read_error(text);
        assert!(
            error.contains("/c.toml") && error.contains(key) && !error.contains("hidden"),
            "{text}: {error}"
        );
    }
}

#[test]
fn invalid_toml_is_reported_with_its_line_and_without_its_text() {
    let text = "[master]\naddress = \"a:1\"\nsecret = \"hidden\" x\n";
    let error = format!(
        "{:#}",
        Config::parse("/c.toml".into(), text).expect_err("invalid")
    );
    assert!(
        error.contains("/c.toml, line 3") && !error.contains("hidden"),
        "{error}"
    );
}

#[test]
fn credentials_are_those_of_the_frameworks_name_or_of_every_framework() {
    let login = |text: &str, framework: &str| {
        let login = config(text).find_login(framework).expect(text);
        let credentials = login
            .credentials
            .map(|(name, secret)| format!("{name}/{}", secret.reveal()));
        (credentials.unwrap_or_default(), login.section)
    };
    let both = |section: &str, name: &str| format!("[{section}]\nprincipal = \"{name}\"\nsecret = \"s\"\n");
    for (sections, framework, expected) in [
        (&["fw", "m3s", "fw.a", "m3s.a"][..], "a", ("fw.a/s", "fw.a")),
        (&["fw", "m3s.a"], "a", ("m3s.a/s", "m3s.a")),
        (&["fw", "m3s", "fw.a"], "b", ("fw/s", "fw")),
        (&["m3s", "m3s.a"], "b", ("m3s/s", "m3s")),
        (&["fw.a"], "b", ("", "fw.b")),
        (&[], "a b", ("", "fw.\"a b\"")),
        // A framework with the name of a key.
        (&["fw.principal"], "principal", ("fw.principal/s", "fw.principal")),
        (&["fw.principal"], "b", ("", "fw.b")),
    ] {
        let text: String = sections.iter().map(|section| both(section, section)).collect();
        let (credentials, section) = login(&text, framework);
        assert_eq!(
            (credentials.as_str(), section.as_str()),
            expected,
            "{sections:?} {framework}"
        );
    }
    let half = config("[fw.a]\nprincipal = \"p\"\n").find_login("a");
    let error = format!("{:#}", half.expect_err("half"));
    assert!(error.contains("[fw.a]") && error.contains("`secret`"), "{error}");
}

#[test]
fn section_of_the_older_name_is_reported_when_it_is_not_used() {
    let text = "[fw.a]\nprincipal = \"p\"\nsecret = \"s\"\n[m3s.a]\nprincipal = \"q\"\nsecret = \"s\"\n[m3s]\nprincipal = \"r\"\nsecret = \"s\"\n";
    let unused = |name: &str| config(text).find_login(name).expect("a login").unused;
    assert_eq!(unused("a").as_deref(), Some("m3s.a"));
    assert_eq!(unused("b"), None);
}

#[test]
fn certificates_of_a_framework_are_verified_with_ssl_verify_in_its_own_or_the_common_section() {
    for (text, verify) in [
        ("", false),
        ("[fw]\nssl_verify = true", true),
        ("[fw]\nssl_verify = true\n[m3s.a]\nssl_verify = false", false),
        ("[m3s.a]\nssl_verify = true", true),
    ] {
        assert_eq!(config(text).find_login("a").expect(text).verify, verify, "{text}");
    }
}

#[test]
fn only_a_separate_section_names_a_framework() {
    let config = config("[fw]\nprincipal = \"p\"\nsecret = \"s\"\n[fw.a]\n[m3s.b]\n");
    let named = ["a", "b", "c", "principal"].map(|name| config.has_section_for(name));
    assert_eq!(named, [true, true, false, false]);
}
