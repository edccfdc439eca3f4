use serde_json::{Value, json};

use super::*;

fn import(file: &Value) -> Result<Import, String> {
    read(file.to_string().as_bytes()).map_err(|problems| problems.to_string())
}

/// A file with masters and these keys.
fn with(keys: &Value) -> Value {
    let mut file = json!({"masters": ["10.0.0.1:5050"]});
    let all = file.as_object_mut().expect("an object");
    all.extend(keys.as_object().expect("an object").clone());
    file
}

#[test]
fn read_takes_mesos_dns_keys_in_any_case() {
    let file = json!({
        "zk": "zk://h:2181/mesos", "MASTERS": ["10.0.0.1:5050"], "refreshSeconds": 10, "ttl": 20, "Domain": "Example",
        "port": 8053, "httpport": 8124, "listener": "127.0.0.1", "HTTPListener": "::1", "IPSources": ["host"],
        "SRVRecordDefaultWeight": 7, "zkDetectionTimeout": 9, "stateTimeoutSeconds": 8, "dnson": false,
        "resolvers": ["9.9.9.9"], "zoneResolvers": {"weave": ["10.0.0.9:5353"]}, "enforceRFC952": true,
        "TLSPort": 0, "HTTPSPort": 8443, "TLSCertificate": "cert.pem",
    });
    let import = import(&file).expect("valid");
    let (cluster, discovery) = (import.cluster, import.discovery);
    assert_eq!(import.notes, [""; 0]);
    assert_eq!(cluster.master, "zk://h:2181/mesos");
    assert_eq!(cluster.fallback_masters, ["10.0.0.1:5050"]);
    assert_eq!(
        (cluster.state_timeout_seconds, cluster.detection_timeout_seconds),
        (8, 9)
    );
    let expected = Discovery {
        refresh_seconds: 10,
        ttl: 20,
        domain: "example".into(),
        port: 8053,
        http_port: 8124,
        listener: [127, 0, 0, 1].into(),
        http_listener: "::1".parse().expect("an address"),
        ip_sources: vec!["host".into()],
        srv_record_default_weight: 7,
        dns_on: false,
        resolvers: vec!["9.9.9.9".into()],
        zone_resolvers: [("weave".to_owned(), vec!["10.0.0.9:5353".to_owned()])].into(),
        enforce_rfc952: true,
        https_port: Some(8443),
        tls_certificate: Some("cert.pem".into()),
        ..Discovery::default()
    };
    assert_eq!(discovery, expected);
}

#[test]
fn missing_keys_have_mesos_dns_defaults() {
    let import = import(&with(&json!({}))).expect("valid");
    let expected = Discovery {
        resolvers: vec!["8.8.8.8".into()],
        ..Discovery::default()
    };
    assert_eq!(import.discovery, expected);
    assert_eq!(
        (&*import.cluster.master, import.cluster.detection_timeout_seconds),
        ("10.0.0.1:5050", 30)
    );
}

#[test]
fn last_duplicate_key_is_used_and_null_is_ignored() {
    let text = br#"{"masters": ["h:1"], "Domain": "one", "DOMAIN": "two", "ttl": 5, "TTL": null}"#;
    let discovery = read(text).expect("valid").discovery;
    assert_eq!((&*discovery.domain, discovery.ttl), ("two", 5));
}

#[test]
fn read_accepts_email_and_mname() {
    for (keys, expected) in [
        (json!({"Email": "root@x", "mname": "ns.x"}), ("ns.x", "root@x")),
        (json!({"SOARname": "a.x", "soamname": "b.x"}), ("b.x", "a.x")),
        (json!({"Email": "c.x", "SOARname": "a.x"}), ("ns1.mesos", "a.x")),
        (json!({"email": 5}), ("ns1.mesos", "root.ns1.mesos")),
    ] {
        let discovery = import(&with(&keys)).expect("valid").discovery;
        assert_eq!((&*discovery.soa_mname, &*discovery.soa_rname), expected, "{keys}");
    }
}

#[test]
fn questionable_values_are_accepted_with_a_note() {
    for (keys, expected) in [
        (json!({"bogus": 1}), "`bogus` is not a known key"),
        (json!({"ttl": -1}), "TTL is -1"),
        (json!({"MesosHTTPSOn": true}), "are not verified"),
        (
            json!({"mesosCredentials": {"Principal": "p", "secret": "hunter2"}}),
            "MesosCredentials are not used",
        ),
    ] {
        let import = import(&with(&keys)).expect("valid");
        assert!(
            import.notes.len() == 1 && import.notes[0].contains(expected),
            "{:?}",
            import.notes
        );
    }
    // Unused values are not checked.
    for keys in [
        json!({"dnson": false, "port": 70000}),
        json!({"httpon": false, "httpport": -1, "HTTPListener": "no.such.name.invalid"}),
        json!({"externalon": false, "resolvers": ["a"], "zoneResolvers": {"": []}}),
    ] {
        assert!(import(&with(&keys)).is_ok(), "{keys}");
    }
}

