//! Unsafe code: denied by the workspace's lints, allowed in a few places only.

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
}
