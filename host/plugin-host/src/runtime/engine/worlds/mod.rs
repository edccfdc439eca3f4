//! The four worlds, one module each: their calls and how an instance executes them.

pub(crate) mod bootstrap;
pub(crate) mod events;
mod guest_resources;
pub(crate) mod matcher;
pub(crate) mod probe;

/// Implements `prepare`, `instantiate`, `describe` and `configure`, whose code is the same for each
/// world, with different generated types.
macro_rules! common {
    ($pre:ident, $about:ident) => {
        fn prepare(linked: wasmtime::component::InstancePre<Guest>) -> wasmtime::Result<Self::Pre> {
            $pre::new(linked)
        }

        async fn instantiate(
            pre: &Self::Pre,
            store: &mut wasmtime::Store<Guest>,
        ) -> wasmtime::Result<Self::Bindings> {
            pre.instantiate_async(store).await
        }

        async fn describe(
            bindings: &Self::Bindings,
            store: &mut wasmtime::Store<Guest>,
        ) -> wasmtime::Result<$crate::worlds::about::Description> {
            let description = bindings.$about().call_describe(store).await?;
            Ok($crate::worlds::about::Description {
                name: description.name,
                version: description.version,
                summary: description.summary,
                config_schema: description.config_schema,
            })
        }

        async fn configure(
            bindings: &Self::Bindings,
            store: &mut wasmtime::Store<Guest>,
            config: &str,
        ) -> wasmtime::Result<Result<(), Vec<$crate::worlds::about::ConfigError>>> {
            let result = bindings.$about().call_configure(store, config).await?;
            Ok(result.map_err(|errors| {
                errors
                    .into_iter()
                    .map(|e| $crate::worlds::about::ConfigError {
                        pointer: e.pointer,
                        message: e.message,
                    })
                    .collect()
            }))
        }
    };
}
pub(crate) use common;
