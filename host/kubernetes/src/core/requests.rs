//! Requests. Most of them change the wanted state, which is stored before any task starts or ends and
//! before the request is answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use transom_common::ambient;
use transom_framework::ActorError;

use super::Core;
use super::command::{Command, Rejection, Resource, Scope};
use super::persist::Wanted;
use crate::kind::{Kind, PerKind};
use crate::secrets::Secrets;
use crate::settings::Engine;

/// How long a request to drop the framework's id waits for the master. Upstream's clients get no answer
/// after a few seconds.
const MASTER_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest resource that a request may set: more CPUs, or more MB, than any agent has.
const MAX_AMOUNT: u32 = 100_000_000;

impl Core {
    pub(super) async fn handle_command(&mut self, command: Command) {
        // Sending a reply fails if the client no longer waits, which is no error.
        match command {
            Command::Scale { kind, count, reply } => {
                let _ = reply.send(self.scale(kind, count).await);
            }
            Command::Cordon { cordoned, reply } => {
                let _ = reply.send(self.set_cordoned(cordoned).await);
            }
            Command::Stop { reply } => {
                let _ = reply.send(self.stop().await);
            }
            Command::Start { reply } => {
                let _ = reply.send(self.start_again().await);
            }
            Command::Restart { scope, reply } => {
                let _ = reply.send(self.restart(scope).await);
            }
            Command::Adjust {
                kind,
                resource,
                limit,
                amount,
                reply,
            } => {
                let _ = reply.send(self.adjust(kind, resource, limit, amount).await);
            }
            Command::MoveDatastore { reply } => {
                let _ = reply.send(self.move_datastore().await);
            }
            Command::BackUp { reply } => {
                let _ = reply.send(self.back_up().await);
            }
            Command::Restore { manifest, reply } => {
                let _ = reply.send(self.restore(manifest).await);
            }
            Command::Credentials { reply } => {
                let _ = reply.send(Ok(self.secrets.credentials(&self.config)));
            }
            Command::Token { reply } => {
                let _ = reply.send(Ok(self.secrets.token.clone()));
            }
            Command::AdoptPassword { reply } => {
                let _ = reply.send(self.adopt_password().await);
            }
            Command::ForgetFramework { reply } => {
                let _ = reply.send(self.forget_framework().await);
            }
        }
    }

    async fn scale(&mut self, kind: Kind, count: u32) -> Result<i64, Rejection> {
        let maximum = self.config.settings.max_scale;
        if count > maximum {
            return Err(Rejection::AboveMaximum { count, maximum });
        }
        if let (Kind::Agent, Some((autoscale, max))) = (kind, self.config.settings.autoscale())
            && !(autoscale.min..=max).contains(&count)
        {
            return Err(Rejection::OutsideAutoscale {
                count,
                min: autoscale.min,
                max,
            });
        }
        self.check_may_scale(kind)?;
        if kind == Kind::Datastore {
            match self.config.settings.engine() {
                Engine::Kvstore if count != 0 && count.is_multiple_of(2) => {
                    return Err(Rejection::EvenKvstore(count));
                }
                Engine::Kvstore if count > 1 && self.config.settings.runs_ds_command() => {
                    return Err(Rejection::SeveralCommands(count));
                }
                Engine::Sql if count > 1 => return Err(Rejection::SeveralSqlDatastores(count)),
                _ => {}
            }
        }
        let before = *self.wanted.counts.of(kind);
        let mut wanted = self.wanted.clone();
        *wanted.counts.of_mut(kind) = count;
        if let (Kind::Agent, Some(last)) = (kind, &mut wanted.autoscaled) {
            last.leaving.clear();
        }
        self.store_wanted(wanted).await?;
        if before != count {
            if kind == Kind::Agent {
                self.autoscaler.changed_at = ambient::now();
            }
            tracing::info!(framework = self.config.name(), %kind, before, count, "scaled");
        }
        Ok(i64::from(count) - i64::from(before))
    }

    async fn set_cordoned(&mut self, cordoned: bool) -> Result<(), Rejection> {
        let wanted = Wanted {
            cordoned,
            uncordoning: !cordoned,
            ..self.wanted.clone()
        };
        self.store_wanted(wanted).await
    }

    async fn stop(&mut self) -> Result<(), Rejection> {
        let counts = self.wanted.counts;
        let stopped = counts == PerKind::default();
        let wanted = Wanted {
            restore: if stopped {
                self.wanted.restore
            } else {
                Some(counts)
            },
            counts: PerKind::default(),
            ..self.wanted.clone()
        };
        self.store_wanted(wanted).await
    }

