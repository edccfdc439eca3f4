//! Compiles components in the background, within bounds.
//!
//! A component is compiled on its own threads, so that a slow compilation delays neither calls nor
//! other compilations. It has a time limit. The engine cannot interrupt its compiler, but the
//! compiler calls each thread's profiler before each pass over a function, and ours cancels the
//! compilation there (by unwinding) when the caller is gone. The current pass is not interrupted
//! and may take long for a very large function; until it ends, the compilation keeps its slot, so
//! that at most [`MAX_CONCURRENT`] run at a time.
//!
//! Short compilations run at normal priority. A thread that has used more than
//! [`CPU_BUDGET_BEFORE_DEMOTION`] continues at low priority, unless an operator waits for the
//! result.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, available_parallelism},
    time::Duration,
};

use cranelift_codegen::timing::{Pass, Profiler, set_thread_profiler};
use nix::time::{ClockId, clock_gettime};
use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};
use transom_common::text::one_line;
use wasmtime::{Config as EngineConfig, Engine as Wasmtime};

use super::{CompileError, CompiledArtifact, common_config};
use crate::runtime::executor::lower_thread_priority;

/// Processor time after which a thread gets a low priority; wall-clock time would depend on the
/// load.
const CPU_BUDGET_BEFORE_DEMOTION: Duration = Duration::from_secs(5);
/// Maximum threads for one component.
const THREADS: usize = 4;
/// Maximum number of concurrent compilations, cancelled ones that still run included.
const MAX_CONCURRENT: usize = 4;

/// Compiles components. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Compilers {
    limit: Duration,
    places: Arc<Semaphore>,
    priority: CompilePriority,
}

/// Whether compiling takes precedence over other work of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompilePriority {
    /// For the directory: at low priority if it takes long.
    Background,
    /// For an operator who waits.
    Interactive,
}

impl Compilers {
    pub(crate) fn new(limit: Duration, priority: CompilePriority) -> Compilers {
        Compilers {
            limit,
            places: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            priority,
        }
    }

    /// Compiles within the limit. Dropping the future cancels the compilation.
    pub(crate) async fn compile(&self, component: Arc<Vec<u8>>) -> Result<CompiledArtifact, CompileError> {
        let priority = self.priority;
        self.run(move |wanted| precompile(&component, &wanted, priority))
            .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(CancelFlag) -> Result<T, CompileError> + Send + 'static,
    ) -> Result<T, CompileError> {
        let limit = self.limit;
        let place = timeout(limit, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(CompileError::NoPlace(MAX_CONCURRENT, limit));
        };
        let wanted = CancelFlag::default();
        let _waiting = CancelOnDrop(wanted.clone());
        let (answer, done) = oneshot::channel();
        let work = move || {
            let found = catch_unwind(AssertUnwindSafe(|| work(wanted)));
            drop(place);
            // The receiver of a cancelled compilation is gone.
            drop(answer.send(found.unwrap_or(Err(CompileError::Broke))));
        };
        // Not a thread of the runtime: the daemon would wait for it at shutdown.
        let started = thread::Builder::new().name("plugin-compile".into()).spawn(work);
        started.map_err(|error| CompileError::Thread(error.to_string()))?;
        match timeout(limit, done).await {
            Ok(Ok(found)) => found,
            Ok(Err(_dropped)) => Err(CompileError::Broke),
            Err(_elapsed) => Err(CompileError::TooLong(limit)),
        }
    }
}

/// Whether the caller of a compilation still waits.
#[derive(Clone, Debug)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl Default for CancelFlag {
    fn default() -> Self {
        CancelFlag(Arc::new(AtomicBool::new(true)))
    }
}

/// Cancels a compilation when its caller drops it.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(false, Relaxed);
    }
}

/// The payload with which a cancelled compilation unwinds.
struct Cancelled;

/// Called by the compiler before each pass.
struct PassObserver {
    wanted: CancelFlag,
    /// Whether this thread still has normal priority.
    may_yield: Cell<bool>,
}

impl Profiler for PassObserver {
    fn start_pass(&self, _pass: Pass) -> Box<dyn Any> {
        if !self.wanted.0.load(Relaxed) {
            // Not a panic: nothing is logged.
            resume_unwind(Box::new(Cancelled));
        }
        if self.may_yield.get() && used_by_this_thread() > CPU_BUDGET_BEFORE_DEMOTION {
            self.may_yield.set(false);
            lower_thread_priority();
        }
        Box::new(())
    }
}

