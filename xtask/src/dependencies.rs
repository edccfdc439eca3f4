//! Tests against compiling a crate several times: in several versions, unless `deny.toml` lists
//! them with the reason, or with several sets of features.

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;

    use crate::steps::{SELECTION, cargo, root};

    /// The build script of cranelift-codegen needs constants of the interpreter. If it used the
    /// daemon's features, the interpreter itself would have to be compiled before Cranelift, for
    /// which most of a build waits. `object` and `semver` are also used by build scripts of the
    /// Kubernetes client's dependencies.
    const COMPILED_TWICE: &[&str] = &[
        "cranelift-bitset",
        "object",
        "pulley-interpreter",
        "semver",
        "wasmtime-internal-core",
    ];

    /// `name@version` of every crate of a build, with its sets of features. There are several sets
    /// if macros and build scripts need other features than programs.
    fn crates(selection: &[&str], edges: &str) -> BTreeMap<String, BTreeSet<String>> {
        let output = cargo()
            .arg("tree")
            .args(selection)
            .args(["--locked", "--offline", "--prefix", "none"])
            .args(["--edges", edges, "--format", "{p} [{f}]"])
            .output()
            .expect("cargo tree");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((name, rest)) = line.split_once(" v") else {
                continue;
            };
            let (Some(version), Some((_, features))) = (rest.split(' ').next(), rest.rsplit_once('[')) else {
                continue;
            };
            let features = features.trim_end_matches(" (*)").to_owned();
            let found = crates.entry(format!("{name}@{version}")).or_default();
            found.insert(features);
        }
        crates
    }

    #[test]
    fn the_daemon_and_the_tests_compile_each_crate_with_the_same_features() {
        let tests = crates(SELECTION, "normal,build,dev");
        for (name, features) in crates(SELECTION, "normal,build") {
            assert_eq!(
                Some(&features),
                tests.get(&name),
                "{name} is compiled twice: once for the daemon and once, with other features, for tests"
            );
        }
    }

    #[test]
    fn xtask_and_the_daemon_compile_each_crate_with_the_same_features() {
        // The selection of the alias `cargo xtask`: the default members.
        let alias = fs::read_to_string(root().join(".cargo/config.toml")).expect(".cargo/config.toml");
        assert!(alias.contains("run --no-default-features --bin xtask"), "{alias}");
        let own = crates(&["--package", "xtask"], "normal");
        let daemon = crates(SELECTION, "normal,build");
        for (name, features) in crates(&["--no-default-features"], "normal,build") {
            assert!(
                !own.contains_key(&name) || daemon.get(&name) == Some(&features),
                "{name} is compiled twice: once for xtask with {features:?} and once for the daemon with {:?}",
                daemon.get(&name)
            );
        }
    }

    #[test]
    fn macros_and_programs_compile_each_crate_with_the_same_features() {
        let double: Vec<_> = crates(SELECTION, "normal,build,dev")
            .into_iter()
            .filter(|(name, features)| {
                features.len() > 1 && !COMPILED_TWICE.contains(&name.split('@').next().unwrap_or(name))
            })
            .collect();
        assert!(
            double.is_empty(),
            "compiled once for macros or build scripts and once, with other features, for programs: {double:#?}; \
             name the missing features in [build-dependencies] of xtask/Cargo.toml"
        );
    }

    #[test]
    fn a_crate_has_one_version_unless_deny_toml_gives_a_reason() {
        let deny: toml::Table = fs::read_to_string(root().join("deny.toml"))
            .expect("deny.toml")
            .parse()
            .expect("TOML");
        let skipped = deny["bans"]["skip"].as_array().expect("[bans] skip");
        let skipped: BTreeSet<&str> = skipped.iter().filter_map(|it| it["crate"].as_str()).collect();
        let crates = crates(SELECTION, "normal,build,dev");
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for it in crates.keys().filter(|it| !skipped.contains(it.as_str())) {
            versions
                .entry(it.split('@').next().unwrap_or(it))
                .or_default()
                .push(it);
        }
        let double: Vec<_> = versions.values().filter(|it| it.len() > 1).collect();
        assert!(
            double.is_empty(),
            "compiled more than once: {double:?}; align the versions, or add one to [bans] skip in deny.toml with the reason"
        );
        let missing: Vec<_> = skipped.iter().filter(|it| !crates.contains_key(**it)).collect();
        assert!(
            missing.is_empty(),
            "no longer in the build, remove from deny.toml: {missing:?}"
        );
    }
}
