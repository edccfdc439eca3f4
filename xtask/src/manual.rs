//! `cargo xtask manual`: builds `docs/` into a site with search, `target/manual`.
//!
//! `mkdocs` runs in `target/python/manual`. Its build fails if a link names a missing page, anchor
//! or file, or if a page would load something from another server (`manual/hooks.py`).

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::needs;
use crate::steps::{root, step, target};

/// Builds the site into an empty folder.
pub(crate) fn build() -> anyhow::Result<()> {
    let python = needs::manual()?;
    let site = target().join("manual");
    if site.exists() {
        fs::remove_dir_all(&site).with_context(|| format!("removing {}", site.display()))?;
    }
    step(
        "the manual",
        Command::new(python.join("bin/mkdocs"))
            .args(["build", "--strict", "--site-dir"])
            .arg(&site)
            .current_dir(root())
            // Hides the theme's message about its end in 2027
            // (docs/decisions/manual-with-mkdocs.md).
            .env("NO_MKDOCS_2_WARNING", "1"),
    )?;
    let page = site.join("index.html");
    ensure!(page.is_file(), "mkdocs did not create {}", page.display());
    eprintln!("    {}", page.display());
    Ok(())
}
