//! Executes the effects that `state` decides: in the table, the history, the metrics, the log and
//! for subscribers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use transom_common::text::{clip, hex, printable};

use super::Directory;
use crate::{
    lifecycle::{
        admission::{Activation, AdmissionError, Admitted},
        state::{ChangeReport, Effect, Event, FilesFrom, Running, transition},
        table::{CandidateSetup, Disabled, Serving, Table},
    },
    manifest::rollout::{Plan, Rollout},
    observe::{
        health::{Generation, HealthWatch},
        status::Change,
    },
    runtime::{
        candidate::{CandidateStats, Terms},
        recording::Recorder,
    },
    storage::admission_record::{AdmissionOutcome, AdmissionRecord},
};

/// Maximum bytes of the reason of a rejection. It is kept in the history, and shown in every list.
const MAX_REASON_BYTES: usize = 4096;
/// Added to the window of a probation, so that a health event in the queue still finds the
/// predecessor.
const PROBATION_GRACE: Duration = Duration::from_secs(10);

impl Directory {
    /// The only function that changes a plugin's state: applies the event and executes its effects.
    /// Returns the published change. `None` if the event is outdated or publishes nothing.
    pub(super) async fn apply(&mut self, name: &str, event: Event<Admitted>) -> Option<Change> {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        let state = std::mem::take(&mut plugin.state);
        let (state, effects) = transition(state, event, Generation::next());
        plugin.state = state;
        let mut published = None;
        for effect in effects {
            match effect {
                Effect::Activate {
                    running,
                    on_probation,
                } => self.activate(name, running, on_probation),
                Effect::StartCandidate { running, .. } => self.start_candidate(name, &running),
                Effect::EndCandidate => self.change_table(|table| {
                    if let Some(serving) = table.serving.get_mut(name) {
                        *serving = serving.without_candidate();
                    }
                }),
                Effect::CandidateDropped(kind) => tracing::warn!(
                    plugin = name,
                    ?kind,
                    "shadow or canary dropped: another version serves now"
                ),
                Effect::Disable { reason } => self.take_out_of_service(name, &reason),
                Effect::ShowRejection { reason } => self.change_table(|table| {
                    table.rejections.insert(name.to_owned(), reason);
                }),
                Effect::Forget => self.forget(name),
                Effect::Record(report) => self.record(name, report).await,
                Effect::Publish(report) => published = self.publish_report(name, report),
            }
        }
        published
    }

    /// Rejects the files in the directory. `unreadable`: every scan reads these files again, so a
    /// repeated rejection is not published.
    pub(super) async fn reject(&mut self, name: &str, rejected: &AdmissionError, unreadable: bool) {
        // The reason may quote the files.
        let reason = clip(&printable(&rejected.to_string()), MAX_REASON_BYTES);
        if unreadable && self.table.load().rejections.get(name) == Some(&reason) {
            return;
        }
        // There was no decision about unreadable files, and uploaded files are always readable.
        let by = if unreadable {
            FilesFrom::Directory
        } else {
            self.files_from(name)
        };
        self.apply(name, Event::Rejected { reason, by }).await;
    }

    /// Removes a plugin whose files, or whose manifest, were removed.
    pub(super) async fn remove(&mut self, name: &str) {
        self.cancel_pending(name);
        self.apply(name, Event::Removed).await;
    }

    /// Drops versions whose successors have passed probation.
    pub(super) async fn drop_predecessors(&mut self) {
        let now = Instant::now();
        let passed: Vec<String> = self
            .plugins
            .iter_mut()
            .filter_map(|(name, plugin)| {
                plugin.probation_until.take_if(|until| now > *until)?;
                Some(name.clone())
            })
            .collect();
        for name in passed {
            self.apply(&name, Event::ProbationPassed).await;
        }
    }

