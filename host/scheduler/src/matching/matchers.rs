//! What decides where the tasks of a framework run.

use async_trait::async_trait;
use tokio::sync::broadcast;
#[cfg(feature = "simulation")]
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_plugin_host::{Change, Plugins};

#[cfg(feature = "simulation")]
use super::first_fit::ScriptedMatchers;
use super::matcher::{Matcher, MatcherHost, change_of};

/// What decides where tasks run.
#[derive(Clone, Debug)]
pub enum Matchers {
    /// The matcher component of the plugin host.
    Plugins(Plugins),
    /// The last or the first agents with room, on the host of the constraint if there is one: for
    /// simulations, which run no components.
    #[cfg(feature = "simulation")]
    Scripted(ScriptedPlugins),
}

impl From<Plugins> for Matchers {
    fn from(plugins: Plugins) -> Self {
        Self::Plugins(plugins)
    }
}

impl Matchers {
    pub(crate) fn host(self) -> Box<dyn MatcherHost> {
        match self {
            Self::Plugins(plugins) => {
                let changes = plugins.changes();
                Box::new(PluginMatchers { plugins, changes })
            }
            #[cfg(feature = "simulation")]
            Self::Scripted(plugins) => {
                let changes = plugins.changes();
                Box::new(ScriptedMatchers { plugins, changes })
            }
        }
    }
}

/// The plugin host.
struct PluginMatchers {
    plugins: Plugins,
    changes: broadcast::Receiver<Change>,
}

#[async_trait]
impl MatcherHost for PluginMatchers {
    fn agent_set(&self, home_region: Option<String>) -> Box<dyn Matcher> {
        Box::new(self.plugins.agent_set(home_region))
    }

    async fn changed(&mut self) {
        change_of(&mut self.changes).await;
    }
}
