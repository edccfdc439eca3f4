//! `transom plugin build`: builds a project's component, and writes it next to its manifest.
//!
//! Each language needs its own build tool. The command runs the tool and never installs it: the error
//! for a missing tool contains the command that installs it.

mod rust;
mod tool;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use transom_plugin_host::PluginFiles;

use super::input::bytes;
use super::template::World;
use crate::exit::Misconfigured;
use crate::output::print_line;

/// Build a plugin project: writes the component `NAME.wasm` and its manifest `NAME.toml`.
///
/// The project's files determine its language: `Cargo.toml` (Rust), `package.json` and `build.mjs`
/// (JavaScript), or `src/app.py` (Python). Its manifest determines its name and world.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Project folder.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Output folder, created if missing. Default: `out` in the project folder.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A plugin project.
#[derive(Debug)]
pub(super) struct Project {
    /// The absolute path of the project folder.
    pub(super) dir: PathBuf,
    pub(super) name: String,
    pub(super) world: World,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rust,
    Python,
    JavaScript,
}

/// A component and its manifest, as they were written to the output folder.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) path: PathBuf,
    pub(super) component: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

impl Build {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let project = Project::find(&self.dir).context(Misconfigured)?;
        let is_current_dir = self.dir.as_os_str() == ".";
        let default_out = if is_current_dir {
            PathBuf::from("out")
        } else {
            self.dir.join("out")
        };
        let out = self.out.unwrap_or(default_out);
        let built = project.build_into(&out).await?;
        print_line(format_args!(
            "{} ({})",
            built.path.display(),
            bytes(built.component.len() as u64)
        ))?;
        Ok(())
    }
}

impl Project {
    pub(super) fn find(dir: &Path) -> anyhow::Result<Project> {
        // Tools run in this folder and receive absolute file names, so a relative path would not do.
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let has_file = |name: &str| dir.join(name).is_file();
        let kind = if has_file("Cargo.toml") {
            Kind::Rust
        } else if has_file("package.json") && has_file("build.mjs") {
            Kind::JavaScript
        } else if has_file("src/app.py") {
            Kind::Python
        } else {
            bail!(
                "{} is not a plugin project: expected Cargo.toml, package.json with build.mjs, or src/app.py in it; `transom plugin new` makes one",
                dir.display()
            );
        };
        let (name, world) = manifest_of(&dir)?;
        Ok(Project {
            dir,
            name,
            world,
            kind,
        })
    }

    /// Builds the component, and writes it and its manifest to a folder, which is created if it is
    /// missing.
    pub(super) async fn build_into(&self, out: &Path) -> anyhow::Result<Built> {
        fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        let component = self.component().await?;
        let file = self.dir.join(format!("{}.toml", self.name));
        let manifest = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = write_pair(out, &self.name, &component, &manifest)?;
        Ok(Built {
            path,
            component,
            manifest,
        })
    }

    /// The component's bytes.
    async fn component(&self) -> anyhow::Result<Vec<u8>> {
        match self.kind {
            Kind::Rust => rust::build(&self.dir).await,
            Kind::Python => tool::python(&self.dir, self.world).await,
            Kind::JavaScript => tool::javascript(&self.dir).await,
        }
    }
}

/// Name and world of the one manifest in a project's folder: a TOML file with a `world`.
fn manifest_of(dir: &Path) -> anyhow::Result<(String, World)> {
    let mut manifests = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|it| it != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // Invalid TOML is an error only if no other file can be the manifest; the project's other
        // files are not checked.
        let Ok(table) = text.parse::<toml::Table>() else {
            continue;
        };
        let Some(world) = table.get("world").and_then(toml::Value::as_str) else {
            continue;
        };
        let world = World::parse(world).with_context(|| {
            format!(
                "{}: `world` is {world:?}; expected one of this version's worlds",
                path.display()
            )
        })?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        manifests.push((name, world));
    }
    ensure!(
        manifests.len() < 2,
        "{} has several manifests ({}); expected one TOML file with a `world`",
        dir.display(),
        manifests
            .iter()
            .map(|(name, _)| format!("{name}.toml"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    manifests.pop().with_context(|| {
        format!(
            "{} has no manifest: expected NAME.toml with a `world`, as `transom plugin new` writes it",
            dir.display()
        )
    })
}

/// Writes a component and its manifest to a folder; returns the component's path.
pub(super) fn write_pair(
    dir: &Path,
    name: &str,
    component: &[u8],
    manifest: &[u8],
) -> anyhow::Result<PathBuf> {
    let files = PluginFiles {
        component: Some(component.to_vec()),
        manifest: Some(manifest.to_vec()),
        signature: None,
    };
    files.stage(dir, name)?.place()?;
    Ok(dir.join(format!("{name}.wasm")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_of_a_project_is_determined_by_its_files() {
        for (files, expected) in [
            (&["Cargo.toml", "mine.toml"][..], Ok(Kind::Rust)),
            (&["package.json", "build.mjs", "mine.toml"], Ok(Kind::JavaScript)),
            (&["src/app.py", "mine.toml"], Ok(Kind::Python)),
            (&["mine.toml"], Err("is not a plugin project")),
            (&["package.json", "mine.toml"], Err("is not a plugin project")),
            (&["Cargo.toml"], Err("has no manifest")),
            (&["Cargo.toml", "a.toml", "b.toml"], Err("several manifests")),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("src")).unwrap();
            for file in files {
                let text = match *file {
                    "Cargo.toml" => "[package]\nname = \"x\"\n",
                    _ => "world = \"event-filter\"\n",
                };
                fs::write(dir.path().join(file), text).unwrap();
            }
            fs::write(dir.path().join("cases.toml"), "[[case]]\n").unwrap();
            match (Project::find(dir.path()), expected) {
                (Ok(project), Ok(kind)) => {
                    assert_eq!((project.kind, project.name.as_str()), (kind, "mine"), "{files:?}");
                    assert_eq!(project.world, World::EventFilter);
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{files:?}: {error}"),
                (actual, expected) => panic!("{files:?}: found {actual:?}, expected {expected:?}"),
            }
        }
    }
}
