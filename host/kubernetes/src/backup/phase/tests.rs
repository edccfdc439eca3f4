//! Tables of situations and the expected next steps.

use std::time::Duration;

use super::*;
use crate::backup::OperationKind;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn operation(kind: OperationKind, phase: Phase) -> Operation {
    let operation = Operation::new(kind, "b".to_owned(), at(0), Duration::from_secs(100));
    Operation { phase, ..operation }
}

fn task(task: OneOffState) -> Observed {
    Observed {
        task,
        healthy: true,
        ..Observed::default()
    }
}

fn ended(ending: OneOffOutcome) -> Observed {
    task(OneOffState::Ended(ending))
}

fn done() -> Observed {
    ended(OneOffOutcome::Done("d".to_owned()))
}

fn problem() -> String {
    "why".to_owned()
}

fn fails(text: &str) -> NextStep {
    NextStep::End(Err(text.to_owned()))
}

#[test]
fn backup_dumps_then_reads() {
    for (phase, observed, second, expected) in [
        (Phase::Dump, Observed::default(), 1, NextStep::Start),
        (Phase::Dump, task(OneOffState::Pending), 1, NextStep::Wait),
        (Phase::Dump, task(OneOffState::Running), 1, NextStep::Wait),
        (
            Phase::Dump,
            task(OneOffState::Pending),
            100,
            fails("its task found no offer within the timeout"),
        ),
        (
            Phase::Dump,
            task(OneOffState::Running),
            100,
            fails("its task did not end within the timeout"),
        ),
        (Phase::Dump, done(), 1, NextStep::Enter(Phase::Read)),
        // A result counts even after the deadline.
        (Phase::Dump, done(), 200, NextStep::Enter(Phase::Read)),
        (
            Phase::Dump,
            ended(OneOffOutcome::Failed(problem())),
            1,
            fails("why"),
        ),
        (
            Phase::Dump,
            ended(OneOffOutcome::Lost(problem())),
            1,
            NextStep::StartAgain,
        ),
        (
            Phase::Dump,
            ended(OneOffOutcome::Lost(problem())),
            100,
            fails("its task was lost: why"),
        ),
        (Phase::Read, Observed::default(), 1, NextStep::Wait),
        (
            Phase::Read,
            Observed::default(),
            100,
            fails("the dump was not read within the timeout"),
        ),
        (
            Phase::Read,
            Observed {
                read: Some(Ok(())),
                ..Observed::default()
            },
            1,
            NextStep::End(Ok(())),
        ),
        (
            Phase::Read,
            Observed {
                read: Some(Err(problem())),
                ..Observed::default()
            },
            1,
            fails("why"),
        ),
    ] {
        for engine in [Engine::Sql, Engine::Kvstore] {
            let found = next_step(
                &operation(OperationKind::Backup, phase),
                engine,
                &observed,
                at(second),
            );
            assert_eq!(found, expected, "{phase:?} {observed:?} at {second}");
        }
    }
    let lost = Operation {
        lost: 2,
        ..operation(OperationKind::Backup, Phase::Dump)
    };
    let found = next_step(&lost, Engine::Sql, &ended(OneOffOutcome::Lost(problem())), at(1));
    assert_eq!(found, fails("its task was lost: why"));
}

#[test]
fn restore_waits_until_all_tasks_that_use_the_data_have_ended() {
    let observed = |servers, datastores| Observed {
        servers,
        datastores,
        ..Observed::default()
    };
    for (engine, observed, second, expected) in [
        (Engine::Sql, observed(1, 1), 1, NextStep::Wait),
        (Engine::Sql, observed(0, 1), 1, NextStep::Enter(Phase::Load)),
        (Engine::Kvstore, observed(0, 1), 1, NextStep::Wait),
        (Engine::Kvstore, observed(1, 0), 1, NextStep::Wait),
        (Engine::Kvstore, observed(0, 0), 1, NextStep::Enter(Phase::Load)),
        (
            Engine::Sql,
            observed(1, 1),
            100,
            fails("the servers did not end within the timeout"),
        ),
    ] {
        let found = next_step(
            &operation(OperationKind::Restore, Phase::Stop),
            engine,
            &observed,
            at(second),
        );
        assert_eq!(found, expected, "{engine:?} {observed:?}");
    }
}

#[test]
fn sql_restore_ends_with_new_data_or_former_data_or_stopped_servers() {
    let stuck = |text: &str| NextStep::Fail(Phase::Held, text.to_owned());
    let unhealthy = Observed::default();
    for (lost, observed, second, expected) in [
        (0, unhealthy.clone(), 1, NextStep::Wait),
        (
            0,
            unhealthy.clone(),
            100,
            fails("the datastore was not healthy within the timeout"),
        ),
        (
            1,
            unhealthy,
            100,
            stuck("the datastore was not healthy within the timeout"),
        ),
        (0, task(OneOffState::Missing), 1, NextStep::Start),
        (0, done(), 1, NextStep::Enter(Phase::Resume)),
        (0, ended(OneOffOutcome::Failed(problem())), 1, fails("why")),
        (1, ended(OneOffOutcome::Failed(problem())), 1, stuck("why")),
        (
            0,
            ended(OneOffOutcome::Undone(problem())),
            1,
            fails("why; the former data is back"),
        ),
        (0, ended(OneOffOutcome::Broken(problem())), 1, stuck("why")),
        (0, ended(OneOffOutcome::Lost(problem())), 1, NextStep::StartAgain),
        (
            2,
            ended(OneOffOutcome::Lost(problem())),
            1,
            stuck("its task was lost: why"),
        ),
        (
            0,
            task(OneOffState::Pending),
            100,
            fails("its task found no offer within the timeout"),
        ),
        (
            0,
            task(OneOffState::Running),
            100,
            stuck("its task did not end within the timeout"),
        ),
    ] {
        let operation = Operation {
            lost,
            ..operation(OperationKind::Restore, Phase::Load)
        };
        let found = next_step(&operation, Engine::Sql, &observed, at(second));
        assert_eq!(found, expected, "{lost} {observed:?} at {second}");
    }
}

