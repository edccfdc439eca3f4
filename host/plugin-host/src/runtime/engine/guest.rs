//! The state of a store: the plugin's log, a WASI without files and sockets, and the limits on
//! memory and tables.
//!
//! Every call of a guest into the host, whether an import, a method of a resource, a destructor or
//! a part of the engine, passes [`HostCalls`], which charges it to the caller's budget.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::yield_now;
use transom_common::text::one_line;
use wasmtime::{
    CallHook, CallHookHandler, ResourceLimiter, Store, StoreContextMut, Trap, UpdateDeadline,
    component::{HasSelf, Linker, Resource, ResourceTable},
};
use wasmtime_wasi::{
    WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView,
    p2::{
        DynPollable, SocketError,
        bindings::sockets::{
            ip_name_lookup,
            network::{self, ErrorCode, IpAddress, IpAddressFamily, Network},
            tcp_create_socket, udp_create_socket,
        },
    },
    sockets::WasiSocketsView,
};

use super::{
    Engine, bindings,
    call_meter::{CallMeter, HostCallCheck},
    guest_text::GuestText,
    stdio::LogStream,
};
use crate::{observe::guest_log::Level, runtime::version_context::VersionContext};

/// Maximum number of handles of WASI resources (streams, pollables) in one guest.
const MAX_WASI_HANDLES: usize = 1024;
/// Maximum random bytes of one call. Generating the default of 64 MiB takes longer than a guest may
/// occupy a thread.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// The interface of the plugin's log.
pub(super) const LOG: &str = "transom:plugin/log@0.1.0";

pub(crate) struct Guest {
    /// Created at the first use, because most components do not use WASI.
    wasi: Option<WasiCtx>,
    handles: ResourceTable,
    limiter: Limiter,
    context: Arc<VersionContext>,
}

struct Limiter {
    memory: u64,
    table: u64,
    meter: Arc<CallMeter>,
    context: Arc<VersionContext>,
}

/// Creates the store of an instance, with the limits and grants of the plugin's manifest.
pub(super) fn store(engine: &Engine, context: &Arc<VersionContext>, meter: &Arc<CallMeter>) -> Store<Guest> {
    let limits = &context.limits;
    let mut handles = ResourceTable::new();
    handles.set_max_capacity(MAX_WASI_HANDLES);
    let limiter = Limiter {
        memory: limits.memory,
        table: limits.table,
        meter: Arc::clone(meter),
        context: Arc::clone(context),
    };
    let guest = Guest {
        wasi: None,
        handles,
        limiter,
        context: Arc::clone(context),
    };
    let mut store = Store::new(&engine.wasmtime, guest);
    store.limiter(|guest| &mut guest.limiter);
    store.set_hostcall_fuel(usize::try_from(limits.output).unwrap_or(usize::MAX));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        Ok(if store.data().limiter.meter.within_budget() {
            // `yield_now` puts the task at the back of the runtime's queue, so that timers and other
            // guests run first.
            UpdateDeadline::YieldCustom(1, Box::pin(yield_now()))
        } else {
            UpdateDeadline::Interrupt
        })
    });
    store.call_hook_async(HostCalls);
    store
}

/// Checks the budget at each call into the host. The engine's own checks are at the start of
/// functions and loops; a sequence of host calls contains neither.
struct HostCalls;

#[async_trait]
impl CallHookHandler<Guest> for HostCalls {
    async fn handle_call_event(
        &self,
        store: StoreContextMut<'_, Guest>,
        event: CallHook,
    ) -> wasmtime::Result<()> {
        if !matches!(event, CallHook::CallingHost) {
            return Ok(());
        }
        match store.data().limiter.meter.check_host_call() {
            HostCallCheck::Continue => Ok(()),
            HostCallCheck::Yield => {
                yield_now().await;
                Ok(())
            }
            HostCallCheck::Exhausted => Err(Trap::Interrupt.into()),
        }
    }
}

