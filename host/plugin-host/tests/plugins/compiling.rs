//! A slow compilation blocks nothing and is rejected at its limits of time and memory.

use std::{fs, time::Duration};

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{AdmissionOutcome, Change, CommandError, CompileProcess, Compiler, Config, State};

use crate::hostile_wat::HostileProbe;
use crate::support::{
    Site, TIMEOUT, compile_process, component, custom, logged, slow_to_compile, stamped, wait_until,
    write_file,
};

/// Compiling this number of functions takes minutes on any machine.
const FUNCTIONS: usize = 40_000;

fn marked(mark: &str, attempt: &str) -> String {
    format!(
        "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[probation]\nmax-faults = 0\n\
         [config]\nmark = \"{mark}\"\nattempt = {{ do = \"{attempt}\" }}\n"
    )
}

fn report(mark: &str) -> transom_plugin_host::probe::Outcome {
    custom(&format!(r#"{{"mark": "{mark}", "attempt": 1}}"#))
}

/// Installs a component that compiles slowly, and waits until its compilation is in progress.
async fn begin_slow(site: &Site, name: &str) {
    let dir = site.dir.path();
    write_file(dir, &format!("{name}.toml"), marked("slow", "report").as_bytes());
    write_file(dir, &format!("{name}.wasm"), &slow_to_compile(FUNCTIONS));
    wait_until("the slow one to be compiled", || is_admitting(site, name)).await;
}

fn is_admitting(site: &Site, name: &str) -> bool {
    let list = site.plugins.list();
    list.iter().any(|it| it.name == name && it.admitting.is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_probation_do_not_wait_for_a_compilation() {
    let first = marked("v1", "report");
    let site = Site::with(&[
        ("tests/faulty-probe", "ordered", Some(&first)),
        ("tests/faulty-probe", "failing", Some(&first)),
    ])
    .await;
    site.replace("tests/faulty-probe", "ordered", &marked("v2", "report"))
        .await;
    site.replace("tests/faulty-probe", "failing", &marked("v2", "trap"))
        .await;
    begin_slow(&site, "slow").await;
    let slow = site.status("slow");
    assert_eq!((slow.state, slow.refusal), (State::Admitting, None));

    // A rollback by an operator is not delayed.
    let change = tokio::time::timeout(TIMEOUT, site.plugins.rollback("ordered", None, "x"))
        .await
        .expect("the rollback does not wait for the compilation");
    assert!(matches!(change, Ok(Change::RolledBack { .. })), "{change:?}");
    assert_eq!(site.probe("ordered", "{}", None).await, Ok(report("v1")));
    assert!(is_admitting(&site, "slow"), "the rollback waited for it");

    // A version on probation is rolled back without delay.
    assert!(site.probe("failing", "{}", None).await.is_err());
    wait_until("the version before to return", || {
        site.plugins.history("failing").0[0].outcome == AdmissionOutcome::RolledBack
    })
    .await;
    assert_eq!(site.probe("failing", "{}", None).await, Ok(report("v1")));
    assert!(is_admitting(&site, "slow"), "probation waited for it");

    // Other admissions and the removal of files are not delayed either.
    write_file(site.dir.path(), "ordered.toml", marked("v3", "report").as_bytes());
    wait_until("the third version to be admitted", || {
        site.plugins.history("ordered").0[0].outcome == AdmissionOutcome::Admitted
    })
    .await;
    assert_eq!(site.probe("ordered", "{}", None).await, Ok(report("v3")));
    fs::remove_file(site.dir.path().join("ordered.wasm")).unwrap();
    fs::remove_file(site.dir.path().join("ordered.toml")).unwrap();
    wait_until("it to be taken out of service", || {
        site.plugins.list().iter().all(|it| it.name != "ordered")
    })
    .await;
    assert!(
        is_admitting(&site, "slow"),
        "an admission or a removal waited for it"
    );
    // Stopping the host ends a compilation in progress and removes its files.
    site.stop().await;
}

/// A slow component that an extension point uses delays the start for a limited time only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_ends_without_a_bound_plugin_that_is_not_admitted_in_time() {
    let site = Site::with(&[("tests/faulty-probe", "other", Some(&marked("v1", "report")))]).await;
    begin_slow(&site, "slow").await;
    let site = site
        .restart_unsettled(|config| {
            config.bindings.tcp = "slow".to_owned();
            config.start_timeout = Duration::from_millis(500);
        })
        .await;
    assert_eq!(site.status("slow").state, State::Admitting);
    assert!(
        logged(&["serving without these plugins", "slow", "500ms"]),
        "the log does not name the plugin"
    );
    wait_until("the other plugin to serve", || {
        site.status("other").state == State::Serving
    })
    .await;
    assert_eq!(site.probe("other", "{}", None).await, Ok(report("v1")));
    site.stop().await;
}

/// A host that is stopped during its start waits for no plugin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_ends_when_the_host_is_stopped() {
    let dir = TempDir::new().unwrap();
    write_file(dir.path(), "slow.toml", marked("slow", "report").as_bytes());
    write_file(dir.path(), "slow.wasm", &slow_to_compile(FUNCTIONS));
    let mut config = Config::new(dir.path());
    config.bindings.tcp = "slow".to_owned();
    config.compiler = Compiler::Process(compile_process());
    let (mut registry, token) = (Registry::default(), CancellationToken::new());
    let mut starting = Box::pin(config.start(&mut registry, token.clone()));
    assert!(
        tokio::time::timeout(Duration::from_millis(500), &mut starting)
            .await
            .is_err(),
        "the start does not wait for the plugin"
    );
    token.cancel();
    let plugins = tokio::time::timeout(TIMEOUT, starting)
        .await
        .expect("it ends")
        .unwrap();
    plugins.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_does_not_wait_for_a_compilation() {
    let site = Site::with(&[("tests/faulty-probe", "beside", Some(&marked("v1", "report")))]).await;
    let manual = format!("rollout = \"shadow-manual\"\n{}", marked("v2", "report"));
    let change = site.replace("tests/faulty-probe", "beside", &manual).await;
    assert!(matches!(change, Change::Shadowing { .. }), "{change:?}");
    begin_slow(&site, "slow").await;
    let change = site.plugins.promote("beside", "x").await;
    assert!(matches!(change, Ok(Change::Promoted { .. })), "{change:?}");
    assert!(is_admitting(&site, "slow"), "the promotion waited for it");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compilation_that_takes_too_long_is_rejected_with_the_limit() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1", "report")))]).await;
    // `odd` was compiled without that limit before, and its compiled form is in the cache.
    let mark = "a compilation with a time limit";
    let limited = CompileProcess {
        arguments: vec![mark.into()],
        ..compile_process()
    };
    let site = site
        .restart(
            |_| (),
            |config| {
                config.compile_timeout = Duration::from_secs(2);
                config.compiler = Compiler::Process(limited);
            },
        )
        .await;
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.wasm", &slow_to_compile(FUNCTIONS)))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("more than 2s of processor time")
            && reason.contains("plugins.compile_timeout_seconds"),
        "{reason}"
    );
    let status = site.status("odd");
    assert_eq!((status.state, status.admitting), (State::Serving, None));
    assert_eq!(site.probe("odd", "{}", None).await, Ok(report("v1")));
    // The compilation does not continue in the background.
    wait_until("the process that compiled to end", || !is_running(mark)).await;
    site.stop().await;
}

/// The first process gets no processor time, as on a machine that is too busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compilation_that_starves_is_retried_and_its_component_is_not_blamed() {
    let mark = TempDir::new().unwrap();
    let mark = mark.path().join("started");
    let script = format!(
        "if mkdir '{}'; then exec sleep 600; fi; exec '{}'",
        mark.display(),
        compile_process().program.display()
    );
    let starved = CompileProcess {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..compile_process()
    };
    let site = Site::with_config(&[], |config| {
        config.compiler = Compiler::Process(starved);
        config.compile_wall_clock = Duration::from_secs(5);
    })
    .await;
    let probe = HostileProbe::default().component();
    write_file(site.dir.path(), "small.toml", b"world = \"check-probe\"\n");
    let change = site
        .change_files(|| write_file(site.dir.path(), "small.wasm", &probe))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("not compiled within 5s, retrying: the machine is busy")
            && !reason.contains("functions"),
        "{reason}"
    );
    site.plugins.rescan().await;
    assert_eq!(site.status("small").state, State::Serving);
    site.stop().await;
}

