//! The workbench: admission stage by stage, cases and benchmarks.

use std::{fs, path::Path, time::Duration};

use transom_plugin_tools::workbench::{
    Cases, CompileCache, ComponentFiles, NotAdmitted, Stage, Verdict, Workbench,
};

use crate::support::component;

fn component_files(name: &str, manifest: &str) -> ComponentFiles {
    let bytes = fs::read(component(name)).unwrap();
    ComponentFiles::new("mine", bytes, manifest.to_owned())
}

fn filter(keys: &str) -> ComponentFiles {
    component_files(
        "tests/faulty-events",
        &format!("world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n{keys}"),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examination_lists_stages_up_to_the_rejecting_one() {
    let bench = Workbench::new().unwrap();
    let all = [
        Stage::Manifest,
        Stage::Size,
        Stage::Digest,
        Stage::Compile,
        Stage::World,
        Stage::Imports,
        Stage::Link,
        Stage::Trial,
        Stage::Describe,
        Stage::Schema,
        Stage::Configure,
        Stage::SelfTests,
    ];
    let admitted = bench.examine(&filter("")).await;
    let stages: Vec<Stage> = admitted.stages.iter().map(|it| it.stage).collect();
    // There may be further stages between these.
    let found: Vec<Stage> = stages.into_iter().filter(|it| all.contains(it)).collect();
    assert_eq!(found, all, "{admitted:?}");
    assert!(
        admitted.rejection.is_none() && admitted.stages.iter().all(|it| it.ok),
        "{admitted:?}"
    );
    let summary = admitted.component.unwrap();
    assert_eq!(summary.world, "event-filter");
    assert!(summary.digest.starts_with("sha256:"), "{summary:?}");

    let pinned = format!(
        "world = \"event-filter\"\ndigest = \"sha256:{}\"\n",
        "0".repeat(64)
    );
    let text = ComponentFiles::new(
        "mine",
        b"no component".to_vec(),
        "world = \"event-filter\"\n".to_owned(),
    );
    for (files, stage, words) in [
        (
            component_files("tests/faulty-events", "wrold = 1\n"),
            Stage::Manifest,
            "world",
        ),
        (filter("size = 10\n"), Stage::Size, "limits.size"),
        (
            component_files("tests/faulty-events", &pinned),
            Stage::Digest,
            "the manifest pins sha256:0000",
        ),
        (text, Stage::Compile, "does not compile"),
        (
            component_files("tests/faulty-probe", "world = \"event-filter\"\n"),
            Stage::World,
            "does not export",
        ),
        (
            component_files(
                "tests/wasi-everything",
                "world = \"check-probe\"\n[grants]\nclock = false\n",
            ),
            Stage::Imports,
            "grants.clock = false",
        ),
        (
            filter("[config]\nfault = \"reject-config\"\n"),
            Stage::Configure,
            "rejected, as asked",
        ),
        (
            filter("[config]\nfault = \"trap-config\"\n"),
            Stage::Configure,
            "trapped",
        ),
        (
            component_files("check-tcp", "world = \"check-probe\"\n[config]\na = 1\n"),
            Stage::Schema,
            "takes no configuration",
        ),
        (
            filter("[[self-test]]\nname = \"first\"\nevents = [{ kind = \"a\" }]\nexpect = [\"drop\"]\n"),
            Stage::SelfTests,
            r#"self-test 1 of 1 (first): found ["pass"], expected ["drop"]"#,
        ),
    ] {
        let examination = bench.examine(&files).await;
        let last = examination.stages.last().unwrap();
        assert_eq!(last.stage, stage, "{examination:?}");
        assert!(!last.ok && last.detail.contains(words), "{examination:?}");
        assert_eq!(examination.rejection.as_ref(), Some(&last.detail));
        assert!(
            examination.stages.iter().rev().skip(1).all(|it| it.ok),
            "{examination:?}"
        );
        assert!(examination.component.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trapping_case_does_not_affect_others() {
    let cases = Cases::from_toml(
        r#"
        [[case]]
        name = "passes"
        events = [{ kind = "a" }]
        expect = ["pass"]
        [[case]]
        name = "traps"
        filter = "trap"
        events = [{ kind = "a" }]
        expect = ["pass"]
        [[case]]
        name = "loops"
        filter = "loop"
        events = [{ kind = "a" }]
        [[case]]
        name = "rejects"
        filter = "reject"
        refused = true
        [[case]]
        name = "differs"
        events = [{ kind = "a" }, { kind = "b" }]
        expect = ["pass", "drop"]
        [[case]]
        name = "does not say"
        events = [{ kind = "a" }]
        [[case]]
        name = "allocates"
        filter = "allocate"
        events = [{ kind = "a" }]
        "#,
    )
    .unwrap();
    let bench = Workbench::new().unwrap();
    let component = bench.admit(&filter("cpu = \"50ms\"\n")).await.unwrap();
    let reports = component.test(&cases).await;
    let reasons = |at: usize| reports[at].reason.clone().unwrap_or_default();
    let verdicts: Vec<Verdict> = reports.iter().map(|it| it.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Passed,
            Verdict::Failed,
            Verdict::Failed,
            Verdict::Passed,
            Verdict::Differs,
            Verdict::Differs,
            Verdict::Failed
        ],
        "{reports:#?}"
    );
    assert!(
        reasons(1).contains("plugin `mine` trapped") && !reports[1].backtrace.is_empty(),
        "{:?}",
        reports[1]
    );
    assert!(reasons(2).contains("limits.cpu"), "{:?}", reports[2]);
    assert!(reports[2].cpu_micros >= 50_000.0, "{:?}", reports[2]);
    assert_eq!(reasons(4), r#"found ["pass","pass"], expected ["pass","drop"]"#);
    assert!(reasons(5).contains("has no expectation") && reports[5].found.is_some());
    assert!(reasons(6).contains("limits.memory"), "{:?}", reports[6]);
    // Each case has a separate instance, so that the memory of one does not show in another.
    assert!(
        reports[6].memory > reports[0].memory * 2,
        "{} {}",
        reports[6].memory,
        reports[0].memory
    );
    assert!(reports[5].memory < reports[6].memory);
    assert!(
        reports.iter().all(|it| it.wall_micros >= it.cpu_micros * 0.5),
        "{reports:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bench_measures_over_replaced_instances() {
    let bench = Workbench::new().unwrap();
    let probe = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n";
    let cases =
        "[[case]]\nendpoint = \"10.0.0.1:80\"\nanswers = [{ connected = 1 }]\nexpect = { tcp = true }\n";
    for (files, cases, calls) in [
        // An attempt makes four calls: its creation, two steps and its drop.
        (component_files("check-tcp", probe), cases, 4),
        (
            filter("max-calls-per-instance = 7\n"),
            "[[case]]\nevents = [{ kind = \"a\" }]\nexpect = [\"pass\"]\n",
            1,
        ),
    ] {
        let cases = Cases::from_toml(cases).unwrap();
        let component = bench.admit(&files).await.unwrap();
        let figures = component.bench(&cases, Duration::from_millis(200)).await.unwrap();
        let it = &figures[0];
        assert!(it.runs > 7, "{it:?}");
        // The first run of an instance also opens the view.
        assert!(
            (it.runs * calls..=it.runs * calls + it.runs).contains(&it.calls),
            "{it:?}"
        );
        assert!(
            it.p50_micros > 0.0 && it.p50_micros <= it.p90_micros && it.p99_micros <= it.max_micros,
            "{it:?}"
        );
        assert!(it.cpu_micros_per_call > 0.0 && it.memory > 0, "{it:?}");
    }
    let wrong = Cases::from_toml("[[case]]\nevents = [{ kind = \"a\" }]\nexpect = [\"drop\"]\n").unwrap();
    let component = bench.admit(&filter("")).await.unwrap();
    let error = component
        .bench(&wrong, Duration::from_millis(1))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, NotAdmitted::Case { name, .. } if name == "case 1"),
        "{error}"
    );
    let rejected = filter("[config]\nfault = \"reject-config\"\n");
    let error = bench.admit(&rejected).await.map(drop).unwrap_err();
    assert!(
        matches!(
            &error,
            NotAdmitted::Rejected {
                stage: Stage::Configure,
                ..
            }
        ),
        "{error}"
    );
}

/// A case with an answer that cannot occur in service fails with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_with_framing_headers_is_rejected() {
    let files = component_files(
        "tests/faulty-probe",
        "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n",
    );
    let case = |answer: &str, expect: &str| {
        format!(
            "[[case]]\nendpoint = \"10.0.0.1:80\"\n\
             settings = {{ do = \"http\", path = \"/\", headers = [[\"Host\", \"a.example\"]] }}\n\
             answers = [{answer}]\nexpect = {expect}\n"
        )
    };
    let cases = [
        case(
            "{ http = { status = 200 } }",
            "{ custom = { status = 200, bytes = 0 } }",
        ),
        case("{ error = \"protocol\" }", "{ custom = { http = \"protocol\" } }"),
    ];
    let cases = Cases::from_toml(&cases.concat()).unwrap();
    let component = Workbench::new().unwrap().admit(&files).await.unwrap();
    let reports = component.test(&cases).await;
    assert_eq!(reports[0].verdict, Verdict::Failed, "{reports:?}");
    let reason = reports[0].reason.as_deref().unwrap();
    assert!(
        reason.contains("the header host, which only the host may set"),
        "{reason}"
    );
    assert_eq!(reports[1].verdict, Verdict::Passed, "{reports:?}");
}

/// Returns the result of the compilation stage with a cache in `dir` of at most `max_bytes`.
async fn compiled(dir: &Path, max_bytes: u64) -> String {
    let cache = CompileCache::open(dir, max_bytes).unwrap();
    let bench = Workbench::new().unwrap().caching(cache);
    let stages = bench.admit(&filter("")).await.unwrap().stages();
    let stage = stages.into_iter().find(|it| it.stage == Stage::Compile);
    stage.unwrap().detail
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir.join("compiled")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_command_takes_the_compiled_component_from_the_cache() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("cache");
    assert_eq!(compiled(&dir, CompileCache::MAX_BYTES).await, "compiled");
    assert_eq!(compiled(&dir, CompileCache::MAX_BYTES).await, "from the cache");
    let file = files(&dir).remove(0);
    let mut damaged = fs::read(&file).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&file, damaged).unwrap();
    assert_eq!(
        compiled(&dir, CompileCache::MAX_BYTES).await,
        "compiled; the cached file was rejected: its content does not match its digest"
    );
    assert_eq!(compiled(&dir, CompileCache::MAX_BYTES).await, "from the cache");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_keeps_no_more_than_its_size() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("cache");
    for _ in 0..2 {
        assert_eq!(compiled(&dir, 1000).await, "compiled");
        assert!(files(&dir).is_empty());
    }
}
