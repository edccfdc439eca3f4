use super::*;
use crate::testing::config_with;

fn configured(password: Option<&str>) -> std::sync::Arc<Config> {
    config_with(|config| config.settings.ds_mysql_password = password.map(Secret::from))
}

#[test]
fn first_password_is_random_except_for_an_existing_datastore() {
    let first =
        |password, existing| DatastoreRecord::complete(None, &configured(password), existing).unwrap();
    let fresh = first(None, false).password;
    assert!(fresh.reveal().len() == 64 && first(None, false).password != fresh);
    for (password, existing, expected) in [
        (None, true, FORMER_PASSWORD),
        (Some("chosen"), true, "chosen"),
        (Some("chosen"), false, "chosen"),
        (Some(FORMER_PASSWORD), false, FORMER_PASSWORD),
    ] {
        assert_eq!(first(password, existing).password.reveal(), expected);
    }
    let later = DatastoreRecord::complete(None, &kvstore(true), true)
        .unwrap()
        .password;
    assert_ne!(later.reveal(), FORMER_PASSWORD, "it has no SQL datastore yet");
}

fn kvstore(tls: bool) -> std::sync::Arc<Config> {
    config_with(|config| {
        config.settings.ds_etcd = true;
        config.settings.ds_etcd_tls = tls;
    })
}

#[test]
fn kvstore_keeps_the_kind_with_which_it_was_created() {
    let secrets = |record: &DatastoreRecord, config: &Config| {
        Secrets::new("token".into(), record, config, Timestamp::UNIX_EPOCH).unwrap()
    };
    for (tls, existing, expected) in [
        (true, false, true),
        (false, false, false),
        // It was started by a daemon without TLS.
        (true, true, false),
    ] {
        let record = DatastoreRecord::complete(None, &kvstore(tls), existing).unwrap();
        for later in [true, false] {
            let config = kvstore(later);
            let kept = DatastoreRecord::complete(Some(record.clone()), &config, true).unwrap();
            assert_eq!(kept, record);
            let made = secrets(&kept, &config);
            assert_eq!(made.tls.is_some(), expected, "{tls} {existing} {later}");
            assert_eq!(made.kvstore_scheme(), if expected { "https" } else { "http" });
        }
    }
    // A SQL datastore that becomes a kvstore.
    let sql = DatastoreRecord::complete(None, &configured(None), true).unwrap();
    let now = DatastoreRecord::complete(Some(sql), &kvstore(true), true).unwrap();
    assert!(secrets(&now, &kvstore(true)).tls.is_some());
    assert!(secrets(&now, &configured(None)).tls.is_none());
}

#[test]
fn sql_datastore_has_tls_unless_it_existed_before_or_the_operator_protects_it() {
    let sql = |tls: bool, change: fn(&mut Config)| {
        config_with(|config| {
            config.settings.ds_mysql_tls = tls;
            change(config);
        })
    };
    let protected = |record: &DatastoreRecord, config: &Config| {
        let secrets = Secrets::new("token".into(), record, config, Timestamp::UNIX_EPOCH);
        secrets.unwrap().tls.is_some()
    };
    let (on, off) = (sql(true, |_| {}), sql(false, |_| {}));
    for (config, existing, expected) in [(&on, false, true), (&off, false, false), (&on, true, false)] {
        let record = DatastoreRecord::complete(None, config, existing).unwrap();
        for later in [&on, &off] {
            let kept = DatastoreRecord::complete(Some(record.clone()), later, true).unwrap();
            assert_eq!(kept, record);
            assert_eq!(protected(&kept, later), expected, "{existing}");
        }
    }
    let operators: [fn(&mut Config); 3] = [
        |config| config.settings.ds_mysql_ssl = true,
        |config| config.settings.ds_endpoint = Some("mysql://h".into()),
        |config| {
            config.settings.containers = false;
            config.settings.ds_command = Some("exec mariadbd".to_owned());
        },
    ];
    for change in operators {
        let config = sql(true, change);
        let record = DatastoreRecord::complete(None, &config, false).unwrap();
        assert!(record.sql.is_none() && !protected(&record, &config));
        let record = DatastoreRecord::complete(Some(record), &on, true).unwrap();
        assert!(protected(&record, &on), "it is new then");
        assert!(!protected(&record, &config), "the operator's protection wins");
    }
}

#[test]
fn record_of_a_daemon_without_tls_for_sql_keeps_its_datastore_as_it_is() {
    let config = config_with(|config| config.settings.ds_mysql_tls = true);
    for stored in [r#"{"password": "p"}"#, r#"{"password": "p", "kvstore": null}"#] {
        let stored: DatastoreRecord = serde_json::from_str(stored).unwrap();
        let kept = DatastoreRecord::complete(Some(stored.clone()), &config, true).unwrap();
        assert_eq!((kept.sql.as_ref(), &kept), (Some(&Security::Plaintext), &stored));
    }
    let new = DatastoreRecord::complete(None, &config, false).unwrap();
    let shown = Secrets::new("token".into(), &new, &config, Timestamp::UNIX_EPOCH).unwrap();
    let shown = serde_json::to_value(shown.credentials(&config)).unwrap();
    for field in ["username", "password", "authority", "certificate", "key"] {
        assert!(shown[field].is_string(), "{field}");
    }
}

#[test]
fn record_keeps_its_password_until_another_one_is_adopted() {
    let record = DatastoreRecord::first(&configured(Some("first")), false);
    for same in [None, Some("first")] {
        assert!(!record.differs_from(&configured(same)) && record.adopt(&configured(same)).is_none());
    }
    let other = configured(Some("second"));
    assert!(record.differs_from(&other));
    let adopted = record.adopt(&other).unwrap();
    assert_eq!(adopted.password.reveal(), "second");
    assert!(!adopted.differs_from(&other));
}

#[test]
fn record_is_readable_only_in_the_store() {
    let record = DatastoreRecord::first(&configured(Some("opensesame")), false);
    let stored = serde_json::to_string(&record).unwrap();
    assert!(stored.contains("opensesame"));
    assert_eq!(serde_json::from_str::<DatastoreRecord>(&stored).unwrap(), record);
    let secrets = Secrets::new("token".into(), &record, &configured(None), Timestamp::UNIX_EPOCH).unwrap();
    let shown = format!(
        "{record:?} {secrets:?} {:?}",
        secrets.credentials(&configured(None))
    );
    assert!(
        !shown.contains("opensesame") && !shown.contains("token\""),
        "{shown}"
    );
}
