//! A failing self-test of the manifest rejects the component.

use transom_plugin_host::Change;

use crate::support::Site;

const PROBE: &str = r#"
world = "check-probe"
[limits]
memory = "16MiB"
[[self-test]]
endpoint = "10.0.0.1:80"
path = "/health"
answers = [{ http = { status = 503, body = "no" } }]
expect = { http = STATUS }
[[self-test]]
endpoint = "10.0.0.1:80"
answers = [{ error = "refused" }]
expect = { failed = "unreachable" }
"#;

const MATCHER: &str = r#"
world = "attribute-matcher"
[limits]
memory = "64MiB"
[[self-test]]
agents = [{ hostname = "a", attributes = { rack = "r1", cores = 8 } }, { hostname = "b", attributes = { rack = "r2" } }]
constraints = [["rack", "CLUSTER", "r1"]]
expect = [FITS]
[[self-test]]
agents = [{ hostname = "a" }, { hostname = "b" }]
constraints = [["@hostname", "UNIQUE"]]
placed = ["a"]
expect = ["b"]
"#;

const FILTER: &str = r#"
world = "event-filter"
[limits]
memory = "16MiB"
[config]
drop = ["b"]
[[self-test]]
events = [{ kind = "a" }, { kind = "b", body = { appId = "/x" } }]
expect = [DECIDED, "drop"]
[[self-test]]
filter = "reject"
refused = true
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_test_failures_name_the_found_answer() {
    let site = Site::with(&[]).await;
    for (source, manifest, hole, right, wrong, reason) in [
        (
            "check-http",
            PROBE,
            "STATUS",
            "503",
            "200",
            r#"self-test 1 of 2: found {"http":503}, expected {"http":200}"#,
        ),
        (
            "attributes",
            MATCHER,
            "FITS",
            "\"a\"",
            "\"b\"",
            r#"self-test 1 of 2: found ["a"], expected ["b"]"#,
        ),
        (
            "tests/faulty-events",
            FILTER,
            "DECIDED",
            "\"pass\"",
            "\"drop\"",
            r#"self-test 1 of 2: found ["pass","drop"], expected ["drop","drop"]"#,
        ),
    ] {
        let change = site
            .replace(source, "tested", &manifest.replace(hole, wrong))
            .await;
        assert!(
            matches!(&change, Change::Rejected { reason: it, .. } if it == reason),
            "{change:?}"
        );
        let change = site
            .replace(source, "tested", &manifest.replace(hole, right))
            .await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
        site.change_files(|| std::fs::remove_file(site.dir.path().join("tested.wasm")).unwrap())
            .await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_self_tests_are_named() {
    let site = Site::with(&[]).await;
    for (test, reason) in [
        ("expect = { http = 200 }\npaht = \"/\"", "unknown field `paht`"),
        (
            "expect = { http = 200 }\nendpoint = \"x\"",
            "`endpoint` is \"x\"; expected \"host:port\"",
        ),
        (
            "path = \"/\"",
            r#"found {"failed":"invalid"}, but the case has no expectation"#,
        ),
        ("expect = { http = \"x\" }", "expect"),
        (
            "endpoint = \"h:80\"\nexpect = { http = 200 }\nanswers = [{ connected = 1 }]",
            "it requests an HTTP exchange, the test answers `connected`",
        ),
        (
            "endpoint = \"h:80\"\nexpect = { http = 200 }",
            "after the last answer it requests an HTTP exchange",
        ),
        (
            "endpoint = \"h:80\"\nexpect = { http = 200 }\nanswers = [{ http = { status = 200 } }, { sent = true }]",
            r#"the attempt ended with {"http":200} and left answers unused"#,
        ),
    ] {
        let manifest =
            format!("world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[[self-test]]\n{test}\n");
        let change = site.replace("check-http", "wrong", &manifest).await;
        assert!(
            matches!(&change, Change::Rejected { reason: it, .. } if it.contains(reason) && it.contains("self-test 1 of 1")),
            "{reason}: {change:?}"
        );
    }
    // A trap in a self-test rejects the component and does not affect the host.
    let manifest = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[[self-test]]\nsettings = { do = \"trap\" }\nexpect = { tcp = true }\n";
    let change = site.replace("tests/faulty-probe", "wrong", manifest).await;
    assert!(
        matches!(&change, Change::Rejected { reason, .. } if reason.contains("trapped")),
        "{change:?}"
    );
    site.stop().await;
}
