//! Compiles components in the background, within bounds.
//!
//! The daemon compiles each component in a process of its own ([`Compiler::Process`]), which has
//! limits of processor time and memory, and is killed when its caller is cancelled. Wall-clock time has
//! a wide bound only, for a machine that is too busy: then the compilation is retried.
//! At most [`MAX_CONCURRENT`] components are compiled at a time. Components of a directory that already
//! serves calls are compiled at low priority.
//!
//! Tools and tests compile in their own process ([`Compiler::InProcess`]), whose processor time counts.
//! The engine cannot interrupt its compiler, so that a compilation whose caller was cancelled runs to its end and keeps
//! its slot until then.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout},
};

use super::{ArtifactKey, CompileError, CompiledArtifact, compile_process, precompile::precompile};
use crate::{
    config::{Compiler, Config},
    runtime::executor::Priority,
};

/// Maximum number of concurrent compilations.
const MAX_CONCURRENT: usize = 4;
/// How often the processor time of this process is read during a compilation.
const CPU_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The limits of one compilation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileLimits {
    /// Processor time.
    pub(crate) cpu: Duration,
    pub(crate) wall_clock: Duration,
}

impl From<&Config> for CompileLimits {
    fn from(config: &Config) -> CompileLimits {
        CompileLimits {
            cpu: config.compile_timeout,
            wall_clock: config.compile_wall_clock,
        }
    }
}

/// Compiles components. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Compilers {
    compiler: Arc<Compiler>,
    limits: CompileLimits,
    permits: Arc<Semaphore>,
    priority: Priority,
}

impl Compilers {
    pub(crate) fn new(compiler: Compiler, limits: CompileLimits, priority: Priority) -> Compilers {
        Compilers {
            compiler: Arc::new(compiler),
            limits,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            priority,
        }
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority
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
                let compiling =
                    compile_process::compile(process, &component, key, self.limits.cpu, self.priority);
                timeout(self.limits.wall_clock, compiling)
                    .await
                    .unwrap_or(Err(self.starved()))
            }
        }
    }

    fn starved(&self) -> CompileError {
        CompileError::Starved {
            wall_clock: self.limits.wall_clock,
            cpu: self.limits.cpu,
        }
    }

    async fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, CompileError> {
        let limit = self.limits.wall_clock;
        match timeout(limit, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(CompileError::NoFreeSlot(MAX_CONCURRENT, limit)),
        }
    }

    /// Runs `work` on a new thread of this process.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
    ) -> Result<T, CompileError> {
        let permit = self.acquire_permit().await?;
        let (answer, mut done) = oneshot::channel();
        let work = move || {
            let found = catch_unwind(AssertUnwindSafe(work));
            drop(permit);
            // The receiver of a cancelled compilation has been dropped.
            drop(answer.send(found.unwrap_or(Err(CompileError::Panicked))));
        };
        // This is not a blocking thread of the runtime, which would wait for the thread at shutdown.
        let started = thread::Builder::new().name("plugin-compile".into()).spawn(work);
        started.map_err(|error| CompileError::NotStarted(error.to_string()))?;
        let (begin, used_before) = (Instant::now(), process_cpu());
        loop {
            match timeout(CPU_CHECK_INTERVAL.min(self.limits.cpu), &mut done).await {
                Ok(Ok(found)) => return found,
                Ok(Err(_dropped)) => return Err(CompileError::Panicked),
                Err(_elapsed) => {
                    let used = process_cpu().saturating_sub(used_before);
                    if let Some(error) = self.exceeded(used, begin.elapsed()) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Which limit a compilation exceeds that has used this much time.
    fn exceeded(&self, cpu: Duration, wall_clock: Duration) -> Option<CompileError> {
        if cpu > self.limits.cpu {
            Some(CompileError::TimedOut(self.limits.cpu))
        } else if wall_clock > self.limits.wall_clock {
            Some(self.starved())
        } else {
            None
        }
    }
}

/// Processor time of this process.
fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use std::{
        panic::resume_unwind,
        sync::{
            atomic::{AtomicBool, Ordering::Relaxed},
            mpsc,
        },
    };

    use super::*;

    /// Ends the thread that uses processor time.
    static IS_SPUN: AtomicBool = AtomicBool::new(false);
    const SHORT_LIMIT: Duration = Duration::from_millis(20);
    const LONG_LIMIT: Duration = Duration::from_mins(1);

    fn compilers(limit: Duration) -> Compilers {
        let limits = CompileLimits {
            cpu: limit,
            wall_clock: limit * 10,
        };
        Compilers::new(Compiler::InProcess, limits, Priority::Background)
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
    async fn compilation_fails_when_its_limit_of_processor_time_is_reached() {
        let work = || {
            while !IS_SPUN.load(Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let error = compilers(SHORT_LIMIT).run(work).await.unwrap_err();
        IS_SPUN.store(true, Relaxed);
        assert!(matches!(error, CompileError::TimedOut(SHORT_LIMIT)), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("20ms") && text.contains("plugins.compile_timeout_seconds"),
            "{text}"
        );
    }

    /// A compilation that gets no processor time is no fault of its component.
    #[test]
    fn compilation_on_a_busy_machine_is_retried() {
        let compilers = compilers(Duration::from_secs(2));
        let exceeded =
            |cpu, wall_clock| compilers.exceeded(Duration::from_secs(cpu), Duration::from_secs(wall_clock));
        assert!(exceeded(1, 19).is_none());
        let too_large = exceeded(3, 3).unwrap();
        assert!(matches!(too_large, CompileError::TimedOut(_)) && !too_large.is_temporary());
        let starved = exceeded(1, 21).unwrap();
        assert!(matches!(starved, CompileError::Starved { .. }) && starved.is_temporary());
        let text = starved.to_string();
        assert!(
            text.contains("the machine is busy") && text.contains("20s"),
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
            let outcome = compilers.run(work).await;
            // Other tests of this process use processor time, too.
            assert!(matches!(
                outcome,
                Err(CompileError::TimedOut(_) | CompileError::Starved { .. })
            ));
        }
        let rejected = compilers.run(|| Ok(())).await.unwrap_err();
        assert!(
            matches!(rejected, CompileError::NoFreeSlot(MAX_CONCURRENT, _)),
            "{rejected}"
        );
        drop(releases);
        let patient = Compilers {
            limits: CompileLimits {
                cpu: LONG_LIMIT,
                wall_clock: LONG_LIMIT,
            },
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
