//! Builds the Python and JavaScript components (examples and a guest of the tests) with `transom
//! plugin build`, as their authors would.
//!
//! The languages' tools are in `target/authors`: a virtual environment and a `node_modules` with
//! the kits, installed from their packages, created once for each version of kits and tools. A
//! component is rebuilt when a file of its project, a kit or its tool's version changes.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::steps::{root, target};
use crate::toolchain::run;
use crate::{kits, needs};

/// Projects, and the subfolder of the output folder for each.
const PYTHON: &[(&str, &str)] = &[
    ("examples/plugins/redact", "examples"),
    ("examples/plugins/proxy-python", "examples"),
    ("examples/plugins/redis-ping-python", "examples"),
    ("tests/sandbox-escape", "tests"),
];
const JAVASCRIPT: &[(&str, &str)] = &[
    ("examples/plugins/spread", "examples"),
    ("examples/plugins/proxy-javascript", "examples"),
    ("examples/plugins/smallest-javascript", "examples"),
];

/// Projects whose cases run only natively, because building and compiling a component takes a
/// minute.
const JAVASCRIPT_NATIVE: &[&str] = &[
    "examples/plugins/dedicated-javascript",
    "examples/plugins/redis-ping-javascript",
];

/// The tool that builds components from Python.
const REQUIREMENTS: &str = "examples/plugins/redact/requirements.txt";

/// Builds the components of other languages into the folder of the Rust ones. Returns the
/// environment variables for their tests.
pub(crate) fn step(components: &Path) -> Result<Vec<(&'static str, OsString)>> {
    eprintln!("==> components of Python and JavaScript");
    let begun = Instant::now();
    let variables = build_or_skip(&target().join("debug/transom"), components)?;
    eprintln!(
        "    components of Python and JavaScript: {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(variables)
}

/// Builds the components into `components` with this `transom`. Returns the environment variables
/// for tests that build such projects.
fn build(transom: &Path, components: &Path) -> Result<Vec<(&'static str, OsString)>> {
    let progress = |line: &str| eprintln!("    {line}");
    let tools = target().join("authors");
    fs::create_dir_all(&tools).with_context(|| format!("creating {}", tools.display()))?;
    // Concurrent runs must not install at the same time.
    let lock = fs::File::create(tools.join("lock")).context("a lock")?;
    lock.lock().context("a lock")?;
    let mut variables = vec![("TRANSOM_AUTHORS_TARGET", tools.join("cargo").into_os_string())];

    let python = virtual_environment(&tools, &progress).context("Python, for components of Python")?;
    let path = path_with_first(&python.join("bin"))?;
    for (project, folder) in PYTHON {
        let mut command = Command::new(transom);
        command.env("PATH", &path);
        build_component(command, project, &python, &components.join(folder), &progress)?;
    }
    variables.push(("TRANSOM_AUTHORS_PYTHON", python.join("bin").into_os_string()));

    let modules = node_modules(&tools, &progress).context("Node.js, for components of JavaScript")?;
    for &project in JAVASCRIPT_NATIVE {
        create_link(&modules, &root().join(project).join("node_modules"))?;
    }
    for (project, folder) in JAVASCRIPT {
        create_link(&modules, &root().join(project).join("node_modules"))?;
        let command = Command::new(transom);
        build_component(command, project, &modules, &components.join(folder), &progress)?;
    }
    variables.push(("TRANSOM_AUTHORS_NODE_MODULES", modules.into_os_string()));
    Ok(variables)
}

/// `cargo xtask kits`: builds the three packages into a folder, `target/kits` by default.
pub(crate) fn build_kits(out: Option<PathBuf>) -> Result<()> {
    let out = out.unwrap_or_else(|| target().join("kits"));
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    kits::rust_package(&out)?;
    let progress = |line: &str| eprintln!("    {line}");
    let temporary = tempfile::tempdir()?;
    kits::wheel(&pip(&progress)?, temporary.path(), &out, &progress)?;
    kits::tarball(temporary.path(), &out, &progress)?;
    eprintln!("    in {}", out.display());
    Ok(())
}

/// The `pip` of a virtual environment, which is created if it is missing.
fn pip(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let tools = target().join("authors");
    fs::create_dir_all(&tools).with_context(|| format!("creating {}", tools.display()))?;
    Ok(virtual_environment(&tools, progress)?.join("bin/pip"))
}

/// `PATH` with a folder in front.
fn path_with_first(folder: &Path) -> Result<OsString> {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&inherited));
    Ok(std::env::join_paths(folders)?)
}

