//! Tests with a real directory.

use std::os::unix::fs::PermissionsExt;

use jiff::Timestamp;

use super::*;
use crate::settings::Engine;

fn manifest(name: &str, second: i64, data: &[u8]) -> Manifest {
    Manifest {
        name: name.to_owned(),
        framework: "fw".to_owned(),
        engine: Engine::Kvstore,
        version: "v1".to_owned(),
        created: Timestamp::from_second(second).unwrap(),
        size: data.len() as u64,
        sha256: format!("{:x}", Sha256::digest(data)),
        token: None,
    }
}

fn add(directory: &Directory, name: &str, second: i64, data: &[u8]) -> Manifest {
    let mut file = directory.receive().unwrap();
    file.write_all(data).unwrap();
    let manifest = manifest(name, second, data);
    directory.finish(&manifest).unwrap();
    manifest
}

fn names(directory: &Directory) -> Vec<String> {
    let list = directory.list().unwrap().into_iter();
    list.map(|manifest| manifest.name).collect()
}

#[test]
fn backups_are_listed_when_they_are_complete_and_only_their_owner_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    let directory = Directory::new(&path, "fw");
    assert_eq!(names(&directory), [""; 0]);
    directory.probe().unwrap();
    let mut file = directory.receive().unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(names(&directory), [""; 0]);
    add(&directory, "fw-2", 2, b"two");
    add(&directory, "fw-1", 1, b"one");
    assert_eq!(names(&directory), ["fw-1", "fw-2"]);
    let found = directory.find("fw-2").unwrap();
    directory.verify(&found).unwrap();
    for file in fs::read_dir(&path).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
    }
    // A backup of another framework, data without a manifest, and data with an invalid manifest.
    let other = Directory::new(&path, "other");
    let mut theirs = other.receive().unwrap();
    theirs.write_all(b"x").unwrap();
    other
        .finish(&Manifest {
            framework: "other".to_owned(),
            ..manifest("other-1", 3, b"x")
        })
        .unwrap();
    fs::write(path.join("fw-3.backup"), "x").unwrap();
    fs::write(path.join("fw-4.json"), "{").unwrap();
    assert_eq!(names(&directory), ["fw-1", "fw-2"]);
    assert!(matches!(directory.find("other-1"), Err(FileError::Unknown(_))));
    assert!(matches!(directory.find("../fw-1"), Err(FileError::Unknown(_))));
    directory.discard();
    assert!(!path.join(".fw.part").exists());
}

#[test]
fn oldest_backups_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::new(folder.path(), "fw");
    for second in 1..5 {
        add(&directory, &format!("fw-{second}"), second, b"data");
    }
    assert_eq!(directory.prune(4).unwrap(), [""; 0]);
    assert_eq!(directory.prune(2).unwrap(), ["fw-1", "fw-2"]);
    assert_eq!(names(&directory), ["fw-3", "fw-4"]);
    assert!(!directory.data_path("fw-1").exists());
    directory.delete("fw-3").unwrap();
    assert_eq!(names(&directory), ["fw-4"]);
    assert!(matches!(directory.delete("fw-3"), Err(FileError::Unknown(_))));
}

#[test]
fn damaged_backups_are_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::new(folder.path(), "fw");
    let manifest = add(&directory, "fw-1", 1, b"data");
    fs::write(directory.data_path("fw-1"), "dat").unwrap();
    let error = directory.verify(&manifest).unwrap_err().to_string();
    assert_eq!(
        error,
        "the backup fw-1 is damaged: its data has 3 bytes; expected 4"
    );
    fs::write(directory.data_path("fw-1"), "dada").unwrap();
    assert!(matches!(
        directory.verify(&manifest),
        Err(FileError::Digest { .. })
    ));
    fs::remove_file(directory.data_path("fw-1")).unwrap();
    assert!(matches!(directory.verify(&manifest), Err(FileError::Data { .. })));
}

#[test]
fn directory_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // No user can create files in the proc file system.
    for path in [file.join("backups"), "/proc/backups".into()] {
        let directory = Directory::new(&path, "fw");
        for error in [directory.probe().unwrap_err(), directory.receive().unwrap_err()] {
            let text = error.to_string();
            assert!(
                text.contains(&path.display().to_string()) && text.contains("written"),
                "{text}"
            );
        }
    }
}
