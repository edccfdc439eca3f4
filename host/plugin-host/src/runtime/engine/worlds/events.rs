//! World `event-filter`: one guest resource for each distinct query, opened at its first use.

use std::{ops::Deref, sync::Arc};

use transom_common::text::one_line;
use transom_plugin_cases::json::{NO_OBJECT, is_object};
use wasmtime::{
    Store,
    component::{ComponentExportIndex, InstancePre, ResourceAny},
};

use super::{
    common,
    guest_resources::{self, GuestResources},
};
use crate::{
    error::CallError,
    fault::Fault,
    runtime::engine::{
        Instance, World,
        bindings::events::{EventFilter, EventFilterIndices},
        convert::events as convert,
        direct_call::{DirectCall, find_export},
        guest::Guest,
        instance::Reply,
    },
    worlds::events::{Decision, Event, MAX_EVENT_BYTES, SharedQuery},
};

pub(crate) struct Filter;

/// A query that the component rejects is `Err(text)` inside the result. The instance is intact.
pub(crate) enum Call {
    Open {
        view: Arc<SharedQuery>,
        reply: Reply<Result<(), String>>,
    },
    Decide {
        view: Arc<SharedQuery>,
        events: Arc<[Event]>,
        reply: Reply<Result<Vec<Decision>, String>>,
    },
}

/// A linked component.
#[derive(Clone)]
pub(crate) struct FilterPre {
    linked: InstancePre<Guest>,
    generated: EventFilterIndices,
    decide: ComponentExportIndex,
}

/// The exports of an instance.
pub(crate) struct FilterExports {
    generated: EventFilter,
    decide: Decide,
}

type Decide = DirectCall<(ResourceAny, Arc<[Event]>), (Vec<Decision>,)>;

impl FilterPre {
    fn new(linked: InstancePre<Guest>) -> wasmtime::Result<Self> {
        Ok(Self {
            generated: EventFilterIndices::new(&linked)?,
            decide: find_export(&linked, "transom:events/filter@0.1.0", "[method]view.decide")?,
            linked,
        })
    }

    async fn instantiate_async(&self, store: &mut Store<Guest>) -> wasmtime::Result<FilterExports> {
        let instance = self.linked.instantiate_async(&mut *store).await?;
        Ok(FilterExports {
            generated: self.generated.load(&mut *store, &instance)?,
            decide: DirectCall::new(instance, self.decide),
        })
    }
}

impl Deref for FilterExports {
    type Target = EventFilter;

    fn deref(&self) -> &EventFilter {
        &self.generated
    }
}

impl World for Filter {
    type Pre = FilterPre;
    type Bindings = FilterExports;
    type Resources = GuestResources<SharedQuery>;
    type Shared = ();
    type Call = Call;

    common!(FilterPre, transom_plugin_about);

    async fn run(instance: &mut Instance<Self>, _shared: &Arc<()>, call: Call) -> Result<(), Fault> {
        match call {
            Call::Open { view, reply } => {
                let opened = open(instance, &view).await.map(|opened| opened.map(|_| ()));
                instance.answer_or_reject(reply, opened, Result::is_err)
            }
            Call::Decide { view, events, reply } => {
                let decisions = decide(instance, &view, events).await;
                instance.answer_or_reject(reply, decisions, Result::is_err)
            }
        }
    }

    async fn drop_orphans(instance: &mut Instance<Self>, _shared: &()) -> Result<(), Fault> {
        guest_resources::drop_orphans(instance).await
    }

    fn reject(call: Call, error: CallError) {
        match call {
            Call::Open { reply, .. } => drop(reply.send(Err(error))),
            Call::Decide { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

async fn open(
    instance: &mut Instance<Filter>,
    view: &Arc<SharedQuery>,
) -> Result<Result<ResourceAny, String>, Fault> {
    if let Some((resource, ())) = instance.resources.get(view.id) {
        return Ok(Ok(resource));
    }
    let query = convert::query(&view.query);
    let allowance = instance.allowance();
    let views = instance.bindings.transom_events_filter().view();
    let opened = instance
        .meter
        .run(allowance, views.call_open(&mut instance.store, &query))
        .await?;
    if let Ok(resource) = opened {
        instance.resources.put(view.id, view, resource, ());
    }
    Ok(opened.map_err(|rejection| one_line(&rejection)))
}

async fn decide(
    instance: &mut Instance<Filter>,
    view: &Arc<SharedQuery>,
    events: Arc<[Event]>,
) -> Result<Result<Vec<Decision>, String>, Fault> {
    let resource = match open(instance, view).await? {
        Ok(resource) => resource,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let event_count = events.len();
    let allowance = instance.allowance();
    let decide = &mut instance.bindings.decide;
    let call = decide.call(&mut instance.store, (resource, events));
    let (decisions,) = instance.meter.run(allowance, call).await?;
    if decisions.len() != event_count {
        return Err(Fault::Malformed(format!(
            "{} decisions on {event_count} events",
            decisions.len()
        )));
    }
    for (index, decision) in decisions.iter().enumerate() {
        check(decision)
            .map_err(|what| Fault::Malformed(format!("the replacement of event {index} {what}")))?;
    }
    Ok(Ok(decisions))
}

/// Checks a replacement. The error says what is wrong with it.
fn check(decision: &Decision) -> Result<(), String> {
    match decision {
        // The size is checked before the JSON is parsed, because it may be megabytes.
        Decision::Replace(body) if body.len() > MAX_EVENT_BYTES => Err(format!(
            "has {} bytes, at most {MAX_EVENT_BYTES} are allowed",
            body.len()
        )),
        Decision::Replace(body) if !is_object(body) => Err(NO_OBJECT.to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_is_an_object_of_at_most_one_mebibyte() {
        let object = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
        for (body, wrong) in [
            (object(MAX_EVENT_BYTES), None),
            (
                object(MAX_EVENT_BYTES + 1),
                Some("has 1048577 bytes, at most 1048576"),
            ),
            ("[]".to_owned(), Some("not a JSON object")),
            // The size is checked first.
            ("[".repeat(MAX_EVENT_BYTES + 1), Some("bytes")),
            ("[".repeat(MAX_EVENT_BYTES), Some("not a JSON object")),
        ] {
            match (check(&Decision::Replace(body)), wrong) {
                (Ok(()), None) => {}
                (Err(message), Some(wrong)) => assert!(message.contains(wrong), "{message}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(check(&Decision::Pass), Ok(()));
    }
}
