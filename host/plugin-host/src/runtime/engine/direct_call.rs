//! Exported functions that are called with the crate's own types instead of the generated ones, so
//! that long lists are written into a component's memory without an intermediate conversion.

use wasmtime::{
    Store,
    component::{ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc},
};

use super::guest::Guest;

/// An exported function of an instance. Its types are checked against the component's at the first
/// call.
pub(super) struct DirectCall<Parameters, Results> {
    instance: Instance,
    index: ComponentExportIndex,
    typed: Option<TypedFunc<Parameters, Results>>,
}

/// Finds a function of an exported interface.
pub(super) fn find_export(
    linked: &InstancePre<Guest>,
    interface: &str,
    function: &str,
) -> wasmtime::Result<ComponentExportIndex> {
    let component = linked.component();
    component
        .get_export_index(None, interface)
        .and_then(|found| component.get_export_index(Some(&found), function))
        .ok_or_else(|| wasmtime::format_err!("it does not export `{function}` of `{interface}`"))
}

impl<Parameters, Results> DirectCall<Parameters, Results>
where
    Parameters: ComponentNamedList + Lower + Send + Sync,
    Results: ComponentNamedList + Lift + Send + Sync + 'static,
{
    pub(super) fn new(instance: Instance, index: ComponentExportIndex) -> Self {
        Self {
            instance,
            index,
            typed: None,
        }
    }

    pub(super) async fn call(
        &mut self,
        store: &mut Store<Guest>,
        parameters: Parameters,
    ) -> wasmtime::Result<Results> {
        let function = if let Some(typed) = self.typed {
            typed
        } else {
            let found = self.instance.get_typed_func(&mut *store, self.index)?;
            *self.typed.insert(found)
        };
        function.call_async(store, parameters).await
    }
}
