//! The contents of every package: binary, components, completions, man pages, examples and manual.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::output;
use super::tree::{Content, Tree};
use crate::steps::root;

/// Folders of `examples` that are packaged. Sources of plugins are not, because they need a
/// checkout.
const EXAMPLES: &[&str] = &["apps", "dags", "framework", "groups", "monitoring", "pods"];

/// The contents, with paths relative to the destination in a package.
pub(super) struct Payload {
    /// The binary without symbols.
    pub(super) binary: PathBuf,
    /// `NAME.wasm` and `NAME.toml`.
    pub(super) components: Tree,
    /// Name of the shell, and the script.
    pub(super) completions: Vec<(&'static str, Vec<u8>)>,
    /// Name, such as `transom-serve.1`, and the page.
    pub(super) man_pages: Vec<(String, Vec<u8>)>,
    pub(super) examples: Tree,
    pub(super) manual: Tree,
}

/// Collects the contents; `work` is a folder for temporary files.
pub(super) fn collect(binary: &Path, components: &Path, work: &Path) -> anyhow::Result<Payload> {
    ensure!(binary.is_file(), "{}: there is no such binary", binary.display());
    let stripped = work.join("transom");
    output(
        Command::new("strip").arg("-o").arg(&stripped).arg(binary),
        "binutils",
    )?;
    let mut completions = Vec::new();
    for shell in ["bash", "fish", "zsh"] {
        let script = output(Command::new(&stripped).args(["completions", shell]), "transom")?;
        completions.push((shell, script));
    }
    let mut manual = tree_of_folder(&root().join("docs"), &|name| has_extension(name, &["md", "json"]))?;
    for name in ["README.md", "CHANGELOG.md"] {
        manual.add_file(name, Content::File(root().join(name)));
    }
    let mut examples = Tree::default();
    for &name in EXAMPLES {
        let found = tree_of_folder(&root().join("examples").join(name), &|_| true)?;
        examples.add_tree(name, &found);
    }
    examples.add_file(
        "transom.toml",
        Content::File(root().join("examples/transom.toml")),
    );
    Ok(Payload {
        components: first_party(components)?,
        completions,
        man_pages: man_pages(&stripped)?,
        examples,
        manual,
        binary: stripped,
    })
}

/// The components and manifests directly in the folder, without the subfolders of tests and
/// examples.
fn first_party(dir: &Path) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let entries = fs::read_dir(dir).with_context(|| format!("reading components in {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if has_extension(&name, &["wasm", "toml"]) {
            tree.add_file(&name, Content::File(path));
        }
    }
    ensure!(
        tree.files().any(|name| has_extension(name, &["wasm"])),
        "{} has no components: `cargo xtask plugins` builds them",
        dir.display()
    );
    Ok(tree)
}

pub(super) fn has_extension(name: &str, extensions: &[&str]) -> bool {
    let found = name.rsplit_once('.').map(|(_, extension)| extension);
    found.is_some_and(|found| extensions.contains(&found))
}

/// The files of a folder and its subfolders for which `wanted` returns true, without hidden files
/// and build output of examples.
fn tree_of_folder(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('.') || name == "__pycache__" || name == "node_modules" || name == "target" {
            continue;
        }
        if path.is_dir() {
            let below = tree_of_folder(&path, wanted)?;
            tree.add_tree(&name, &below);
        } else if wanted(&name) {
            tree.add_file(&name, Content::File(path));
        }
    }
    Ok(tree)
}

/// The man page of the program and one for each command in `transom --help`.
fn man_pages(binary: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let help = output(Command::new(binary).arg("--help"), "transom")?;
    let help = String::from_utf8(help).context("the help text")?;
    let mut pages = vec![(
        "transom.1".to_owned(),
        output(Command::new(binary).arg("man"), "transom")?,
    )];
    for command in command_names(&help) {
        let page = output(Command::new(binary).args(["man", command]), "transom")?;
        pages.push((format!("transom-{command}.1"), page));
    }
    ensure!(pages.len() > 1, "`transom --help` lists no commands");
    Ok(pages)
}

/// The names in the section `Commands:`: lines that are indented by two spaces.
fn command_names(help: &str) -> Vec<&str> {
    let section = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = section.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_first_words_of_the_section() {
        let help = "About\n\nUsage: x\n\nCommands:\n  serve   Run it,\n          all day\n  man     Print\n  help    Print this\n\nOptions:\n  -h\n";
        assert_eq!(command_names(help), ["serve", "man"]);
    }
}