    async fn start_again(&mut self) -> Result<(), Rejection> {
        let released = self.release().await?;
        let counts = self.wanted.counts;
        if released && Kind::ALL.into_iter().all(|kind| *counts.of(kind) != 0) {
            self.publish_view();
            return Ok(());
        }
        if Kind::ALL.into_iter().all(|kind| *counts.of(kind) != 0) {
            return Err(Rejection::AlreadyStarted);
        }
        let restored = self.wanted.restore.unwrap_or(self.wanted.configured);
        let wanted = Wanted {
            counts: PerKind::from_fn(|kind| match *counts.of(kind) {
                0 => *restored.of(kind),
                running => running,
            }),
            ..self.wanted.clone()
        };
        self.store_wanted(wanted).await
    }

    async fn restart(&mut self, scope: Scope) -> Result<Option<String>, Rejection> {
        let mut covered = Kind::ALL.into_iter().filter(|kind| scope.covers(*kind));
        if covered.all(|kind| *self.wanted.counts.of(kind) == 0) {
            return Err(Rejection::NothingToRestart);
        }
        let mut wanted = self.wanted.clone();
        for kind in Kind::ALL.into_iter().filter(|kind| scope.covers(*kind)) {
            *wanted.generations.of_mut(kind) += 1;
        }
        self.store_wanted(wanted).await?;
        Ok(self.next_plan(&self.versions(), ambient::now()).halted)
    }

    async fn adjust(
        &mut self,
        kind: Kind,
        resource: Resource,
        limit: bool,
        amount: u32,
    ) -> Result<(), Rejection> {
        if amount == 0 {
            return Err(Rejection::BadResource("expected a number above 0".to_owned()));
        }
        if amount > MAX_AMOUNT {
            return Err(Rejection::BadResource(format!(
                "no agent has that much: expected a number up to {MAX_AMOUNT}"
            )));
        }
        let mut wanted = self.wanted.clone();
        let adjusted = wanted.adjusted.of_mut(kind);
        adjusted.set(resource, limit, f64::from(amount));
        let settings = adjusted.apply_to(self.config.kinds.of(kind));
        let below = |limit: Option<f64>, amount: f64| limit.is_some_and(|limit| limit < amount);
        if below(settings.cpu_limit, settings.cpus)
            || below(settings.mem_limit, settings.mem)
            || below(settings.disk_limit, settings.disk)
        {
            return Err(Rejection::BadResource(
                "a limit must be at least the resource itself".to_owned(),
            ));
        }
        self.store_wanted(wanted).await
    }

    /// Replaces user and password in use by the configured ones. Tasks with the former ones are replaced.
    async fn adopt_password(&mut self) -> Result<(), Rejection> {
        let username = &self.configured.settings.ds_mysql_username;
        let mut config = (*self.config).clone();
        config.settings.ds_mysql_username.clone_from(username);
        let record = self.datastore.adopt(&config);
        let record = record.ok_or(Rejection::NoOtherPassword)?;
        let stored = self.repository.put_datastore(&record).await;
        stored.map_err(ActorError::from)?;
        tracing::info!(
            framework = self.config.name(),
            "user and password of the datastore were replaced"
        );
        self.config = Arc::new(config);
        self.service.config = Arc::clone(&self.config);
        if let Some(in_use) = &record.in_use {
            self.ignored = in_use.ignored(&self.configured, &self.secrets.token);
        }
        self.secrets = Arc::new(Secrets {
            password: record.password.clone(),
            ..(*self.secrets).clone()
        });
        self.datastore = record;
        self.publish_view();
        Ok(())
    }

    /// Drops the framework's id if the master does not list it, and ends the term. The next term
    /// subscribes without an id. The master is asked without an id as well, because upstream's answer is
    /// 406 as long as no master is reached.
    async fn forget_framework(&mut self) -> Result<(), Rejection> {
        let id = self.scheduler.subscription().framework_id;
        let asked = id.clone().unwrap_or_else(|| "".into());
        let listed = timeout(MASTER_TIMEOUT, self.service.cluster.lists_framework(&asked)).await;
        let reason = match listed {
            Ok(Ok(listed)) => Ok(listed),
            Ok(Err(error)) => Err(transom_common::error_chain(&error)),
            Err(_) => Err(format!("no answer within {} s", MASTER_TIMEOUT.as_secs())),
        };
        let listed = reason.map_err(|error| {
            tracing::warn!(error, "querying the master for the framework id failed");
            Rejection::MasterUnavailable
        })?;
        if let Some(id) = id.filter(|_| !listed) {
            tracing::warn!(framework = self.config.name(), %id, "the master does not know the framework's id; dropping it");
            let forgotten = self.repository.forget_framework().await;
            forgotten.map_err(ActorError::from)?;
            self.abdication.abdicate();
        }
        Ok(())
    }

    /// Stores the new wanted state and publishes it in the view.
    async fn store_wanted(&mut self, mut wanted: Wanted) -> Result<(), Rejection> {
        wanted.record_clustering(&self.config);
        if wanted != self.wanted {
            let stored = self.repository.put_wanted(&wanted).await;
            stored.map_err(ActorError::from)?;
            self.wanted = wanted;
        }
        self.publish_view();
        Ok(())
    }
}
