//! `transom config import` for Marathon: the output is a configuration of the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use transom_tests::process::binary;

fn run(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_") || name.starts_with("MARATHON_"))
    {
        command.env_remove(name);
    }
    let command = command
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(dir);
    command.output().expect("transom runs")
}

#[test]
fn imported_marathon_folder_is_checked_by_the_daemon_and_shows_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("conf");
    fs::create_dir(&folder).unwrap();
    for (name, content) in [
        ("http_port", "8081"),
        ("http_credentials", "ops:hunter2"),
        ("?disable_ha", ""),
        ("zk", "zk://z:2181/marathon"),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    let variables = [("MARATHON_HTTP_PORT", "1"), ("MARATHON_MESOS_ROLE", "dev")];
    let import = ["config", "import", "conf", "--env", "--to", "transom.toml"];
    let imported = run(dir.path(), &import, &variables);
    assert!(imported.status.success(), "{imported:?}");
    assert!(
        imported.stdout.is_empty() && imported.stderr.is_empty(),
        "{imported:?}"
    );
    let file = dir.path().join("transom.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("# * --zk: Marathon's state"), "{text}");

    let checked = run(dir.path(), &["config", "check", "--output", "json"], &[]);
    assert!(checked.status.success(), "{checked:?}");
    let rows: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
    for (key, expected) in [
        ("apps.port", "8081"),
        ("apps.role", "\"dev\""),
        ("apps.api_username", "\"ops\""),
        ("apps.api_password", "\"********\""),
    ] {
        let row = rows.iter().find(|row| row["key"] == key).unwrap();
        assert_eq!(row["value"], expected, "{key}");
    }

    // The file is not overwritten.
    let again = run(dir.path(), &import, &variables);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn unusable_marathon_configuration_is_an_error_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("flags"), "--http_port port\n").unwrap();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    for (arguments, expected) in [
        (&["flags"][..], "--http_port is \"port\": expected a whole number"),
        (&["absent"], "cannot read absent"),
        (&["--env"], "no MARATHON_ variables"),
        (&["config.json", "--env"], "the file is another program's"),
        (&[], "required"),
    ] {
        let all = [&["config", "import"], arguments].concat();
        let output = run(dir.path(), &all, &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}
