//! Guest resources that stand for something of the host's (an agent set, a view), and go when that is gone.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use wasmtime::component::ResourceAny;

use crate::{
    engine::{Live, World},
    fault::Fault,
};

/// The resources of one instance by their owner's number. `N`: what else is known of one.
pub(crate) struct Resources<O, N = ()>(HashMap<u64, Held<O, N>>);

struct Held<O, N> {
    resource: ResourceAny,
    note: N,
    owner: Weak<O>,
}

impl<O, N> Default for Resources<O, N> {
    fn default() -> Self {
        Resources(HashMap::new())
    }
}

impl<O, N: Copy> Resources<O, N> {
    pub(super) fn get(&self, id: u64) -> Option<(ResourceAny, N)> {
        self.0.get(&id).map(|held| (held.resource, held.note))
    }

    pub(super) fn put(&mut self, id: u64, owner: &Arc<O>, resource: ResourceAny, note: N) {
        let owner = Arc::downgrade(owner);
        self.0.insert(
            id,
            Held {
                resource,
                note,
                owner,
            },
        );
    }

    pub(super) fn take(&mut self, id: u64) -> Option<ResourceAny> {
        self.0.remove(&id).map(|held| held.resource)
    }

    /// Takes one whose owner is gone.
    fn take_orphan(&mut self) -> Option<ResourceAny> {
        let id = self
            .0
            .iter()
            .find(|(_, held)| held.owner.strong_count() == 0)
            .map(|(id, _)| *id)?;
        self.take(id)
    }
}

/// Frees the resources whose owners are gone.
pub(super) async fn tidy<W, O, N>(live: &mut Live<W>) -> Result<(), Fault>
where
    W: World<Held = Resources<O, N>>,
    O: Send + Sync,
    N: Copy + Send,
{
    while let Some(resource) = live.held.take_orphan() {
        live.free(resource)
            .await
            .inspect_err(|fault| live.meta.count(fault))?;
    }
    Ok(())
}
