//! The cluster manager of `[workflow]`.

use super::cluster;
use crate::{Cluster, Workflow};

/// The cluster manager of `[workflow]`, if it differs from that of `[cluster]` or has other
/// credentials.
pub fn own_cluster(section: &Workflow, cluster: &Cluster) -> anyhow::Result<Option<transom_cluster::Config>> {
    if section.master.is_none() && !section.cluster_ssl && !section.authenticate {
        return Ok(None);
    }
    let own = Cluster {
        master: section.master.clone().unwrap_or_else(|| cluster.master.clone()),
        ssl: cluster.ssl || section.cluster_ssl,
        ..cluster.clone()
    };
    let mut own = cluster::config(&own)?;
    if section.authenticate {
        own.principal.clone_from(&section.default_principal);
        own.credentials = section
            .default_principal
            .clone()
            .zip(section.default_secret.as_ref())
            .map(|(username, secret)| transom_cluster::Credentials {
                username,
                password: secret.clone(),
            });
        // A service account of `[cluster]` takes precedence over these credentials.
        if own.service_account.is_none() {
            "`default_principal` and `default_secret` in [workflow]".clone_into(&mut own.credential_keys);
        }
    }
    Ok(Some(own))
}