/// Builds one project unless its input is unchanged. `tools` is the folder of its language's tools,
/// whose name contains their version.
fn build_component(
    mut transom: Command,
    project: &str,
    tools: &Path,
    out: &Path,
    progress: &dyn Fn(&str),
) -> Result<()> {
    let dir = root().join(project);
    let name = dir
        .file_name()
        .context("a project has a name")?
        .to_string_lossy()
        .into_owned();
    let mut hasher = DefaultHasher::new();
    tools.hash(&mut hasher);
    hash_folder(&dir, &mut hasher)?;
    let inputs = format!("{:016x}", hasher.finish());
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let stamp = out.join(format!(".{name}.inputs"));
    let built = out.join(format!("{name}.wasm")).is_file() && out.join(format!("{name}.toml")).is_file();
    if built && fs::read_to_string(&stamp).is_ok_and(|it| it == inputs) {
        return Ok(());
    }
    transom.args(["plugin", "build"]).arg(&dir).arg("--out").arg(out);
    run(
        &mut transom,
        &format!("making a component of {project}"),
        progress,
    )?;
    fs::write(&stamp, inputs).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(())
}

/// Names and contents of all input files of a project, in order; links are followed.
fn hash_folder(dir: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if kits::BUILD_OUTPUT.contains(&name.as_str()) {
            continue;
        }
        name.hash(hasher);
        if path.is_dir() {
            hash_folder(&path, hasher)?;
        } else {
            fs::read(&path)
                .with_context(|| format!("reading {}", path.display()))?
                .hash(hasher);
        }
    }
    Ok(())
}

/// A virtual environment with the tool for components, and with the kit from its wheel.
fn virtual_environment(tools: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let requirements = fs::read_to_string(root().join(REQUIREMENTS))?;
    let version = format!("{requirements}{}", folder_digest(kits::PYTHON)?);
    create_once(tools, "python", &version, |dir| {
        let file = dir.with_extension("txt");
        fs::write(&file, &requirements)?;
        let mut python = Command::new("python3");
        python.args(["-m", "venv"]).arg(dir);
        run(&mut python, "making a virtual environment", progress)?;
        let pip = dir.join("bin/pip");
        let wheel = kits::wheel(&pip, dir, dir, progress)?;
        let mut install = Command::new(pip);
        install
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .arg(wheel)
            .arg("-r")
            .arg(&file);
        let what = format!("pip install transom-plugin {}", requirements.trim());
        run(&mut install, &what, progress).map(drop)
    })
}

/// A `node_modules` with the kit from its tarball, and with the tool for components.
fn node_modules(tools: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let dir = create_once(tools, "node", &folder_digest(kits::JAVASCRIPT)?, |dir| {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("package.json"), "{\"private\": true}")?;
        let tarball = kits::tarball(dir, dir, progress)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"])
            .arg(tarball)
            .current_dir(dir);
        run(&mut npm, "npm install transom-plugin", progress).map(drop)
    })?;
    Ok(dir.join("node_modules"))
}

/// A digest of all files of a kit, including the interface.
fn folder_digest(kit: &str) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hash_folder(&root().join(kit), &mut hasher)?;
    Ok(format!("{:016x}", hasher.finish()))
}

