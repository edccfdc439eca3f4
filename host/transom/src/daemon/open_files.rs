//! The limit of open files. Each connection is an open file, and the usual soft limit of 1,024 is lower
//! than a port's limits of connections and streams.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit, and logs it. Programs that the embedded cluster manager
/// starts inherit the limit.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current, limit.maximum);
    let raised = Rlimit {
        current: hard,
        maximum: hard,
    };
    let limit_text =
        |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    if soft == hard {
        tracing::info!(limit = limit_text(hard), "limit of open files");
        return;
    }
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::info!(
            limit = limit_text(hard),
            before = limit_text(soft),
            "limit of open files raised to the hard limit"
        ),
        Err(error) => tracing::warn!(
            limit = limit_text(soft),
            hard = limit_text(hard),
            %error,
            "the limit of open files cannot be raised; it limits connections and event streams"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let lowered = Rlimit {
            current: before.maximum.map(|hard| hard - 1),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lowered).expect("lowered");
        raise_limit();
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (before.maximum, before.maximum));
    }
}
