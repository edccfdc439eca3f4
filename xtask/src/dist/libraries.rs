//! The shared libraries that the binary is linked to, for the image and the bill of materials.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::output;

/// A library of the system.
pub(super) struct Library {
    /// The path where the loader looks for it, such as `/lib/x86_64-linux-gnu/libc.so.6`.
    pub(super) path: PathBuf,
    /// The Debian package that contains it, and the package's version, if there is one.
    pub(super) package: Option<(String, String)>,
}

/// The libraries of `binary`, with the loader, sorted by path.
pub(super) fn of(binary: &Path) -> anyhow::Result<Vec<Library>> {
    let text = output(Command::new("ldd").arg(binary), "libc-bin")?;
    let text = String::from_utf8(text).context("the output of ldd")?;
    let mut paths = paths(&text);
    paths.sort();
    ensure!(
        !paths.is_empty(),
        "ldd names no libraries of {}",
        binary.display()
    );
    let libraries = paths.into_iter().map(|path| Library {
        package: package(&path),
        path,
    });
    Ok(libraries.collect())
}

/// The files in the output of `ldd`: after `=>`, or without it for the loader. The kernel's own
/// library (vDSO) has no file.
fn paths(text: &str) -> Vec<PathBuf> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = line.split(' ').next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    lines.collect()
}

/// The Debian package of a file. `dpkg` knows a file by the path in its package, which may lack the
/// prefix `/usr`.
fn package(path: &Path) -> Option<(String, String)> {
    let real = path.canonicalize().ok()?;
    let names = [path.to_path_buf(), real.clone()];
    let without = real
        .strip_prefix("/usr")
        .ok()
        .map(|rest| Path::new("/").join(rest));
    let found = names.into_iter().chain(without).find_map(|name| {
        let output = output(Command::new("dpkg").arg("-S").arg(name), "dpkg").ok()?;
        let text = String::from_utf8(output).ok()?;
        Some(text.split(": ").next()?.to_owned())
    })?;
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${Version}", &found]);
    let text = String::from_utf8(output(&mut query, "dpkg").ok()?).ok()?;
    let (name, version) = text.split_once(' ')?;
    Some((name.to_owned(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_ldd_names() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/a/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        let expected = ["/lib/a/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from);
        assert_eq!(paths(text), expected);
    }
}
