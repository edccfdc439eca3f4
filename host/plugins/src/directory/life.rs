//! What becomes of a plugin's versions: they begin to serve, return, are taken out of service, and each time it is said and written down.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Directory, Patience,
    aside::{Admission, Came, Ended, Return},
    files::{Fingerprint, fingerprint},
};
use crate::{
    admission::{Admitted, Again, Desk, Refused},
    error::OrderError,
    health::{Alarm, Generation, Health, Remedy},
    kept::KeptFiles,
    lanes::{Unfinished, aside},
    manifest::{OnDisabled, Rollout, ShadowPlan},
    metrics::Stats,
    origin::{Files, Origin},
    plugin::{Post, seconds_now},
    records::{Outcome, Record},
    shadow::Tally,
    status::Change,
    table::{Disabled, Serving, Table},
    text::{hex, shown},
};

/// One plugin's versions.
#[derive(Default)]
pub(crate) struct Line {
    /// Of the files as they were last looked at, their admission may be under way; none where they could not be read.
    pub(super) fingerprint: Option<Fingerprint>,
    /// Of the files that were admitted or refused last.
    pub(super) evaluated: Option<Fingerprint>,
    /// When they are to be looked at again although they did not change.
    pub(super) again: Option<Again>,
    /// The version that serves, or that served when it was disabled.
    pub(super) current: Option<Admitted>,
    generation: Option<Generation>,
    /// The version to return to, and until when.
    previous: Option<(Admitted, Instant)>,
    /// The version that answers beside it.
    shadow: Option<(Admitted, Generation)>,
}

/// What was said to a plugin's files.
pub(super) struct Judged {
    /// After a restart: the version that the records say serves in place of what is in the directory.
    restored: Option<Result<Admitted, OrderError>>,
    /// None: they stay aside, since that version serves.
    files: Option<Result<Admitted, Refused>>,
}

/// What is admitted, aside from the directory's task.
struct Case {
    desk: Desk,
    kept: KeptFiles,
    name: String,
    files: Files,
    before: Option<Vec<String>>,
    /// The record of a version to be admitted first, and whether the files follow all the same, to be compared with it.
    standing: Option<(Record, bool)>,
    stats: Stats,
}

impl Case {
    async fn evaluated(self) -> Judged {
        let restored = match &self.standing {
            Some((record, compared)) => {
                let admitted =
                    admit_record(&self.desk, &self.kept, &self.name, record, self.stats.clone()).await;
                if admitted.is_ok() && !compared {
                    return Judged {
                        restored: Some(admitted),
                        files: None,
                    };
                }
                Some(admitted)
            }
            None => None,
        };
        let Case {
            desk,
            kept,
            name,
            files,
            before,
            stats,
            ..
        } = self;
        let admitted = desk.admit(&name, &files, before.as_deref(), stats).await;
        if admitted.is_ok() {
            // What is not kept was said there; what broke there is no reason not to serve.
            // What is not kept because the daemon stops is not missed.
            let _ = aside(move || kept.put(&files)).await;
        }
        Judged {
            restored,
            files: Some(admitted),
        }
    }
}

/// Admits the files of a record again. What it may import was settled when it served.
async fn admit_record(
    desk: &Desk,
    kept: &KeptFiles,
    name: &str,
    record: &Record,
    stats: Stats,
) -> Result<Admitted, OrderError> {
    let owned = || name.to_owned();
    let digests = record.digest.clone().zip(record.manifest.clone());
    let kept = kept.clone();
    let taken = aside(move || {
        let (component, manifest) = digests.ok_or("the record names no files")?;
        kept.take(&component, &manifest)
    });
    let taken = taken.await.map_err(|_| OrderError::Stopped)?;
    let files = taken.map_err(|message| OrderError::NotKept {
        name: owned(),
        record: record.sequence,
        message,
    })?;
    let admitted = desk.admit(name, &files, None, stats).await;
    admitted.map_err(|refused| OrderError::Refused {
        name: owned(),
        reason: refused.to_string(),
    })
}

