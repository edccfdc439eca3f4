//! Runs the commands in a shell, with fake programs instead of the real clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

use super::*;

/// Runs a command in a folder. These programs come before those of the system in `PATH`.
fn run(folder: &Path, line: &str, programs: &[(&str, &str)]) -> bool {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, text) in programs {
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .output()
        .unwrap();
    output.status.success()
}

fn result(folder: &Path) -> Option<OneOffOutcome> {
    parse_result(&fs::read_to_string(folder.join("result")).unwrap_or_default())
}

fn digest(data: &str) -> String {
    format!("{:x}", Sha256::digest(data))
}

#[test]
fn endings_are_parsed() {
    for (text, expected) in [
        ("done abc\n", Some(OneOffOutcome::Done("abc".to_owned()))),
        ("done", Some(OneOffOutcome::Done(String::new()))),
        (
            "failed etcdctl: no route \n",
            Some(OneOffOutcome::Failed("etcdctl: no route".to_owned())),
        ),
        ("undone x", Some(OneOffOutcome::Undone("x".to_owned()))),
        ("broken x", Some(OneOffOutcome::Broken("x".to_owned()))),
        ("", None),
        ("doner", None),
    ] {
        assert_eq!(parse_result(text), expected, "{text:?}");
    }
}

#[test]
fn kvstore_is_dumped_from_the_first_member_that_answers() {
    let folder = tempfile::tempdir().unwrap();
    let etcdctl = "case $1 in *dead*) echo no route >&2; exit 1;; esac\nprintf data >\"$4\"";
    let urls = ["http://dead:1", "http://it's alive:2"].map(str::to_owned);
    assert!(run(
        folder.path(),
        &dump_kvstore(".", &urls),
        &[("etcdctl", etcdctl)]
    ));
    assert_eq!(result(folder.path()), Some(OneOffOutcome::Done(digest("data"))));
    assert!(!run(
        folder.path(),
        &dump_kvstore(".", &urls[..1]),
        &[("etcdctl", etcdctl)]
    ));
    let expected = "etcdctl snapshot save: no route".to_owned();
    assert_eq!(result(folder.path()), Some(OneOffOutcome::Failed(expected)));
}

const SQL: Sql<'_> = Sql {
    host: "h",
    port: 3306,
    user: "root",
    database: "k3s",
    tls: false,
};

/// A client of a fake server whose data are the file `data`. Loading `bad` destroys them and fails.
const CLIENT: &str = "for word; do case $word in -e) exit 0;; esac; done\n\
                      read -r line; echo \"$line\" >data; [ \"$line\" != bad ] || { echo refused >&2; exit 1; }";

#[test]
fn sql_dump_is_loaded_or_the_former_data_is_loaded_again() {
    for (backup, again, expected, data) in [
        ("new", false, OneOffOutcome::Done(String::new()), "new"),
        ("new", true, OneOffOutcome::Done(String::new()), "new"),
        (
            "bad",
            false,
            OneOffOutcome::Undone("mariadb: refused".to_owned()),
            "old",
        ),
        (
            "bad",
            true,
            OneOffOutcome::Broken("mariadb: refused".to_owned()),
            "bad",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data"), "old\n").unwrap();
        fs::write(folder.path().join("backup"), format!("{backup}\n")).unwrap();
        let line = load_sql(".", &SQL, &digest(&format!("{backup}\n")), again);
        let programs = [("mariadb", CLIENT), ("mariadb-dump", "cat data")];
        run(folder.path(), &line, &programs);
        let found = match result(folder.path()) {
            Some(OneOffOutcome::Undone(text)) => {
                OneOffOutcome::Undone(text.rsplit('/').next().unwrap().to_owned())
            }
            Some(OneOffOutcome::Broken(text)) => {
                OneOffOutcome::Broken(text.rsplit('/').next().unwrap().to_owned())
            }
            found => found.unwrap(),
        };
        assert_eq!(found, expected, "{backup} {again}");
        let left = fs::read_to_string(folder.path().join("data")).unwrap();
        assert_eq!(left.trim(), data, "{backup} {again}");
    }
}

#[test]
fn sql_dump_with_another_digest_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), "old").unwrap();
    fs::write(folder.path().join("backup"), "new\n").unwrap();
    let programs = [("mariadb", CLIENT), ("mariadb-dump", "cat data")];
    assert!(!run(
        folder.path(),
        &load_sql(".", &SQL, &digest("x"), false),
        &programs
    ));
    let Some(OneOffOutcome::Failed(text)) = result(folder.path()) else {
        panic!("{:?}", result(folder.path()));
    };
    assert!(text.contains("another digest"), "{text}");
    assert_eq!(fs::read_to_string(folder.path().join("data")).unwrap(), "old");
}

