//! Runs the script that ships with the daemon in a shell, with a program in the place of k3s.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The arguments that k3s gets from the script; `None`: the script failed.
fn arguments(command: &[&str], variables: &[(&str, &str)]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let (script, program) = (folder.path().join("bootstrap"), folder.path().join(command[0]));
    let printed = folder.path().join("arguments");
    let line = format!("printf '%s\\n' \"$@\" > '{}'", printed.display());
    for (file, text) in [
        (&script, include_str!("bootstrap.sh").to_owned()),
        (&program, format!("#!/bin/sh\n{line}\n")),
    ] {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ended = Command::new("sh")
        .arg(&script)
        .arg(&program)
        .args(&command[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("MESOS_SANDBOX", folder.path())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let printed = ended
        .status
        .success()
        .then(|| fs::read_to_string(printed).unwrap())?;
    Some(printed.lines().map(str::to_owned).collect())
}

/// The CPUs of this machine in thousandths, and its memory in MiB, as a kubelet reads them.
fn machine() -> (u64, u64) {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap();
    let cpus = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .unwrap();
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
    (cpus as u64 * 1000, kib / 1024)
}

#[test]
fn pods_get_the_resources_of_the_task() {
    let (cpus, memory) = machine();
    let reserved = format!(
        "--kubelet-arg=kube-reserved=cpu={}m,memory={}Mi",
        cpus - 100,
        memory - 50
    );
    let task = [("K3SFRAMEWORK_CPU_MILLIS", "100"), ("K3SFRAMEWORK_MEM_MIB", "50")];
    for role in ["agent", "server"] {
        let found = arguments(&["k3s", role, "--snapshotter=native", "a b"], &task);
        let expected = [role, &reserved, "--snapshotter=native", "a b"];
        assert_eq!(found.unwrap(), expected);
    }
    // A task with more than the machine has.
    let large = [
        ("K3SFRAMEWORK_CPU_MILLIS", "10000000"),
        ("K3SFRAMEWORK_MEM_MIB", "1000000000"),
    ];
    let found = arguments(&["k3s", "agent"], &large).unwrap();
    assert_eq!(found[1], "--kubelet-arg=kube-reserved=cpu=0m,memory=0Mi");
    let chosen = [task[0], task[1], ("K3S_KUBE_RESERVED", "memory=1Gi")];
    let found = arguments(&["k3s", "agent"], &chosen).unwrap();
    assert_eq!(found[1], "--kubelet-arg=kube-reserved=memory=1Gi");
}

#[test]
fn commands_of_the_site_stay_as_they_are() {
    let task = [("K3SFRAMEWORK_CPU_MILLIS", "100"), ("K3SFRAMEWORK_MEM_MIB", "50")];
    let none = [task[0], task[1], ("K3S_KUBE_RESERVED", "none")];
    for (command, variables) in [
        (&["k3s", "agent"][..], &[][..]),
        (&["k3s", "agent"], &none),
        (&["k3s", "agent", "--kubelet-arg=kube-reserved=cpu=1"], &task),
        (&["k3s", "agent", "--kubelet-arg", "system-reserved=cpu=1"], &task),
        (&["k3s", "etcd-snapshot"], &task),
        (&["wrapper", "agent"], &task),
    ] {
        let found = arguments(command, variables).unwrap();
        assert_eq!(found, command[1..], "{command:?}");
    }
}