impl Directory {
    /// Begins to admit what is in the directory. What was put aside by a rollback stays aside, also after a restart.
    pub(super) fn admit(&mut self, name: &str, files: Files, found: Fingerprint) {
        let line = self.lines.entry(name.to_owned()).or_default();
        line.fingerprint = Some(found);
        line.again = None;
        let before = self.imports_before(name);
        let origin = match &files.origin {
            // Not the signature: it may be long.
            Origin::File { .. } => Origin::File { signature: None },
            image @ Origin::Image(_) => image.clone(),
        };
        let case = Case {
            desk: self.desk.clone(),
            kept: self.kept.clone(),
            name: name.to_owned(),
            files,
            before: before.clone(),
            standing: self.standing(name, found),
            stats: self.metrics.trial(name),
        };
        let task = self.begin_aside(name, async { Came::Judged(case.evaluated().await) });
        let admission = Admission {
            task,
            files: found,
            origin,
            before,
        };
        self.admissions.insert(name.to_owned(), admission);
        self.admitting(name);
    }

    /// Shows that a plugin's files are not done with.
    pub(super) fn admitting(&self, name: &str) {
        self.change_table(|table| {
            let _ = table.admitting.insert(name.to_owned(), seconds_now());
        });
    }

    /// What was done aside is over: the table is brought up to it.
    pub(super) async fn concluded(&mut self, ended: Ended) {
        let Ended { name, ticket, came } = ended;
        if came.is_none() && self.around().token.is_cancelled() {
            // The host is stopping: nothing is to be said of what it did not finish.
            return;
        }
        if self.admissions.get(&name).is_some_and(|it| it.task.is(ticket)) {
            let admission = self.admissions.remove(&name);
            self.change_table(|table| {
                let _ = table.admitting.remove(&name);
            });
            if let Some(admission) = admission {
                let evaluated = match came {
                    Some(Came::Judged(evaluated)) => evaluated,
                    _ => Judged {
                        restored: None,
                        files: Some(Err(Refused::Unfinished(Unfinished::Broke))),
                    },
                };
                self.evaluated(&name, admission, evaluated).await;
            }
        } else if self.returns.get(&name).is_some_and(|it| it.task.is(ticket))
            && let Some(order) = self.returns.remove(&name)
        {
            let admitted = match came {
                Some(Came::Returned(admitted)) => admitted,
                _ => Err(OrderError::Stopped),
            };
            self.returned(&name, order, admitted).await;
        }
        // Else it was given up.
    }

    async fn evaluated(&mut self, name: &str, admission: Admission, evaluated: Judged) {
        if self.imports_before(name) != admission.before {
            // Another version serves than the one that it was measured by: once more, and compiled already.
            self.put_off(name, Patience::Now);
            return;
        }
        let line = self.lines.entry(name.to_owned()).or_default();
        line.evaluated = Some(admission.files);
        match evaluated.restored {
            Some(Ok(admitted)) => {
                let facts = admitted.facts.clone();
                self.begin(name, admitted, None);
                self.publish(Change::Admitted {
                    name: name.to_owned(),
                    version: facts.version,
                    digest: facts.digest,
                });
            }
            Some(Err(error)) => tracing::error!(
                plugin = name,
                "the version that served before the restart does not return, what is in the directory is admitted: {error}"
            ),
            None => {}
        }
        let refused = match evaluated.files {
            Some(Ok(admitted)) => self.serve(name, admitted).await.err(),
            Some(Err(refused)) => Some(refused),
            None => None,
        };
        match refused {
            Some(refused) => {
                if let Some(line) = self.lines.get_mut(name) {
                    line.again = refused.again();
                }
                self.refused(name, &refused, false).await;
            }
            None => {
                if let Origin::Image(image) = &admission.origin {
                    self.sources.admitted(image).await;
                }
            }
        }
    }

