//! World `event-filter`: a guest resource for each distinct query, opened when first asked about.

use std::sync::Arc;

use wasmtime::component::ResourceAny;

use super::{
    common,
    held::{self, Resources},
    is_object,
};
use crate::{
    engine::{
        Live, World,
        bindings::events::{EventFilter, EventFilterPre},
        convert::events as convert,
        guest::Guest,
        live::Reply,
    },
    error::CallError,
    fault::Fault,
    text::one_line,
    types::events::{Decision, Event, Query},
};

pub(crate) struct Filter;

/// A query that at least one view is held of. Instances open it when first asked, and free it when the last view is dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) id: u64,
    pub(crate) query: Query,
}

/// A refusal of the query comes back as `Err(text)` inside the answer: the instance is fine.
pub(crate) enum Job {
    Open {
        view: Arc<Opened>,
        reply: Reply<Result<(), String>>,
    },
    Decide {
        view: Arc<Opened>,
        events: Arc<[Event]>,
        reply: Reply<Result<Vec<Decision>, String>>,
    },
}

impl World for Filter {
    type Pre = EventFilterPre<Guest>;
    type Bindings = EventFilter;
    type Held = Resources<Opened>;
    type Shared = ();
    type Job = Job;

    common!(EventFilterPre, transom_plugin_about);

    async fn run(live: &mut Live<Self>, _shared: &Arc<()>, job: Job) -> Result<(), Fault> {
        match job {
            Job::Open { view, reply } => {
                let opened = open(live, &view).await.map(|opened| opened.map(|_| ()));
                live.answer_or_refuse(reply, opened, Result::is_err)
            }
            Job::Decide { view, events, reply } => {
                let decisions = decide(live, &view, &events).await;
                live.answer_or_refuse(reply, decisions, Result::is_err)
            }
        }
    }

    async fn tidy(live: &mut Live<Self>, _shared: &()) -> Result<(), Fault> {
        held::tidy(live).await
    }

    fn refuse(job: Job, error: CallError) {
        match job {
            Job::Open { reply, .. } => drop(reply.send(Err(error))),
            Job::Decide { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

async fn open(live: &mut Live<Filter>, view: &Arc<Opened>) -> Result<Result<ResourceAny, String>, Fault> {
    if let Some((resource, ())) = live.held.get(view.id) {
        return Ok(Ok(resource));
    }
    let query = convert::query(&view.query);
    let allowance = live.allowance();
    let views = live.bindings.transom_events_filter().view();
    let opened = live
        .gate
        .run(allowance, views.call_open(&mut live.store, &query))
        .await?;
    if let Ok(resource) = opened {
        live.held.put(view.id, view, resource, ());
    }
    Ok(opened.map_err(|refusal| one_line(&refusal)))
}

async fn decide(
    live: &mut Live<Filter>,
    view: &Arc<Opened>,
    events: &[Event],
) -> Result<Result<Vec<Decision>, String>, Fault> {
    let resource = match open(live, view).await? {
        Ok(resource) => resource,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let events: Vec<_> = events.iter().map(convert::event).collect();
    let allowance = live.allowance();
    let views = live.bindings.transom_events_filter().view();
    let decisions = live
        .gate
        .run(allowance, views.call_decide(&mut live.store, resource, &events))
        .await?;
    if decisions.len() != events.len() {
        return Err(Fault::Malformed(format!(
            "{} decisions on {} events",
            decisions.len(),
            events.len()
        )));
    }
    let decisions: Vec<Decision> = decisions.into_iter().map(convert::decision).collect();
    if let Some(index) = decisions.iter().position(replaces_with_nonsense) {
        return Err(Fault::Malformed(format!(
            "event {index} is to be replaced by what is no JSON object"
        )));
    }
    Ok(Ok(decisions))
}

fn replaces_with_nonsense(decision: &Decision) -> bool {
    matches!(decision, Decision::Replace(body) if !is_object(body))
}
