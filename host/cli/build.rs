//! Embeds the input of `transom plugin new`: its templates, the interface packages, the SDK and the
//! kits of Python and JavaScript, from their folders.
//!
//! The SDK inherits from the workspace, which a user's project lacks: the inherited keys are
//! written out. The needed part of the lock file is embedded too, so that a new project is built
//! from the versions that the SDK was tested with.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// The dependencies of a new project besides the SDK.
const DIRECT_DEPENDENCIES: &[&str] = &["serde", "serde_json"];

fn main() -> Result<()> {
    let crate_dir =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").context("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let root = crate_dir.join("../..");
    let mut files = Vec::new();
    for (name, folder) in [
        ("templates", crate_dir.join("templates/plugin")),
        ("wit", root.join("wit")),
        ("sdk", root.join("plugins/sdk")),
        ("kit-python", root.join("clients/plugin-kit-python")),
        ("kit-javascript", root.join("clients/plugin-kit-javascript")),
    ] {
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, name, &mut files)?;
    }
    println!("cargo::rerun-if-changed=build.rs");
    let workspace = read(&root.join("Cargo.toml"))?;
    let sdk = read(&root.join("plugins/sdk/Cargo.toml"))?;
    let lock = read(&root.join("Cargo.lock"))?;
    fs::write(out.join("sdk.toml"), standalone_manifest(&sdk, &workspace)?)?;
    fs::write(out.join("project.lock"), needed_packages(&sdk, &lock)?)?;
    for (name, file) in [
        ("sdk/Cargo.toml", "sdk.toml"),
        ("templates/rust/Cargo.lock", "project.lock"),
    ] {
        files.retain(|(existing_name, _)| existing_name != name);
        files.push((name.to_owned(), out.join(file)));
    }
    files.sort();

    let mut code = String::from("/// Name and content.\npub(super) const FILES: &[(&str, &str)] = &[\n");
    for (name, path) in files {
        writeln!(
            code,
            "    ({name:?}, include_str!({:?})),",
            path.display().to_string()
        )?;
    }
    code.push_str("];\n");
    fs::write(out.join("embedded.rs"), code)?;
    Ok(())
}

/// Files and folders in a package's folder that are no part of it.
const SKIPPED_NAMES: &[&str] = &["__pycache__", "build", "dist", "node_modules", "tests"];

/// All files below a folder, by their relative names, but for hidden ones and [`SKIPPED_NAMES`].
fn collect(folder: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().context("a file has a name")?.to_string_lossy();
        let name = format!("{name}/{file}");
        if file.starts_with('.') || SKIPPED_NAMES.contains(&&*file) || file.ends_with(".egg-info") {
            continue;
        }
        if path.is_dir() {
            collect(&path, &name, files)?;
        } else {
            files.push((name, path.canonicalize()?));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Table> {
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

/// A member's manifest with the keys that it inherits from its workspace written out.
fn standalone_manifest(member: &Table, workspace: &Table) -> Result<String> {
    let workspace = workspace["workspace"].as_table().context("[workspace]")?;
    let mut member = member.clone();
    member.remove("lints");
    let package = member["package"].as_table_mut().context("[package]")?;
    expand_inherited(package, &workspace["package"])?;
    for kind in ["dependencies", "build-dependencies"] {
        if let Some(dependencies) = member.get_mut(kind).and_then(Value::as_table_mut) {
            expand_inherited(dependencies, &workspace["dependencies"])?;
        }
    }
    Ok(format!(
        "# Transom's SDK as it ships with `transom plugin new`; what it inherits from its workspace is written out.\n{}",
        toml::to_string_pretty(&member)?
    ))
}

/// Replaces `{ workspace = true, … }` by the workspace's entry, with the features of both.
fn expand_inherited(table: &mut Table, workspace: &Value) -> Result<()> {
    for (key, value) in table.iter_mut() {
        let Some(own) = value
            .as_table()
            .filter(|it| it.contains_key("workspace"))
            .cloned()
        else {
            continue;
        };
        let mut inherited = workspace
            .get(key)
            .with_context(|| format!("the workspace has no {key}"))?
            .clone();
        if let Some(features) = own.get("features").and_then(Value::as_array) {
            if let Value::String(version) = &inherited {
                inherited = Value::Table(Table::from_iter([("version".to_owned(), version.clone().into())]));
            }
            let dependency = inherited.as_table_mut().context("a dependency is a table")?;
            let all = dependency
                .entry("features")
                .or_insert_with(|| Value::Array(Vec::new()));
            all.as_array_mut()
                .context("features are a list")?
                .extend(features.clone());
        }
        *value = inherited;
    }
    Ok(())
}

/// The packages of a lock file that the SDK and the other dependencies need.
fn needed_packages(sdk: &Table, lock: &Table) -> Result<String> {
    let packages = lock["package"].as_array().context("[[package]]")?;
    let sdk = sdk["package"]["name"].as_str().context("a name")?;
    let mut pending: Vec<String> = DIRECT_DEPENDENCIES.iter().map(|it| (*it).to_owned()).collect();
    pending.push(sdk.to_owned());
    let mut indexes = BTreeSet::new();
    while let Some(wanted) = pending.pop() {
        // "name", or "name version" where there are several.
        let (name, version) = wanted
            .split_once(' ')
            .map_or((wanted.as_str(), None), |(a, b)| (a, Some(b)));
        let index = packages.iter().position(|it| {
            it["name"].as_str() == Some(name)
                && version.is_none_or(|version| it["version"].as_str() == Some(version))
        });
        let Some(index) = index else {
            bail!("the lock file has no {wanted}");
        };
        if indexes.insert(index)
            && let Some(dependencies) = packages[index].get("dependencies").and_then(Value::as_array)
        {
            pending.extend(dependencies.iter().filter_map(Value::as_str).map(str::to_owned));
        }
    }
    // The SDK itself has no source: it is embedded, and cargo adds it.
    let packages: Vec<Value> = indexes
        .into_iter()
        .map(|index| packages[index].clone())
        .filter(|it| it.get("source").is_some())
        .collect();
    let lock = Table::from_iter([
        ("version".to_owned(), lock["version"].clone()),
        ("package".to_owned(), Value::Array(packages)),
    ]);
    Ok(toml::to_string(&lock)?)
}