/// A fake `etcdctl` that restores a snapshot: the text of the snapshot becomes the data.
const RESTORE: &str = "[ \"$1 $2\" = 'snapshot restore' ] && [ \"$4\" = --data-dir ] || exit 2\n\
                       grep -q bad \"$3\" && exit 1\nmkdir -p \"$5/member\" && cp \"$3\" \"$5/member/data\"";

/// A folder with a snapshot, and a data directory with former data.
fn kvstore(snapshot: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("data/member")).unwrap();
    fs::write(folder.path().join("data/member/data"), "old").unwrap();
    fs::write(folder.path().join("backup"), snapshot).unwrap();
    folder
}

fn data(folder: &Path) -> Option<String> {
    fs::read_to_string(folder.join("data/member/data")).ok()
}

#[test]
fn kvstore_starts_with_the_backup_and_with_its_former_data_again() {
    let folder = kvstore("new");
    let path = folder.path();
    fs::create_dir(path.join("data/before-other")).unwrap();
    let restore = restore_kvstore(".", "$PWD/data", &digest("new"), "op", false);
    let line = format!("{restore}cat data/member/data >started");
    assert!(run(path, &line, &[("etcdctl", RESTORE)]));
    assert_eq!(fs::read_to_string(path.join("started")).unwrap(), "new");
    assert!(!path.join("data/before-other").exists());
    // A second run, as after a crash, keeps the first former data.
    fs::write(path.join("backup"), "new").unwrap();
    assert!(run(path, &restore, &[("etcdctl", RESTORE)]));
    let kept = fs::read_to_string(path.join("data/before-op/member/data")).unwrap();
    assert_eq!(kept, "old");
    let revert = revert_kvstore("$PWD/data", "op");
    for _ in 0..2 {
        assert!(run(path, &revert, &[]));
        assert_eq!(data(path).as_deref(), Some("old"));
    }
    // On another machine the former data is missing.
    fs::remove_dir_all(path.join("data/member")).unwrap();
    assert!(!run(path, &revert, &[]));
}

#[test]
fn crash_between_any_two_steps_of_a_restore_loses_nothing() {
    let revert = revert_kvstore("$PWD/data", "op");
    // Each step of the exchange fails in turn, as if the machine had stopped at this step.
    for step in 1..=6 {
        let folder = kvstore("new");
        let path = folder.path();
        let restore = restore_kvstore(".", "$PWD/data", &digest("new"), "op", false);
        let count = format!(
            "echo x >>steps; [ $(wc -l <steps) -lt {step} ] || exit 1\nexec /bin/$(basename \"$0\") \"$@\""
        );
        let programs = [
            ("etcdctl", RESTORE),
            ("mv", &count),
            ("mkdir", &count),
            ("rm", &count),
        ];
        run(path, &restore, &programs);
        let whole = [
            ("mv", "exec /bin/mv \"$@\""),
            ("mkdir", "exec /bin/mkdir \"$@\""),
            ("rm", "exec /bin/rm \"$@\""),
        ];
        assert!(run(path, &revert, &whole), "step {step}");
        assert_eq!(data(path).as_deref(), Some("old"), "step {step}");
    }
}

#[test]
fn damaged_snapshot_leaves_the_data_alone() {
    for (snapshot, expected) in [("new", digest("other")), ("bad", digest("bad"))] {
        let folder = kvstore(snapshot);
        let restore = restore_kvstore(".", "$PWD/data", &expected, "op", false);
        let line = format!("{restore}touch started");
        assert!(!run(folder.path(), &line, &[("etcdctl", RESTORE)]));
        assert_eq!(data(folder.path()).as_deref(), Some("old"), "{snapshot}");
        assert!(!folder.path().join("started").exists());
    }
}

#[test]
fn kvstore_that_is_not_healthy_in_time_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let line = check_kvstore(".", "http://h:1", 0);
    assert!(!run(
        folder.path(),
        &line,
        &[("etcdctl", "echo unhealthy >&2; exit 1")]
    ));
    let expected = "etcdctl endpoint health: unhealthy".to_owned();
    assert_eq!(result(folder.path()), Some(OneOffOutcome::Failed(expected)));
    assert!(run(folder.path(), &line, &[("etcdctl", "exit 0")]));
    assert_eq!(result(folder.path()), Some(OneOffOutcome::Done(String::new())));
}
