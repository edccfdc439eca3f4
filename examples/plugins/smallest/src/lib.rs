//! Keeps the events of load tests out of the event stream. This is the smallest possible plugin.
use transom_sdk::events::{Decision, Event, Filter, Query};

/// The plugin.
pub struct Quiet;
transom_sdk::plugin!(Quiet);
transom_sdk::export_filter!(Quiet);

impl Filter for Quiet {
    type View = Box<dyn FnMut(&Event) -> Decision>;

    fn open(&self, query: Query) -> Result<Self::View, String> {
        Ok(Box::new(move |event| match event.subject.as_deref() {
            Some(app) if app.starts_with("/load/") => Decision::Drop,
            _ if query.wants(&event.kind) => Decision::Pass,
            _ => Decision::Drop,
        }))
    }
}
