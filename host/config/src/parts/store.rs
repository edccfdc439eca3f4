//! The configuration of the state store, from `[store]`.

use crate::Store;

/// The configuration.
pub fn config(section: &Store) -> transom_store::Config {
    transom_store::Config {
        user: section.user.clone(),
        password: section.password.clone(),
        database: section.database,
        replicas: section.replicas,
        sentinel_user: section.sentinel_user.clone(),
        sentinel_password: section.sentinel_password.clone(),
        world_access: section.world_access,
        tls: section.ssl.then_some(transom_store::Tls {
            verify: !section.skip_ssl,
            authorities: None,
        }),
        ..transom_store::Config::new(&section.server)
    }
}