    /// Puts a version into the table.
    fn activate(&mut self, name: &str, running: Running<Admitted>, on_probation: bool) {
        let Running {
            version: admitted,
            generation,
        } = running;
        let serving = admitted.start(Activation::Serving {
            metrics: self.metrics.create_version(name),
            watch: HealthWatch::new(generation, on_probation, self.health_events.clone()),
            recorder: self.recorder(name, &admitted),
        });
        let mut before = None;
        self.change_table(|table| {
            table.rejections.remove(name);
            table.disabled.remove(name);
            before = table.serving.insert(name.to_owned(), serving);
        });
        self.metrics.count_admission(name, before.is_some());
        self.metrics.set_disabled(name, false);
        if let Some(plugin) = self.plugins.get_mut(name) {
            let window = admitted.manifest.probation.window;
            plugin.probation_until = on_probation.then(|| Instant::now() + window + PROBATION_GRACE);
        }
    }

    /// Returns the recorder of a version. `None` if its calls are not recorded.
    fn recorder(&self, name: &str, admitted: &Admitted) -> Option<Recorder> {
        let log = self.admission_context.calls.as_ref()?;
        admitted
            .manifest
            .record
            .then(|| log.recorder(&admitted.recorded_version(name)))
    }

    /// Starts a version alongside the serving one.
    fn start_candidate(&mut self, name: &str, running: &Running<Admitted>) {
        let Running { version, generation } = running;
        let Rollout::WithCandidate { plan, automatic } = version.manifest.rollout else {
            return;
        };
        let terms = Terms {
            plan,
            automatic,
            generation: *generation,
        };
        let candidate = match plan {
            Plan::Shadow(_) => version.start(Activation::Shadow),
            Plan::Canary(plan) => {
                let events = self.health_events.clone();
                version.start(Activation::Serving {
                    metrics: self.metrics.create_version(name),
                    watch: HealthWatch::canary(*generation, plan.max_faults, events),
                    recorder: self.recorder(name, version),
                })
            }
        };
        let metrics = self.metrics.candidate(name, plan.kind());
        let table = self.table.load();
        let active = table.serving.get(name).and_then(|serving| {
            let context = Arc::clone(candidate.context_and_info().0);
            let measured = serving.context_and_info().0.metrics.clone();
            let setup = CandidateSetup {
                runtime: self.runtime(),
                stats: Arc::new(CandidateStats::new(terms, context, measured, metrics)),
                judgements: self.judgements.clone(),
            };
            serving.with_candidate(&candidate, &setup)
        });
        self.change_table(|table| {
            table.rejections.remove(name);
            if let Some(active) = active {
                table.serving.insert(name.to_owned(), active);
            }
        });
    }

    fn take_out_of_service(&mut self, name: &str, reason: &str) {
        self.change_table(|table| {
            if let Some(serving) = table.serving.remove(name) {
                let (context, info) = serving.context_and_info();
                let disabled = Disabled {
                    info: info.clone(),
                    reason: reason.to_owned(),
                    context: Arc::clone(context),
                };
                table.disabled.insert(name.to_owned(), Arc::new(disabled));
            }
        });
        self.metrics.set_disabled(name, true);
    }

    fn forget(&mut self, name: &str) {
        self.plugins.remove(name);
        self.change_table(|table| {
            table.serving.remove(name);
            table.disabled.remove(name);
            table.rejections.remove(name);
        });
        self.metrics.forget(name);
        self.sources.removed(name);
    }

    async fn record(&mut self, name: &str, report: ChangeReport<Admitted>) {
        let record = match &report.version {
            Some(it) => AdmissionRecord::for_version(report.outcome, &report.by, &it.info, &it.manifest),
            None => AdmissionRecord::new(report.outcome, &report.by),
        };
        let record = record
            .with_reason(report.reason.as_deref())
            .with_files(self.files_of(name));
        match report.outcome {
            AdmissionOutcome::Rejected => self.metrics.count_rejection(name),
            AdmissionOutcome::RolledBack => self.metrics.count_rollback(name),
            AdmissionOutcome::Promoted => self.metrics.count_promotion(name),
            AdmissionOutcome::Aborted => self.metrics.count_abort(name),
            _ => {}
        }
        // A restart with unchanged files adds no record.
        let newest = self.history.newest(name);
        let is_new = newest.is_none_or(|newest| match (report.outcome, &report.version) {
            (AdmissionOutcome::Admitted, Some(it)) => {
                !newest.activates() || !newest.describes(&it.info) || newest.files != record.files
            }
            (AdmissionOutcome::Shadowing | AdmissionOutcome::Canary, _) => {
                newest.outcome != report.outcome || newest.files != record.files
            }
            _ => true,
        });
        if is_new {
            self.history.add(name, record).await;
        }
    }

