//! Calls of a guest into the host use up its budget, and never occupy a thread for long.

use transom_plugin_host::probe::Reason;

use crate::{
    hostile_wat::HostileProbe,
    support::{Site, TIMEOUT, custom, logged, write_file},
};

const MANIFEST: &str = "world = \"check-probe\"\n[limits]\nmemory = \"64MiB\"\ncpu = \"50ms\"\nwall-clock = \"5s\"\n\
                        [probation]\nmax-faults = 1000000\n";
/// Pages of the messages.
const PAGES: usize = 200;

/// Calls of `log.write` in sequence, without a loop or a function between them.
fn logs(number: usize, bytes: usize) -> String {
    format!("(call $log (i32.const 0) (i32.const 131072) (i32.const {bytes}))\n").repeat(number)
}

async fn with_probes(names: &[&str], probe: &HostileProbe<'_>) -> Site {
    let site = Site::with(&[]).await;
    let component = probe.component();
    for name in names {
        write_file(site.dir.path(), &format!("{name}.toml"), MANIFEST.as_bytes());
        write_file(site.dir.path(), &format!("{name}.wasm"), &component);
    }
    site.plugins.rescan().await;
    site
}

/// The runtime has one thread, which serves ports in a daemon. While four guests do nothing but call
/// the host, that thread is free again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn guests_that_only_call_the_host_exceed_their_budget_and_block_no_thread() {
    let next = logs(5000, 8_000_000);
    let probe = HostileProbe {
        next: &next,
        free_pages: PAGES,
        ..HostileProbe::default()
    };
    let site = with_probes(&["a", "b", "c", "d"], &probe).await;
    let attempts = ["a", "b", "c", "d"].map(|name| site.probe(name, "{}", None));
    let turns = async {
        let mut turns = 0_u32;
        loop {
            tokio::task::spawn(async {}).await.unwrap();
            turns += 1;
            if turns >= 20 {
                break;
            }
        }
    };
    let done = async { tokio::join!(futures::future::join_all(attempts), turns) };
    let (failures, ()) = tokio::time::timeout(TIMEOUT, Box::pin(done))
        .await
        .expect("the attempts end");
    for failure in failures.into_iter().map(Result::unwrap_err) {
        assert_eq!(failure.reason, Reason::Plugin);
        assert!(failure.message.contains("limits.cpu"), "{failure}");
    }
    for name in ["a", "b", "c", "d"] {
        let used = site.status(name).cpu_millis;
        assert!((50..1000).contains(&used), "{name}: {used} ms");
    }
    site.stop().await;
}

/// As the interface promises, a long message is cut and is no fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_message_is_cut() {
    let next = logs(1, 8_000_000);
    let probe = HostileProbe {
        next: &next,
        free_pages: PAGES,
        ..HostileProbe::default()
    };
    let site = with_probes(&["long"], &probe).await;
    assert_eq!(site.probe("long", "{}", None).await, Ok(custom("{}")));
    assert!(logged(&["\\u{0}\\u{0}", "…"]), "the cut line is missing");
    site.stop().await;
}

/// Every way into the host is checked: here methods of resources, which are functions of the engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_without_a_loop_are_charged() {
    let next = "(drop (call $rep (call $new (i32.const 7))))\n".repeat(20_000);
    let probe = HostileProbe {
        next: &next,
        ..HostileProbe::default()
    };
    let site = Site::with(&[]).await;
    let manifest = MANIFEST.replace("50ms", "2ms");
    write_file(site.dir.path(), "handles.toml", manifest.as_bytes());
    write_file(site.dir.path(), "handles.wasm", &probe.component());
    site.plugins.rescan().await;
    let failure = site.probe("handles", "{}", None).await.unwrap_err();
    assert!(failure.message.contains("limits.cpu"), "{failure}");
    site.stop().await;
}
