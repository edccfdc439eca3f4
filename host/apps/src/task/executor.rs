//! Custom executors: programs that are fetched into the sandbox and run a task in place of the
//! agent's command executor. As in upstream, each task has its own.

use transom_scheduler::ExecutorResources;

use crate::model::{App, COMMAND_EXECUTOR};

/// The path of the executor of an app that does not use the command executor.
pub(super) fn path(app: &App) -> Option<&str> {
    let executor = app.executor.as_str();
    (!matches!(executor, "" | COMMAND_EXECUTOR)).then_some(executor)
}

/// The resources of the executor, in addition to those of the task.
pub(super) fn resources(app: &App) -> ExecutorResources {
    let own = app.executor_resources.filter(|_| path(app).is_some());
    own.map_or_else(ExecutorResources::default, |own| ExecutorResources {
        cpus: own.cpus,
        mem: own.mem,
        disk: own.disk,
    })
}

/// The command line of the executor, as in upstream: the fetched file is made executable and
/// receives the app's command as its arguments.
pub(super) fn line(path: &str, app: &App) -> String {
    let quoted = format!("'{}'", path.replace('\'', "'\\''"));
    let arguments = app.cmd.clone().unwrap_or_else(|| app.args.join(" "));
    format!("chmod ug+rx {quoted} && exec {quoted} {arguments}")
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::app;

    const OWN_RESOURCES: ExecutorResources = ExecutorResources {
        cpus: 0.5,
        mem: 48.0,
        disk: 20.0,
    };

    #[test]
    fn custom_executor_gets_the_command_as_arguments_and_its_own_resources() {
        let own = json!({"cpus": 0.5, "mem": 48, "disk": 20});
        let program = json!({"executor": "bin/it's", "cmd": "--port $PORT0", "executorResources": own});
        let arguments = json!({"executor": "/x", "args": ["a", "b"]});
        let none = ExecutorResources::default();
        let table: [(Value, Option<&str>, ExecutorResources); 4] = [
            (
                program,
                Some(r"chmod ug+rx 'bin/it'\''s' && exec 'bin/it'\''s' --port $PORT0"),
                OWN_RESOURCES,
            ),
            (arguments, Some("chmod ug+rx '/x' && exec '/x' a b"), none),
            // The command executor has no additional resources.
            (
                json!({"executor": "//cmd", "cmd": "x", "executorResources": own}),
                None,
                none,
            ),
            (json!({"cmd": "x"}), None, none),
        ];
        for (definition, expected, amounts) in table {
            let app = app(&definition);
            let line = path(&app).map(|path| line(path, &app));
            assert_eq!(line.as_deref(), expected, "{definition}");
            assert_eq!(resources(&app), amounts, "{definition}");
        }
    }
}
