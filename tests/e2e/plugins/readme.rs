//! Executes `examples/plugins/README.md` literally: from `transom plugin new` to a replacement on a
//! running `transom dev`, and a rollback.
//!
//! One shell executes the page's commands, block by block, in a folder with links to the files of
//! the repository. The exception is the first command: instead of `cargo xtask dev`, which builds
//! and starts `transom dev`, the built binary is started on free ports.

use std::fs;
use std::path::Path;

use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::readme::{Shell, blocks, repository};
use transom_tests::{dev, http};

/// Waits until a component other than `before` serves as the filter; returns its version and
/// digest.
async fn wait_for_swap(admin: &str, before: &str) -> (String, String) {
    let client = http();
    let url = format!("{admin}/v1/plugins/events");
    eventually("another filter to serve", || async {
        let answer = client.get(&url).send().await.map_err(|error| error.to_string())?;
        let status: Value = answer.json().await.map_err(|error| error.to_string())?;
        match (
            status["version"].as_str(),
            status["digest"].as_str(),
            &status["refusal"],
        ) {
            (Some(version), Some(digest), Value::Null) if digest != before => {
                Ok((version.to_owned(), digest.to_owned()))
            }
            _ => Err(status.to_string()),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_plugins_readme_work_as_written() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plugins/README.md");
    let page = fs::read_to_string(page).expect("the page");
    let blocks = blocks(&page);
    let [start, new, make, look, give, show, second, back, restore] = blocks[..] else {
        panic!("the page does not have the blocks that this test expects: {blocks:#?}");
    };
    assert_eq!(start, "cargo xtask dev\n");
    let dir = repository();
    let mut dev = dev::start(dir.path(), &[]);
    let admin = dev::address(&mut dev, "admin", "/v1/plugins");
    let (_, first_party) = wait_for_swap(&admin, "").await;

    let mut shell = Shell::start(dir.path(), &[("TRANSOM_ADMIN_URL", &admin)]);
    shell.run(new);
    let built = shell.run(make);
    assert!(built.contains("passed") && !built.contains("differs"), "{built}");
    let output_of_look = shell.run(look);
    assert!(
        output_of_look.contains("self-tests") && output_of_look.contains("RUNS/S"),
        "{output_of_look}"
    );
    shell.run(give);
    let (version, first) = wait_for_swap(&admin, &first_party).await;
    assert_eq!(version, "0.1.0");
    let shown = shell.run(show);
    assert!(shown.contains("hides the events of some apps"), "{shown}");

    shell.run(second);
    // The daemon may read the new manifest before the new component; that is a separate version for
    // a moment.
    let version = eventually("the second version to serve", || async {
        match wait_for_swap(&admin, &first).await {
            (version, _) if version == "0.2.0" => Ok(version),
            (version, _) => Err(version),
        }
    })
    .await;
    assert_eq!(version, "0.2.0");

    let rolled_back = shell.run(back);
    assert!(
        rolled_back.contains("rolled-back") || rolled_back.contains("0.1.0"),
        "{rolled_back}"
    );
    let (version, digest) = wait_for_swap(&admin, &first_party).await;
    assert_eq!((version.as_str(), &digest), ("0.1.0", &first), "{rolled_back}");

    shell.run(restore);
    let (_, digest) = wait_for_swap(&admin, &first).await;
    assert_eq!(digest, first_party);
    shell.end();
    let (status, output) = dev.interrupt();
    assert!(status.success(), "{output}");
}

#[test]
fn only_sh_blocks_are_commands() {
    let page = "a\n```sh\none\ntwo\n```\nb\n```text\nnot this\n```\n```sh\nthree\n```\n";
    assert_eq!(blocks(page), ["one\ntwo\n", "three\n"]);
}
