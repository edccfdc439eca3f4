//! Writes each world's description in the format that `wit-component` expects in a component's
//! custom section.
//!
//! The bindings are generated once, for all worlds together, because their interfaces share
//! `about`, but a component declares only the world that it implements. `wit-bindgen` can only
//! declare the world for which it generated bindings, so this script encodes the declarations, and
//! the `export_…!` macros add one of them to the component.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use wit_component::{StringEncoding, metadata};
use wit_parser::Resolve;

const WORLDS: &[(&str, &str)] = &[
    ("probe", "check-probe"),
    ("matcher", "attribute-matcher"),
    ("events", "event-filter"),
    ("bootstrap", "bootstrap-handler"),
];

fn main() -> Result<()> {
    let wit = Path::new("wit");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", wit.display());
    for &(package, world) in WORLDS {
        let mut resolve = Resolve::default();
        resolve.push_dir(wit.join("plugin/0.1.0")).context("wit/plugin")?;
        let (id, _) = resolve
            .push_dir(wit.join(package).join("0.1.0"))
            .with_context(|| format!("wit/{package}"))?;
        let id = resolve
            .select_world(&[id], Some(world))
            .with_context(|| format!("the world {world}"))?;
        let section = metadata::encode(&resolve, id, StringEncoding::UTF8, None)
            .with_context(|| format!("encoding {world}"))?;
        std::fs::write(out.join(package), section).with_context(|| format!("writing {package}"))?;
    }
    Ok(())
}
