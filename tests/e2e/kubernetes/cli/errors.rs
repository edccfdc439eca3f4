//! Failing commands: the exit code, and the next step in the message.

use transom_testkit::free_port;

use super::stand_in::{CONFIG, Cluster, Response, frameworks, master};

/// Requires that the text contains every part.
fn assert_contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn failing_status_is_an_error_with_status_message_and_next_step() {
    let cluster = Cluster::start();
    let file = cluster.file().display().to_string();
    for (response, parts) in [
        (
            Response::of(401, ""),
            &["401", "[fw.fw]", "AUTH_USERNAME", file.as_str()][..],
        ),
        (
            Response::of(403, r#"{"message": "read only"}"#),
            &["403", "read only", "[fw.fw]"],
        ),
        (Response::of(404, ""), &["404", "of this version"]),
        (Response::of(405, ""), &["405"]),
        (
            Response::of(422, r#"{"message": "above max_scale"}"#),
            &["422", "above max_scale"],
        ),
        (
            Response::of(500, "broken \u{1b}[31m"),
            &["500", "broken \\u{1b}[31m"],
        ),
        (
            Response(
                503,
                "Retry-After: 7".to_owned(),
                r#"{"message": "not yet"}"#.to_owned(),
            ),
            &["503", "not yet", "in 7 s"],
        ),
        // A redirect to another path, which no standby sends, is not followed.
        (
            Response(302, "Location: /login".to_owned(), String::new()),
            &["302"],
        ),
    ] {
        let status = response.0;
        cluster.api.set_answer(move |_| response.clone());
        for words in [
            &["orchconfig", "fw"][..],
            &["version", "fw"],
            &["status", "fw"],
            &["scale", "-a", "fw", "3"],
            &["cluster", "fw", "restart"],
        ] {
            assert_contains_all(&cluster.stderr_of_failure(1, words), parts);
            assert_eq!(cluster.api.calls().len(), 1, "{words:?} after {status}");
        }
    }
}

#[test]
fn missing_credentials_are_reported_with_their_section() {
    let cluster = Cluster::start();
    cluster.configure("");
    let text = cluster.stderr_of_failure(1, &["version", "c-0004"]);
    assert_contains_all(
        &text,
        &[
            "401",
            "credentials are required",
            "[fw.prod]",
            "`principal`",
            "`secret`",
            "config.toml",
        ],
    );
    cluster.configure("[fw]\nprincipal = \"user\"\nsecret = \"hidden\"\n");
    let text = cluster.stderr_of_failure(1, &["version", "fw"]);
    assert_contains_all(&text, &["401", "[fw] of"]);
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn unreachable_or_unsuitable_api_is_an_error_that_names_its_address() {
    let cluster = Cluster::start();
    let closed = format!("http://127.0.0.1:{}", free_port());
    for (url, parts) in [
        (closed.as_str(), &["cannot be reached", &closed, "fw list"][..]),
        ("ftp://127.0.0.1/", &["ftp://127.0.0.1/", "http://"]),
        ("", &["webui_url"]),
    ] {
        let list = frameworks(url).to_string();
        cluster.master.set_answer(move |request| master(request, &list));
        assert_contains_all(&cluster.stderr_of_failure(1, &["version", "fw"]), parts);
    }
}

#[test]
fn unknown_or_ambiguous_framework_is_an_error_that_lists_the_existing_ones() {
    let cluster = Cluster::start();
    assert_contains_all(
        &cluster.stderr_of_failure(1, &["version", "nope"]),
        &["nope", "fw, M3S-old, fw-two"],
    );
    assert_contains_all(
        &cluster.stderr_of_failure(1, &["version", "fw-two"]),
        &["2 frameworks", "c-0005, c-0006"],
    );
    assert_contains_all(
        &cluster.stderr_of_failure(1, &["version", "fw-bare"]),
        &["fw-bare", "webui_url"],
    );
    assert_eq!(cluster.api.calls(), Vec::<String>::new());
}

#[test]
fn failing_master_is_an_error_that_names_file_and_section() {
    let cluster = Cluster::start();
    for (response, parts) in [
        (Response::of(401, ""), &["401", "[master]", "`principal`"][..]),
        (Response::of(500, "broken"), &["500", "[master]"]),
        (Response::of(200, "<html>"), &["[master]"]),
        (Response::of(200, "{}"), &["[master]"]),
    ] {
        cluster.master.set_answer(move |_| response.clone());
        assert_contains_all(&cluster.stderr_of_failure(1, &["list"]), parts);
    }
    cluster.write(&format!("[master]\naddress = \"127.0.0.1:{}\"\n", free_port()));
    assert_contains_all(
        &cluster.stderr_of_failure(1, &["list"]),
        &["cannot be reached", "[master]", "config.toml"],
    );
}

#[test]
fn missing_or_wrong_configuration_is_reported_before_any_request() {
    let cluster = Cluster::start();
    for (text, parts) in [
        ("plugins = []\n", &["[master]", "`address`"][..]),
        ("[master]\n", &["`address`", "[master.zookeeper]"]),
        ("[master]\naddress = \"ftp://a\"\n", &["`address`", "HOST:PORT"]),
        ("[master\n", &["line 1"]),
    ] {
        cluster.write(text);
        let message = cluster.stderr_of_failure(2, &["list"]);
        assert_contains_all(&message, parts);
        assert_contains_all(&message, &["config.toml"]);
    }
    std::fs::remove_file(cluster.file()).expect("removed");
    assert_contains_all(
        &cluster.stderr_of_failure(2, &["version", "fw"]),
        &["config.toml", "[master]", "CLUSTER_CLI_CONFIG"],
    );
    cluster.write(&"#".repeat(2 << 20));
    assert_contains_all(&cluster.stderr_of_failure(2, &["list"]), &["1024 KB"]);
    assert_eq!(cluster.master.calls(), Vec::<String>::new());
}

#[test]
fn wrong_command_line_is_an_error_that_names_the_argument() {
    let cluster = Cluster::start();
    for (words, parts) in [
        (&["cluster", "fw", "foo"][..], &["foo", "restart"][..]),
        (&["scale", "-a", "fw", "many"], &["many"]),
        (&["scale", "-a", "fw", "-1"], &["-1"]),
        (&["scale", "-a", "fw"], &["COUNT"]),
        (&["nope"], &["nope"]),
    ] {
        assert_contains_all(&cluster.stderr_of_failure(2, words), parts);
    }
    assert_eq!(cluster.master.calls(), Vec::<String>::new());
}

#[test]
fn missing_client_configuration_is_an_error() {
    let cluster = Cluster::start();
    cluster.api.set_answer(|_| Response::of(200, "\n"));
    assert_contains_all(
        &cluster.stderr_of_failure(1, &["orchconfig", "fw"]),
        &["no client configuration yet"],
    );
}

#[test]
fn unknown_certificate_is_accepted_with_a_warning_unless_verification_is_required() {
    let cluster = Cluster::start_with_tls();
    let finished = cluster.run(&["fw", "orchconfig", "fw"]);
    assert_eq!(
        (finished.code, finished.out.as_str()),
        (Some(0), CONFIG),
        "{finished:?}"
    );
    assert_contains_all(
        &finished.err,
        &["warning", "not verified", "`ssl_verify = true` in [fw.fw]"],
    );
    cluster.api.requests();
    cluster.configure("[fw]\nssl_verify = true\n[fw.fw]\nprincipal = \"user\"\nsecret = \"pass\"\n");
    let text = cluster.stderr_of_failure(1, &["orchconfig", "fw"]);
    assert_contains_all(&text, &["certificate"]);
    assert!(!text.contains("warning"), "{text}");
    assert_eq!(cluster.api.calls(), Vec::<String>::new());
}
