//! An invalid component is rejected with a clear reason, and the old version stays active.

use transom_plugin_host::{CallError, Change, State, matcher::Task, probe::Outcome};

use crate::support::{Site, component, custom, write_file};

const MANIFEST: &str = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[config]\nmark = \"v1\"\n";

/// Checks that the change is a rejection with `reason`, that the status shows it, and that version 1
/// answers.
async fn rejected(site: &Site, change: &Change, reason: &str) {
    let Change::Rejected { name, reason: found } = change else {
        panic!("{reason}: {change:?}")
    };
    assert_eq!(name, "odd");
    assert!(found.contains(reason), "{found:?} does not say {reason:?}");
    let status = site.plugins.list().remove(0);
    assert_eq!(status.state, State::Serving);
    assert_eq!(status.refusal.as_ref(), Some(found));
    let found = site.probe("odd", "{}", None).await;
    assert!(
        matches!(&found, Ok(Outcome::Custom(json)) if json.contains("\"v1\"")),
        "{found:?}"
    );
}

/// The odd probe with an invalid schema.
fn with_bad_schema() -> Vec<u8> {
    let mut bytes = std::fs::read(component("tests/faulty-probe")).unwrap();
    let (schema, none) = (br#"{"type": "object"}"#, br#"{"type": "objekt"}"#);
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(schema))
        .collect();
    let [at] = places[..] else {
        panic!("the schema stands at {places:?}")
    };
    bytes[at..at + none.len()].copy_from_slice(none);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_component_leaves_old_version_serving() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(MANIFEST))]).await;
    let odd = "tests/faulty-probe";
    for (source, manifest, reason) in [
        (
            "check-http",
            "world = \"check-probe\"\n[config]\nredirect = 1\n",
            "does not match the plugin's config-schema: [config] as a whole: Additional properties are not allowed \
             ('redirect' was unexpected)",
        ),
        (
            "check-http",
            "world = \"check-probe\"\n[config]\nredirects = 99\n",
            "config-schema: /redirects: value is greater than the maximum of 10",
        ),
        (
            "check-tcp",
            "world = \"check-probe\"\n[config]\nredirects = 1\n",
            "it takes no configuration (no config-schema), but the manifest's [config] has `redirects`",
        ),
        (
            "events",
            "world = \"check-probe\"",
            "does not export `transom:probe/probe@0.1.0`",
        ),
        (
            odd,
            "world = \"event-filter\"",
            "does not export `transom:events/filter@0.1.0`",
        ),
        (
            "tests/forbidden-import",
            "world = \"check-probe\"",
            "it imports `test:forbidden/files",
        ),
        (
            odd,
            "world = \"check-probe\"\n[limits]\nmemroy = \"1MiB\"",
            "did you mean `memory`?",
        ),
        (
            odd,
            "world = \"check-probe\"\n[config]\nconfigure = { do = \"reject\" }",
            "/configure: rejected, as asked",
        ),
        (
            odd,
            "world = \"check-probe\"\n[config]\nconfigure = { do = \"trap\" }",
            "trial instance failed",
        ),
        (
            odd,
            // The wall-clock limit is generous: on a busy machine the guest gets a tenth of a
            // processor and must still reach the CPU limit first.
            "world = \"check-probe\"\n[limits]\nwall-clock = \"1m\"\n[config]\nconfigure = { do = \"loop\" }",
            "limits.cpu",
        ),
        (
            odd,
            "world = \"check-probe\"\n[limits]\nmemory = \"64KiB\"",
            "limits.memory",
        ),
        (
            odd,
            "world = \"check-probe\"\n[limits]\ntable = 1",
            "limits.table",
        ),
        (
            odd,
            "world = \"check-probe\"\n[limits]\nsize = \"1KiB\"",
            "at most 1024 are allowed (limits.size)",
        ),
        (
            odd,
            &format!("world = \"check-probe\"\ndigest = \"sha256:{}\"", "0".repeat(64)),
            "the manifest pins",
        ),
    ] {
        let change = site.replace(source, "odd", manifest).await;
        rejected(&site, &change, reason).await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_component_with_a_good_manifest_is_rejected() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(MANIFEST))]).await;
    let bad_schema = with_bad_schema();
    for (bytes, reason) in [
        (&bad_schema[..], "invalid config-schema: /type: "),
        (b"not a component", "does not compile"),
        (b"", "does not compile"),
        (b"\0asm\x01\0\0\0", "does not compile"),
    ] {
        let change = site
            .change_files(|| write_file(site.dir.path(), "odd.wasm", bytes))
            .await;
        rejected(&site, &change, reason).await;
    }
    let metrics = site.metrics();
    let line = metrics
        .lines()
        .find_map(|it| it.strip_prefix("transom_plugins_refusals_total{plugin=\"odd\"} "));
    assert!(line.unwrap().parse::<u32>().unwrap() >= 4, "{metrics}");

    let change = site
        .replace("tests/faulty-probe", "odd", &MANIFEST.replace("v1", "v2"))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    let status = site.plugins.list().remove(0);
    assert_eq!(status.refusal, None);
    assert_eq!(status.world.as_deref(), Some("check-probe"));
    assert_eq!(
        site.probe("odd", "{}", None).await,
        Ok(custom(r#"{"mark": "v2", "attempt": 1}"#))
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn component_without_manifest_is_rejected() {
    let site = Site::with(&[]).await;
    let bytes = std::fs::read(component("tests/faulty-probe")).unwrap();
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.wasm", &bytes))
        .await;
    assert!(
        matches!(&change, Change::Rejected { reason, .. } if reason.contains("odd.toml")),
        "{change:?}"
    );
    assert_eq!(site.plugins.list()[0].state, State::Rejected);
    assert!(
        site.probe("odd", "{}", None)
            .await
            .unwrap_err()
            .message
            .contains("odd.wasm")
    );

    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.toml", MANIFEST.as_bytes()))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert!(site.plugins.rescan().await.is_empty(), "nothing changed");

    // Removing the manifest removes the grants, so that the plugin is removed.
    let mut changes = site.plugins.changes();
    let change = site
        .change_files(|| std::fs::remove_file(site.dir.path().join("odd.toml")).unwrap())
        .await;
    assert!(matches!(change, Change::Rejected { .. }), "{change:?}");
    assert_eq!(changes.try_recv(), Ok(Change::Removed { name: "odd".into() }));
    assert!(site.probe("odd", "{}", None).await.is_err());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_digest_admits_that_component() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(MANIFEST))]).await;
    let digest = site.plugins.list().remove(0).digest.unwrap();
    let pinned = format!("digest = \"{digest}\"\n{MANIFEST}");
    let change = site.replace("tests/faulty-probe", "odd", &pinned).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_stop_return_stopped() {
    let site = Site::with(&[("attributes", "attributes", None)]).await;
    let plugins = site.plugins.clone();
    let mut agent_set = plugins.agent_set(None);
    site.stop().await;
    assert_eq!(plugins.validate_constraints(&[]).await, Err(CallError::Stopped));
    assert_eq!(
        agent_set.evaluate(&Task::default(), &[]).await,
        Err(CallError::Stopped)
    );
    assert!(plugins.rescan().await.is_empty());
}

/// The number of plugins and the size of files in the directory are bounded. Serving plugins are
/// not displaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_over_the_maximum_are_rejected() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(MANIFEST))]).await;
    for n in 0..256 {
        write_file(site.dir.path(), &format!("a{n:03}.wasm"), b"");
    }
    site.plugins.rescan().await;
    let rejected = |name: &str| {
        let list = site.plugins.list();
        let status = list.into_iter().find(|it| it.name == name);
        status.unwrap().refusal.unwrap_or_default()
    };
    assert_eq!(rejected("odd"), "");
    assert!(rejected("a254").contains("a254.toml"), "{}", rejected("a254"));
    assert!(
        rejected("a255").contains("256 components"),
        "{}",
        rejected("a255")
    );
    assert!(
        site.plugins.rescan().await.is_empty(),
        "a rejection is published once"
    );

    std::fs::remove_file(site.dir.path().join("a000.wasm")).unwrap();
    write_file(site.dir.path(), "a255.toml", &vec![b'#'; (1 << 20) + 1]);
    site.plugins.rescan().await;
    let reason = rejected("a255");
    assert!(
        reason.contains("1048577 bytes, at most 1048576 are read"),
        "{reason}"
    );
    assert!(site.probe("odd", "{}", None).await.is_ok());
    site.stop().await;
}
