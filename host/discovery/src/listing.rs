//! The zone listing `/v1/axfr`, in mesos-dns's form.
//!
//! The text of a large zone has tens of megabytes and takes a second to write. So it is written
//! once for each version of the zone for which a client asks, and all responses share it. A text is
//! in memory while its zone is served or a client reads it, and [`MAX_TEXTS`] bounds their number:
//! while slow clients read that many, requests for another version are rejected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use transom_common::ambient;

use crate::Settings;
use crate::mesos_dns_json::text;
use crate::zone::Zone;

/// The maximum number of texts in memory.
const MAX_TEXTS: usize = 3;
/// The timeout of requests that wait because the maximum is reached.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The text that one request writes while others wait for it; `None` if that failed.
type Text = Shared<BoxFuture<'static, Option<Bytes>>>;

/// The listing of the zone being served.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The newest text for which a client has asked, with the serial of its zone.
    newest: Mutex<Option<(u32, Text)>>,
    texts: Arc<Semaphore>,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            texts: Arc::new(Semaphore::new(MAX_TEXTS)),
        }
    }
}

impl Listing {
    /// The text of a zone. `None` if too many texts of other versions are in memory.
    pub(crate) async fn of(&self, zone: Arc<Zone>, settings: Arc<Settings>) -> Option<Bytes> {
        self.begin(zone, settings).await
    }

    fn begin(&self, zone: Arc<Zone>, settings: Arc<Settings>) -> Text {
        let serial = zone.serial();
        let mut newest = self.newest();
        if let Some((of, text)) = &*newest
            && *of == serial
            && text.peek() != Some(&None)
        {
            return text.clone();
        }
        let text = write(zone, settings, Arc::clone(&self.texts)).boxed().shared();
        *newest = Some((serial, text.clone()));
        text
    }

    /// Drops the text, because another zone is being served.
    pub(crate) fn forget(&self) {
        let text = self.newest().take();
        drop(text);
    }

    fn newest(&self) -> MutexGuard<'_, Option<(u32, Text)>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text, which counts as in memory until its last reader drops it.
struct CountedText {
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for CountedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

async fn write(zone: Arc<Zone>, settings: Arc<Settings>, texts: Arc<Semaphore>) -> Option<Bytes> {
    let permit = timeout(BUSY_TIMEOUT, texts.acquire_owned()).await.ok()?.ok()?;
    let writing = move || {
        let mut text = axfr(&zone, &settings);
        text.shrink_to_fit();
        CountedText {
            text,
            _permit: permit,
        }
    };
    ambient::blocking(writing).await.map(Bytes::from_owner)
}

/// mesos-dns's listing of the zone.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Axfr<'z> {
    #[serde(rename = "TTL")]
    ttl: u32,
    serial: u32,
    refresh_seconds: u64,
    mname: &'z str,
    rname: &'z str,
    domain: &'z str,
    records: Records<'z>,
}

type ByName<'z> = BTreeMap<&'z str, Vec<String>>;

#[derive(JsonSchema, Serialize)]
#[allow(clippy::struct_field_names)] // mesos-dns's names.
struct Records<'z> {
    #[serde(rename = "As")]
    a: ByName<'z>,
    #[serde(rename = "AAAAs")]
    aaaa: ByName<'z>,
    #[serde(rename = "SRVs")]
    srv: ByName<'z>,
}

/// The zone listing as JSON.
fn axfr(zone: &Zone, settings: &Settings) -> Vec<u8> {
    let mut records = Records {
        a: ByName::new(),
        aaaa: ByName::new(),
        srv: ByName::new(),
    };
    for (name, node) in zone.iter_all() {
        let a = node.a().iter().map(ToString::to_string).collect();
        let aaaa = node.aaaa().iter().map(ToString::to_string).collect();
        let srv = node
            .srv()
            .iter()
            .map(|service| format!("{}:{}", service.target, service.port))
            .collect();
        for (kind, values) in [
            (&mut records.a, a),
            (&mut records.aaaa, aaaa),
            (&mut records.srv, srv),
        ] {
            let values: Vec<String> = values;
            if !values.is_empty() {
                kind.insert(name, values);
            }
        }
    }
    let axfr = Axfr {
        ttl: settings.ttl,
        serial: zone.serial(),
        refresh_seconds: settings.refresh_seconds,
        mname: &settings.soa_mname,
        rname: &settings.soa_rname,
        domain: &settings.domain,
        records,
    };
    text(&axfr, 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use futures::future::join_all;

    use super::*;
    use crate::zone::testing::Builder;

    fn zone(serial: u32) -> Arc<Zone> {
        let mut zone = Builder::new();
        zone.address("web.marathon.mesos.", [10, 0, 0, 1].into());
        Arc::new(zone.build(serial))
    }

    async fn text(listing: &Listing, zone: &Arc<Zone>) -> Option<Bytes> {
        listing.of(Arc::clone(zone), Arc::new(Settings::default())).await
    }

    #[tokio::test]
    async fn requests_for_one_version_share_its_text() {
        let (listing, first) = (Listing::default(), zone(1));
        let texts = join_all((0..50).map(|_| text(&listing, &first))).await;
        let shared = texts[0].clone().unwrap();
        assert!(
            shared.starts_with(b"{\n  \"TTL\": 60,\n  \"Serial\": 1,"),
            "{shared:?}"
        );
        for text in texts {
            assert_eq!(text.unwrap().as_ptr(), shared.as_ptr());
        }
        assert_eq!(listing.texts.available_permits(), MAX_TEXTS - 1);
        let next = text(&listing, &zone(2)).await.unwrap();
        assert!(
            next.starts_with(b"{\n  \"TTL\": 60,\n  \"Serial\": 2,"),
            "{next:?}"
        );
    }

    #[tokio::test]
    async fn text_of_an_old_version_is_dropped_after_its_last_reader() {
        let listing = Listing::default();
        let reader = text(&listing, &zone(1)).await.unwrap();
        listing.forget();
        assert_eq!(listing.texts.available_permits(), MAX_TEXTS - 1);
        drop(reader);
        assert_eq!(listing.texts.available_permits(), MAX_TEXTS);
    }

    #[tokio::test(start_paused = true)]
    async fn further_versions_are_rejected_while_slow_clients_read_the_maximum() {
        let (listing, max) = (Listing::default(), MAX_TEXTS as u32);
        let mut readers = Vec::new();
        for serial in 1..=max {
            readers.push(text(&listing, &zone(serial)).await.unwrap());
        }
        let (newest, next) = (zone(max), zone(max + 1));
        assert!(
            text(&listing, &newest).await.is_some(),
            "the newest text is there"
        );
        assert!(text(&listing, &next).await.is_none());
        assert!(text(&listing, &next).await.is_none(), "a failure is no text");
        readers.pop();
        assert!(text(&listing, &next).await.is_some());
    }
}
