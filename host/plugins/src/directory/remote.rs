//! A plugin's files, where some of them are fetched.

use std::path::Path;

use super::{
    Directory,
    files::{Found, read},
};
use crate::{
    admission::Refused,
    manifest::Manifest,
    origin::{Files, Origin},
    sources::{self, Wish},
};

impl Directory {
    /// What is to be looked at of a plugin; nothing while its component is still being fetched.
    pub(super) async fn files(&self, dir: &Path, name: &str) -> Result<Option<Files>, Refused> {
        let text = match read(dir, name, self.desk.trust.looks()).await? {
            Found::Files(files) => {
                self.sources.forget(name);
                return Ok(Some(files));
            }
            Found::Manifest(text) => text,
        };
        let manifest = Manifest::parse(&text, &self.config.limits, self.config.probation)?;
        let Some(source) = manifest.source else {
            // It named one a moment ago, and will be looked at again.
            return Ok(None);
        };
        let from = source.to_string();
        let wish = Wish {
            source,
            limit: manifest.limits.size,
            pinned: manifest.digest,
        };
        match self.sources.want(name, wish).await {
            sources::Found::Here(fetched) => Ok(Some(Files {
                component: fetched.component,
                manifest: Some(text),
                origin: Origin::Image(fetched.image),
            })),
            sources::Found::Underway => Ok(None),
            sources::Found::Failed(error) => Err(Refused::NotFetched { from, error }),
        }
    }

    /// Its component is being fetched: what served goes on serving, and what was refused before is not what is asked for now.
    pub(super) fn wait_for(&self, name: &str) {
        if self.table.load().refusals.contains_key(name) {
            self.change_table(|table| {
                table.refusals.remove(name);
            });
        }
    }
}
