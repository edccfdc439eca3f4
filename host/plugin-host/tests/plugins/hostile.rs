//! Hostile components affect neither other plugins nor the host's memory or log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use transom_plugin_host::{
    Change,
    events::{OpenError, Query},
    probe::{Kind, Outcome, Reason},
};

use crate::support::{
    Server, Site, TIMEOUT, component, custom, logged, request, response, section, sections_of, with_sections,
    write_file,
};

fn manifest(limits: &str) -> String {
    format!(
        "world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n[limits]\nmemory = \"16MiB\"\nwall-clock = \"50s\"\n\
         {limits}\n[probation]\nmax-faults = 1000000\n"
    )
}

async fn odd(limits: &str) -> Site {
    Site::with(&[
        ("tests/faulty-probe", "odd", Some(&manifest(limits))),
        ("check-tcp", "check-tcp", None),
    ])
    .await
}

/// Threads that use all processors until this is dropped.
struct Spinning {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinning {
    fn on_all_cores() -> Spinning {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let threads = (0..cores).map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Relaxed) {})
        });
        Spinning {
            threads: threads.collect(),
            stop,
        }
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Makes at least `times` calls of another plugin, which all succeed, until `is_done` is true.
async fn others_answer(site: &Site, times: u32, is_done: impl Fn() -> bool) {
    let server = Server::new(|_| async {}).await;
    let mut answered = 0;
    while answered < times || !is_done() {
        let probe_request = request(Some(&server.endpoint));
        let found = site.plugins.probe(Kind::Tcp, probe_request, None).await;
        assert_eq!(found, Ok(Outcome::Tcp(true)));
        answered += 1;
    }
}

