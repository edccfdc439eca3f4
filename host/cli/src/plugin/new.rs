//! `transom plugin new`: creates a plugin project that builds and passes its own tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::template::{Language, World, project};
use crate::exit::Misconfigured;
use crate::output::print_line;

/// Create a plugin project: a small working plugin, its manifest, test cases, and a README with the
/// next commands.
///
/// The project contains a copy of the language's kit in `vendor`: `transom-sdk` for Rust,
/// `transom-plugin` for Python and JavaScript. Nothing is downloaded.
#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the plugin and its files: lower-case letters, digits and dashes.
    name: String,
    /// World that the plugin implements.
    #[arg(long, value_enum)]
    world: World,
    /// Programming language.
    #[arg(long, value_enum)]
    language: Language,
    /// Project folder, new or empty. Default: the plugin's name.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl New {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let dir = self.dir.clone().unwrap_or_else(|| PathBuf::from(&self.name));
        check_name(&self.name).context(Misconfigured)?;
        check_folder(&dir).context(Misconfigured)?;
        for (name, text) in project(&self.name, self.world, self.language) {
            let path = dir.join(name);
            write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        print_line(format_args!(
            "Created {}. Next steps, as in its README.md:\n",
            dir.display()
        ))?;
        print_line(format_args!("  cd {}", dir.display()))?;
        match self.language {
            Language::Rust => {}
            Language::Python => {
                print_line("  python3 -m venv .venv && .venv/bin/pip install -r requirements.txt")?;
            }
            Language::Javascript => print_line("  npm install")?,
        }
        print_line("  transom plugin build")?;
        print_line(format_args!(
            "  transom plugin test out/{}.wasm cases.toml",
            self.name
        ))?;
        Ok(())
    }
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)?;
    Ok(())
}

/// The maximum length of a name.
const MAX_NAME_LENGTH: usize = 64;
/// Names that no Rust package may have. They are rejected for every language, because a plugin may
/// later be rewritten in Rust.
const RESERVED_NAMES: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "proc-macro",
    "pub",
    "return",
    "static",
    "std",
    "struct",
    "test",
    "transom-sdk",
    "type",
];

fn check_name(name: &str) -> anyhow::Result<()> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(is_allowed)
        && !name.ends_with('-')
        && name.len() <= MAX_NAME_LENGTH;
    ensure!(
        is_valid,
        "`{name}` is not a plugin name; expected at most {MAX_NAME_LENGTH} lower-case letters, digits and dashes, starting with a letter"
    );
    ensure!(
        !RESERVED_NAMES.contains(&name),
        "`{name}` is a reserved word; choose another name"
    );
    Ok(())
}

fn check_folder(dir: &Path) -> anyhow::Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => {
            ensure!(
                entries.next().is_none(),
                "{} is not empty; name another folder with --dir",
                dir.display()
            );
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if dir.is_file() => {
            bail!(
                "{} is a file ({error}); name another folder with --dir",
                dir.display()
            )
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", dir.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_are_checked_and_invalid_ones_rejected() {
        let long = "a".repeat(MAX_NAME_LENGTH + 1);
        for (name, is_valid) in [
            ("mine", true),
            ("redis-ping2", true),
            ("", false),
            ("Mine", false),
            ("2nd", false),
            ("-a", false),
            ("a-", false),
            ("a_b", false),
            ("../a", false),
            ("a.b", false),
            ("test", false),
            ("transom-sdk", false),
            (&long, false),
        ] {
            assert_eq!(check_name(name).is_ok(), is_valid, "{name}");
        }
        assert!(RESERVED_NAMES.is_sorted());
    }

    #[test]
    fn folder_must_be_new_or_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_folder(dir.path()).is_ok());
        assert!(check_folder(&dir.path().join("new")).is_ok());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(check_folder(&file).unwrap_err().to_string().contains("is a file"));
        let error = check_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("not empty") && error.contains("--dir"), "{error}");
    }
}