/// A folder that is created once for each `version`. Its stamp is written last, so that a folder of
/// an interrupted run is created again.
fn create_once(
    tools: &Path,
    name: &str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    let dir = tools.join(format!("{name}-{:016x}", hasher.finish()));
    let stamp = dir.join(".made");
    if stamp.is_file() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    make(&dir)?;
    fs::write(&stamp, "").with_context(|| format!("writing {}", stamp.display()))?;
    Ok(dir)
}

/// Creates a link to a folder, unless it exists.
fn create_link(to: &Path, at: &Path) -> Result<()> {
    match fs::read_link(at) {
        Ok(found) if found == to => return Ok(()),
        Ok(_) => fs::remove_file(at)?,
        // The author has created a folder there.
        Err(_) if at.exists() => return Ok(()),
        Err(_) => {}
    }
    std::os::unix::fs::symlink(to, at).with_context(|| format!("linking {}", at.display()))
}

/// A program, arguments that test it, and its Debian package.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("python3", &["-c", "import ensurepip, venv"], "python3-venv"),
    ("npm", &["--version", "--silent"], "npm"),
    (
        "node",
        &[
            "--eval",
            "process.exit(Number(process.versions.node.split('.')[0]) < 18 ? 1 : 0)",
        ],
        "nodejs",
    ),
];

/// The missing or insufficient programs, with their packages.
fn missing_programs() -> Vec<(&'static str, &'static str)> {
    let succeeds = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|it| it.status.success())
    };
    let missing_programs = PROGRAMS
        .iter()
        .filter(|(program, arguments, _)| !succeeds(program, arguments));
    missing_programs
        .map(|(program, _, package)| (*program, *package))
        .collect()
}

/// Builds the components. If the languages are missing and cannot be installed, prints a message;
/// in CI that is an error.
fn build_or_skip(transom: &Path, components: &Path) -> Result<Vec<(&'static str, OsString)>> {
    let missing = missing_programs();
    if missing.is_empty() {
        return build(transom, components);
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    if needs::is_root() {
        needs::apt(&["update", "-qq"])?;
        needs::apt(
            &[
                &["install", "-y", "-qq", "--no-install-recommends"],
                packages.as_slice(),
            ]
            .concat(),
        )?;
    }
    let missing: Vec<&str> = missing_programs().iter().map(|(program, _)| *program).collect();
    if missing.is_empty() {
        return build(transom, components);
    }
    let message = format!(
        "components of Python and JavaScript need {}: sudo apt-get install -y --no-install-recommends {}",
        missing.join(", "),
        packages.join(" ")
    );
    ensure!(std::env::var_os("CI").is_none(), "{message}");
    eprintln!("    skipped, with the tests that need them: {message}");
    Ok(vec![("TRANSOM_AUTHORS_LEFT_OUT", message.into())])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use anyhow::bail;

    use super::*;

    fn hash(dir: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash_folder(dir, &mut hasher).unwrap();
        hasher.finish()
    }

    #[test]
    fn hash_of_a_project_ignores_build_output() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/app.py"), "one").unwrap();
        let first = hash(dir.path());
        fs::create_dir(dir.path().join("out")).unwrap();
        fs::write(dir.path().join("out/a.wasm"), "made").unwrap();
        assert_eq!(hash(dir.path()), first);
        fs::write(dir.path().join("src/app.py"), "two").unwrap();
        assert_ne!(hash(dir.path()), first);
    }

    #[test]
    fn incomplete_build_is_repeated_and_a_complete_one_kept() {
        let dir = tempfile::tempdir().unwrap();
        let interrupted = create_once(dir.path(), "x", "1", |it| {
            fs::create_dir(it)?;
            bail!("half-way")
        });
        assert!(interrupted.is_err());
        let created = create_once(dir.path(), "x", "1", |it| Ok(fs::create_dir(it)?)).unwrap();
        let reused = create_once(dir.path(), "x", "1", |_| bail!("again")).unwrap();
        assert_eq!(created, reused);
        assert!(create_once(dir.path(), "x", "2", |_| bail!("another version")).is_err());
    }
}
