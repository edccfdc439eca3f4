//! The limit of open files.

use rustix::process::{Resource, getrlimit};

use super::Finding;

const CHECK: &str = "open files";
/// A lower limit is a warning: the ports together may have this many connections and streams.
const WARNING: u64 = 8_192;
/// A lower limit is an error.
const ERROR: u64 = 1_024;

/// Checks the hard limit, because the daemon raises its soft limit to it.
pub(super) fn check() -> Finding {
    of_limit(getrlimit(Resource::Nofile).maximum)
}

fn of_limit(limit: Option<u64>) -> Finding {
    let Some(limit) = limit else {
        return Finding::ok(CHECK, "unlimited");
    };
    let message = format!("at most {limit} for a process that this user starts here");
    let advice = "Raise it: `LimitNOFILE=65536` in the systemd unit, or `ulimit -Hn` of the shell. Each connection and \
                  event stream needs one.";
    if limit < ERROR {
        Finding::error(CHECK, message, advice)
    } else if limit < WARNING {
        Finding::warning(CHECK, message, advice)
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn low_limits_are_found() {
        for (limit, state) in [
            (None, State::Ok),
            (Some(65_536), State::Ok),
            (Some(4_096), State::Warning),
            (Some(256), State::Error),
        ] {
            assert_eq!(of_limit(limit).state, state, "{limit:?}");
        }
    }
}
