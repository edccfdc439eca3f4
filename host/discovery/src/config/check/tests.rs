#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use super::*;

#[test]
fn masters_need_a_port_and_no_duplicates() {
    for (texts, expected) in [
        (&[][..], Ok(&[][..])),
        (
            &["10.0.0.1:5050", "leader.mesos:5050"],
            Ok(&["10.0.0.1:5050", "leader.mesos:5050"]),
        ),
        (&["1.2.3.4.5:6"], Ok(&["1.2.3.4.5:6"])),
        (&["[2001:0db8::1]:1"], Ok(&["[2001:db8::1]:1"])),
        (&["[::ffff:127.0.0.1]:5050"], Ok(&["127.0.0.1:5050"])),
        (&[""], Err("must be host:port")),
        (&["a"], Err("must be host:port")),
        (&["a:0"], Err("must be host:port")),
        (&["a:65536"], Err("must be host:port")),
        (&[":5050"], Err("must be host:port")),
        (&["1.2.3.4"], Err("must be host:port")),
        (&["127.0.0.1:http"], Err("must be host:port")),
        (&["2001:db8::1:1"], Err("must be host:port")),
        (&["a:1", "a:1"], Err("twice")),
        (&["127.0.0.1:1", "[::ffff:127.0.0.1]:1"], Err("twice")),
        (&["[2001:0db8::1]:1", "[2001:db8::1]:1"], Err("twice")),
    ] {
        match (masters(texts), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{texts:?}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{texts:?}: {found}"),
            (found, _) => panic!("{texts:?}: {found:?}"),
        }
    }
}

#[test]
fn resolvers_need_addresses_without_duplicates() {
    for (texts, expected) in [
        (
            &["8.8.8.8", "1.2.3.4:5353"][..],
            Ok(&["8.8.8.8:53", "1.2.3.4:5353"][..]),
        ),
        (
            &["2001:db8::1", "[2001:db8::1]:55"],
            Ok(&["[2001:db8::1]:53", "[2001:db8::1]:55"]),
        ),
        (&["a"], Err("must be an address")),
        (&[""], Err("must be an address")),
        (&["1.2.3.4.5"], Err("must be an address")),
        (&["dns.example.com"], Err("must be an address")),
        (&["1.2.3.4:0"], Err("must be an address")),
        (&["1.2.3.4:65536"], Err("must be an address")),
        (&["1.2.3.4:-1"], Err("must be an address")),
        (&["1.2.3.4:abc"], Err("must be an address")),
        (&["1.2.3.4", "1.2.3.4"], Err("twice")),
        (&["1.2.3.4", "1.2.3.4:53"], Err("twice")),
        (&["2001:0db8::1", "2001:db8::1"], Err("twice")),
    ] {
        match (resolvers(texts), expected) {
            (Ok(found), Ok(expected)) => {
                let found: Vec<_> = found.iter().map(ToString::to_string).collect();
                assert_eq!(found, expected, "{texts:?}");
            }
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{texts:?}: {found}"),
            (found, _) => panic!("{texts:?}: {found:?}"),
        }
    }
}

#[test]
fn zone_resolvers_rejects_overlapping_zones() {
    let one: &[&str] = &["8.8.8.8"];
    for (zones, domain, expected) in [
        (&[("weave", one)][..], "mesos", None),
        (&[("acdcmesos", one)], "mesos", None),
        (&[("abc.com", one), ("bc.com", one)], "mesos", None),
        (&[("weave", &[])], "mesos", Some("\"weave\" has no resolver")),
        (&[("", one)], "mesos", Some("zone \"\" must be labels")),
        (&[("weave.", one)], "mesos", Some("must be labels")),
        (&[("we_ave", one)], "mesos", Some("must be labels")),
        (&[("mesos", one)], "mesos", Some("served domain")),
        (&[("MESOS", one)], "mesos", Some("served domain")),
        (
            &[("sub.mesos", one)],
            "mesos",
            Some("\"sub.mesos\" lies within \"mesos\""),
        ),
        (
            &[("com", one)],
            "mesos.com",
            Some("\"mesos.com\" lies within \"com\""),
        ),
        (
            &[("abc.com", one), ("com", one)],
            "mesos",
            Some("\"abc.com\" lies within \"com\""),
        ),
        (&[("weave", one), ("Weave", one)], "mesos", Some("twice")),
        (
            &[("weave", &["x"])],
            "mesos",
            Some("zone \"weave\": \"x\" must be an address"),
        ),
        (&[("weave", &["8.8.8.8", "8.8.8.8"])], "mesos", Some("twice")),
    ] {
        let found = zone_resolvers(
            &zones
                .iter()
                .map(|(zone, texts)| ((*zone).to_owned(), texts.to_vec()))
                .collect(),
            domain,
        )
        .err();
        match (&found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.contains(expected), "{zones:?}: {found}"),
            _ => panic!("{zones:?}: {found:?}"),
        }
    }
}

