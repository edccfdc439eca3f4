//! Compiles components in the background, within bounds.
//!
//! The daemon compiles each component in a process of its own ([`Compiler::Process`]), which has
//! limits of wall-clock time, processor time and memory, and is killed when its caller is cancelled.
//! At most [`MAX_CONCURRENT`] components are compiled at a time. Components of a directory that already
//! serves calls are compiled at low priority.
//!
//! Tools and tests compile in their own process ([`Compiler::InProcess`]). The engine cannot
//! interrupt its compiler, so that a compilation whose caller was cancelled runs to its end and keeps
//! its slot until then.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use super::{ArtifactKey, CompileError, CompiledArtifact, compile_process, precompile::precompile};
use crate::{config::Compiler, runtime::executor::Priority};

/// Maximum number of concurrent compilations.
const MAX_CONCURRENT: usize = 4;

/// Compiles components. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Compilers {
    compiler: Arc<Compiler>,
    limit: Duration,
    permits: Arc<Semaphore>,
    priority: Priority,
}

impl Compilers {
    pub(crate) fn new(compiler: Compiler, limit: Duration, priority: Priority) -> Compilers {
        Compilers {
            compiler: Arc::new(compiler),
            limit,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            priority,
        }
    }

    /// Compiles the component of this key within the limit. Dropping the future cancels the
    /// compilation.
    pub(crate) async fn compile(
        &self,
        component: Arc<Vec<u8>>,
        key: &ArtifactKey,
    ) -> Result<CompiledArtifact, CompileError> {
        match &*self.compiler {
            Compiler::InProcess => self.run(move || precompile(&component)).await,
            Compiler::Process(process) => {
                let _permit = self.acquire_permit().await?;
                let compiling = compile_process::compile(process, &component, key, self.limit, self.priority);
                timeout(self.limit, compiling)
                    .await
                    .unwrap_or(Err(CompileError::TimedOut(self.limit)))
            }
        }
    }

    async fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, CompileError> {
        match timeout(self.limit, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(CompileError::NoFreeSlot(MAX_CONCURRENT, self.limit)),
        }
    }

    /// Runs `work` on a new thread of this process.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
    ) -> Result<T, CompileError> {
        let permit = self.acquire_permit().await?;
        let (answer, done) = oneshot::channel();
        let work = move || {
            let found = catch_unwind(AssertUnwindSafe(work));
            drop(permit);
            // The receiver of a cancelled compilation has been dropped.
            drop(answer.send(found.unwrap_or(Err(CompileError::Panicked))));
        };
        // This is not a blocking thread of the runtime, which would wait for the thread at shutdown.
        let started = thread::Builder::new().name("plugin-compile".into()).spawn(work);
        started.map_err(|error| CompileError::NotStarted(error.to_string()))?;
        match timeout(self.limit, done).await {
            Ok(Ok(found)) => found,
            Ok(Err(_dropped)) => Err(CompileError::Panicked),
            Err(_elapsed) => Err(CompileError::TimedOut(self.limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::resume_unwind, sync::mpsc};

    use super::*;

    const SHORT_LIMIT: Duration = Duration::from_millis(20);
    const LONG_LIMIT: Duration = Duration::from_mins(1);

    fn compilers(limit: Duration) -> Compilers {
        Compilers::new(Compiler::InProcess, limit, Priority::Background)
    }

    /// Work that cannot be interrupted. It ends when the sender is dropped.
    fn stuck() -> (
        mpsc::Sender<()>,
        impl FnOnce() -> Result<(), CompileError> + Send + 'static,
    ) {
        let (release, released) = mpsc::channel::<()>();
        let work = move || {
            let _ = released.recv();
            Ok(())
        };
        (release, work)
    }

    #[tokio::test]
    async fn compilation_fails_when_its_time_limit_is_reached() {
        let (_release, work) = stuck();
        let error = compilers(SHORT_LIMIT).run(work).await.unwrap_err();
        assert!(matches!(error, CompileError::TimedOut(SHORT_LIMIT)), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("20ms") && text.contains("plugins.compile_timeout_seconds"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn cancelled_compilation_keeps_its_slot_until_it_ends() {
        let compilers = compilers(SHORT_LIMIT);
        let mut releases = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            let (release, work) = stuck();
            releases.push(release);
            assert!(matches!(
                compilers.run(work).await,
                Err(CompileError::TimedOut(_))
            ));
        }
        let refused = compilers.run(|| Ok(())).await.unwrap_err();
        assert!(
            matches!(refused, CompileError::NoFreeSlot(MAX_CONCURRENT, _)),
            "{refused}"
        );
        drop(releases);
        let patient = Compilers {
            limit: LONG_LIMIT,
            ..compilers
        };
        patient.run(|| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn compiler_panic_is_reported() {
        let compilers = compilers(LONG_LIMIT);
        let broken = compilers
            .run(|| -> Result<(), _> { resume_unwind(Box::new("broken")) })
            .await;
        assert!(matches!(broken, Err(CompileError::Panicked)));
        assert!(compilers.run(|| Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn compiled_component_loads() {
        let component = Arc::new(b"\0asm\x0d\0\x01\0".to_vec());
        let engine = super::super::Engine::new(1).unwrap();
        let key = ArtifactKey::new(&component, engine.compatibility());
        let artifact = compilers(LONG_LIMIT).compile(component, &key).await.unwrap();
        assert!(engine.load(&artifact).is_ok());
    }
}
