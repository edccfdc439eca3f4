//! The limit of open files: each connection is one, and the usual limit of 1,024 is less than a
//! port's limits of connections and streams.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, and logs the limit. Programs that the embedded cluster
/// manager starts inherit it.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current, limit.maximum);
    let raised = Rlimit {
        current: hard,
        maximum: hard,
    };
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    if soft == hard {
        tracing::info!(limit = shown(hard), "limit of open files");
        return;
    }
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::info!(
            limit = shown(hard),
            before = shown(soft),
            "limit of open files raised to the hard limit"
        ),
        Err(error) => tracing::warn!(
            limit = shown(soft),
            hard = shown(hard),
            %error,
            "the limit of open files cannot be raised; it limits connections and event streams"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_becomes_the_hard_one() {
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