    /// Has what was admitted serve, or answer beside what serves.
    async fn serve(&mut self, name: &str, admitted: Admitted) -> Result<(), Refused> {
        let serving = self.serving(name);
        match (admitted.manifest.rollout, serving) {
            (Rollout::Immediate, serving) => {
                self.take_over(name, admitted, serving, "directory", None).await;
            }
            // Nothing to answer beside.
            (_, None) => {
                self.take_over(name, admitted, None, "directory", None).await;
            }
            (Rollout::Shadow(plan), Some(_)) => self.compare(name, admitted, plan, true).await?,
            (Rollout::ShadowManual(plan), Some(_)) => self.compare(name, admitted, plan, false).await?,
        }
        Ok(())
    }

    /// Has a version serve, and says so.
    async fn take_over(
        &mut self,
        name: &str,
        admitted: Admitted,
        predecessor: Option<Admitted>,
        by: &str,
        reason: Option<&str>,
    ) -> Change {
        let mut record = Record::of(Outcome::Admitted, by, &admitted).beside(self.files_of(name));
        record.reason = reason.map(str::to_owned);
        let facts = admitted.facts.clone();
        // A restart with the same files is no news.
        let newest = self.history.newest(name);
        let news = newest.is_none_or(|it| !it.serves() || !it.is_of(&admitted) || it.files != record.files);
        self.begin(name, admitted, predecessor);
        if news {
            self.history.add(name, record).await;
        }
        self.publish(Change::Admitted {
            name: name.to_owned(),
            version: facts.version,
            digest: facts.digest,
        })
    }

    /// Has a version answer beside the one that serves.
    async fn compare(
        &mut self,
        name: &str,
        admitted: Admitted,
        plan: ShadowPlan,
        auto: bool,
    ) -> Result<(), Refused> {
        // It faults aside from the plugin's own counts, and nobody is alarmed.
        let health = Health::new(admitted.manifest.probation, false, None);
        let generation = health.generation;
        let beside = admitted.start(Post {
            stats: Stats::unseen(),
            health,
        });
        let tally = Arc::new(Tally::new(plan, auto, generation, self.metrics.shadow(name)));
        let table = self.table.load_full();
        let pair = table
            .serving
            .get(name)
            .and_then(|it| it.beside(&beside, self.around(), &tally, &self.alarms))
            .ok_or(Refused::OtherWorld)?;
        self.change_table(|table| {
            table.refusals.remove(name);
            table.serving.insert(name.to_owned(), pair);
        });
        let facts = admitted.facts.clone();
        let record = Record::of(Outcome::Shadowing, "directory", &admitted).beside(self.files_of(name));
        if let Some(line) = self.lines.get_mut(name) {
            line.shadow = Some((admitted, generation));
        }
        let newest = self.history.newest(name);
        if newest.is_none_or(|it| it.outcome != Outcome::Shadowing || it.files != record.files) {
            self.history.add(name, record).await;
        }
        self.publish(Change::Shadowing {
            name: name.to_owned(),
            version: facts.version,
            digest: facts.digest,
        });
        Ok(())
    }

    /// Has the version that answers beside another take its place. `generation`: only if it is that one.
    pub(super) async fn promote(
        &mut self,
        name: &str,
        by: &str,
        asked: Option<(Generation, &str)>,
    ) -> Result<Change, OrderError> {
        let name_owned = || name.to_owned();
        let line = self
            .lines
            .get_mut(name)
            .ok_or_else(|| OrderError::Unknown { name: name_owned() })?;
        let (admitted, _) = line
            .shadow
            .take_if(|(_, it)| asked.is_none_or(|(generation, _)| generation == *it))
            .ok_or_else(|| OrderError::NoShadow { name: name_owned() })?;
        let serving = self.serving(name);
        let reason = asked.map(|(_, reason)| reason);
        Ok(self.take_over(name, admitted, serving, by, reason).await)
    }

    /// After a restart: the version that the records say serves, where it is not the one in the directory. That is so after a rollback, and then
    /// what is in the directory stays aside; or that one was still answering beside the other, and then (true) it does so again.
    fn standing(&self, name: &str, found: Fingerprint) -> Option<(Record, bool)> {
        if self.lines.get(name).is_some_and(|line| line.current.is_some()) {
            return None;
        }
        let standing = self.history.standing(name)?;
        let files = Some(format!("sha256:{}", hex(&found)));
        let rolled_back = standing.outcome == Outcome::RolledBack && standing.files == files;
        let newest = self.history.newest(name)?;
        let compared = newest.outcome == Outcome::Shadowing && newest.files == files;
        (rolled_back || compared).then_some((standing, compared))
    }

