//! The Debian package, made by `dpkg-deb` from a staged tree.
//!
//! Everything below `/etc` is a configuration file in Debian's sense: an upgrade keeps the
//! administrator's changes, including components in `/etc/transom/plugins`. The maintainer scripts
//! are in `packaging/debian`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::tree::{Content, Tree};
use super::{Release, gzip, output};
use crate::steps::root;

/// The units of systemd.
pub(super) const UNITS: &[&str] = &[
    "transom.service",
    "transom-admin.socket",
    "transom-apps.socket",
    "transom-discovery.socket",
];

const SCRIPTS: &[&str] = &["postinst", "postrm", "prerm"];

const MAINTAINER: &str = "Transom maintainers <maintainers@transom-project.invalid>";

const DESCRIPTION: &str = "Description: apps, discovery and workflow tasks for a Mesos-type cluster\n \
    One daemon for Apache Mesos and compatible cluster managers. It runs\n \
    long-running apps with the API of Marathon, answers DNS and HTTP lookups as\n \
    mesos-dns does, runs the tasks of a workflow engine, and runs Kubernetes\n \
    clusters as tasks.\n .\n \
    Every policy is a sandboxed WebAssembly component in /etc/transom/plugins,\n \
    which can be replaced while the daemon serves.\n";

/// Writes `transom_VERSION_ARCH.deb`.
pub(super) fn write(release: &Release, sbom: &[u8], work: &Path) -> anyhow::Result<()> {
    let dir = work.join("debian");
    let tree = files(release, sbom, work)?;
    tree.write_to(&dir)?;
    let arch = output(Command::new("dpkg").arg("--print-architecture"), "dpkg")?;
    let arch = String::from_utf8(arch)
        .context("the architecture")?
        .trim()
        .to_owned();
    let depends = dependencies(&release.payload.binary, work)?;
    let mut text = format!(
        "Package: transom\nVersion: {}\nArchitecture: {arch}\nMaintainer: {MAINTAINER}\nInstalled-Size: {}\n\
         Depends: adduser, {depends}\nRecommends: ca-certificates\nSection: admin\nPriority: optional\n\
         Homepage: https://github.com/transom-project/transom\n",
        release.version,
        kibibytes(&dir, &tree)?,
    );
    text.push_str(DESCRIPTION);
    let mut control = Tree::default();
    control.add_text("DEBIAN/control", &text);
    let conffiles: String =
        tree.files()
            .filter(|path| path.starts_with("etc/"))
            .fold(String::new(), |mut text, path| {
                let _ = writeln!(text, "/{path}");
                text
            });
    control.add_text("DEBIAN/conffiles", &conffiles);
    control.add_file("DEBIAN/md5sums", Content::Bytes(md5sums(&dir, &tree)?));
    for &name in SCRIPTS {
        let script = root().join("packaging/debian").join(name);
        control.add_program(&format!("DEBIAN/{name}"), Content::File(script));
    }
    control.write_to(&dir)?;
    let package = release
        .out
        .join(format!("transom_{}_{arch}.deb", release.version));
    // One thread: with several, the bytes depend on the number of processors.
    let compression: &[&str] = if release.quick {
        &["-Zgzip", "-z1"]
    } else {
        &["-Zxz", "--threads-max=1"]
    };
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group"])
        .args(compression)
        .arg("--build")
        .args([&dir, &package])
        // `dpkg-deb` replaces every later timestamp by this one.
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    output(&mut build, "dpkg")?;
    Ok(())
}

