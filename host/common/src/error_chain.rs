//! Errors as text.

use std::error::Error;
use std::fmt::Write as _;

/// The text of an error and of all its sources in one line, separated by colons.
///
/// Log an error as `error = error_chain(&error)`: `%error` drops the causes.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Nested(&'static str, Option<Box<Nested>>);

    impl fmt::Display for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_source_is_named_in_order() {
        let cause = Nested("refused", None);
        let error = Nested(
            "cannot subscribe",
            Some(Box::new(Nested("no connection", Some(Box::new(cause))))),
        );
        assert_eq!(error_chain(&error), "cannot subscribe: no connection: refused");
    }
}
