//! `transom plugin new`: creates a plugin project that builds and passes its own tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::template::{Language, World, project};
use crate::exit::Misconfigured;

/// Create a plugin project: a small working plugin, its manifest, recorded cases, and a README with
/// the next commands.
///
/// The project contains a copy of the language's SDK in `vendor`: `transom-sdk` for Rust,
/// `transom-plugin` for Python and JavaScript. Nothing is downloaded.
#[derive(Debug, Args)]
pub(in crate::cli) struct New {
    /// Name of the plugin and its files: lower-case letters, digits and dashes.
    name: String,
    /// Extension point that the plugin implements.
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
    pub(in crate::cli) fn run(self) -> anyhow::Result<()> {
        let dir = self.dir.clone().unwrap_or_else(|| PathBuf::from(&self.name));
        check_name(&self.name).context(Misconfigured)?;
        check_folder(&dir).context(Misconfigured)?;
        for (name, text) in project(&self.name, self.world, self.language) {
            let path = dir.join(name);
            write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        println!("Created {}. Next steps, as in its README.md:\n", dir.display());
        println!("  cd {}", dir.display());
        match self.language {
            Language::Rust => {}
            Language::Python => {
                println!("  python3 -m venv .venv && .venv/bin/pip install -r requirements.txt");
            }
            Language::Javascript => println!("  npm install"),
        }
        println!("  transom plugin build");
        println!("  transom plugin test out/{}.wasm cases.toml", self.name);
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
const MOST: usize = 64;
/// Names that no Rust package may have. They are rejected for every language, because a plugin may
/// later be rewritten in Rust.
const TAKEN: [&str; 41] = [
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
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(plain)
        && !name.ends_with('-')
        && name.len() <= MOST;
    ensure!(
        fine,
        "`{name}` is not a plugin name; expected at most {MOST} lower-case letters, digits and dashes, starting with a letter"
    );
    ensure!(
        !TAKEN.contains(&name),
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
        let long = "a".repeat(MOST + 1);
        for (name, fine) in [
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
            assert_eq!(check_name(name).is_ok(), fine, "{name}");
        }
        assert!(TAKEN.is_sorted());
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
