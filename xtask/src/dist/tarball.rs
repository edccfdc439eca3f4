//! The tarball: all files are below one folder, which works wherever it is unpacked.

use std::fs;

use anyhow::{Context, ensure};

use super::tree::{Content, Tree};
use super::{Release, gzip};
use crate::steps::root;

/// Writes `transom-VERSION-ARCH-linux.tar.gz`.
pub(super) fn write(release: &Release, sbom: &[u8]) -> anyhow::Result<()> {
    let payload = &release.payload;
    let mut tree = Tree::default();
    tree.add_program("bin/transom", Content::File(payload.binary.clone()));
    tree.add_tree("plugins", &payload.components);
    tree.add_tree("examples", &payload.examples);
    tree.add_tree("docs", &payload.manual);
    for (shell, script) in &payload.completions {
        let name = match *shell {
            "bash" => "bash/transom",
            "zsh" => "zsh/_transom",
            _ => "fish/transom.fish",
        };
        tree.add_file(&format!("completions/{name}"), Content::Bytes(script.clone()));
    }
    for (name, page) in &payload.man_pages {
        tree.add_file(&format!("man/man1/{name}"), Content::Bytes(page.clone()));
    }
    let packaging = root().join("packaging");
    tree.add_text("transom.toml", &settings()?);
    for &name in super::debian::UNITS {
        let file = packaging.join("systemd").join(name);
        tree.add_file(&format!("systemd/{name}"), Content::File(file));
    }
    tree.add_file("LICENSE", Content::File(root().join("LICENSE")));
    tree.add_file("README.md", Content::File(root().join("README.md")));
    tree.add_file("sbom.cdx.json", Content::Bytes(sbom.to_vec()));

    let name = format!("transom-{}-{}-linux", release.version, release.arch);
    let archive = release.out.join(format!("{name}.tar"));
    let file = fs::File::create(&archive).with_context(|| format!("creating {}", archive.display()))?;
    tree.write_tar(std::io::BufWriter::new(file), &format!("{name}/"), release.epoch)?;
    let compressed = release.out.join(format!("{name}.tar.gz"));
    gzip(&archive, &compressed, release.gzip_level())?;
    fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))
}

/// The settings of the Debian package, with plugins and state in the unpacked folder.
fn settings() -> anyhow::Result<String> {
    let file = root().join("packaging/transom.toml");
    let mut text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    for (from, to) in [
        ("/usr/share/doc/transom/examples/", "examples/"),
        ("file:/var/lib/transom/store", "file:state/store"),
        ("/var/lib/transom/plugins", "state/plugins"),
        ("/etc/transom/plugins", "plugins"),
    ] {
        ensure!(text.contains(from), "{} has no {from}", file.display());
        text = text.replace(from, to);
    }
    Ok(text)
}