/// Creates a WASI context without files, sockets and standard input. It contains the granted
/// environment variables, and writes standard output and error to the plugin's log.
fn wasi(context: &Arc<VersionContext>) -> WasiCtx {
    WasiCtxBuilder::new()
        .stdout(LogStream::new(Arc::clone(&context.log), Level::Info))
        .stderr(LogStream::new(Arc::clone(&context.log), Level::Warn))
        .envs(&context.environment)
        .max_random_size(MAX_RANDOM_BYTES)
        .build()
}

/// Links what components may import: `log`, and WASI p2.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    // Not the generated function, which copies the whole message.
    linker.instance(LOG)?.func_wrap(
        "write",
        |store: StoreContextMut<'_, Guest>, (level, message): (bindings::log::Level, GuestText)| {
            store.data().write_log(level, &message.0);
            Ok(())
        },
    )?;
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    // These replace the implementations of `wasmtime_wasi`, which deny access without recording the
    // denial. Every network access starts with one of these three interfaces, so that no other one has
    // to be replaced.
    linker.allow_shadowing(true);
    ip_name_lookup::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    tcp_create_socket::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    udp_create_socket::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Delegates to `wasmtime_wasi`. The errors of a name lookup are converted by this trait.
impl network::Host for Guest {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        network::Host::convert_error_code(&mut self.sockets(), error)
    }

    fn network_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        network::Host::network_error_code(&mut self.sockets(), error)
    }
}

impl network::HostNetwork for Guest {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        network::HostNetwork::drop(&mut self.sockets(), network)
    }
}

impl ip_name_lookup::Host for Guest {
    fn resolve_addresses(
        &mut self,
        _network: Resource<Network>,
        name: String,
    ) -> Result<Resource<ip_name_lookup::ResolveAddressStream>, SocketError> {
        self.context
            .record_denial(&format!("the addresses of {}", one_line(&name)), None, None);
        Err(ErrorCode::AccessDenied.into())
    }
}

impl tcp_create_socket::Host for Guest {
    fn create_tcp_socket(
        &mut self,
        _family: IpAddressFamily,
    ) -> Result<Resource<tcp_create_socket::TcpSocket>, SocketError> {
        self.context.record_denial("a TCP socket", None, None);
        Err(ErrorCode::AccessDenied.into())
    }
}

impl udp_create_socket::Host for Guest {
    async fn create_udp_socket(
        &mut self,
        _family: IpAddressFamily,
    ) -> Result<Resource<udp_create_socket::UdpSocket>, SocketError> {
        self.context.record_denial("a UDP socket", None, None);
        Err(ErrorCode::AccessDenied.into())
    }
}

/// Never called: `resolve_addresses` always fails, so that no guest obtains such a stream.
impl ip_name_lookup::HostResolveAddressStream for Guest {
    fn resolve_next_address(
        &mut self,
        _stream: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> Result<Option<IpAddress>, SocketError> {
        Err(ErrorCode::AccessDenied.into())
    }

    fn subscribe(
        &mut self,
        _stream: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        Err(wasmtime::Error::msg("plugins cannot resolve names"))
    }

    fn drop(&mut self, _stream: Resource<ip_name_lookup::ResolveAddressStream>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| wasi(&self.context)),
            table: &mut self.handles,
        }
    }
}

impl Guest {
    fn write_log(&self, level: bindings::log::Level, message: &str) {
        use bindings::log::Level as L;
        let level = match level {
            L::Trace => Level::Trace,
            L::Debug => Level::Debug,
            L::Info => Level::Info,
            L::Warn => Level::Warn,
            L::Error => Level::Error,
        };
        self.context.log.write(level, message);
    }
}

/// Exceeding a limit returns an error and not `false`. With `false` only the instruction that grows the
/// memory or table fails, and the guest continues; an error stops the guest.
impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired as u64 > self.memory {
            self.meter.reject_memory(self.memory);
            return Err(wasmtime::Error::msg("memory limit exceeded"));
        }
        self.context.metrics.raise_memory_peak(desired as u64);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired as u64 > self.table {
            self.meter.reject_table(self.table);
            return Err(wasmtime::Error::msg("table limit exceeded"));
        }
        Ok(true)
    }
}
