use super::*;
use crate::testing::config_with;

fn configured(password: Option<&str>) -> std::sync::Arc<Config> {
    config_with(|config| config.datastore.password = password.map(Secret::from))
}

#[test]
fn first_password_is_random_except_for_an_existing_datastore() {
    let first = |password, existing| DatastoreRecord::first(&configured(password), existing);
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
    let kvstore = config_with(|config| config.datastore.engine = Engine::Kvstore);
    let later = DatastoreRecord::first(&kvstore, true).password;
    assert_ne!(later.reveal(), FORMER_PASSWORD, "it has no SQL datastore yet");
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
    let secrets = Secrets::new("token".into(), &record);
    let shown = format!(
        "{record:?} {secrets:?} {:?}",
        secrets.credentials(&configured(None))
    );
    assert!(
        !shown.contains("opensesame") && !shown.contains("token\""),
        "{shown}"
    );
}
