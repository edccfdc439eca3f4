//! The cache of compiled components for commands that run without a daemon.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use transom_plugin_tools::workbench::{CompileCache, Workbench};

use crate::exit::Misconfigured;
use crate::output::print_note;

/// The size limit for a daemon's cache: none, because the daemon limits the number of its files
/// instead.
const DAEMONS_BYTES: u64 = u64::MAX;

/// The options for the cache. Compiling a component written in Python takes half a minute, loading its
/// compiled form less than a second.
#[derive(Debug, Args)]
pub(super) struct CacheArgs {
    /// Directory for compiled components, to which no other user may have access. Default:
    /// `transom/plugins` in `$XDG_CACHE_HOME` or `~/.cache`. A daemon's is `plugins.state_dir`, by
    /// default `.transom` in its plugin directory.
    #[arg(long, env = "TRANSOM_CACHE_DIR", value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Compile the component even if its compiled form is cached, and do not cache it.
    #[arg(long)]
    no_cache: bool,
}

impl CacheArgs {
    /// Adds a cache to the workbench: that of the daemon with this plugin directory, if this user owns
    /// it and the options name no other one. A component is then compiled once for both.
    pub(super) fn apply_for(&self, plugins: &Path, bench: Workbench) -> anyhow::Result<Workbench> {
        let private = plugins.join(".transom");
        // A missing cache of a daemon is not created here, because it would belong to the wrong user.
        let shared = self.cache_dir.is_none() && !self.no_cache && private.join("compiled").is_dir();
        if shared && let Ok(cache) = CompileCache::open(&private, DAEMONS_BYTES) {
            return Ok(bench.caching(cache));
        }
        self.apply(bench)
    }

    /// Adds the cache of the options to the workbench. If the default directory cannot be used, that is
    /// reported, and nothing is cached.
    pub(super) fn apply(&self, bench: Workbench) -> anyhow::Result<Workbench> {
        if self.no_cache {
            return Ok(bench);
        }
        let default = || default_dir(&|name| std::env::var_os(name));
        let Some(dir) = self.cache_dir.clone().or_else(default) else {
            return Ok(bench);
        };
        match CompileCache::open(&dir, CompileCache::MAX_BYTES) {
            Ok(cache) => Ok(bench.caching(cache)),
            Err(error) if self.cache_dir.is_some() => Err(error)
                .with_context(|| format!("--cache-dir {}", dir.display()))
                .context(Misconfigured),
            Err(error) => {
                print_note(format_args!("compiled components are not cached: {error}"));
                Ok(bench)
            }
        }
    }
}

/// The default directory. As the XDG base directory specification requires, relative paths are ignored.
fn default_dir(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(cache?.join("transom/plugins"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_cache_directory_follows_xdg() {
        for (xdg, home, expected) in [
            (Some("/x"), Some("/home/a"), Some("/x/transom/plugins")),
            (Some("x"), Some("/home/a"), Some("/home/a/.cache/transom/plugins")),
            (None, Some("/home/a"), Some("/home/a/.cache/transom/plugins")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let variable = |name: &str| match name {
                "XDG_CACHE_HOME" => xdg.map(OsString::from),
                "HOME" => home.map(OsString::from),
                other => panic!("{other}"),
            };
            assert_eq!(
                default_dir(&variable),
                expected.map(PathBuf::from),
                "{xdg:?} {home:?}"
            );
        }
    }
}
