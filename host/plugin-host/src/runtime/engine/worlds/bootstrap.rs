//! World `bootstrap-handler`: one pure function.

use std::sync::Arc;

use super::common;
use crate::{
    error::CallError,
    fault::Fault,
    runtime::engine::{
        Instance, World,
        bindings::bootstrap::{BootstrapHandler, BootstrapHandlerPre},
        convert::bootstrap as convert,
        guest::Guest,
        instance::Reply,
    },
    worlds::bootstrap::{Context, Prepared, Rejection},
};

pub(crate) struct Bootstrap;

pub(crate) struct Call {
    pub(crate) context: Context,
    pub(crate) script: Vec<u8>,
    pub(crate) reply: Reply<Result<Prepared, Rejection>>,
}

impl World for Bootstrap {
    type Pre = BootstrapHandlerPre<Guest>;
    type Bindings = BootstrapHandler;
    type Resources = ();
    type Shared = ();
    type Call = Call;

    common!(BootstrapHandlerPre, transom_plugin_about);

    async fn run(instance: &mut Instance<Self>, _shared: &Arc<()>, call: Call) -> Result<(), Fault> {
        let context = convert::context(call.context);
        let allowance = instance.allowance();
        let handler = instance.bindings.transom_bootstrap_bootstrap();
        let prepare = handler.call_prepare(&mut instance.store, &context, &call.script);
        let result = instance.meter.run(allowance, prepare).await;
        let prepared = result.map(|it| it.map(convert::prepared).map_err(|it| convert::rejection(&it)));
        instance.answer_or_reject(call.reply, prepared, Result::is_err)
    }

    async fn drop_orphans(_instance: &mut Instance<Self>, _shared: &()) -> Result<(), Fault> {
        Ok(())
    }

    fn reject(call: Call, error: CallError) {
        drop(call.reply.send(Err(error)));
    }
}
