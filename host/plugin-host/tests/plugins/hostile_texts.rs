//! Texts, results and schemas of components are bounded where they enter the host.

use std::time::{Duration, Instant};

use transom_plugin_host::{Change, State, probe::Reason};

use crate::{
    hostile_wat::HostileProbe,
    support::{Site, custom, wait_until, write_file},
};

const PROBE: &str = "world = \"check-probe\"\n";

fn install(site: &Site, name: &str, manifest: &str, component: &[u8]) {
    write_file(site.dir.path(), &format!("{name}.toml"), manifest.as_bytes());
    write_file(site.dir.path(), &format!("{name}.wasm"), component);
}

fn rejection(change: &Change) -> &str {
    match change {
        Change::Rejected { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// A schema whose validation takes twice as long with each level.
fn exponential_schema(levels: usize) -> String {
    (0..levels).fold(r#"{"properties":{"x":true}}"#.to_owned(), |inner, _| {
        format!(r#"{{"unevaluatedProperties":false,"allOf":[{inner}]}}"#)
    })
}

/// Every document that contains one of many levels has too many levels itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_result_fails_its_check() {
    let site = Site::with(&[]).await;
    for (levels, fits) in [(31, true), (32, false), (126, false)] {
        let outcome = format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        let probe = HostileProbe {
            outcome: &outcome,
            ..HostileProbe::default()
        };
        site.change_files(|| install(&site, "deep", PROBE, &probe.component()))
            .await;
        let found = site.probe("deep", "{}", None).await;
        if fits {
            assert_eq!(found, Ok(custom(&outcome)));
        } else {
            let failure = found.unwrap_err();
            assert_eq!(failure.reason, Reason::Plugin, "{failure}");
            assert!(failure.message.contains("at most 32 levels"), "{failure}");
        }
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_descriptions_and_names_are_cut() {
    let site = Site::with(&[]).await;
    let (version, summary) = ("v".repeat(3_000_000), "s ".repeat(1_000_000));
    let probe = HostileProbe {
        version: &version,
        summary: &summary,
        ..HostileProbe::default()
    };
    site.change_files(|| install(&site, "long", PROBE, &probe.component()))
        .await;
    let status = site.status("long");
    let (version, summary) = (status.version.unwrap(), status.summary.unwrap());
    assert!(version.len() <= 256 && version.starts_with("vvv"), "{version}");
    assert!(summary.len() <= 256 && summary.starts_with("s s"), "{summary}");

    let exports =
        (0..8).map(|number| format!("(export \"{}{number}\" (instance $empty))", "a".repeat(60_000)));
    let exports: String = exports.collect();
    let named = wat::parse_str(format!("(component (instance $empty) {exports})")).unwrap();
    let change = site.change_files(|| install(&site, "named", PROBE, &named)).await;
    let reason = rejection(&change);
    assert!(
        reason.contains("it exports aaa") && reason.len() <= 4096,
        "{} bytes",
        reason.len()
    );
    site.stop().await;
}

/// Both the limit of levels and that of processor time are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exponential_schema_is_rejected_and_holds_up_nothing() {
    let site = Site::with(&[(
        "tests/faulty-events",
        "faulty-events",
        Some("world = \"event-filter\"\n"),
    )])
    .await;
    let manifest = format!("{PROBE}[config]\nx = 1\n");
    let deep = exponential_schema(50);
    let probe = HostileProbe {
        schema: Some(&deep),
        ..HostileProbe::default()
    };
    let change = site
        .change_files(|| install(&site, "deep", &manifest, &probe.component()))
        .await;
    assert!(rejection(&change).contains("more than 32 levels"), "{change:?}");

    // References make a schema exponential without levels.
    let mut definitions = vec![r#""d0":{"properties":{"x":true}}"#.to_owned()];
    for level in 1..16 {
        let below = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, level - 1);
        definitions.push(format!(
            r#""d{level}":{{"unevaluatedProperties":false,"allOf":[{below},{below}]}}"#
        ));
    }
    let definitions = definitions.join(",");
    let bomb = format!(r##"{{"$ref":"#/$defs/d15","$defs":{{{definitions}}}}}"##);
    let probe = HostileProbe {
        schema: Some(&bomb),
        ..HostileProbe::default()
    };
    let component = probe.component();
    for number in 0..5 {
        install(&site, &format!("bomb-{number}"), &manifest, &component);
    }
    // Present at the start, too: it does not wait for plugins that serve no extension point.
    let begin = Instant::now();
    let site = site.restart_unsettled(|_| ()).await;
    let started_after = begin.elapsed();
    let pending = site
        .plugins
        .list()
        .iter()
        .filter(|it| it.state == State::Admitting)
        .count();
    assert!(pending > 0, "the start waited {started_after:?}");
    assert_eq!(site.status("faulty-events").state, State::Serving);
    // Another admission is not held up for ever, and each bomb is rejected.
    install(&site, "honest", PROBE, &HostileProbe::default().component());
    wait_until("the honest plugin to serve", || {
        site.plugins
            .list()
            .iter()
            .any(|it| it.name == "honest" && it.state == State::Serving)
    })
    .await;
    for number in 0..5 {
        let name = format!("bomb-{number}");
        wait_until("the bomb to be rejected", || site.status(&name).refusal.is_some()).await;
        let reason = site.status(&name).refusal.unwrap();
        assert!(
            reason.contains("processor time") && reason.contains("config-schema"),
            "{reason}"
        );
    }
    let stopping = tokio::time::timeout(Duration::from_secs(15), site.stop());
    stopping.await.expect("nothing spins");
}
