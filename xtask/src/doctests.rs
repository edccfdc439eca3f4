//! Tests which crates have doctests. The others set `doctest = false`, because collecting no
//! doctests takes rustdoc as long as compiling the crate's types.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::steps::root;

    /// Whether doc comments of this file have a Rust block, which would be a doctest.
    fn has_doctest(text: &str) -> bool {
        let mut in_block = false;
        for line in text.lines().map(str::trim_start) {
            let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
            let Some(fence) = comment.and_then(|it| it.trim().strip_prefix("```")) else {
                continue;
            };
            let is_rust = ["", "rust", "no_run", "should_panic", "compile_fail"]
                .contains(&fence.split(',').next().unwrap_or_default());
            if !in_block && is_rust {
                return true;
            }
            in_block = !in_block;
        }
        false
    }

    fn doctests_below(folder: &Path) -> bool {
        fs::read_dir(folder).expect("a folder").flatten().any(|entry| {
            let path = entry.path();
            if path.is_dir() {
                doctests_below(&path)
            } else {
                path.extension().is_some_and(|extension| extension == "rs")
                    && has_doctest(&fs::read_to_string(&path).expect("a text"))
            }
        })
    }

    #[test]
    fn a_crate_with_a_doctest_runs_it() {
        let mut checked = 0;
        for below in ["host", "plugins", "tests", "tests/guests"] {
            for entry in fs::read_dir(root().join(below)).expect("a folder").flatten() {
                let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else {
                    continue;
                };
                if manifest.contains("doctest = false") {
                    checked += 1;
                    assert!(
                        !doctests_below(&entry.path().join("src")),
                        "{}: remove `doctest = false` from Cargo.toml: it has a doctest",
                        entry.path().display()
                    );
                }
            }
        }
        assert!(checked > 15, "found {checked} crates only");
    }
}
