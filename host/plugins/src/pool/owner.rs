//! The owner of one instance that is kept.
//!
//! It makes the instance when first asked, enters it one call at a time, and replaces it after a fault or a set number of calls. An instance
//! that is idle is given up when the pool is full and another plugin needs one: what was held in it is handed over again to the next.
//! An instance that is due for replacement while attempts live in it goes on answering for those alone, beside its successor, until
//! the last has ended or the next replacement is due. The task ends when the version is dropped: after a swap, when the last
//! call that began on it is over.

use std::sync::Arc;

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Envelope, Maker, busy, enter};
use crate::{
    engine::{Live, World},
    error::CallError,
};

/// Owns one instance at a time, and perhaps one that is leaving.
pub(super) struct Owner<W: World> {
    maker: Maker<W>,
    shared: Arc<W::Shared>,
    live: Option<Live<W>>,
    leaving: Option<Live<W>>,
    made: u64,
}

/// Which instance a job goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Present,
    Leaving,
    Gone,
}

impl<W: World> Owner<W> {
    pub(super) fn new(maker: Maker<W>) -> Owner<W> {
        Owner {
            maker,
            shared: Arc::default(),
            live: None,
            leaving: None,
            made: 0,
        }
    }

    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Envelope<W>>, token: CancellationToken) {
        // At shutdown waiting jobs are dropped unanswered, which their callers read as `Stopped`.
        let work = async {
            while let Some(envelope) = self.next(&mut jobs).await {
                if Instant::now() > envelope.deadline {
                    W::refuse(envelope.job, busy(&self.maker.meta));
                } else {
                    envelope.queued.served();
                    self.serve(envelope.job).await;
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// The next job. Meanwhile it gives up an instance that nobody needs if another waits for a place in the pool.
    async fn next(&mut self, jobs: &mut mpsc::Receiver<Envelope<W>>) -> Option<Envelope<W>> {
        loop {
            tokio::select! {
                biased;
                envelope = jobs.recv() => return envelope,
                () = self.maker.engine.place_wanted(), if self.live.is_some() => self.make_room().await,
            }
        }
    }

    /// Gives up the instance unless work in progress would be lost with it.
    async fn make_room(&mut self) {
        if let Some(mut live) = self.live.take()
            && W::tidy(&mut live, &self.shared).await.is_ok()
            && live.occupied()
        {
            self.live = Some(live);
        }
    }

    async fn serve(&mut self, job: W::Job) {
        match self.place(&job) {
            Place::Gone => W::lost(job),
            Place::Leaving => self.serve_leaving(job).await,
            Place::Present => match self.ready().await {
                Ok(()) => self.serve_present(job).await,
                Err(error) => W::refuse(job, error),
            },
        }
    }

    fn place(&self, job: &W::Job) -> Place {
        let Some(serial) = W::bound_to(job) else {
            return Place::Present;
        };
        let is = |live: &Option<Live<W>>| live.as_ref().is_some_and(|live| live.serial() == serial);
        if is(&self.live) {
            Place::Present
        } else if is(&self.leaving) {
            Place::Leaving
        } else {
            Place::Gone
        }
    }

    async fn serve_present(&mut self, job: W::Job) {
        // Taken out while it is entered: a call that is dropped half-way takes its instance with it.
        let Some(live) = self.live.take() else {
            return W::lost(job);
        };
        let Some(mut live) = enter(live, &self.shared, job).await else {
            return;
        };
        if !live.worn() {
            self.live = Some(live);
        } else if live.occupied() {
            self.leaving = Some(live);
        }
    }

    async fn serve_leaving(&mut self, job: W::Job) {
        let Some(live) = self.leaving.take() else {
            return W::lost(job);
        };
        if let Some(mut live) = enter(live, &self.shared, job).await
            && W::tidy(&mut live, &self.shared).await.is_ok()
            && live.occupied()
        {
            self.leaving = Some(live);
        }
    }

    /// Makes sure that there is a present instance, configured and tidy.
    async fn ready(&mut self) -> Result<(), CallError> {
        if let Some(mut live) = self.live.take()
            && W::tidy(&mut live, &self.shared).await.is_ok()
        {
            self.live = Some(live);
            return Ok(());
        }
        self.made += 1;
        self.live = Some(self.maker.make(self.made).await?);
        Ok(())
    }
}
