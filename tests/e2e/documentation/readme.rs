//! Executes the section "Try it" of `README.md` literally, without pauses between its commands.
//!
//! There are three exceptions. Instead of `cargo xtask dev`, which builds and starts `transom dev`,
//! the built binary is started. All ports are free ones. The event stream is followed in the
//! background.

use std::fs;

use transom_testkit::eventually;
use transom_tests::dev;
use transom_tests::readme::{Shell, blocks, repository};

const PAGE: &str = include_str!("../../../README.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_readme_work_as_written() {
    let (_, section) = PAGE.split_once("## Try it\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let [start, run, tasks, names, follow, replace, reject, back, delete] = blocks(section)[..] else {
        panic!("the page does not have the blocks that this test expects: {section}");
    };
    assert_eq!(start, "cargo xtask dev\n");
    let dir = repository();
    let mut dev = dev::start(dir.path(), &[]);
    let apps = dev::address(&mut dev, "apps", "/v2/apps");
    let discovery = dev::address(&mut dev, "discovery", "/v1/enumerate");
    let dns = dev::address(&mut dev, "dns", "");
    let (_, dns) = dns.rsplit_once(':').expect("a port");
    let admin = dev::address(&mut dev, "admin", "/v1/plugins");
    let moved = |block: &str| {
        block
            .replace("http://127.0.0.1:8080", &apps)
            .replace("http://127.0.0.1:8123", &discovery)
            .replace("http://127.0.0.1:9990", &admin)
            .replace("-p 8053", &format!("-p {dns}"))
    };

    let mut shell = Shell::start(dir.path(), &[("TRANSOM_ADMIN_URL", &admin)]);
    let text = shell.run(&moved(run));
    assert!(text.contains(r#""id":"/http""#), "{text}");
    // A reader would repeat the command until the task has been probed.
    let until = format!(
        "until {} | grep '\"statusCode\":200'; do sleep 0.1; done",
        moved(tasks).trim_end()
    );
    shell.run(&until);
    let resolved = format!(
        "until {} | grep -q service; do sleep 0.1; done",
        moved(names).lines().last().expect("a line")
    );
    shell.run(&resolved);
    let text = shell.run(&moved(names));
    assert!(
        text.contains("127.0.0.1\n") && text.contains("http-") && text.contains("\"service\""),
        "{text}"
    );

    shell.run(&format!("{} > events.txt &", moved(follow).trim_end()));
    let events = || fs::read_to_string(dir.path().join("events.txt")).unwrap_or_default();
    eventually("the stream to be open", || async {
        let events = events();
        if events.contains("event_stream_attached") {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
    let text = shell.run(&moved(replace));
    assert!(
        text.contains("admitted") && text.contains("deploymentId"),
        "{text}"
    );
    let text = shell.run(&moved(reject));
    assert!(
        text.contains("it does not compile") && text.contains("serving"),
        "{text}"
    );
    let text = shell.run(&moved(back));
    assert!(text.contains("refused") && text.contains("rolled-back"), "{text}");
    eventually("three instances", || async {
        let events = events();
        let started = events.matches(r#""taskStatus":"TASK_RUNNING""#).count();
        // One instance was running before the stream was opened.
        if started >= 2 { Ok(()) } else { Err(events) }
    })
    .await;
    // The new configuration excludes this kind, and the stream stayed open.
    assert!(!events().contains("event: deployment_success"), "{}", events());
    let delete = moved(delete);
    shell.run(&delete);
    let lookup = delete.lines().last().expect("a line");
    shell.run(&format!("until {lookup} | grep -q NXDOMAIN; do sleep 0.1; done"));
    shell.run("kill %1");
    shell.end();
    let (status, output) = dev.interrupt();
    assert!(status.success(), "{output}");
}
