//! Native unit tests of plugins: `cargo test` on the developer's machine, no component and no host.

use std::cell::RefCell;

use crate::log::Level;

thread_local! {
    static LOGS: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn record(level: Level, message: &str) {
    LOGS.with_borrow_mut(|logs| logs.push((level, message.to_owned())));
}

/// What this thread's plugins logged since the last call.
pub fn logs() -> Vec<(Level, String)> {
    LOGS.take()
}