fn used_by_this_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Compiles in a separate engine, whose memory is freed afterwards. Blocks for milliseconds to
/// minutes.
pub(crate) fn precompile(
    component: &[u8],
    wanted: &CancelFlag,
    priority: CompilePriority,
) -> Result<CompiledArtifact, CompileError> {
    let mut config = EngineConfig::new();
    common_config(&mut config);
    let wanted = wanted.clone();
    // Separate threads: shared ones would continue cancelled work before new work.
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(available_parallelism().map_or(1, |it| it.get().min(THREADS)))
        .thread_name(|number| format!("plugin-compile-{number}"))
        .start_handler(move |_| {
            let ask = PassObserver {
                wanted: wanted.clone(),
                may_yield: Cell::new(priority == CompilePriority::Background),
            };
            drop(set_thread_profiler(Box::new(ask)));
        })
        .build()
        .map_err(|error| CompileError::Thread(error.to_string()))?;
    threads
        .install(|| Wasmtime::new(&config).and_then(|engine| engine.precompile_component(component)))
        .map(CompiledArtifact)
        .map_err(|error| CompileError::Invalid(one_line(&format!("{error:#}"))))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_mins(1);

    fn compilers(limit: Duration) -> Compilers {
        Compilers::new(limit, CompilePriority::Background)
    }

    /// Work that nothing interrupts; it ends when the sender is dropped.
    fn stuck() -> (
        mpsc::Sender<()>,
        impl FnOnce(CancelFlag) -> Result<(), CompileError> + Send + 'static,
    ) {
        let (release, released) = mpsc::channel::<()>();
        let work = move |_| {
            let _ = released.recv();
            Ok(())
        };
        (release, work)
    }

    #[tokio::test]
    async fn compilation_fails_when_its_time_limit_is_reached() {
        let (_release, work) = stuck();
        let error = compilers(SHORT).run(work).await.unwrap_err();
        assert!(matches!(error, CompileError::TooLong(SHORT)), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("20ms") && text.contains("plugins.compile_timeout_seconds"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn cancelled_compilation_keeps_its_slot_until_it_ends() {
        let compilers = compilers(SHORT);
        let mut releases = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            let (release, work) = stuck();
            releases.push(release);
            assert!(matches!(compilers.run(work).await, Err(CompileError::TooLong(_))));
        }
        let refused = compilers.run(|_| Ok(())).await.unwrap_err();
        assert!(
            matches!(refused, CompileError::NoPlace(MAX_CONCURRENT, _)),
            "{refused}"
        );
        drop(releases);
        let patient = Compilers {
            limit: LONG,
            ..compilers
        };
        patient.run(|_| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn compiler_panic_is_reported() {
        let compilers = compilers(LONG);
        let broken = compilers
            .run(|_| -> Result<(), _> { resume_unwind(Box::new("broken")) })
            .await;
        assert!(matches!(broken, Err(CompileError::Broke)));
        assert!(compilers.run(|_| Ok(())).await.is_ok());
    }

    /// A component with one core module of so many functions, each with so many additions.
    fn large(functions: usize, additions: usize) -> Vec<u8> {
        fn number(mut value: usize) -> Vec<u8> {
            let mut bytes = Vec::new();
            while value >= 0x80 {
                bytes.push((value & 0x7f) as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
            bytes
        }
        let section = |id: u8, content: &[u8]| [&[id][..], &number(content.len()), content].concat();
        // local.get 0, local.get 0, i32.mul, local.get 0, i32.add, local.set 0
        let body = [
            &[0][..],
            &[0x20, 0, 0x20, 0, 0x6c, 0x20, 0, 0x6a, 0x21, 0].repeat(additions),
            &[0x20, 0, 0x0b],
        ]
        .concat();
        let code = [number(body.len()), body].concat();
        let module = [
            b"\0asm\x01\0\0\0".to_vec(),
            // (func (param i32) (result i32))
            section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]),
            section(3, &[number(functions), vec![0; functions]].concat()),
            section(10, &[number(functions), code.repeat(functions)].concat()),
        ]
        .concat();
        [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module)].concat()
    }

    /// Compiling to the end would take minutes; the place is free again long before.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn compiler_stops_when_its_caller_is_gone() {
        let component = Arc::new(large(40_000, 50));
        let compilers = compilers(Duration::from_secs(1));
        let error = compilers.compile(component).await.map(drop).unwrap_err();
        assert!(matches!(error, CompileError::TooLong(_)), "{error}");
        let all = u32::try_from(MAX_CONCURRENT).unwrap();
        let places = timeout(LONG, compilers.places.acquire_many(all)).await;
        assert!(places.is_ok(), "it goes on");
    }

    #[tokio::test]
    async fn compiled_component_loads() {
        let component = Arc::new(large(3, 3));
        let artifact = compilers(LONG).compile(component).await.unwrap();
        assert!(super::super::Engine::new(1).unwrap().load(&artifact).is_ok());
    }
}
