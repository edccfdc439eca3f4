//! Calls of plugins where no components run, for simulations (feature `simulation`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::sleep;
use transom_common::ambient;

use crate::{CallError, Change, Limits};

/// How long a call takes at most, in milliseconds.
const CALL: u64 = 3;
/// How long a slow one takes at most: some reach the limit of the wall-clock time.
const SLOW_CALL: u64 = 7_000;
/// The number of notifications that may wait.
const CHANGES: usize = 16;

/// Plugins whose calls take time and fail. Clones belong to the same daemon.
#[derive(Clone, Debug)]
pub struct ScriptedPlugins {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<Change>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    version: u64,
    are_slow: bool,
    trap: bool,
}

impl Default for ScriptedPlugins {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            changes: broadcast::channel(CHANGES).0,
        }
    }
}

impl ScriptedPlugins {
    /// Whether calls that begin from now on are slow, and whether every second one traps.
    pub fn disturb(&self, are_slow: bool, trap: bool) {
        self.change(|state| (state.are_slow, state.trap) = (are_slow, trap));
    }

    /// Another version serves the calls that begin from now on.
    pub fn swap(&self) {
        let version = self.change(|state| {
            state.version += 1;
            state.version
        });
        // Without a receiver nobody waits for it.
        let _ = self.changes.send(Change::Admitted {
            name: "scripted".to_owned(),
            version: version.to_string(),
            digest: String::new(),
        });
    }

    /// Makes a call of a plugin. Returns the number of the version that serves it.
    ///
    /// # Errors
    /// [`CallError::Trapped`] and [`CallError::TimedOut`].
    pub async fn call(&self, plugin: &str) -> Result<u64, CallError> {
        let state = self.change(|state| *state);
        let most = if state.are_slow { SLOW_CALL } else { CALL };
        let takes = Duration::from_millis(ambient::random() % most);
        let limit = Limits::default().wall_clock;
        sleep(takes.min(limit)).await;
        let name = plugin.to_owned();
        if takes > limit {
            return Err(CallError::TimedOut { name, limit });
        }
        if state.trap && ambient::random().is_multiple_of(2) {
            let message = "unreachable".to_owned();
            return Err(CallError::Trapped { name, message });
        }
        Ok(state.version)
    }

    /// The swaps from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
