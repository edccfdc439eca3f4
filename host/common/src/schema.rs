//! The JSON schemas of settings whose types have none: `#[schemars(with = "schema::Network")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Defines a type whose schema is a string of this `format`.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $format:literal) => {
        $(#[$doc])*
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": $format})
            }
        }
    };
}

text!(
    /// A text that is masked when it is shown.
    Secret,
    "secret"
);
text!(
    /// Such as `10.0.0.0/8`.
    Network,
    "network"
);
text!(
    /// Such as `marathon.mesos` or `*.lb.example.com`.
    Host,
    "host name"
);
text!(
    /// Such as `https://ui.example.com`.
    Origin,
    "origin"
);
text!(
    /// Such as `15s`; also a number of seconds.
    Period,
    "duration"
);
