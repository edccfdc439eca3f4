//! Declarations of wire types: a message lists its required and optional fields; an enumeration
//! lists its names and keeps the text of an unknown name.

/// Whether an optional field is absent, and so omitted.
pub(crate) trait Missing {
    fn is_missing(&self) -> bool;
}

impl<T> Missing for Option<T> {
    fn is_missing(&self) -> bool {
        self.is_none()
    }
}

impl<T> Missing for Vec<T> {
    fn is_missing(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Missing for std::collections::BTreeMap<K, V> {
    fn is_missing(&self) -> bool {
        self.is_empty()
    }
}

/// Parses an optional field; `null` counts as absent, as some proxies and older masters write it.
pub(crate) fn null_is_missing<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    <Option<T> as serde::Deserialize>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Messages. A missing `must` field is an error; `may` fields are `Option`, `Vec` or a map, empty
/// when absent or `null`, and omitted when empty. Unknown fields are ignored.
macro_rules! messages {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $(must { $($(#[$must_meta:meta])* $must:ident: $must_type:ty),+ $(,)? })?
            $(may { $($(#[$may_meta:meta])* $may:ident: $may_type:ty),+ $(,)? })?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "fields are named and meant as in the cluster manager's own messages")]
        pub struct $name {
            $($($(#[$must_meta])* pub $must: $must_type,)+)?
            $($(
                $(#[$may_meta])*
                #[serde(
                    default,
                    deserialize_with = "crate::v1::macros::null_is_missing",
                    skip_serializing_if = "crate::v1::macros::Missing::is_missing"
                )]
                pub $may: $may_type,
            )+)?
        }
    )*};
}

/// Names in capitals. `Default` is the first one, as in protobuf; an unknown name is kept in
/// `Other`.
macro_rules! names {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[allow(missing_docs, reason = "variants are named as on the wire")]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// An unknown name, unchanged.
            Other(String),
        }

        impl $name {
            /// The name on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $crate::v1::macros::first!($($variant)+)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    _ => Self::Other(text.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(&*text))
            }
        }
    )*};
}

/// The first of several variants.
macro_rules! first {
    ($first:ident $($rest:ident)*) => {
        Self::$first
    };
}

pub(crate) use {first, messages, names};