#[test]
fn credentials_depend_on_the_authentication() {
    let keys = json!({"mesosAuthentication": "basic", "MesosCredentials": {"principal": "p"}});
    let cluster = import(&with(&keys)).expect("valid").cluster;
    assert_eq!(cluster.username.as_deref(), Some("p"));
    assert_eq!(
        cluster
            .password
            .map(|password| password.reveal().to_owned())
            .as_deref(),
        Some("")
    );
    let keys = json!({"mesosAuthentication": "iam", "IAMConfigFile": "/iam", "CACertFile": "/ca", "MesosHTTPSOn": true});
    let cluster = import(&with(&keys)).expect("valid").cluster;
    assert_eq!(cluster.iam_config_file, Some("/iam".into()));
    assert!(cluster.ssl && !cluster.skip_ssl);
}

#[test]
fn read_names_all_problems_with_their_keys() {
    for (file, expected) in [
        (json!(null), "Masters, Zk: one of them"),
        (json!([]), "expected a JSON object"),
        (json!({}), "Masters, Zk: one of them"),
        (json!({"masters": []}), "Masters, Zk: one of them"),
        (json!({"masters": ["a"]}), "Masters: \"a\" must be host:port"),
        (
            with(&json!({"port": "53"})),
            "port: is a text, expected a whole number",
        ),
        (with(&json!({"ttl": 1.5})), "ttl: is 1.5, expected a whole number"),
        (
            with(&json!({"SRVRecordDefaultWeight": 70000})),
            "is 70000, expected a whole number from 0 to 65535",
        ),
        (
            with(&json!({"masters": "h:1"})),
            "masters: is a text, expected a list of texts",
        ),
        (
            with(&json!({"port": 70000})),
            "Port: 70000 must be from 0 to 65535",
        ),
        (
            with(&json!({"refreshSeconds": 0})),
            "RefreshSeconds: must be 1 or more",
        ),
        (
            with(&json!({"refreshSeconds": -1})),
            "RefreshSeconds: must be 1 or more",
        ),
        (
            with(&json!({"stateTimeoutSeconds": 0})),
            "StateTimeoutSeconds: must be 1 or more",
        ),
        (
            with(&json!({"dnson": false, "httpon": false})),
            "DnsOn, HttpOn: both are off",
        ),
        (with(&json!({"domain": "a_b"})), "Domain: \"a_b\" must be labels"),
        (with(&json!({"IPSources": []})), "IPSources: needs at least one"),
        (
            with(&json!({"resolvers": ["a"]})),
            "Resolvers: \"a\" must be an address",
        ),
        (
            with(&json!({"zoneResolvers": {"mesos": ["8.8.8.8"]}})),
            "ZoneResolvers: zone \"mesos\" is the served domain",
        ),
        (
            with(&json!({"listener": "localhost"})),
            "Listener: \"localhost\" must be an address",
        ),
        (
            with(&json!({"HTTPListener": "no.such.name.invalid"})),
            "HTTPListener: \"no.such.name.invalid\" must be",
        ),
        (with(&json!({"certFile": "/a"})), "KeyFile: is missing"),
        (with(&json!({"keyFile": "/a"})), "CertFile: is missing"),
        (
            with(&json!({"mesosAuthentication": "kerberos"})),
            "MesosAuthentication: \"kerberos\" must be",
        ),
        (
            with(&json!({"mesosAuthentication": "basic"})),
            "MesosCredentials: MesosAuthentication basic needs",
        ),
        (
            with(&json!({"mesosAuthentication": "iam"})),
            "IAMConfigFile: MesosAuthentication iam needs",
        ),
        (
            with(&json!({"mesosCredentials": {"secret": 5}})),
            "mesosCredentials.secret: is 5, expected a text",
        ),
        (
            with(&json!({"mesosCredentials": []})),
            "mesosCredentials: is a list, expected an object",
        ),
    ] {
        let error = import(&file).expect_err("wrong");
        assert!(error.contains(expected), "{file}: {error}");
    }
    let both = import(&with(&json!({"domain": ".", "IPSources": ["x"]}))).expect_err("wrong");
    assert_eq!(both.lines().count(), 2, "{both}");
    for text in ["", "{", "{} {}"] {
        let error = read(text.as_bytes()).expect_err("no JSON").to_string();
        assert!(
            error.contains("expected a JSON object") && error.contains("line 1"),
            "{text}: {error}"
        );
    }
}
