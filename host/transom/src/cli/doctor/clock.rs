//! The clock of this machine, compared with those of the master and the Redis.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::fmt::rfc2822;

use super::Finding;

const CHECK: &str = "clock";
/// A greater difference is a warning: times of tasks and events are misleading.
const WARNING_SECONDS: i64 = 5;
/// A greater difference is an error: signatures and certificates may be rejected.
const ERROR_SECONDS: i64 = 60;
const TIMEOUT: Duration = Duration::from_secs(3);

/// Compares the clock with the header `Date` of a master's response.
pub(super) async fn check(client: &reqwest::Client, url: &str) -> Finding {
    match date(client, url).await {
        Some(their_seconds) => compare_with_clock_of("the master", their_seconds),
        None => Finding::skipped(CHECK, "the master's answers have no readable header `Date`"),
    }
}

/// A client for the cluster manager's own ports. `scheme`: `http` or `https`.
pub(super) fn http_client(scheme: &str, verify: bool, authorities: Option<&[u8]>) -> Option<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy().timeout(TIMEOUT);
    // Without verification if the settings ask for that.
    let builder = match authorities.and_then(|pem| reqwest::Certificate::from_pem_bundle(pem).ok()) {
        _ if !verify => builder.tls_certs_only([]).tls_danger_accept_invalid_certs(true),
        Some(certificates) => builder.tls_certs_only(certificates),
        None if scheme == "http" => builder.tls_certs_only([]),
        None => builder,
    };
    builder.build().ok()
}

async fn date(client: &reqwest::Client, url: &str) -> Option<i64> {
    let answer = client.get(url).send().await.ok()?;
    let date = answer.headers().get(reqwest::header::DATE)?.to_str().ok()?;
    // An HTTP date has the form of RFC 2822, with the zone "GMT".
    let date = rfc2822::parse(date).ok()?;
    Some(date.timestamp().as_second())
}

/// `their_seconds`: seconds since 1970.
pub(super) fn compare_with_clock_of(server: &str, their_seconds: i64) -> Finding {
    let our_seconds = SystemTime::now().duration_since(UNIX_EPOCH);
    let our_seconds = our_seconds.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    finding(server, our_seconds - their_seconds)
}

fn finding(server: &str, seconds: i64) -> Finding {
    let size = seconds.abs();
    let direction = if seconds > 0 { "ahead of" } else { "behind" };
    let message = format!("this machine's clock is {size} s {direction} that of {server}");
    let advice = "Synchronise the clocks of all machines (chrony or systemd-timesyncd; `timedatectl` shows the state).";
    if size > ERROR_SECONDS {
        Finding::error(CHECK, message, advice)
    } else if size > WARNING_SECONDS {
        Finding::warning(CHECK, message, advice)
    } else {
        Finding::ok(CHECK, format!("within {WARNING_SECONDS} s of that of {server}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn differences_are_judged_by_their_size() {
        for (seconds, state, part) in [
            (0, State::Ok, "within"),
            (-5, State::Ok, "within"),
            (6, State::Warning, "6 s ahead of"),
            (-61, State::Error, "61 s behind"),
        ] {
            let finding = finding("the master", seconds);
            assert_eq!(finding.state, state, "{seconds}");
            assert!(finding.message.contains(part), "{}", finding.message);
        }
    }
}
