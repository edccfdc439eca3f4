//! Zones for tests, made of records.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Edit, Record, Service, Value, Zone};
use crate::config::IpSource;
use crate::labels::Rule;
use crate::rules::Rules;

/// Puts together a zone of the domain `mesos`, with a TTL of 60 and weights of 1.
pub(crate) struct Builder(Edit);

impl Builder {
    /// Without records.
    pub(crate) fn new() -> Self {
        Self(Edit::of(&Zone::empty(Arc::new(rules())), 0))
    }

    /// Puts an address.
    pub(crate) fn address(&mut self, name: &str, ip: IpAddr) {
        self.put(name, Value::Address(ip));
    }

    /// Puts a service.
    pub(crate) fn service(&mut self, name: &str, target: &Arc<str>, port: u32) {
        let target = Arc::clone(target);
        self.put(
            name,
            Value::Service(Service {
                target,
                port,
                weight: 1,
            }),
        );
    }

    /// Puts a name of an address.
    pub(crate) fn name(&mut self, name: &str, ip: IpAddr) {
        self.0.put_name(ip, &name.into());
    }

    fn put(&mut self, name: &str, value: Value) {
        self.0.put(&Record {
            name: name.into(),
            value,
            ttl: 60,
        });
    }

    /// The zone.
    pub(crate) fn build(self, serial: u32) -> Zone {
        let made_from = Zone::empty(Arc::new(rules())).made_from().clone();
        self.0.done(made_from, serial)
    }
}

/// The usual ones.
pub(crate) fn rules() -> Rules {
    Rules {
        domain: "mesos".into(),
        labels: Rule::Rfc1123,
        ip_sources: vec![IpSource::Netinfo, IpSource::Mesos, IpSource::Host],
        masters: vec!["127.0.0.1:15050".into()],
        name_server: ("ns1.mesos.".into(), vec![[127, 0, 0, 1].into()]),
        ttl: 60,
        weight: 1,
        weight_label: None,
        healthy_only: false,
        include_staging: false,
        framework_ttl: BTreeMap::new(),
        reverse: false,
    }
}
