//! The software bill of materials: `CycloneDX` 1.5, JSON.
//!
//! It lists the crates that the binary and the first-party components are built from, with versions,
//! licences, checksums and their dependencies, the components with their digests, and the libraries
//! of the system that the binary is linked to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

use super::libraries::Library;
use super::payload::has_extension;
use super::{Release, hex, output};
use crate::steps::{SELECTION, cargo, root};
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    /// `None` for a crate of this workspace.
    source: Option<String>,
}

impl Package {
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for linked crates, `build` and `dev` for the others.
    kind: Option<String>,
}

/// Writes `transom-VERSION.cdx.json` and returns its bytes. `quick`: the binary is that of the
/// tests, which has fewer features.
pub(super) fn write(release: &Release, libraries: &[Library], quick: bool) -> anyhow::Result<Vec<u8>> {
    let host = host()?;
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked"]);
    command.args(["--filter-platform", &host]);
    if quick {
        command.args(&SELECTION[1..]);
    }
    let metadata: Metadata =
        serde_json::from_slice(&output(&mut command, "cargo")?).context("the output of cargo metadata")?;
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("reading Cargo.lock")?;
    let wasm: Vec<&str> = release
        .payload
        .components
        .files()
        .filter(|name| has_extension(name, &["wasm"]))
        .collect();
    let mut document = document(&metadata, &checksums(&lock)?, &wasm, release)?;
    for library in libraries {
        let entry = library_entry(library)?;
        if let Some(components) = document["components"].as_array_mut() {
            components.push(entry);
        }
    }
    let mut bytes = serde_json::to_vec_pretty(&document)?;
    bytes.push(b'\n');
    let path = release.out.join(format!("transom-{}.cdx.json", release.version));
    fs::write(&path, &bytes).with_context(|| format!("writing {}", path.display()))?;
    Ok(bytes)
}

/// The target platform, as rustc names it.
fn host() -> anyhow::Result<String> {
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = String::from_utf8(output(rustc.arg("-vV"), "rustc")?).context("the output of rustc")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// The registry's checksums by name and version.
fn checksums(lock: &str) -> anyhow::Result<BTreeMap<(String, String), String>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let lock: Lock = toml::from_str(lock).context("reading Cargo.lock")?;
    let found = lock.package.into_iter().filter_map(|package| {
        let checksum = package.checksum?;
        Some(((package.name, package.version), checksum))
    });
    Ok(found.collect())
}

fn document(
    metadata: &Metadata,
    checksums: &BTreeMap<(String, String), String>,
    wasm: &[&str],
    release: &Release,
) -> anyhow::Result<Value> {
    let components: Vec<&str> = wasm.iter().map(|name| name.trim_end_matches(".wasm")).collect();
    let used = linked(metadata, &[&["transom"], components.as_slice()].concat())?;
    let by_id: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let mut entries = Vec::new();
    let mut dependencies = Vec::new();
    let mut packages: Vec<(&Package, &BTreeSet<&str>)> = used
        .iter()
        .filter_map(|(id, needs)| Some((*by_id.get(id)?, needs)))
        .collect();
    packages.sort_by(|(a, _), (b, _)| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    for (package, needs) in packages {
        let checksum = checksums.get(&(package.name.clone(), package.version.clone()));
        if package.name != "transom" {
            entries.push(crate_entry(package, checksum));
        }
        let mut needs: Vec<String> = needs
            .iter()
            .filter_map(|id| Some(by_id.get(id)?.purl()))
            .collect();
        needs.sort();
        dependencies.push(json!({"ref": package.purl(), "dependsOn": needs}));
    }
    for name in wasm {
        let bytes = release.payload.components.content(name)?;
        entries.push(json!({
            "type": "application",
            "bom-ref": format!("plugins/{name}"),
            "name": name,
            "version": env!("CARGO_PKG_VERSION"),
            "description": "a component for Transom's plugin host",
            "hashes": [{"alg": "SHA-256", "content": hex(&Sha256::digest(bytes))}],
        }));
    }
    let transom = format!("pkg:cargo/transom@{}", env!("CARGO_PKG_VERSION"));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": transom,
                "purl": transom,
                "name": "transom",
                "version": release.version,
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
            },
        },
        "components": entries,
        "dependencies": dependencies,
    }))
}

/// The crates that are linked into the named crates of the workspace, each with its dependencies.
fn linked<'a>(
    metadata: &'a Metadata,
    roots: &[&str],
) -> anyhow::Result<BTreeMap<&'a str, BTreeSet<&'a str>>> {
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let mut pending = Vec::new();
    for root in roots {
        let found = metadata
            .packages
            .iter()
            .find(|package| package.source.is_none() && package.name == *root);
        pending.push(
            found
                .with_context(|| format!("the workspace has no crate {root}"))?
                .id
                .as_str(),
        );
    }
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    while let Some(id) = pending.pop() {
        if used.contains_key(id) {
            continue;
        }
        let node = nodes
            .get(id)
            .with_context(|| format!("cargo metadata does not resolve {id}"))?;
        let needs = node
            .deps
            .iter()
            .filter(|dependency| dependency.dep_kinds.iter().any(|found| found.kind.is_none()));
        let needs: BTreeSet<&str> = needs.map(|dependency| dependency.pkg.as_str()).collect();
        pending.extend(&needs);
        used.insert(id, needs);
    }
    Ok(used)
}

fn crate_entry(package: &Package, checksum: Option<&String>) -> Value {
    let purl = package.purl();
    let mut entry = json!({
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    });
    if let Some(license) = &package.license {
        // Some crates still use `/`, the old form of `OR`.
        entry["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(description) = &package.description {
        entry["description"] = json!(description.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    if let Some(repository) = &package.repository {
        entry["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    if let Some(checksum) = checksum {
        entry["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    entry
}

fn library_entry(library: &Library) -> anyhow::Result<Value> {
    let name = library.path.file_name().unwrap_or_default().to_string_lossy();
    let mut entry = json!({
        "type": "library",
        "bom-ref": library.path,
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": super::digest_of_file(&library.path)?}],
    });
    if let Some((package, version)) = &library.package {
        entry["version"] = json!(version);
        entry["purl"] = json!(format!("pkg:deb/debian/{package}@{version}"));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_build_scripts_and_tests_are_not_linked() {
        let package = |name: &str| {
            json!({"id": name, "name": name, "version": "1", "license": null, "description": null,
                   "repository": null, "source": null})
        };
        let needs = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("a"), package("b"), package("c"), package("d")],
            "resolve": {"nodes": [
                {"id": "a", "deps": [needs("b", Value::Null), needs("c", json!("build"))]},
                {"id": "b", "deps": [needs("d", json!("dev"))]},
                {"id": "c", "deps": []},
                {"id": "d", "deps": []},
            ]},
        });
        let metadata: Metadata = serde_json::from_value(metadata).expect("metadata");
        let used = linked(&metadata, &["a"]).expect("resolved");
        assert_eq!(used.keys().copied().collect::<Vec<_>>(), ["a", "b"]);
        let error = linked(&metadata, &["x"]).expect_err("unknown");
        assert!(error.to_string().contains("no crate x"), "{error}");
    }
}