    /// The interfaces that the version before imports, whether it serves, is disabled, or served before the daemon was started again.
    fn imports_before(&self, name: &str) -> Option<Vec<String>> {
        let current = self.lines.get(name).and_then(|line| line.current.as_ref());
        let now = current.map(|it| it.facts.imports.clone());
        now.or_else(|| self.history.standing(name).map(|it| it.imports))
    }

    /// The version that serves, if one does.
    fn serving(&self, name: &str) -> Option<Admitted> {
        let serves = self.table.load().serving.contains_key(name);
        let current = self.lines.get(name)?.current.clone();
        current.filter(|_| serves)
    }

    /// Has a version serve from now on. With a predecessor it is on probation.
    fn begin(&mut self, name: &str, admitted: Admitted, predecessor: Option<Admitted>) {
        let rule = admitted.manifest.probation;
        let health = Health::new(rule, predecessor.is_some(), Some(self.alarms.clone()));
        let generation = health.generation;
        let stats = self.metrics.of(name, &admitted.facts.label());
        let serving = admitted.start(Post { stats, health });
        let mut before = None;
        self.change_table(|table| {
            table.refusals.remove(name);
            table.disabled.remove(name);
            before = table.serving.insert(name.to_owned(), serving);
        });
        self.metrics.admitted(name, before.is_some());
        self.metrics.disabled(name, false);
        let line = self.lines.entry(name.to_owned()).or_default();
        line.current = Some(admitted);
        line.generation = Some(generation);
        line.previous = predecessor.map(|it| (it, Instant::now() + rule.window));
        if line.shadow.take().is_some() {
            tracing::warn!(
                plugin = name,
                "what answered beside the version that served does so no more, since another serves"
            );
        }
    }

    /// Lets go of versions whose successors are past their probation.
    pub(super) fn forget_predecessors(&mut self) {
        // A little longer than the rule looks back, so that an alarm on its way still finds what it asks for.
        let grace = Duration::from_secs(10);
        for line in self.lines.values_mut() {
            line.previous
                .take_if(|(_, until)| Instant::now() > *until + grace);
        }
    }

    /// Takes a version out of service that asked for it.
    pub(super) async fn raised(&mut self, alarm: Alarm) {
        let name = alarm.plugin.as_str();
        if alarm.remedy == Remedy::Promote {
            // What was replaced meanwhile is no longer there to be promoted.
            let asked = Some((alarm.generation, alarm.reason.as_str()));
            drop(self.promote(name, "shadow", asked).await);
            return;
        }
        let Some(line) = self.lines.get_mut(name) else {
            return;
        };
        if line.generation != Some(alarm.generation) {
            // It was replaced meanwhile.
            return;
        }
        let previous = line.previous.take().map(|(previous, _)| previous);
        match (alarm.remedy, previous) {
            (Remedy::Return, Some(previous)) => {
                self.go_back(name, previous, "probation", &alarm.reason).await;
            }
            _ => self.disable(name, &alarm.reason).await,
        }
    }

    /// Has an earlier version serve, for good: the files in the directory stay aside until they change.
    async fn go_back(&mut self, name: &str, to: Admitted, by: &str, reason: &str) -> Change {
        let serving = self.serving(name);
        let from = serving.map(|it| it.facts.digest);
        let record = Record::of(Outcome::RolledBack, by, &to)
            .because(reason)
            .beside(self.files_of(name));
        let facts = to.facts.clone();
        self.begin(name, to, None);
        self.metrics.rolled_back(name);
        self.history.add(name, record).await;
        self.publish(Change::RolledBack {
            name: name.to_owned(),
            version: facts.version,
            digest: facts.digest,
            from,
            reason: reason.to_owned(),
        })
    }

