//! Finds a Rust compiler for `wasm32-unknown-unknown`.
//!
//! It tries in this order: the target of the installed toolchain; a copy that an earlier run
//! unpacked; `rustup target add`; Debian's newer compiler (`rustc-web`), downloaded and unpacked in
//! the cache folder as plain files, without root or installation. If all fail, the error contains
//! the packages to install and the cause of each failure.
//!
//! The cache is written to a temporary folder and renamed, so an interrupted run leaves nothing
//! partial. Callers hold the lock of [`components`](crate::components), so two runs never unpack
//! concurrently.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The target of guests.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Timeout of a command: longer than any working download of 140 MB of packages.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(15);

/// The arguments and variables with which cargo builds for [`TARGET`].
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// The name in progress lines.
    pub(crate) name: String,
    environment: Vec<(&'static str, OsString)>,
    arguments: Vec<&'static str>,
}

impl Toolchain {
    /// The settings for other callers of cargo: `NAME=VALUE` lines of cargo's own variables.
    pub(crate) fn variables(&self) -> String {
        let mut lines: Vec<String> = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .collect();
        for argument in &self.arguments {
            if let Some(crates) = argument.strip_prefix("-Zbuild-std=") {
                lines.push(format!("CARGO_UNSTABLE_BUILD_STD={crates}"));
            }
        }
        lines.join("\n")
    }

