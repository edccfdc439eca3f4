//! The task that owns one kept instance.
//!
//! It creates the instance at the first call, unless it got the trial instance of the admission,
//! runs one call at a time, and replaces the instance after a fault or a set number of calls. It
//! drops an idle instance when the pool is full and another plugin needs a slot; the next instance
//! receives the resources again. An instance that is due for replacement while attempts live in it
//! drains: it serves only those, in parallel with its successor, until the last one ends or the
//! next replacement is due. The task ends when the version is dropped: after a swap, with the last
//! call that started on it.

use std::sync::Arc;

use tokio::{sync::mpsc, task::yield_now, time::Instant};
use tokio_util::sync::CancellationToken;
use transom_common::trace::TraceContext;

use super::{InstanceFactory, QueuedCall, busy, run_call};
use crate::{
    error::CallError,
    runtime::{
        engine::{Instance, World},
        executor::demote_current_task,
    },
};

/// Owns one active instance, and possibly a draining one.
pub(super) struct InstanceTask<W: World> {
    factory: InstanceFactory<W>,
    shared: Arc<W::Shared>,
    instance: Option<Instance<W>>,
    draining: Option<Instance<W>>,
    created: u64,
}

/// The instance that a call belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Active,
    Draining,
    Gone,
}

impl<W: World> InstanceTask<W> {
    /// `instance`: a configured instance for the first call. None: the first call creates one.
    pub(super) fn new(factory: InstanceFactory<W>, instance: Option<Instance<W>>) -> InstanceTask<W> {
        InstanceTask {
            factory,
            shared: Arc::default(),
            instance,
            draining: None,
            created: 0,
        }
    }

    pub(super) async fn run(mut self, mut calls: mpsc::Receiver<QueuedCall<W>>, token: CancellationToken) {
        // At shutdown queued calls are dropped, which their callers see as `Stopped`.
        let work = async {
            while let Some(queued_call) = self.next(&mut calls).await {
                if Instant::now() > queued_call.deadline {
                    W::reject(queued_call.call, busy(&self.factory.context));
                } else {
                    queued_call.wait.record_wait();
                    self.serve(queued_call.call, &queued_call.trace).await;
                }
            }
            // The version has been replaced. Its instances are dropped at low priority: unmapping
            // their memory would delay the calls of its successor.
            demote_current_task();
            yield_now().await;
        };
        token.run_until_cancelled(work).await;
    }

    /// Returns the next call. While no call is queued, drops the instance if another plugin waits for a
    /// slot in the pool.
    async fn next(&mut self, calls: &mut mpsc::Receiver<QueuedCall<W>>) -> Option<QueuedCall<W>> {
        loop {
            tokio::select! {
                biased;
                queued_call = calls.recv() => return queued_call,
                () = self.factory.engine.slot_requested(), if self.instance.is_some() => self.release_idle_instance().await,
            }
        }
    }

    /// Drops the instance unless attempts live in it.
    async fn release_idle_instance(&mut self) {
        if let Some(mut instance) = self.instance.take()
            && W::drop_orphans(&mut instance, &self.shared).await.is_ok()
            && instance.has_open_resources()
        {
            self.instance = Some(instance);
        }
    }

    async fn serve(&mut self, call: W::Call, trace: &TraceContext) {
        match self.target(&call) {
            Target::Gone => W::reject_lost(call),
            Target::Draining => self.serve_draining(call, trace).await,
            Target::Active => match self.ensure_ready().await {
                Ok(()) => self.serve_active(call, trace).await,
                Err(error) => W::reject(call, error),
            },
        }
    }

    fn target(&self, call: &W::Call) -> Target {
        let Some(serial) = W::bound_instance(call) else {
            return Target::Active;
        };
        let is = |instance: &Option<Instance<W>>| {
            instance
                .as_ref()
                .is_some_and(|instance| instance.serial() == serial)
        };
        if is(&self.instance) {
            Target::Active
        } else if is(&self.draining) {
            Target::Draining
        } else {
            Target::Gone
        }
    }

    async fn serve_active(&mut self, call: W::Call, trace: &TraceContext) {
        // The instance is moved out for the call, so that a cancelled call drops it.
        let Some(instance) = self.instance.take() else {
            return W::reject_lost(call);
        };
        let Some(mut instance) = run_call(instance, &self.shared, call, trace).await else {
            return;
        };
        if !instance.should_recycle() {
            self.instance = Some(instance);
        } else if instance.has_open_resources() {
            self.draining = Some(instance);
        }
    }

    async fn serve_draining(&mut self, call: W::Call, trace: &TraceContext) {
        let Some(instance) = self.draining.take() else {
            return W::reject_lost(call);
        };
        if let Some(mut instance) = run_call(instance, &self.shared, call, trace).await
            && W::drop_orphans(&mut instance, &self.shared).await.is_ok()
            && instance.has_open_resources()
        {
            self.draining = Some(instance);
        }
    }

    /// Ensures that there is an active, configured instance without orphaned resources.
    async fn ensure_ready(&mut self) -> Result<(), CallError> {
        if let Some(mut instance) = self.instance.take()
            && W::drop_orphans(&mut instance, &self.shared).await.is_ok()
        {
            self.instance = Some(instance);
            return Ok(());
        }
        self.created += 1;
        self.instance = Some(self.factory.create(self.created).await?);
        Ok(())
    }
}