/// Makes one plugin fail repeatedly, each time with `what` in the message, while another plugin
/// answers.
async fn other_plugins_are_not_affected(site: &Site, settings: &str, what: &str) {
    let ended = AtomicU32::new(0);
    let hostile = async {
        loop {
            let found = site.probe("odd", settings, None).await;
            let failure = found.expect_err(settings);
            assert_eq!(failure.reason, Reason::Plugin, "{settings}: {failure}");
            assert!(failure.message.contains(what), "{settings}: {failure}");
            ended.fetch_add(1, Relaxed);
        }
    };
    let others = others_answer(site, 10, || ended.load(Relaxed) >= 2);
    let done = Box::pin(async {
        tokio::select! {
            () = others => {}
            never = hostile => never,
        }
    });
    tokio::time::timeout(TIMEOUT, done).await.expect(settings);
    let others = site.status("check-tcp");
    assert_eq!((others.traps, others.timeouts), (0, 0), "{settings}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_plugins_answer_during_every_attack() {
    let site = odd("cpu = \"200ms\"\noutput = \"64KiB\"").await;
    for (settings, what) in [
        (r#"{"do":"loop"}"#, "limits.cpu"),
        (r#"{"do":"recurse"}"#, "out of bounds memory access"),
        (r#"{"do":"deep"}"#, "call stack exhausted"),
        (r#"{"do":"allocate"}"#, "limits.memory"),
        (r#"{"do":"trap"}"#, "unreachable"),
        (r#"{"do":"output","bytes":1000000}"#, "limits.output"),
        (r#"{"do":"bad-text"}"#, "utf-8"),
        // Billions of lines, and a million lines of a megabyte.
        (r#"{"do":"log","lines":4000000000,"bytes":10}"#, "limits.cpu"),
        (r#"{"do":"log","lines":1000000,"bytes":1000000}"#, "limits.cpu"),
    ] {
        other_plugins_are_not_affected(&site, settings, what).await;
    }
    let status = site.status("odd");
    assert!(status.log_drops > 1000, "{}", status.log_drops);
    assert!(status.memory_peak <= 16 << 20, "{}", status.memory_peak);
    assert!(status.cpu_millis >= 400, "{}", status.cpu_millis);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spinning_guest_is_stopped_while_every_core_is_busy() {
    let site = odd("cpu = \"100ms\"").await;
    let spinning = Spinning::on_all_cores();
    other_plugins_are_not_affected(&site, r#"{"do":"loop"}"#, "limits.cpu").await;
    drop(spinning);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_io_uses_no_cpu_budget() {
    let site = odd("cpu = \"50ms\"\ninstances = 1").await;
    let server = Server::http(|_| async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        response(200, "", "")
    })
    .await;
    let at = Some(&server.endpoint);
    let found = site.probe("odd", r#"{"do":"http","path":"/"}"#, at).await;
    assert_eq!(found, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));
    let used = site.status("odd").cpu_p99_micros.unwrap();
    assert!(used <= 65_536, "{used}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_text_stays_on_one_line() {
    let filter = "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n";
    let site = Site::with(&[
        ("tests/faulty-probe", "odd", Some(&manifest(""))),
        ("tests/faulty-events", "faulty-events", Some(filter)),
    ])
    .await;
    let failure = site.probe("odd", r#"{"do":"forge"}"#, None).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Unreachable);
    let query = Query {
        expression: Some("forge".into()),
        ..Query::default()
    };
    let Err(OpenError::Rejected(rejection)) = site.plugins.open_view(query).await else {
        panic!("it was opened")
    };
    for text in [failure.message, rejection] {
        assert!(text.contains("2026 INFO all is well \\u{1b}[2J"), "{text:?}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    site.stop().await;
}

/// A result is kept for each task and sent to each subscriber. One that is too large fails the
/// attempt, but it is not a fault that could disable the plugin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_result_fails_the_check_and_is_no_fault() {
    let manifest = "world = \"check-probe\"\n[limits]\nmemory = \"64MiB\"\noutput = \"16MiB\"\ncpu = \"5s\"\nwall-clock = \"50s\"\n";
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(manifest))]).await;
    // `{"output": "xxx"}` is 14 bytes longer than the requested text.
    for (bytes, fits) in [(4096 - 14, true), (4096 - 13, false), (8 << 20, false)] {
        let found = site
            .probe("odd", &format!(r#"{{"do":"output","bytes":{bytes}}}"#), None)
            .await;
        if fits {
            assert_eq!(found.map(|_| ()), Ok(()), "{bytes}");
        } else {
            let failure = found.expect_err("a failure");
            assert_eq!(failure.reason, Reason::Plugin);
            let found = bytes + 14;
            let expected = format!("plugin `odd`: result too large: {found} bytes, at most 4096");
            assert_eq!(failure.message, expected);
        }
    }
    let status = site.status("odd");
    assert_eq!((status.traps, status.timeouts), (0, 0), "{status:?}");
    assert_eq!(site.calls_with_outcome("odd", "error"), 2);
    site.stop().await;
}

/// Returns the component with another summary of the same length.
fn with_summary(summary: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(component("tests/faulty-probe")).unwrap();
    let original_summary = b"misbehaves on demand";
    assert_eq!(summary.len(), original_summary.len());
    let at = (0..bytes.len())
        .find(|at| bytes[*at..].starts_with(original_summary))
        .unwrap();
    bytes[at..at + original_summary.len()].copy_from_slice(summary.as_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_text_cannot_control_a_terminal() {
    let site = Site::with(&[("tests/faulty-probe", "drives", Some(&manifest("")))]).await;
    let bytes = with_summary("\u{202e}\u{2066}\u{1b}]0;x\u{7}\u{9b}2J...\u{7f}");
    site.change_files(|| write_file(site.dir.path(), "drives.wasm", &bytes))
        .await;
    let summary = site.status("drives").summary.unwrap();
    assert_eq!(summary, "\\u{202e}\\u{2066}\\u{1b}]0;x\\u{7}\\u{9b}2J...\\u{7f}");

    let settings = r#"{"do":"say","text":"drives\u202e a\u001b[31m\n2026 INFO all is well\u2069"}"#;
    assert!(site.probe("drives", settings, None).await.is_ok());
    let expected = ["drives\\u{202e} a\\u{1b}[31m 2026 INFO all is well\\u{2069}"];
    assert!(logged(&expected), "the escaped line is missing from the log");
    site.stop().await;
}

/// The host first allocates the result of a WASI function in its own memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_cannot_make_the_host_allocate() {
    let manifest = manifest("");
    let site = Site::with(&[("tests/wasi-everything", "wasi-everything", Some(&manifest))]).await;
    for count in [u64::MAX, 1 << 40] {
        let settings = format!(r#"{{"use":"bytes","count":{count}}}"#);
        let failure = site.probe("wasi-everything", &settings, None).await.unwrap_err();
        assert!(
            failure.message.contains("`wasi-everything` trapped")
                && failure.message.contains("exceeds limit"),
            "{failure}"
        );
    }
    let found = site
        .probe("wasi-everything", r#"{"use":"bytes","count":100}"#, None)
        .await;
    assert_eq!(found, Ok(custom(r#"{"bytes":100}"#)));
    site.stop().await;
}

/// Adds a core module to the odd probe. It grows a table without end as soon as it is instantiated.
fn with_table_bomb() -> Vec<u8> {
    let endless = [
        0, // no locals
        0x03, 0x40, // loop
        0xd0, 0x70, // a null function
        0x41, 0xe8, 0x07, // 1000
        0xfc, 0x0f, 0x00, // table.grow
        0x1a, // drop
        0x0c, 0x00, // again
        0x0b, 0x0b,
    ];
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 0, 0]),
        section(3, &[1, 0]),
        section(4, &[1, 0x70, 0, 0]),
        section(8, &[0]),
        section(10, &[&[1, endless.len() as u8][..], &endless].concat()),
    ]
    .concat();
    let probe = std::fs::read(component("tests/faulty-probe")).unwrap();
    let number = u8::try_from(sections_of(&probe, 1)).unwrap();
    with_sections(&probe, &[section(1, &module), section(2, &[1, 0, number, 0])])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn component_with_an_oversized_table_is_rejected() {
    let site = odd("table = 5000").await;
    let oversized = with_table_bomb();
    let replacement = site.change_files(|| write_file(site.dir.path(), "odd.wasm", &oversized));
    let others = others_answer(&site, 10, || true);
    let (change, ()) = tokio::join!(replacement, others);
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("trial instance failed")
            && reason.contains("more than 5000 elements of a table (limits.table)"),
        "{reason}"
    );
    assert!(
        site.probe("odd", "{}", None).await.is_ok(),
        "the previous version still serves"
    );
    site.stop().await;
}