#[test]
fn domain_accepts_labels_of_any_length() {
    let long = "x".repeat(64);
    for text in ["mesos", "1-awesome.domain.e", "-a", "a-", &long] {
        assert_eq!(domain(text).as_deref(), Ok(text));
    }
    assert_eq!(domain("UPPER").as_deref(), Ok("upper"));
    for text in ["", ".", "mesos.", ".mesos", "a..b", "a_b", "ü", "a b"] {
        assert!(domain(text).unwrap_err().contains("as in `mesos`"), "{text}");
    }
}

#[test]
fn ip_sources_rejects_duplicates() {
    let all = ip_sources(&["host", "docker", "mesos", "netinfo"]).unwrap();
    assert_eq!(all, IpSource::ALL);
    for (texts, expected) in [
        (&[][..], "at least one"),
        (&["host", "host"], "twice"),
        (&["foo"], "one of host"),
        (&["rkt"], "one of host"),
        (&["HOST"], "one of host"),
    ] {
        let found = ip_sources(texts).unwrap_err();
        assert!(found.contains(expected), "{texts:?}: {found}");
    }
}

#[test]
fn checked_reports_the_keys_of_invalid_settings() {
    type Change = fn(&mut Settings);
    let cases: &[(Change, &str)] = &[
        (|it| it.domain = "a_b".into(), "[discovery] domain"),
        (|it| (it.dns_on, it.http_on) = (false, false), "dns_on, http_on"),
        (|it| it.refresh_seconds = 0, "refresh_seconds"),
        (|it| it.ttl = u32::MAX, "[discovery] ttl"),
        (
            |it| {
                it.framework_ttl.insert("a".into(), u32::MAX);
            },
            "framework_ttl",
        ),
        (|it| it.ip_sources.clear(), "ip_sources"),
        (|it| it.soa_mname = "a..b".into(), "soa_mname"),
        (|it| it.resolvers = vec!["1.1.1.1".into(); 2], "resolvers"),
        (
            |it| drop(it.zone_resolvers.insert("weave".into(), Vec::new())),
            "zone_resolvers",
        ),
        (|it| it.tls_port = Some(853), "tls_port"),
        (|it| it.https_port = Some(443), "https_port"),
        (
            |it| it.tls_key = Some("key.pem".into()),
            "tls_certificate, tls_key",
        ),
        (|it| it.weight_label = Some(String::new()), "weight_label"),
        (|it| it.soa_rname = "x".repeat(64), "soa_rname"),
    ];
    for (change, key) in cases {
        let mut settings = Settings::default();
        change(&mut settings);
        let error = settings.checked().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn checked_normalizes_settings() {
    let settings = Settings {
        domain: "Example.MESOS".into(),
        soa_mname: "NS1.mesos..".into(),
        soa_rname: "a@b.c..".into(),
        timeout: 0,
        zone_resolvers: [("Weave".to_owned(), vec!["1.1.1.1".to_owned()])].into(),
        ..Settings::default()
    };
    let config = settings.checked().unwrap();
    assert_eq!(config.domain, "example.mesos");
    assert_eq!((&*config.soa_mname, &*config.soa_rname), ("ns1.mesos.", "a.b.c."));
    assert_eq!(config.timeout, 5);
    assert!(config.zone_resolvers().contains_key("weave"));
    // Unused settings are not checked.
    let unused = Settings {
        external_on: false,
        zone_resolvers: [("we_ave".to_owned(), Vec::new())].into(),
        soa_mname: String::new(),
        ..Settings::default()
    };
    assert_eq!(unused.checked().unwrap().soa_mname, ".");
}

#[test]
fn private_networks_excludes_public_addresses() {
    let private = crate::settings::private_networks();
    let holds = |ip: &str| {
        private
            .iter()
            .any(|network| network.contains(&ip.parse::<IpAddr>().unwrap()))
    };
    for ip in [
        "127.0.0.1",
        "10.9.8.7",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.1.1",
        "100.64.0.1",
        "::1",
        "fd00::1",
        "fe80::1",
    ] {
        assert!(holds(ip), "{ip}");
    }
    for ip in ["8.8.8.8", "172.32.0.1", "192.0.2.1", "2001:db8::1", "::2"] {
        assert!(!holds(ip), "{ip}");
    }
}
