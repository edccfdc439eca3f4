//! Guest resources that mirror an object of the host (an agent set, a view) and are dropped with
//! it.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use wasmtime::component::ResourceAny;

use crate::{
    fault::Fault,
    runtime::engine::{Instance, World},
};

/// The resources of one instance, by the ID of their owner. `N` is additional data of each.
pub(crate) struct GuestResources<O, N = ()>(HashMap<u64, Entry<O, N>>);

struct Entry<O, N> {
    resource: ResourceAny,
    note: N,
    owner: Weak<O>,
}

impl<O, N> Default for GuestResources<O, N> {
    fn default() -> Self {
        GuestResources(HashMap::new())
    }
}

impl<O, N: Copy> GuestResources<O, N> {
    pub(super) fn get(&self, id: u64) -> Option<(ResourceAny, N)> {
        self.0.get(&id).map(|entry| (entry.resource, entry.note))
    }

    pub(super) fn put(&mut self, id: u64, owner: &Arc<O>, resource: ResourceAny, note: N) {
        let owner = Arc::downgrade(owner);
        self.0.insert(
            id,
            Entry {
                resource,
                note,
                owner,
            },
        );
    }

    pub(super) fn take(&mut self, id: u64) -> Option<ResourceAny> {
        self.0.remove(&id).map(|entry| entry.resource)
    }

    /// Removes and returns a resource whose owner has been dropped.
    fn take_orphan(&mut self) -> Option<ResourceAny> {
        let id = self
            .0
            .iter()
            .find(|(_, entry)| entry.owner.strong_count() == 0)
            .map(|(id, _)| *id)?;
        self.take(id)
    }
}

/// Drops the resources whose owners have been dropped.
pub(super) async fn drop_orphans<W, O, N>(instance: &mut Instance<W>) -> Result<(), Fault>
where
    W: World<Resources = GuestResources<O, N>>,
    O: Send + Sync,
    N: Copy + Send,
{
    while let Some(resource) = instance.resources.take_orphan() {
        instance
            .free(resource)
            .await
            .inspect_err(|fault| instance.context.count_fault(fault))?;
    }
    Ok(())
}
