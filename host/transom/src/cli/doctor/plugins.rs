//! The plugin directory: whether it exists, whether other users may write to it, and whether its
//! manifests are valid. Components are not compiled; `transom plugin check` does that.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use transom_config::Settings;
use transom_plugin_host::check_manifest;

use super::Finding;

const CHECK: &str = "plugins";
/// A larger manifest is not read.
const MAX_MANIFEST: u64 = 1 << 20;
/// The maximum number of entries of the directory that are read.
const MAX_ENTRIES: usize = 10_000;

pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let dir = settings.plugins.dir.clone();
    let needed = needed_plugins(settings);
    let findings = tokio::task::spawn_blocking(move || inspect(&dir, &needed)).await;
    findings.unwrap_or_else(|_| {
        vec![Finding::error(
            CHECK,
            "panic in the check of the plugin directory",
            "Report it.",
        )]
    })
}

/// The plugins that the enabled services need, each with its purpose.
fn needed_plugins(settings: &Settings) -> Vec<(String, &'static str)> {
    let bindings = &settings.plugins.bindings;
    let (apps, kubernetes) = (settings.apps.is_some(), !settings.kubernetes().is_empty());
    let matches = apps || kubernetes || settings.workflow.is_some();
    let named = |names: Vec<String>, purpose, is_needed: bool| {
        names
            .into_iter()
            .filter(move |_| is_needed)
            .map(move |name| (name, purpose))
    };
    named(bindings.matcher.names().to_vec(), "matcher", matches)
        .chain(named(bindings.filter.names().to_vec(), "filter of events", apps))
        .chain(named(vec![bindings.bootstrap.clone()], "bootstrap", kubernetes))
        .chain(named(vec![bindings.http.clone()], "http checks", apps))
        .chain(named(vec![bindings.tcp.clone()], "tcp checks", apps))
        .chain(named(vec![bindings.exec.clone()], "exec checks", apps))
        .collect()
}

fn inspect(dir: &Path, needed: &[(String, &'static str)]) -> Vec<Finding> {
    let dir_text = dir.display();
    let metadata = match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return vec![
                Finding::error(
                    CHECK,
                    format!("{dir_text} is not a directory"),
                    "Correct `plugins.dir`.",
                )
                .unavailable(),
            ];
        }
        Err(error) => {
            return vec![
                Finding::error(
                    CHECK,
                    format!("{dir_text} cannot be used: {error}"),
                    "Create it with the first-party plugins, or correct `plugins.dir`; the daemon does not start without \
                     it.",
                )
                .unavailable(),
            ];
        }
    };
    let mut findings = Vec::new();
    findings.extend(permissions(dir, metadata.mode()));
    let names = match entries(dir) {
        Ok(names) => names,
        Err(error) => {
            findings.push(Finding::error(
                CHECK,
                format!("{dir_text} cannot be read: {error}"),
                "Give the daemon's user the right to read it.",
            ));
            return findings;
        }
    };
    for (name, purpose) in needed {
        // A manifest without a component may name a registry as its source.
        if !names.contains(&format!("{name}.wasm")) && !names.contains(&format!("{name}.toml")) {
            findings.push(Finding::error(
                CHECK,
                format!("{dir_text} has no {name}.wasm, which is the {purpose}"),
                "Copy the component and its manifest into the directory, or name another plugin in [plugins.use].",
            ));
        }
    }
    let manifests: Vec<_> = names
        .iter()
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "toml"))
        .collect();
    for manifest in &manifests {
        findings.extend(check_manifest_file(&dir.join(manifest)));
    }
    if findings.is_empty() {
        let components = names
            .iter()
            .filter(|name| Path::new(name).extension().is_some_and(|it| it == "wasm"))
            .count();
        let message = format!(
            "{dir_text} has {components} components and {} valid manifests",
            manifests.len()
        );
        findings.push(Finding::ok(CHECK, message));
    }
    findings
}

/// Checks the permissions: a user who may write to the directory controls which components the daemon
/// runs and what they are granted.
fn permissions(dir: &Path, mode: u32) -> Option<Finding> {
    let (dir_text, mode) = (dir.display(), mode & 0o777);
    if mode & 0o002 != 0 {
        return Some(Finding::error(
            CHECK,
            format!(
                "every user may write to {dir_text} (mode {mode:o}): anyone can replace a plugin and its grants"
            ),
            format!("`chmod o-w {dir_text}`"),
        ));
    }
    (mode & 0o020 != 0).then(|| {
        Finding::warning(
            CHECK,
            format!("the group of {dir_text} may write to it (mode {mode:o})"),
            format!("`chmod g-w {dir_text}`, unless the group's members are to install plugins."),
        )
    })
}

fn entries(dir: &Path) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)?.take(MAX_ENTRIES) {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

fn check_manifest_file(file: &Path) -> Option<Finding> {
    let manifest_error = |problem: String| {
        Some(Finding::error(
            CHECK,
            format!("{}: {problem}", file.display()),
            "Correct the manifest; docs/plugins/manifest.md has all keys.",
        ))
    };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() > MAX_MANIFEST => {
            return manifest_error(format!("it has more than {} KB", MAX_MANIFEST >> 10));
        }
        Ok(_) => {}
        Err(error) => return manifest_error(error.to_string()),
    }
    match fs::read_to_string(file) {
        Ok(text) => manifest_error(check_manifest(&text).err()?),
        Err(error) => manifest_error(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::State;
    use super::*;

    #[test]
    fn directory_permissions_components_and_manifests_are_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let needed = [("attributes".to_owned(), "matcher")];
        let messages = || {
            let findings = inspect(dir.path(), &needed);
            let findings = findings.iter().filter(|one| one.state != State::Ok);
            findings
                .map(|one| one.message.clone())
                .collect::<Vec<_>>()
                .join("\n")
        };
        let mode = |mode| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(0o755);
        assert!(messages().contains("no attributes.wasm"), "{}", messages());
        fs::write(dir.path().join("attributes.wasm"), "").expect("written");
        fs::write(
            dir.path().join("attributes.toml"),
            "world = \"attribute-matcher\"\n",
        )
        .expect("written");
        assert_eq!(messages(), "");
        fs::write(dir.path().join("attributes.toml"), "world = \"nonsense\"\n").expect("written");
        assert!(messages().contains("attributes.toml: "), "{}", messages());
        mode(0o777);
        assert!(messages().contains("every user may write"), "{}", messages());
        mode(0o775);
        assert!(messages().contains("the group"), "{}", messages());
        let missing = inspect(&dir.path().join("missing"), &[]);
        assert_eq!((missing[0].state, missing[0].unavailable), (State::Error, true));
    }
}
