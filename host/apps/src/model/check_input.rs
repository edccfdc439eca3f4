//! Parses a check: first its shape, then, once the app's ports are known, its port.

use super::check::CheckScheme;
use super::reader::Reader;
use super::{Check, CheckCommand, CheckKind, CheckPort, PluginCheck};
use serde_json::Value;
use transom_web::Problems;

/// A check whose port is not resolved yet.
pub(super) type CheckInput = Check<PortInput>;

/// The port of a check in a client's document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortInput {
    port: Option<u16>,
    index: Option<u16>,
}

/// Parses the `check` member of an app.
pub(super) fn read(check: &mut Reader<'_>) -> Option<CheckInput> {
    read_with(check, |check| Some(read_port(check)))
}

/// Parses a check; `port` parses the members that name its port. Returns `None` if the kind is not
/// clear, and records the problem.
pub(super) fn read_with<P>(
    check: &mut Reader<'_>,
    port: impl Fn(&mut Reader<'_>) -> Option<P>,
) -> Option<Check<P>> {
    let kinds: Vec<&str> = ["http", "tcp", "exec", "plugin"]
        .into_iter()
        .filter(|kind| check.raw(kind).is_some())
        .collect();
    let kind = match kinds.as_slice() {
        ["http"] => check.nested("http", |http| read_http(http, port)).flatten(),
        ["tcp"] => check
            .nested("tcp", |tcp| Some(CheckKind::Tcp { port: port(tcp)? }))
            .flatten(),
        ["exec"] => read_exec(check).map(|command| CheckKind::Exec { command }),
        ["plugin"] => check
            .nested("plugin", read_plugin)
            .flatten()
            .map(CheckKind::Plugin),
        [] => {
            check
                .problem_with_object("exactly one of http, tcp, exec or plugin must be given; there is none");
            None
        }
        several => {
            check.problem_with_object(format!(
                "exactly one of http, tcp, exec or plugin must be given; there are {}",
                several.join(", ")
            ));
            None
        }
    };
    let interval_seconds = check.count("intervalSeconds").unwrap_or(60);
    let timeout_seconds = check.count("timeoutSeconds").unwrap_or(20);
    let delay_seconds = check.count("delaySeconds").unwrap_or(15);
    Some(Check {
        kind: kind?,
        interval_seconds,
        timeout_seconds,
        delay_seconds,
    })
}

fn read_http<P>(http: &mut Reader<'_>, port: impl Fn(&mut Reader<'_>) -> Option<P>) -> Option<CheckKind<P>> {
    let port = port(http);
    let path = http.text("path", 1024);
    if let Some(scheme) = http.string("scheme")
        && scheme != "HTTP"
    {
        http.problem(
            "scheme",
            format!("got {scheme}; only HTTP is supported for checks"),
        );
    }
    Some(CheckKind::Http {
        port: port?,
        path,
        scheme: CheckScheme::Http,
    })
}

fn read_port(check: &mut Reader<'_>) -> PortInput {
    let input = PortInput {
        port: check.port("port"),
        index: check.port("portIndex"),
    };
    if input.port.is_some() && input.index.is_some() {
        check.problem("port", "Check must specify either a port or a portIndex");
    }
    input
}

/// Parses the `exec` member of a check: its command.
pub(super) fn read_exec(check: &mut Reader<'_>) -> Option<CheckCommand> {
    check
        .nested("exec", |exec| {
            read_command(exec, "an exec check needs its command")
        })
        .flatten()
}

/// Parses the `command` member; `why` is its purpose, for the error.
pub(super) fn read_command(exec: &mut Reader<'_>, why: &str) -> Option<CheckCommand> {
    let command = exec.nested("command", |command| {
        let shell = command.string("shell").filter(|shell| !shell.is_empty());
        let argv = command.strings("argv").filter(|argv| !argv.is_empty());
        match (shell, argv) {
            (Some(shell), None) => Some(CheckCommand::Shell(shell)),
            (None, Some(argv)) => Some(CheckCommand::Argv(argv)),
            _ => {
                command.problem_with_object(
                    "exactly one of shell, a text, and argv, a list of texts, must be given",
                );
                None
            }
        }
    });
    if exec.raw("command").is_none() {
        exec.problem("command", format!("is undefined: {why}"));
    }
    command.flatten()
}

fn read_plugin(plugin: &mut Reader<'_>) -> Option<PluginCheck> {
    let name = plugin.string("name");
    if name.as_ref().is_none_or(String::is_empty) {
        plugin.problem("name", "the name of a check-probe component must be given");
    }
    let settings = match plugin.raw("settings") {
        Some(_) => plugin.map("settings").cloned(),
        None => Some(serde_json::Map::new()),
    };
    Some(PluginCheck {
        name: name?,
        settings: Value::Object(settings?),
    })
}

/// Resolves the port of a check. A check with neither port nor index uses the first port, and its
/// document shows that index.
pub(super) fn resolve(check: &CheckInput, ports: usize, broken: &mut Problems) -> Option<Check> {
    let kind = check.kind_name();
    check.with_port(|input| match (input.port, input.index) {
        (Some(port), _) => Some(CheckPort::Port(port)),
        (None, Some(index)) => Some(CheckPort::PortIndex(index)),
        (None, None) if ports > 0 => Some(CheckPort::PortIndex(0)),
        (None, None) => {
            broken.add(
                format!("/check/{kind}"),
                "the app has no ports, so the check must specify a port",
            );
            None
        }
    })
}
