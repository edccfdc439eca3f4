//! `cargo xtask dist`: the files of a release, in `target/dist`.
//!
//! | file | is |
//! |---|---|
//! | `transom-VERSION-ARCH-linux.tar.gz` | binary, components, examples, manual, completions, man pages |
//! | `transom_VERSION_ARCH.deb` | the same for Debian, with systemd units and the user `transom` |
//! | `transom-VERSION-oci/` | an OCI image layout with the binary and the libraries that it is linked to |
//! | `transom-VERSION.cdx.json` | the software bill of materials (`CycloneDX`) |
//! | `SHA256SUMS` | the digests of all of them |
//!
//! The same binary, components and commit give the same bytes: every time in them is
//! `SOURCE_DATE_EPOCH`, by default the time of the commit; files are sorted and owners are fixed.
//! No container runtime is needed. `dpkg-deb`, `dpkg-shlibdeps`, `strip`, `gzip` and `ldd` are.

mod debian;
mod image;
mod libraries;
mod payload;
mod sbom;
mod tarball;
mod tree;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

use crate::components::Scope;
use crate::steps::{build, cargo, root, step, target};

/// The options of `cargo xtask dist`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Cargo's profile: `release`, or `dev` for the binary that the tests use, packed quickly.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Packages this binary and builds none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Packages the components of this directory and builds none.
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// The directory for the packages, which is emptied first. Default: `target/dist`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The version of the packages, for tests of upgrades. Default: that of the workspace.
    #[arg(long, value_name = "VERSION")]
    package_version: Option<String>,
    /// Creates only this package.
    #[arg(long, value_enum)]
    only: Option<Package>,
}

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Package {
    Tarball,
    Debian,
    Image,
}

/// What all packages of one run have in common.
struct Release {
    version: String,
    /// As Rust names it: `x86_64`.
    arch: &'static str,
    /// Seconds since 1970: the timestamp of everything in the packages.
    epoch: u64,
    /// Whether to prefer speed to size.
    quick: bool,
    out: PathBuf,
    payload: payload::Payload,
}

impl Release {
    /// The compression level of gzip: low for packages of tests, which are not kept.
    fn gzip_level(&self) -> &'static str {
        if self.quick { "-1" } else { "-9" }
    }
}

/// Builds binary and components unless they are given, then creates every package.
pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    let quick = match options.profile.as_str() {
        "release" => false,
        "dev" => true,
        other => bail!("`--profile {other}`: expected release or dev"),
    };
    let epoch = source_date_epoch()?;
    let binary = match options.binary {
        Some(file) => file,
        None => build_binary(quick)?,
    };
    let components = match options.components {
        Some(dir) => dir,
        None => crate::components::step(None, Scope::FirstParty)?,
    };
    let out = options.out.unwrap_or_else(|| target().join("dist"));
    create_empty(&out)?;
    let version = options
        .package_version
        .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    eprintln!("==> packages of {version}");
    let begun = Instant::now();
    let work = tempfile::tempdir().context("a temporary directory")?;
    let release = Release {
        version,
        arch: std::env::consts::ARCH,
        epoch,
        quick,
        payload: payload::collect(&binary, &components, work.path())?,
        out,
    };
    let libraries = libraries::of(&release.payload.binary)?;
    let sbom = sbom::write(&release, &libraries, quick)?;
    let wanted = |package| options.only.is_none_or(|only| only == package);
    if wanted(Package::Tarball) {
        tarball::write(&release, &sbom)?;
    }
    if wanted(Package::Debian) {
        debian::write(&release, &sbom, work.path())?;
    }
    if wanted(Package::Image) {
        image::write(&release, &sbom, &libraries, work.path())?;
    }
    checksums(&release.out)?;
    eprintln!(
        "    packages in {}: {:.1} s",
        release.out.display(),
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn build_binary(quick: bool) -> anyhow::Result<PathBuf> {
    if quick {
        build("daemon", &["--bin", "transom"])?;
        return Ok(target().join("debug/transom"));
    }
    step(
        "release build of the daemon",
        cargo().args(["build", "--release", "--locked", "--package", "transom"]),
    )?;
    Ok(target().join("release/transom"))
}

/// The timestamp of everything in the packages.
fn source_date_epoch() -> anyhow::Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH={text}: expected seconds since 1970"));
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root())
        .stderr(Stdio::null())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let Ok(Ok(epoch)) = text.map(|text| text.parse()) else {
        bail!("cannot read the commit time from git: set SOURCE_DATE_EPOCH (seconds since 1970)");
    };
    Ok(epoch)
}

/// Creates an empty directory. An existing one is emptied only if it contains packages of an
/// earlier run.
fn create_empty(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        let is_empty = fs::read_dir(out)
            .with_context(|| format!("reading {}", out.display()))?
            .next()
            .is_none();
        ensure!(
            is_empty || out.join(CHECKSUMS).exists(),
            "{} is not empty and has no {CHECKSUMS} of an earlier run: remove it, or choose another --out",
            out.display()
        );
        fs::remove_dir_all(out).with_context(|| format!("removing {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))
}

const CHECKSUMS: &str = "SHA256SUMS";

/// Writes the digests of all files below `out` in the format of `sha256sum --check`.
fn checksums(out: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    files_below(out, &mut files)?;
    files.sort();
    let mut text = String::new();
    for file in files {
        let digest = digest_of_file(&file)?;
        let name = file.strip_prefix(out).context("a file below")?;
        let _ = writeln!(text, "{digest}  {}", name.display());
    }
    fs::write(out.join(CHECKSUMS), text).with_context(|| format!("writing {CHECKSUMS}"))
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The SHA-256 of a file in hexadecimal digits.
fn digest_of_file(path: &Path) -> anyhow::Result<String> {
    let mut file = fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).with_context(|| format!("reading {}", path.display()))?;
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs a program of the system and returns its output.
fn output(command: &mut Command, package: &str) -> anyhow::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {name}: apt-get install {package}"))?;
    ensure!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

/// Compresses a file; the result contains neither name nor time.
fn gzip(from: &Path, to: &Path, level: &str) -> anyhow::Result<()> {
    let target = fs::File::create(to).with_context(|| format!("creating {}", to.display()))?;
    let status = Command::new("gzip")
        .args(["--no-name", "--stdout", level])
        .arg(from)
        .stdout(target)
        .status()
        .context("cannot run gzip")?;
    ensure!(status.success(), "gzip failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_name_every_file_below() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("b")).expect("made");
        fs::write(dir.path().join("b/c"), "x").expect("written");
        fs::write(dir.path().join("a"), "").expect("written");
        checksums(dir.path()).expect("written");
        let text = fs::read_to_string(dir.path().join(CHECKSUMS)).expect("a text");
        assert_eq!(
            text,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n\
             2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  b/c\n"
        );
    }

    #[test]
    fn a_directory_with_other_files_is_not_emptied() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("mine"), "x").expect("written");
        let error = create_empty(dir.path()).expect_err("rejected");
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert!(dir.path().join("mine").exists());
        fs::write(dir.path().join(CHECKSUMS), "").expect("written");
        create_empty(dir.path()).expect("emptied");
        assert!(!dir.path().join("mine").exists());
    }
}