#[test]
fn kvstore_that_does_not_start_from_a_backup_gets_its_former_data_back() {
    let fail = |phase, text: &str| NextStep::Fail(phase, text.to_owned());
    let failures = |failures| Observed {
        failures,
        ..Observed::default()
    };
    let stopped = Observed {
        datastores: 0,
        ..Observed::default()
    };
    let running = Observed {
        datastores: 1,
        ..Observed::default()
    };
    let prefix = "the kvstore did not start from the backup";
    for (phase, observed, second, expected) in [
        (Phase::Load, Observed::default(), 1, NextStep::Wait),
        (Phase::Load, task(OneOffState::Missing), 1, NextStep::Start),
        (Phase::Load, done(), 1, NextStep::Enter(Phase::Resume)),
        (Phase::Load, failures(2), 1, NextStep::Wait),
        (
            Phase::Load,
            failures(3),
            1,
            fail(Phase::Withdraw, &format!("{prefix}: its task failed 3 times")),
        ),
        (
            Phase::Load,
            ended(OneOffOutcome::Failed(problem())),
            1,
            fail(Phase::Withdraw, &format!("{prefix}: why")),
        ),
        (
            Phase::Load,
            Observed::default(),
            100,
            fail(
                Phase::Withdraw,
                &format!("{prefix}: it was not healthy within the timeout"),
            ),
        ),
        (Phase::Withdraw, running.clone(), 1, NextStep::Wait),
        (Phase::Withdraw, stopped, 1, NextStep::Enter(Phase::Revert)),
        (
            Phase::Withdraw,
            running,
            100,
            fail(
                Phase::Held,
                "first; bringing the former data back failed: the kvstore did not end within the timeout",
            ),
        ),
        (Phase::Revert, task(OneOffState::Missing), 1, NextStep::Start),
        (Phase::Revert, done(), 1, fails("first; the former data is back")),
        (
            Phase::Revert,
            failures(3),
            1,
            fail(
                Phase::Held,
                "first; bringing the former data back failed: its task failed 3 times",
            ),
        ),
        (
            Phase::Revert,
            ended(OneOffOutcome::Failed(problem())),
            1,
            fail(Phase::Held, "first; bringing the former data back failed: why"),
        ),
    ] {
        let operation = Operation {
            problem: Some("first".to_owned()),
            ..operation(OperationKind::Restore, phase)
        };
        let found = next_step(&operation, Engine::Kvstore, &observed, at(second));
        assert_eq!(found, expected, "{phase:?} {observed:?} at {second}");
    }
}

#[test]
fn restore_is_over_when_a_server_answers() {
    let server_answers = Observed {
        server_answers: true,
        ..Observed::default()
    };
    let text = "the data is restored, but no server answered within the timeout";
    for (phase, observed, second, expected) in [
        (Phase::Resume, server_answers.clone(), 1, NextStep::End(Ok(()))),
        (Phase::Resume, Observed::default(), 1, NextStep::Wait),
        (Phase::Resume, Observed::default(), 100, fails(text)),
        (Phase::Held, server_answers, 1000, NextStep::Wait),
    ] {
        let found = next_step(
            &operation(OperationKind::Restore, phase),
            Engine::Sql,
            &observed,
            at(second),
        );
        assert_eq!(found, expected, "{phase:?}");
    }
}

#[test]
fn counts_keep_servers_away_from_data_that_changes() {
    let wanted = PerKind {
        datastore: 3,
        server: 2,
        agent: 5,
    };
    for (phase, engine, datastore, server) in [
        (Phase::Dump, Engine::Kvstore, 3, 2),
        (Phase::Read, Engine::Kvstore, 3, 2),
        (Phase::Stop, Engine::Kvstore, 0, 0),
        (Phase::Stop, Engine::Sql, 3, 0),
        (Phase::Load, Engine::Kvstore, 1, 0),
        (Phase::Load, Engine::Sql, 1, 0),
        (Phase::Withdraw, Engine::Kvstore, 0, 0),
        (Phase::Revert, Engine::Kvstore, 1, 0),
        (Phase::Resume, Engine::Kvstore, 3, 2),
        (Phase::Held, Engine::Kvstore, 3, 0),
    ] {
        let found = counts(&operation(OperationKind::Restore, phase), engine, wanted);
        let expected = PerKind {
            datastore,
            server,
            agent: 5,
        };
        assert_eq!(found, expected, "{phase:?} {engine:?}");
    }
}