    /// `cargo build` for the target, in `root`; the caller adds packages and output folder.
    pub(crate) fn cargo_build(&self, root: &Path) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(root)
            .args(["build", "--target", TARGET])
            .args(&self.arguments);
        // The inner build must not inherit the settings of the `cargo run` that started this
        // process.
        command
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Finds a toolchain, or installs one below `cache`.
pub(crate) fn find(cache: &Path, progress: &dyn Fn(&str)) -> Result<Toolchain> {
    if target_is_present() {
        return Ok(Toolchain {
            name: "the present toolchain".to_owned(),
            environment: Vec::new(),
            arguments: Vec::new(),
        });
    }
    let unpacked = cache.join("debian");
    if unpacked.is_dir() {
        return debian(&unpacked);
    }
    let rustup = match rustup_target_add(progress) {
        Ok(()) if target_is_present() => return find(cache, progress),
        Ok(()) => "rustup added the target, but the compiler on PATH is not rustup's".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    match fetch(cache, &unpacked, progress).and_then(|()| debian(&unpacked)) {
        Ok(toolchain) => Ok(toolchain),
        Err(error) => bail!(
            "no Rust compiler for {TARGET} here. Install one with `rustup target add {TARGET}`, or a package that has it \
             (Debian: rustc-web and rust-web-src, or libstd-rust-dev-wasm32; Fedora: rust-std-static-{TARGET}).\n  rustup: {rustup}\n  \
             Debian packages: {error:#}"
        ),
    }
}

fn target_is_present() -> bool {
    let Ok(output) = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
    else {
        return false;
    };
    output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}

fn rustup_target_add(progress: &dyn Fn(&str)) -> Result<()> {
    let mut command = Command::new("rustup");
    command
        .args(["target", "add", TARGET])
        .env("RUSTUP_MAX_RETRIES", "1");
    run(&mut command, &format!("rustup target add {TARGET}"), progress).map(drop)
}

/// The toolchain of an unpacked copy: Debian's compiler, std from its sources, and the linker of
/// the installed toolchain.
fn debian(unpacked: &Path) -> Result<Toolchain> {
    let rustc = unpacked.join("rustc");
    let output = Command::new(&rustc)
        .arg("--version")
        .output()
        .with_context(|| format!("calling {}", rustc.display()))?;
    ensure!(
        output.status.success(),
        "the unpacked compiler does not run; delete {} to fetch it again: {}",
        unpacked.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(Toolchain {
        name: format!("Debian's {version}"),
        environment: vec![("RUSTC", rustc.into()), ("RUSTC_BOOTSTRAP", "1".into())],
        arguments: vec!["-Zbuild-std=std,panic_abort"],
    })
}

/// Downloads and unpacks Debian's compiler to `unpacked`.
fn fetch(cache: &Path, unpacked: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let temporary = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(cache)
        .context("a folder to unpack in")?;
    let debs = temporary.path().join("debs");
    fs::create_dir(&debs)?;

    // The system's package lists are tried first. If there are none, or if they are so old that
    // their packages no longer exist, private lists are used.
    if download(&Apt::system(), &debs, progress).is_err() {
        let apt = Apt::private(temporary.path())?;
        run(
            apt.command("apt-get").arg("update"),
            "reading Debian's package lists",
            progress,
        )?;
        download(&apt, &debs, progress)?;
    }

    let root = temporary.path().join("root");
    let files = fs::read_dir(&debs)?.collect::<std::io::Result<Vec<_>>>()?;
    for file in &files {
        let what = format!("unpacking {}", file.file_name().to_string_lossy());
        run(
            Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(&root),
            &what,
            progress,
        )?;
    }
    ensure!(
        root.join("usr/bin/rustc").is_file(),
        "the packages hold no usr/bin/rustc"
    );
    write_wrapper(&root, unpacked)?;
    fs::rename(&root, unpacked).with_context(|| format!("moving to {}", unpacked.display()))
}

/// Writes a `rustc` that finds its own libraries and the linker; other programs do not see these
/// paths.
fn write_wrapper(root: &Path, final_place: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let linker = linker_folder()?;
    let libraries = library_folder(root)?;
    let place = std::path::absolute(final_place)?;
    let place = place.to_str().context("the cache's path is not UTF-8")?;
    ensure!(
        !place.contains(['\'', '\n']),
        "the cache's path has a quote in it: {place}"
    );
    let script = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{place}/{libraries}' PATH='{}':\"$PATH\" exec '{place}/usr/bin/rustc' \"$@\"\n",
        linker.display()
    );
    let wrapper = root.join("rustc");
    fs::write(&wrapper, script).context("writing the compiler's wrapper")?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).context("making the wrapper executable")
}

/// The folder of `librustc_driver`, relative to `root`.
fn library_folder(root: &Path) -> Result<String> {
    for entry in fs::read_dir(root.join("usr/lib")).context("the packages hold no usr/lib")? {
        let entry = entry?;
        let Ok(files) = fs::read_dir(entry.path()) else {
            continue;
        };
        if files
            .flatten()
            .any(|file| file.file_name().to_string_lossy().starts_with("librustc_driver"))
        {
            return Ok(format!("usr/lib/{}", entry.file_name().to_string_lossy()));
        }
    }
    bail!("the packages hold no librustc_driver")
}

/// The folder of `rust-lld`.
fn linker_folder() -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir"])
        .output()
        .context("calling rustc")?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let folder = libraries.parent().unwrap_or(&libraries).join("bin");
    ensure!(
        folder.join("rust-lld").is_file(),
        "the present toolchain has no rust-lld in {}",
        folder.display()
    );
    Ok(folder)
}

/// Downloads the compiler's packages to `debs` with `apt-get download`.
fn download(apt: &Apt, debs: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    let packages = packages(apt)?;
    let mut command = apt.command("apt-get");
    command.arg("download").args(&packages).current_dir(debs);
    run(
        &mut command,
        &format!(
            "downloading Debian's compiler for WebAssembly ({})",
            packages.join(", ")
        ),
        progress,
    )
    .map(drop)
}

/// The compiler's packages: `rustc-web`, its sources, and those of their dependencies that belong
/// to it. The names contain version numbers that change with Debian's updates, so they are read
/// from the package lists.
fn packages(apt: &Apt) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut open = vec!["rustc-web".to_owned(), "rust-web-src".to_owned()];
    while let Some(package) = open.pop() {
        if !found.insert(package.clone()) {
            continue;
        }
        let output = apt
            .command("apt-cache")
            .args(["depends", "--important", &package])
            .output()
            .context("calling apt-cache")?;
        ensure!(
            output.status.success(),
            "apt knows no package {package}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        open.extend(dependencies(&String::from_utf8_lossy(&output.stdout)));
    }
    Ok(found.into_iter().collect())
}

