//! The frameworks that the leading master lists.

use super::{Client, Exchange, VersionCheck};
use crate::error::Result;
use crate::http::{MASTER, Request, answer_name};
use crate::ids::FrameworkId;
use crate::lenient::{self, Lenient, prune_list};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// The path as command lines of this cluster manager request it.
const PATH: &str = "/master/frameworks/";

/// A framework in the master's list; frameworks that have ended are not in it.
#[derive(Clone, Debug, Deserialize)]
pub struct ListedFramework {
    /// Its id.
    #[serde(with = "crate::ids::plain")]
    pub id: FrameworkId,
    /// Its name, which several frameworks may have.
    #[serde(default)]
    pub name: String,
    /// Whether it is connected to the master and not deactivated.
    #[serde(default)]
    pub active: bool,
    /// The address that it registered for people; empty if it named none.
    #[serde(default)]
    pub webui_url: String,
}

#[derive(Deserialize)]
struct Frameworks {
    frameworks: Vec<ListedFramework>,
    #[serde(skip)]
    invalid_entries: u64,
}

impl Lenient for Frameworks {
    fn prune(document: &mut Value) -> u64 {
        prune_list::<ListedFramework>(document, "/frameworks")
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.invalid_entries = count;
    }
}

impl Client {
    /// The frameworks of the leading master, without their tasks. Invalid entries are omitted.
    pub async fn frameworks(&self) -> Result<Vec<ListedFramework>> {
        let request = |url| Ok(Request::get(url, MASTER, PATH));
        let send: Exchange<Bytes> = |http, request| Box::pin(http.fetch(request));
        let found = self.at_leader(PATH, &request, send, VersionCheck::None).await?;
        let what = || answer_name(&found.url, PATH);
        let list: Frameworks = lenient::read(&found.value, what)?;
        if list.invalid_entries > 0 {
            tracing::warn!(
                count = list.invalid_entries,
                "frameworks with invalid fields skipped"
            );
        }
        Ok(list.frameworks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frameworks_are_listed_without_those_that_are_invalid() {
        let document = br#"{"leader": "m", "frameworks": [
            {"id": "a-0001", "name": "fw", "active": true, "webui_url": "http://a:1", "tasks": [{}]},
            {"name": "has no id"},
            {"id": "a-0002", "name": 7},
            {"id": "a-0003"}
        ]}"#;
        let list: Frameworks = lenient::parse(document).unwrap();
        let ids: Vec<_> = list.frameworks.iter().map(|one| one.id.as_ref()).collect();
        assert_eq!((ids, list.invalid_entries), (vec!["a-0001", "a-0003"], 2));
        assert_eq!(list.frameworks[0].webui_url, "http://a:1");
        assert!(!list.frameworks[1].active);
        assert!(lenient::parse::<Frameworks>(b"{}").is_err());
    }
}