/// Whether a process has this argument.
fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    commands.any(|command| {
        command
            .split(|byte| *byte == 0)
            .any(|it| it == argument.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compilation_is_cancelled_by_killing_its_process() {
    let mark = "a compilation that is cancelled";
    let marked = CompileProcess {
        arguments: vec![mark.into()],
        ..compile_process()
    };
    let site = Site::with_config(&[], |config| config.compiler = Compiler::Process(marked)).await;
    begin_slow(&site, "slow").await;
    wait_until("a process to compile", || is_running(mark)).await;
    fs::remove_file(site.dir.path().join("slow.wasm")).unwrap();
    fs::remove_file(site.dir.path().join("slow.toml")).unwrap();
    wait_until("the process to end", || !is_running(mark)).await;
    // The same happens when the host stops.
    begin_slow(&site, "slow").await;
    wait_until("a process to compile", || is_running(mark)).await;
    site.stop().await;
    wait_until("the process to end", || !is_running(mark)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compilation_that_needs_too_much_memory_is_rejected_with_the_limit() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1", "report")))]).await;
    let small = CompileProcess {
        memory: 64 << 20,
        ..compile_process()
    };
    let site = site
        .restart(|_| (), |config| config.compiler = Compiler::Process(small))
        .await;
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.wasm", &slow_to_compile(FUNCTIONS)))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("more than 64 MiB (plugins.compile_memory_bytes)"),
        "{reason}"
    );
    assert_eq!(site.probe("odd", "{}", None).await, Ok(report("v1")));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_that_cannot_compile_is_reported() {
    for (program, reason) in [
        (
            "/nonexistent/compiler",
            "cannot start its compilation: /nonexistent/compiler",
        ),
        ("/bin/true", "it is not a compiled component of this daemon"),
        ("/bin/false", "exit status: 1"),
    ] {
        let other = CompileProcess {
            program: program.into(),
            ..compile_process()
        };
        let site = Site::with_config(
            &[("tests/faulty-probe", "odd", Some(&marked("v1", "report")))],
            |config| config.compiler = Compiler::Process(other),
        )
        .await;
        let rejection = site.status("odd").refusal.unwrap();
        assert!(rejection.contains(reason), "{program}: {rejection}");
        site.stop().await;
    }
}

/// A rollback ignores the files in the directory, even if their admission is in progress. Newer
/// files cancel an admission in progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_files_cancel_an_admission() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1", "report")))]).await;
    site.replace("tests/faulty-probe", "odd", &marked("v2", "report"))
        .await;
    begin_slow(&site, "odd").await;
    let change = site.plugins.rollback("odd", Some(1), "x").await;
    assert!(matches!(change, Ok(Change::RolledBack { .. })), "{change:?}");
    assert!(!is_admitting(&site, "odd"));
    assert_eq!(
        site.plugins.rescan().await,
        [],
        "the files of the slow component stay ignored"
    );
    assert_eq!(site.probe("odd", "{}", None).await, Ok(report("v1")));

    write_file(site.dir.path(), "odd.wasm", &slow_to_compile(FUNCTIONS + 1));
    wait_until("the other slow one to be compiled", || is_admitting(&site, "odd")).await;
    let change = site
        .replace("tests/faulty-probe", "odd", &marked("v3", "report"))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(site.probe("odd", "{}", None).await, Ok(report("v3")));

    write_file(site.dir.path(), "odd.wasm", &slow_to_compile(FUNCTIONS));
    wait_until("the slow one to be compiled again", || is_admitting(&site, "odd")).await;
    let change = site
        .change_files(|| fs::remove_file(site.dir.path().join("odd.wasm")).unwrap())
        .await;
    // The remaining manifest names no source.
    assert_eq!(change, Change::Removed { name: "odd".into() });
    assert!(site.plugins.list().is_empty());
    site.stop().await;
}

/// There are more components than concurrent admissions. A rescan returns when all of them are
/// admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rescan_waits_for_all_found_admissions() {
    let site = Site::with(&[]).await;
    let original = fs::read(component("tests/faulty-probe")).unwrap();
    for number in 0..9 {
        let name = format!("many-{number}");
        write_file(
            site.dir.path(),
            &format!("{name}.toml"),
            marked(&name, "report").as_bytes(),
        );
        write_file(
            site.dir.path(),
            &format!("{name}.wasm"),
            &stamped(&original, number),
        );
    }
    site.plugins.rescan().await;
    let list = site.plugins.list();
    assert_eq!(list.len(), 9);
    assert!(list.iter().all(|it| it.state == State::Serving), "{list:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_rollback_supersedes_an_earlier_one() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1", "report")))]).await;
    for mark in ["v2", "v3"] {
        site.replace("tests/faulty-probe", "odd", &marked(mark, "report"))
            .await;
    }
    let (first, second) = tokio::join!(
        site.plugins.rollback("odd", Some(1), "x"),
        site.plugins.rollback("odd", Some(2), "x")
    );
    // The first rollback may have finished before the second one started.
    assert!(
        matches!(
            first,
            Ok(Change::RolledBack { .. }) | Err(CommandError::Overtaken { .. })
        ),
        "{first:?}"
    );
    assert!(matches!(second, Ok(Change::RolledBack { .. })), "{second:?}");
    assert_eq!(site.probe("odd", "{}", None).await, Ok(report("v2")));
    site.stop().await;
}
