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
    tree.program("bin/transom", Content::File(payload.binary.clone()));
    tree.graft("plugins", &payload.components);
    tree.graft("examples", &payload.examples);
    tree.graft("docs", &payload.manual);
    for (shell, script) in &payload.completions {
        let name = match *shell {
            "bash" => "bash/transom",
            "zsh" => "zsh/_transom",
            _ => "fish/transom.fish",
        };
        tree.file(&format!("completions/{name}"), Content::Bytes(script.clone()));
    }
    for (name, page) in &payload.man_pages {
        tree.file(&format!("man/man1/{name}"), Content::Bytes(page.clone()));
    }
    let packaging = root().join("packaging");
    tree.text("transom.toml", &settings()?);
    for name in super::debian::UNITS {
        let file = packaging.join("systemd").join(name);
        tree.file(&format!("systemd/{name}"), Content::File(file));
    }
    tree.file("LICENSE", Content::File(root().join("LICENSE")));
    tree.file("README.md", Content::File(root().join("README.md")));
    tree.file("sbom.cdx.json", Content::Bytes(sbom.to_vec()));

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