    async fn disable(&mut self, name: &str, reason: &str) {
        let Some(admitted) = self.lines.get(name).and_then(|line| line.current.clone()) else {
            return;
        };
        let table = self.table.load_full();
        let Some((meta, facts)) = table.serving.get(name).map(Serving::parts) else {
            return;
        };
        let answer = admitted.manifest.on_disabled;
        let disabled = Arc::new(Disabled {
            facts: facts.clone(),
            reason: reason.to_owned(),
            answer,
            meta: Arc::clone(meta),
        });
        if let Some(line) = self.lines.get_mut(name) {
            // Nothing is left to compare it with.
            line.shadow = None;
        }
        self.change_table(|table| {
            table.serving.remove(name);
            table.disabled.insert(name.to_owned(), Arc::clone(&disabled));
        });
        self.metrics.disabled(name, true);
        let record = Record::of(Outcome::Disabled, "probation", &admitted)
            .because(reason)
            .beside(self.files_of(name));
        self.history.add(name, record).await;
        self.publish(Change::Disabled {
            name: name.to_owned(),
            digest: admitted.facts.digest,
            reason: reason.to_owned(),
            passes: answer == OnDisabled::Pass,
        });
    }

    /// Begins to go back to an earlier version. `record` none: the newest that is of another version than the one that serves.
    pub(super) async fn rollback(
        &mut self,
        name: &str,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, OrderError>>,
    ) {
        let record = match self.record_of(name, record) {
            Ok(record) => record,
            Err(error) => {
                drop(answer.send(Err(error)));
                return;
            }
        };
        // The files that are there now stay aside, also those that are being admitted.
        let waits = self.waiting.contains_key(name);
        let mut interrupted = self.give_up(name);
        if waits {
            let dir = self.config.dir.clone();
            let files = self.files(&dir, name).await.ok().flatten();
            if let Some(line) = self.lines.get_mut(name) {
                line.fingerprint = files.as_ref().map(fingerprint);
            }
        }
        if let Some(earlier) = self.returns.remove(name) {
            interrupted |= earlier.interrupted;
            let name = name.to_owned();
            drop(earlier.answer.send(Err(OrderError::Overtaken { name })));
        }
        let sequence = record.sequence;
        let (desk, kept) = (self.returns_desk.clone(), self.kept.clone());
        let (owned, stats) = (name.to_owned(), self.metrics.trial(name));
        let task = self.begin_aside(name, async move {
            Came::Returned(admit_record(&desk, &kept, &owned, &record, stats).await)
        });
        let order = Return {
            task,
            record: sequence,
            by,
            answer,
            interrupted,
        };
        self.returns.insert(name.to_owned(), order);
    }

    /// The record of the version to go back to.
    fn record_of(&self, name: &str, record: Option<u64>) -> Result<Record, OrderError> {
        let records = self.history.of(name);
        let owned = || name.to_owned();
        if records.is_empty() && !self.lines.contains_key(name) {
            return Err(OrderError::Unknown { name: owned() });
        }
        let current = self.serving(name);
        let mut served = records.iter().filter(|it| it.serves());
        // Named, also one that was only compared: it was admitted all the same.
        let admitted = |it: &&Record| it.serves() || it.outcome == Outcome::Shadowing;
        let found = match record {
            Some(sequence) => records
                .iter()
                .filter(admitted)
                .find(|it| it.sequence == sequence)
                .ok_or_else(|| OrderError::NoRecord {
                    name: owned(),
                    record: sequence,
                })?,
            None => served
                .find(|it| !current.as_ref().is_some_and(|current| it.is_of(current)))
                .ok_or_else(|| OrderError::NothingBefore { name: owned() })?,
        };
        Ok(found.clone())
    }