fn files(release: &Release, sbom: &[u8], work: &Path) -> anyhow::Result<Tree> {
    let payload = &release.payload;
    let packaging = root().join("packaging");
    let mut tree = Tree::default();
    tree.add_program("usr/bin/transom", Content::File(payload.binary.clone()));
    for &name in UNITS {
        let file = packaging.join("systemd").join(name);
        tree.add_file(&format!("lib/systemd/system/{name}"), Content::File(file));
    }
    let settings = Content::File(packaging.join("transom.toml"));
    tree.add_file_with_mode("etc/transom/transom.toml", 0o640, settings);
    tree.add_tree("etc/transom/plugins", &payload.components);
    for (shell, script) in &payload.completions {
        let path = match *shell {
            "bash" => "usr/share/bash-completion/completions/transom",
            "zsh" => "usr/share/zsh/vendor-completions/_transom",
            _ => "usr/share/fish/vendor_completions.d/transom.fish",
        };
        tree.add_file(path, Content::Bytes(script.clone()));
    }
    for (name, page) in &payload.man_pages {
        let page = compress(page, work)?;
        tree.add_file(&format!("usr/share/man/man1/{name}.gz"), Content::Bytes(page));
    }
    let doc = "usr/share/doc/transom";
    tree.add_tree(doc, &payload.manual);
    tree.add_tree(&format!("{doc}/examples"), &payload.examples);
    tree.add_file(
        &format!("{doc}/copyright"),
        Content::File(packaging.join("debian/copyright")),
    );
    tree.add_text(
        "usr/share/lintian/overrides/transom",
        "# Settings may contain passwords; the group is set when the package is installed.\n\
         transom: non-standard-file-perm 0640 != 0644 [etc/transom/transom.toml]\n",
    );
    tree.add_file(&format!("{doc}/sbom.cdx.json"), Content::Bytes(sbom.to_vec()));
    let date = output(
        Command::new("date").args(["--utc", "--rfc-email", "--date", &format!("@{}", release.epoch)]),
        "coreutils",
    )?;
    let changelog = format!(
        "transom ({}) stable; urgency=medium\n\n  * See CHANGELOG.md in this directory.\n\n -- {MAINTAINER}  {}\n",
        release.version,
        String::from_utf8_lossy(&date).trim()
    );
    let changelog = compress(changelog.as_bytes(), work)?;
    tree.add_file(&format!("{doc}/changelog.gz"), Content::Bytes(changelog));
    Ok(tree)
}

/// Compresses a file as Debian compresses man pages and changelogs.
fn compress(bytes: &[u8], work: &Path) -> anyhow::Result<Vec<u8>> {
    let (plain, packed) = (work.join("plain"), work.join("packed"));
    fs::write(&plain, bytes)?;
    gzip(&plain, &packed, "-9")?;
    Ok(fs::read(&packed)?)
}

/// The packages of the libraries, with the versions that the binary needs.
fn dependencies(binary: &Path, work: &Path) -> anyhow::Result<String> {
    // `dpkg-shlibdeps` requires a source package's control file.
    let dir = work.join("shlibdeps");
    fs::create_dir_all(dir.join("debian"))?;
    fs::write(
        dir.join("debian/control"),
        "Source: transom\n\nPackage: transom\nArchitecture: any\n",
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.args(["-O", "-e"]).arg(binary).current_dir(&dir);
    let text = String::from_utf8(output(&mut command, "dpkg-dev")?).context("the dependencies")?;
    let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends = depends.with_context(|| format!("dpkg-shlibdeps printed {text:?}"))?;
    Ok(depends.trim().to_owned())
}

fn md5sums(dir: &Path, tree: &Tree) -> anyhow::Result<Vec<u8>> {
    let files = tree.files().filter(|path| !path.starts_with("etc/"));
    output(Command::new("md5sum").args(files).current_dir(dir), "coreutils")
}

/// The size of all files, each rounded up, as Debian's policy defines it.
fn kibibytes(dir: &Path, tree: &Tree) -> anyhow::Result<u64> {
    let mut sum = 0;
    for path in tree.files() {
        sum += fs::metadata(dir.join(path))?.len().div_ceil(1024);
    }
    ensure!(sum > 0, "the package has no files");
    Ok(sum)
}
