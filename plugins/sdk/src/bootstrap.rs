//! `bootstrap-handler`: prepares the first script of a container. See the package
//! `transom:bootstrap`.

use crate::bindings::exports::transom::bootstrap::bootstrap as wit;
use crate::plugin::{Exported, Installed, Plugin, installed};

pub use wit::{Context, Prepared, Refusal, Role};

/// A plugin of the world `bootstrap-handler`.
pub trait Bootstrap: Plugin {
    /// Prepares the script, environment and arguments of a container, from its context and the
    /// operator's script. Pure: the same arguments have the same result.
    fn prepare(&self, context: Context, script: Vec<u8>) -> Result<Prepared, Refusal>;
}

impl<P: Bootstrap + Installed> wit::Guest for Exported<P> {
    fn prepare(context: Context, script: Vec<u8>) -> Result<Prepared, Refusal> {
        installed::<P>().prepare(context, script)
    }
}

/// Makes the crate a component of the world `bootstrap-handler`: `export_bootstrap!(MyHandler)`,
/// once, in a `cdylib`.
#[macro_export]
macro_rules! export_bootstrap {
    ($plugin:ty) => {
        $crate::__export!(
            $plugin,
            BOOTSTRAP,
            "component-type:transom:bootstrap-handler",
            bootstrap::bootstrap,
            __export_transom_bootstrap_bootstrap_0_1_0_cabi
        );
    };
}
