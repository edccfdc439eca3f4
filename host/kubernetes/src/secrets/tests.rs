use super::*;
use crate::testing::config_with;

fn configured(password: Option<&str>) -> std::sync::Arc<Config> {
    config_with(|config| config.datastore.password = password.map(Secret::from))
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
        config.datastore.engine = Engine::Kvstore;
        config.datastore.tls = tls;
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
            assert_eq!(made.kvstore.is_some(), expected, "{tls} {existing} {later}");
            assert_eq!(made.kvstore_scheme(), if expected { "https" } else { "http" });
        }
    }
    // A SQL datastore that becomes a kvstore.
    let sql = DatastoreRecord::complete(None, &configured(None), true).unwrap();
    let now = DatastoreRecord::complete(Some(sql), &kvstore(true), true).unwrap();
    assert!(secrets(&now, &kvstore(true)).kvstore.is_some());
    assert!(secrets(&now, &configured(None)).kvstore.is_none());
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
