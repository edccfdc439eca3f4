//! Rules of the sources that the compiler does not check: unsafe code is allowed in a few places
//! only, and code that a simulation runs takes time, chance and order from where the simulation
//! determines them.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::steps::root;

    /// Paths where unsafe code may be allowed.
    const ALLOWED: &[&str] = &[
        // Loads compiled components from the daemon's own cache.
        "host/plugin-host/src/runtime/engine",
        // A system call that no crate offers.
        "host/plugin-host/src/runtime/thread_priority.rs",
        // Generated bindings.
        "plugins/sdk/src",
        // Generated bindings, and a text that is not UTF-8.
        "tests/guests",
    ];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// Whether an attribute in the text allows unsafe code. Other attributes only forbid it.
    fn allows_unsafe_code(text: &str) -> bool {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines
            .filter(|line| line.contains("unsafe_code"))
            .any(|line| !line.contains("forbid(") && !line.contains("deny("))
    }

    #[test]
    fn unsafe_code_is_allowed_in_the_named_folders_only() {
        let mut files = Vec::new();
        for folder in ["host", "plugins", "examples", "tests", "xtask/componentize"] {
            sources(&root().join(folder), &mut files);
        }
        assert!(files.len() > 500, "found {} files only", files.len());
        for file in files {
            let name = file.strip_prefix(root()).expect("below the root");
            if ALLOWED.iter().any(|folder| name.starts_with(folder)) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a text");
            assert!(
                !allows_unsafe_code(&text),
                "{} allows unsafe code",
                name.display()
            );
        }
    }

    /// Crates that the simulation runs.
    const SIMULATED: &[&str] = &[
        "cluster",
        "apps",
        "workflow",
        "kubernetes",
        "discovery",
        "framework",
        "scheduler",
    ];
    /// What a simulation cannot determine, and what to use instead.
    const AMBIENT: &[(&str, &str)] = &[
        ("Timestamp::now()", "transom_common::ambient::now"),
        ("SystemTime::now()", "transom_common::ambient::now"),
        ("Uuid::new_v4()", "transom_common::ambient::uuid"),
        ("Uuid::now_v1(", "transom_common::ambient"),
        ("rand::random", "transom_common::ambient::random"),
        ("std::thread::spawn", "a task"),
        ("spawn_blocking(", "transom_common::ambient::blocking"),
    ];
    /// Parts of these crates that no simulation runs: listeners, files, imports, secrets.
    const NOT_SIMULATED: &[&str] = &[
        "host/apps/src/migration",
        "host/cluster/src/agent",
        "host/cluster/src/login.rs",
        "host/discovery/src/dns",
        "host/discovery/src/http",
        "host/framework/src/daemon_key.rs",
        "host/kubernetes/src/api/backups.rs",
        "host/kubernetes/src/backup/receive.rs",
        "host/kubernetes/src/import.rs",
        "host/kubernetes/src/secrets",
        "host/scheduler/src/bench.rs",
    ];

    /// The text without its tests.
    fn without_tests(text: &str) -> &str {
        let tests = text.find("#[cfg(test)]\nmod tests {");
        &text[..tests.unwrap_or(text.len())]
    }

    #[test]
    fn simulated_code_takes_time_chance_and_order_from_the_simulation() {
        let mut files = Vec::new();
        for name in SIMULATED {
            sources(&root().join("host").join(name).join("src"), &mut files);
        }
        let mut problems = Vec::new();
        for file in files {
            let name = file
                .strip_prefix(root())
                .expect("below the root")
                .display()
                .to_string();
            let is_test = name.contains("test");
            if is_test || NOT_SIMULATED.iter().any(|part| name.starts_with(part)) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a text");
            let code = without_tests(&text);
            for (used, instead) in AMBIENT {
                if code.contains(used) {
                    problems.push(format!("{name}: {used}; use {instead}"));
                }
            }
            for branches in code.split("select! {").skip(1) {
                if !branches.trim_start().starts_with("biased;") {
                    problems.push(format!(
                        "{name}: select! without `biased;` polls in a random order"
                    ));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
