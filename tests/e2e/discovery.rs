//! Discovery: DNS and its HTTP port.

mod page;
mod source;
mod standalone;
