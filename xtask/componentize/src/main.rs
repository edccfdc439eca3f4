//! `componentize MODULE COMPONENT`: wraps a core module that contains its world into a component.
//!
//! A separate program, so that `cargo xtask` itself compiles in seconds: the Wasm tools are large,
//! and here they are compiled once, together with those of the daemon.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use wit_component::ComponentEncoder;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [module, component] = arguments.as_slice() else {
        bail!("usage: componentize MODULE COMPONENT");
    };
    let bytes = fs::read(module).with_context(|| format!("cannot read {}", Path::new(module).display()))?;
    let encoded = ComponentEncoder::default()
        .module(&bytes)?
        .validate(true)
        .encode()
        .with_context(|| {
            format!(
                "{} does not become a component: does it call one export macro of the SDK?",
                Path::new(module).display()
            )
        })?;
    fs::write(component, encoded).with_context(|| format!("cannot write {}", Path::new(component).display()))
}