    /// The digest of the files in the directory whose admission has finished, as in records.
    fn files_of(&self, name: &str) -> Option<String> {
        let plugin = self.plugins.get(name)?;
        let fingerprint = if self.is_pending(name) {
            plugin.decided
        } else {
            plugin.fingerprint
        }?;
        Some(format!("sha256:{}", hex(&fingerprint)))
    }

    fn publish_report(&mut self, name: &str, report: ChangeReport<Admitted>) -> Option<Change> {
        let name = name.to_owned();
        let info = report.version.map(|it| it.info);
        let reason = report.reason.unwrap_or_default();
        let change = match (report.outcome, info) {
            (AdmissionOutcome::Admitted, Some(info)) => Change::Admitted {
                name,
                version: info.version,
                digest: info.digest,
            },
            (AdmissionOutcome::Shadowing, Some(info)) => Change::Shadowing {
                name,
                version: info.version,
                digest: info.digest,
            },
            (AdmissionOutcome::Canary, Some(info)) => Change::Canary {
                name,
                version: info.version,
                digest: info.digest,
            },
            (AdmissionOutcome::Promoted, Some(info)) => Change::Promoted {
                name,
                version: info.version,
                digest: info.digest,
                from: report.from.map(|it| it.info.digest).unwrap_or_default(),
                reason,
            },
            (AdmissionOutcome::Aborted, Some(info)) => Change::Aborted {
                name,
                version: info.version,
                digest: info.digest,
                reason,
            },
            (AdmissionOutcome::RolledBack, Some(info)) => Change::RolledBack {
                name,
                version: info.version,
                digest: info.digest,
                from: report.from.map(|it| it.info.digest),
                reason,
            },
            (AdmissionOutcome::Disabled, Some(info)) => Change::Disabled {
                name,
                digest: info.digest,
                reason,
            },
            (AdmissionOutcome::Rejected, _) => Change::Rejected { name, reason },
            (AdmissionOutcome::Removed, _) => Change::Removed { name },
            // All other outcomes have a version.
            (_, None) => return None,
        };
        Some(self.publish(change))
    }

    pub(super) fn change_table(&self, change: impl FnOnce(&mut Table)) {
        let mut table = Table::clone(&self.table.load());
        change(&mut table);
        self.table.store(Arc::new(table));
    }

    pub(super) fn publish(&mut self, change: Change) -> Change {
        match &change {
            Change::Admitted {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "plugin admitted");
            }
            Change::Rejected { name, reason } => {
                let table = self.table.load();
                let serving_version = table
                    .serving
                    .get(name)
                    .map(|it: &Serving| it.info().version.as_str());
                let serving = serving_version.unwrap_or("none");
                tracing::error!(plugin = name, serving, "plugin rejected: {reason}");
            }
            Change::Shadowing {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "shadow version started");
            }
            Change::Canary {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "canary started");
            }
            Change::Promoted {
                name,
                version,
                digest,
                from,
                reason,
            } => {
                tracing::info!(
                    plugin = name,
                    version,
                    digest,
                    from,
                    "plugin version promoted: {reason}"
                );
            }
            Change::Aborted {
                name,
                version,
                digest,
                reason,
            } => {
                tracing::warn!(
                    plugin = name,
                    version,
                    digest,
                    "shadow or canary aborted: {reason}"
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
            Change::Disabled { name, digest, reason } => {
                tracing::error!(plugin = name, digest, "plugin disabled, calls fail: {reason}");
            }
        }
        // Sending fails if there are no subscribers.
        drop(self.changes.send(change.clone()));
        for waiter in &mut self.waiters {
            waiter.record_change(&change);
        }
        change
    }
}