/// The dependencies in the output of `apt-cache depends` that are parts of the compiler.
fn dependencies(output: &str) -> Vec<String> {
    output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("libstd-rust-web") || name.starts_with("libllvm"))
        .map(str::to_owned)
        .collect()
}

/// apt with the system's package lists, or with private lists, which need no root.
struct Apt(Vec<String>);

impl Apt {
    fn system() -> Self {
        Self(vec!["APT::Sandbox::User=".to_owned()])
    }

    fn private(folder: &Path) -> Result<Self> {
        let lists = folder.join("lists");
        let archives = folder.join("archives");
        fs::create_dir_all(lists.join("partial")).context("a folder for package lists")?;
        fs::create_dir_all(archives.join("partial")).context("a folder for packages")?;
        let mut apt = Self::system();
        apt.0.push(format!("Dir::State::Lists={}", lists.display()));
        apt.0.push(format!("Dir::Cache={}", archives.display()));
        apt.0.push("Debug::NoLocking=1".to_owned());
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for option in &self.0 {
            command.args(["-o", option]);
        }
        command
    }
}

/// Runs a command to its end. Prints `what` it does if that takes more than a second; its output
/// appears only in the error.
pub(crate) fn run(command: &mut Command, what: &str, progress: &dyn Fn(&str)) -> Result<Output> {
    let stdout = tempfile::tempfile().context("a temporary file")?;
    let stderr = tempfile::tempfile().context("a temporary file")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("{what}: cannot start {}", command.get_program().display()))?;
    let began = Instant::now();
    let mut next_word = Duration::from_secs(1);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() >= COMMAND_TIMEOUT {
            child.kill()?;
            child.wait()?;
            bail!(
                "{what}: not done after {} minutes",
                COMMAND_TIMEOUT.as_secs() / 60
            );
        }
        if began.elapsed() >= next_word {
            progress(what);
            next_word += Duration::from_secs(30);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let output = Output {
        status,
        stdout: read_back(stdout)?,
        stderr: read_back(stderr)?,
    };
    ensure!(
        status.success(),
        "{what}: {status}\n{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

fn read_back(mut file: fs::File) -> Result<Vec<u8>> {
    use std::io::{Read, Seek};
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]
mod tests {
    use super::*;

    #[test]
    fn only_the_compilers_own_parts_are_fetched() {
        let output = "rustc-web\n  Depends: libc6\n  Depends: libstd-rust-web-dev\n  Depends: gcc\n  Depends: <libc-dev>\n    libc6-dev\n  \
                      Conflicts: rustc\n  Recommends: rust-web-llvm\n";
        assert_eq!(dependencies(output), ["libstd-rust-web-dev"]);
        let output = "libstd-rust-web-1.96\n  Depends: libc6\n  Depends: libllvm22\n  Depends: libstdc++6\n";
        assert_eq!(dependencies(output), ["libllvm22"]);
    }

    #[test]
    fn variables_include_environment_and_build_std() {
        let toolchain = Toolchain {
            name: String::new(),
            environment: vec![("RUSTC", "/a/rustc".into()), ("RUSTC_BOOTSTRAP", "1".into())],
            arguments: vec!["-Zbuild-std=std,panic_abort"],
        };
        assert_eq!(
            toolchain.variables(),
            "RUSTC=/a/rustc\nRUSTC_BOOTSTRAP=1\nCARGO_UNSTABLE_BUILD_STD=std,panic_abort"
        );
    }

    #[test]
    fn failed_command_is_reported_with_its_output_and_status() {
        let error = run(
            Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"]),
            "trying",
            &|_| {},
        )
        .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("trying") && text.contains("no such luck") && text.contains('3'),
            "{text}"
        );
    }

    #[test]
    fn command_longer_than_a_second_is_announced_once() {
        let lines = std::cell::RefCell::new(Vec::new());
        run(Command::new("sleep").arg("1.2"), "waiting", &|line| {
            lines.borrow_mut().push(line.to_owned());
        })
        .unwrap();
        run(Command::new("true").args([""; 0]), "nothing", &|line| {
            lines.borrow_mut().push(line.to_owned());
        })
        .unwrap();
        assert_eq!(lines.into_inner(), ["waiting"]);
    }
}
