//! Zones for tests, built from records.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Record, Service, Value, Zone, ZoneBuilder};
use crate::config::IpSource;
use crate::labels::LabelRule;
use crate::zone_config::ZoneConfig;

/// Builds a zone of the domain `mesos` with a TTL of 60 and weights of 1.
pub(crate) struct Builder(ZoneBuilder);

impl Builder {
    /// A builder of a zone without records.
    pub(crate) fn new() -> Self {
        Self(ZoneBuilder::of(&Zone::empty(Arc::new(zone_config())), 0))
    }

    /// Adds an address record.
    pub(crate) fn address(&mut self, name: &str, ip: IpAddr) {
        self.add(name, Value::Address(ip));
    }

    /// Adds an SRV record.
    pub(crate) fn service(&mut self, name: &str, target: &Arc<str>, port: u32) {
        let target = Arc::clone(target);
        self.add(
            name,
            Value::Service(Service {
                target,
                port,
                weight: 1,
            }),
        );
    }

    /// Adds a PTR name.
    pub(crate) fn name(&mut self, name: &str, ip: IpAddr) {
        self.0.add_ptr(ip, &name.into());
    }

    fn add(&mut self, name: &str, value: Value) {
        self.0.add(&Record {
            name: name.into(),
            value,
            ttl: 60,
        });
    }

    /// The zone.
    pub(crate) fn build(self, serial: u32) -> Zone {
        let inputs = Zone::empty(Arc::new(zone_config())).inputs().clone();
        self.0.build(inputs, serial)
    }
}

/// Default settings.
pub(crate) fn zone_config() -> ZoneConfig {
    ZoneConfig {
        domain: "mesos".into(),
        labels: LabelRule::Rfc1123,
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
