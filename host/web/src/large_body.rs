//! Work on large bodies, away from the threads that serve.
//!
//! Parsing and checking a body of megabytes takes a processor for a noticeable time, and the few
//! threads of the runtime serve every port, DNS included. Work on a body above [`MAX_INLINE_BYTES`]
//! therefore runs on a thread of its own, for [`MAX_RUNNING`] bodies at a time. Further ones wait,
//! up to [`MAX_WAITING_KIB`] of bodies and [`MAX_WAIT`] each; then the answer is 503.
//!
//! Work that has begun is completed, and counts until then, even if its client has disconnected.

use std::time::Duration;

use tokio::sync::{AcquireError, Semaphore};
use tokio::time::timeout;

use crate::ApiError;

/// Work on a body of this size is too short to delay others.
const MAX_INLINE_BYTES: usize = 64 << 10;
/// The maximum number of large bodies that are worked on at the same time.
const MAX_RUNNING: usize = 2;
/// The maximum size of all large bodies that wait or are worked on, except that one body may always
/// be larger.
const MAX_WAITING_KIB: u32 = 64 << 10;
/// The timeout for the work to begin.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Shared by all ports, because they share the processors.
static SLOTS: Slots = Slots {
    running: Semaphore::const_new(MAX_RUNNING),
    waiting_kib: Semaphore::const_new(MAX_WAITING_KIB as usize),
};

struct Slots {
    running: Semaphore,
    waiting_kib: Semaphore,
}

/// Runs `work` on a body of that many bytes.
pub(crate) async fn work_on<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= MAX_INLINE_BYTES {
        return work();
    }
    SLOTS.run(bytes, work).await
}

impl Slots {
    async fn run<T: Send + 'static>(
        &'static self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let waiting = self.waiting_kib.try_acquire_many(kib.min(MAX_WAITING_KIB));
        let waiting = waiting.map_err(|_| busy())?;
        let begun = timeout(MAX_WAIT, self.running.acquire()).await;
        let running = begun.map_err(|_| busy())?.map_err(|_: AcquireError| busy())?;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop((waiting, running));
            result
        });
        // A panic ends only this request, as it would on a thread that serves.
        done.await
            .unwrap_or_else(|failed| Err(ApiError::internal(&failed)))
    }
}

fn busy() -> ApiError {
    ApiError::unavailable(
        "Too many large bodies are being read; send this one again in some seconds, or send smaller ones",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

    use std::sync::mpsc;
    use std::thread;

    use http::StatusCode;

    use super::*;

    async fn until(what: &str, condition: impl Fn() -> bool) {
        let waiting = async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_mins(1), waiting).await.is_ok(), "{what}");
    }

    fn slots() -> &'static Slots {
        Box::leak(Box::new(Slots {
            running: Semaphore::new(MAX_RUNNING),
            waiting_kib: Semaphore::new(MAX_WAITING_KIB as usize),
        }))
    }

    #[tokio::test]
    async fn only_work_on_large_bodies_leaves_the_thread() {
        let here = thread::current().id();
        let thread_of = async |bytes| work_on(bytes, || Ok(thread::current().id())).await.unwrap();
        assert_eq!(thread_of(MAX_INLINE_BYTES).await, here);
        assert_ne!(thread_of(MAX_INLINE_BYTES + 1).await, here);
        assert_ne!(thread_of(usize::MAX).await, here);
    }

    #[tokio::test]
    async fn further_large_bodies_wait_and_are_rejected_beyond_the_limit() {
        let slots = slots();
        let half = (MAX_WAITING_KIB as usize / 4) << 10;
        let mut ends = Vec::new();
        let mut all = Vec::new();
        for _ in 0..4 {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            all.push(tokio::spawn(slots.run(half, move || Ok(ended.recv().is_err()))));
        }
        let taken = || slots.waiting_kib.available_permits() == 0 && slots.running.available_permits() == 0;
        until("two bodies are worked on and two wait", taken).await;
        let rejected = slots.run(1, || Ok(())).await.unwrap_err();
        assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
        // A client that disconnects while it waits makes room; one whose work has begun does not.
        all.remove(3).abort();
        let free_share = || slots.waiting_kib.available_permits() == MAX_WAITING_KIB as usize / 4;
        until("its share is free", free_share).await;
        all.remove(0).abort();
        tokio::task::yield_now().await;
        assert_eq!(slots.running.available_permits(), 0);
        drop(ends);
        // Those that were not aborted end with their results.
        for one in all {
            assert!(one.await.unwrap().unwrap());
        }
        let all_free = || slots.running.available_permits() == MAX_RUNNING;
        until("everything is free", all_free).await;
    }

    #[tokio::test]
    async fn panic_is_an_internal_error_and_frees_its_place() {
        let slots = slots();
        for _ in 0..=MAX_RUNNING {
            let failed = slots.run::<()>(1, || panic!("bad luck")).await.unwrap_err();
            assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