    /// The version to go back to may serve, or not.
    async fn returned(&mut self, name: &str, order: Return, admitted: Result<Admitted, OrderError>) {
        let Return {
            record,
            by,
            answer,
            interrupted,
            ..
        } = order;
        let done = match admitted {
            Ok(admitted) => {
                let reason = format!("back to record {record}, as {by} asked");
                Ok(self.go_back(name, admitted, &by, &reason).await)
            }
            Err(error) => {
                if interrupted {
                    // What was given up for it goes on.
                    self.put_off(name, Patience::Now);
                }
                Err(error)
            }
        };
        drop(answer.send(done));
    }

    /// `unreadable`: it is looked at again each time, and what was said before is not said again.
    pub(super) async fn refused(&mut self, name: &str, refused: &Refused, unreadable: bool) {
        // It may quote what is in the files.
        let reason = shown(&refused.to_string()).into_owned();
        let mut said = None;
        self.change_table(|table| said = table.refusals.insert(name.to_owned(), reason.clone()));
        if unreadable && said.as_ref() == Some(&reason) {
            return;
        }
        self.metrics.refused(name);
        let record = Record::new(Outcome::Refused, "directory")
            .because(&reason)
            .beside(self.files_of(name));
        self.history.add(name, record).await;
        self.publish(Change::Refused {
            name: name.to_owned(),
            reason,
        });
    }

    /// Files whose names are none for a plugin are refused by these, escaped. Nothing is written down of them.
    pub(super) fn refuse_misnamed(&mut self, found: BTreeSet<String>) {
        for name in self.misnamed.difference(&found) {
            self.change_table(|table| drop(table.refusals.remove(name)));
            self.metrics.forget(name);
        }
        for name in found.difference(&self.misnamed).cloned().collect::<Vec<_>>() {
            let reason = Refused::Name.to_string();
            self.change_table(|table| drop(table.refusals.insert(name.clone(), reason.clone())));
            self.metrics.refused(&name);
            self.publish(Change::Refused { name, reason });
        }
        self.misnamed = found;
    }

    /// The files, or the manifest, were taken away.
    pub(super) async fn removed(&mut self, name: &str) {
        self.give_up(name);
        self.lines.remove(name);
        self.change_table(|table| {
            table.serving.remove(name);
            table.disabled.remove(name);
            table.refusals.remove(name);
        });
        self.metrics.forget(name);
        let record = Record::new(Outcome::Removed, "directory");
        self.history.add(name, record).await;
        self.publish(Change::Removed {
            name: name.to_owned(),
        });
    }

    pub(super) fn change_table(&self, change: impl FnOnce(&mut Table)) {
        let mut table = Table::clone(&self.table.load());
        change(&mut table);
        self.table.store(Arc::new(table));
    }

    fn publish(&mut self, change: Change) -> Change {
        match &change {
            Change::Admitted {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "plugin admitted");
            }
            Change::Refused { name, reason } => {
                let table = self.table.load();
                let still = table.serving.get(name).map(|it| it.facts().version.as_str());
                let serving = still.unwrap_or("none");
                tracing::error!(plugin = name, serving, "plugin refused: {reason}");
            }
            Change::Shadowing {
                name,
                version,
                digest,
            } => {
                tracing::info!(
                    plugin = name,
                    version,
                    digest,
                    "plugin answers beside the version that serves"
                );
            }
            Change::Removed { name } => tracing::warn!(plugin = name, "plugin removed"),
            Change::RolledBack {
                name,
                version,
                digest,
                from,
                reason,
            } => {
                let from = from.as_deref().unwrap_or("none");
                tracing::warn!(
                    plugin = name,
                    version,
                    digest,
                    from,
                    "plugin rolled back: {reason}"
                );
            }
            Change::Disabled {
                name,
                digest,
                reason,
                passes,
            } => {
                let meanwhile = if *passes {
                    "everything is let through"
                } else {
                    "every call is refused"
                };
                tracing::error!(plugin = name, digest, "plugin disabled, {meanwhile}: {reason}");
            }
        }
        // Nobody has to follow.
        drop(self.changes.send(change.clone()));
        for follower in &mut self.followers {
            if follower
                .pending
                .as_ref()
                .is_none_or(|it| it.contains(change.plugin()))
            {
                follower.changes.push(change.clone());
            }
        }
        change
    }
}
