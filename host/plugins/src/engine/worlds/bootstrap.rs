//! World `bootstrap-handler`: one pure function.

use std::sync::Arc;

use super::common;
use crate::{
    engine::{
        Live, World,
        bindings::bootstrap::{BootstrapHandler, BootstrapHandlerPre},
        convert::bootstrap as convert,
        guest::Guest,
        live::Reply,
    },
    error::CallError,
    fault::Fault,
    types::bootstrap::{Context, Prepared, Refusal},
};

pub(crate) struct Bootstrap;

pub(crate) struct Job {
    pub(crate) context: Context,
    pub(crate) script: Vec<u8>,
    pub(crate) reply: Reply<Result<Prepared, Refusal>>,
}

impl World for Bootstrap {
    type Pre = BootstrapHandlerPre<Guest>;
    type Bindings = BootstrapHandler;
    type Held = ();
    type Shared = ();
    type Job = Job;

    common!(BootstrapHandlerPre, transom_plugin_about);

    async fn run(live: &mut Live<Self>, _shared: &Arc<()>, job: Job) -> Result<(), Fault> {
        let context = convert::context(job.context);
        let allowance = live.allowance();
        let handler = live.bindings.transom_bootstrap_bootstrap();
        let call = handler.call_prepare(&mut live.store, &context, &job.script);
        let result = live.gate.run(allowance, call).await;
        let prepared = result.map(|it| it.map(convert::prepared).map_err(|it| convert::refusal(&it)));
        live.answer_or_refuse(job.reply, prepared, Result::is_err)
    }

    async fn tidy(_live: &mut Live<Self>, _shared: &()) -> Result<(), Fault> {
        Ok(())
    }

    fn refuse(job: Job, error: CallError) {
        drop(job.reply.send(Err(error)));
    }
}
