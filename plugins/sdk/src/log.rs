//! The plugin's own log: `log::info!("{name} has no port")` and so on.
//!
//! The host adds the plugin's name, its version and the call to each line. It also drops and counts
//! lines over the limit, so the SDK has no limit. Natively (in unit tests) lines are kept for
//! [`testing::logs`](crate::testing::logs).

#[cfg(not(target_arch = "wasm32"))]
use std::cell::RefCell;

pub use crate::bindings::transom::plugin::log::Level;

/// Writes one line. The macros below are more convenient.
pub fn write(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::transom::plugin::log::write(level, message);
    #[cfg(not(target_arch = "wasm32"))]
    LINES.with_borrow_mut(|lines| lines.push((level, message.to_owned())));
}

#[cfg(not(target_arch = "wasm32"))]
thread_local! {
    /// The lines that this thread's plugins wrote.
    pub(crate) static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log {
    ($level:ident, $($message:tt)+) => { $crate::log::write($crate::log::Level::$level, &::std::format!($($message)+)) };
}

macro_rules! levels {
    ($($(#[$doc:meta])* $name:ident $exported:ident $level:ident;)+) => { levels!{ @each ($) $($(#[$doc])* $name $exported $level;)+ } };
    (@each ($dollar:tt) $($(#[$doc:meta])* $name:ident $exported:ident $level:ident;)+) => {
        $(
            $(#[$doc])*
            #[doc(hidden)]
            #[macro_export]
            macro_rules! $exported {
                ($dollar($dollar message:tt)+) => { $dollar crate::__log!($level, $dollar($dollar message)+) };
            }
            pub use $exported as $name;
        )+
    };
}

levels! {
    /// Writes one line at level trace.
    trace __log_trace Trace;
    /// Writes one line at level debug.
    debug __log_debug Debug;
    /// Writes one line at level info.
    info __log_info Info;
    /// Writes one line at level warn.
    warn __log_warn Warn;
    /// Writes one line at level error.
    error __log_error Error;
}

#[cfg(test)]
mod tests {
    use super::Level;
    use crate::{log, testing};

    #[test]
    fn lines_keep_their_level_and_order() {
        let name = "web";
        log::warn!("{name} has {} ports", 2);
        log::trace!("plain");
        assert_eq!(
            testing::logs(),
            [
                (Level::Warn, "web has 2 ports".to_owned()),
                (Level::Trace, "plain".to_owned())
            ]
        );
        assert_eq!(testing::logs(), []);
    }
}
