//! Parses a check: first its shape, then, once the app's ports are known, its port.

use super::check::CheckScheme;
use super::reader::Reader;
use super::{Check, CheckCommand, CheckKind, CheckPort, PluginCheck};
use serde_json::Value;
use transom_web::Problems;

/// A check whose port is not resolved yet.
#[derive(Clone, Debug)]
pub(super) struct CheckInput {
    kind: KindInput,
    interval: u32,
    timeout: u32,
    delay: u32,
}

#[derive(Clone, Debug)]
enum KindInput {
    Http(PortInput, Option<String>),
    Tcp(PortInput),
    Exec(CheckCommand),
    Plugin(PluginCheck),
    /// No kind or several kinds were given; the problem is recorded.
    Unclear,
}

#[derive(Clone, Copy, Debug, Default)]
struct PortInput {
    port: Option<u16>,
    index: Option<u16>,
}

/// Parses the `check` member.
pub(super) fn read(check: &mut Reader<'_>) -> CheckInput {
    let kinds: Vec<&str> = ["http", "tcp", "exec", "plugin"]
        .into_iter()
        .filter(|kind| check.raw(kind).is_some())
        .collect();
    let kind = match kinds.as_slice() {
        ["http"] => check.nested("http", read_http).unwrap_or(KindInput::Unclear),
        ["tcp"] => check
            .nested("tcp", |tcp| KindInput::Tcp(read_port(tcp)))
            .unwrap_or(KindInput::Unclear),
        ["exec"] => check.nested("exec", read_exec).unwrap_or(KindInput::Unclear),
        ["plugin"] => check.nested("plugin", read_plugin).unwrap_or(KindInput::Unclear),
        [] => {
            check.problem_here("exactly one of http, tcp, exec or plugin must be given; there is none");
            KindInput::Unclear
        }
        several => {
            check.problem_here(format!(
                "exactly one of http, tcp, exec or plugin must be given; there are {}",
                several.join(", ")
            ));
            KindInput::Unclear
        }
    };
    CheckInput {
        kind,
        interval: check.count("intervalSeconds").unwrap_or(60),
        timeout: check.count("timeoutSeconds").unwrap_or(20),
        delay: check.count("delaySeconds").unwrap_or(15),
    }
}

fn read_http(http: &mut Reader<'_>) -> KindInput {
    let port = read_port(http);
    let path = http.string("path");
    if path.as_ref().is_some_and(String::is_empty) {
        http.problem("path", "error.minLength");
    }
    if path.as_ref().is_some_and(|path| path.len() > 1024) {
        http.problem("path", "error.maxLength");
    }
    if let Some(scheme) = http.string("scheme")
        && scheme != "HTTP"
    {
        http.problem(
            "scheme",
            format!("got {scheme}; only HTTP is supported for checks"),
        );
    }
    KindInput::Http(port, path)
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

fn read_exec(exec: &mut Reader<'_>) -> KindInput {
    let command = exec.nested("command", |command| {
        let shell = command.string("shell").filter(|shell| !shell.is_empty());
        let argv = command.strings("argv").filter(|argv| !argv.is_empty());
        match (shell, argv) {
            (Some(shell), None) => Some(CheckCommand::Shell(shell)),
            (None, Some(argv)) => Some(CheckCommand::Argv(argv)),
            _ => {
                command
                    .problem_here("exactly one of shell, a text, and argv, a list of texts, must be given");
                None
            }
        }
    });
    if exec.raw("command").is_none() {
        exec.problem("command", "is undefined: an exec check needs its command");
    }
    command.flatten().map_or(KindInput::Unclear, KindInput::Exec)
}

fn read_plugin(plugin: &mut Reader<'_>) -> KindInput {
    let name = plugin.string("name");
    if name.as_ref().is_none_or(String::is_empty) {
        plugin.problem("name", "the name of a check-probe component must be given");
    }
    let settings = match plugin.raw("settings") {
        Some(_) => plugin.object("settings").cloned(),
        None => Some(serde_json::Map::new()),
    };
    match (name, settings) {
        (Some(name), Some(settings)) => KindInput::Plugin(PluginCheck {
            name,
            settings: Value::Object(settings),
        }),
        _ => KindInput::Unclear,
    }
}

/// A check with neither port nor index uses the first port, and its document shows that index.
pub(super) fn resolve(input: CheckInput, ports: usize, broken: &mut Problems) -> Option<Check> {
    let mut port = |input: PortInput, kind: &str| match (input.port, input.index) {
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
    };
    let kind = match input.kind {
        KindInput::Http(ports, path) => CheckKind::Http {
            port: port(ports, "http")?,
            path,
            scheme: CheckScheme::Http,
        },
        KindInput::Tcp(ports) => CheckKind::Tcp {
            port: port(ports, "tcp")?,
        },
        KindInput::Exec(command) => CheckKind::Exec { command },
        KindInput::Plugin(plugin) => CheckKind::Plugin(plugin),
        KindInput::Unclear => return None,
    };
    Some(Check {
        kind,
        interval_seconds: input.interval,
        timeout_seconds: input.timeout,
        delay_seconds: input.delay,
    })
}
