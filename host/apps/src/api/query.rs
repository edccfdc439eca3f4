//! Query parameters in the forms that clients send: repeated, `True` and `False`, percent-encoded.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::uri::InvalidUri;
use http::{StatusCode, Uri};
use transom_web::ApiError;

/// The parameters, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// The first value of a parameter; an empty one counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter, which may be empty.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(key, _)| key == name);
        values.next().map(|(_, value)| value.as_str())
    }

    /// All values of a parameter without the empty ones.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// A boolean as upstream reads it: `true` in upper or lower case is true, all else is false.
    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name)
            .map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// The parameters with these names, sorted.
    pub(super) fn selected(&self, named: &BTreeSet<String>) -> Vec<(String, String)> {
        let selected = self.0.iter().filter(|(key, _)| named.contains(key));
        let mut selected: Vec<_> = selected.cloned().collect();
        selected.sort();
        selected
    }

    /// The names of the parameters, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Parses the query of a URL, without the question mark. Characters that are not allowed in a
    /// query are percent-encoded first.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut query = String::with_capacity(text.len());
        for byte in text.bytes() {
            if byte.is_ascii_graphic() && !br##""#<>\^`{|}"##.contains(&byte) {
                query.push(char::from(byte));
            } else {
                // Writing to a `String` cannot fail.
                let _ = write!(query, "%{byte:02X}");
            }
        }
        let uri: Uri = format!("/?{query}")
            .parse()
            .map_err(|error: InvalidUri| error.to_string())?;
        let read = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri);
        read.map(|query| Self(query.0)).map_err(|error| error.body_text())
    }

    /// Whether the request embeds a part; the prefixes that name the embedding document are
    /// optional.
    pub(super) fn embeds(&self, what: &str) -> bool {
        const PREFIXES: &[&str] = &["group.apps.", "apps.", "app."];
        let bare = |value: &str| {
            PREFIXES
                .iter()
                .find_map(|prefix| value.strip_prefix(prefix))
                .unwrap_or(value)
                .to_owned()
        };
        self.all("embed").any(|value| bare(value) == what)
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        read.map(|query| Self(query.0))
            .map_err(|rejected| ApiError::new(StatusCode::BAD_REQUEST, rejected.body_text()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn flag_is_true_for_true_in_any_case_and_false_for_all_else() {
        let query = Query(
            [("force", "True"), ("scale", "FALSE"), ("wipe", ""), ("x", "1")]
                .map(|(k, v)| (k.into(), v.into()))
                .to_vec(),
        );
        assert!(query.flag("force", false));
        assert!(!query.flag("scale", true));
        assert!(query.flag("wipe", true), "empty is absent");
        assert!(!query.flag("x", true));
    }

    #[test]
    fn query_is_parsed_with_and_without_percent_encoding() {
        let pairs = |text: &str| Query::parse(text).map(|query| query.0);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let filter = pair("filter", "a == \"/b\" | \u{e9}#");
        for (text, expected) in [
            ("", vec![]),
            (
                "event_type=a&event_type=b",
                vec![pair("event_type", "a"), pair("event_type", "b")],
            ),
            (
                "filter=a%20%3D%3D%20%22/b%22%20%7C%20%C3%A9%23",
                vec![filter.clone()],
            ),
            ("filter=a == \"/b\" | \u{e9}#", vec![filter]),
            ("filter", vec![pair("filter", "")]),
        ] {
            assert_eq!(pairs(text), Ok(expected), "{text}");
        }
        assert!(pairs(&"x".repeat(70_000)).unwrap_err().contains("long"));
    }

    #[test]
    fn embeds_ignores_the_prefix_of_the_embedding_document() {
        let query = Query(
            [("embed", "apps.tasks"), ("embed", "group.apps.counts")]
                .map(|(k, v)| (k.into(), v.into()))
                .to_vec(),
        );
        assert!(query.embeds("tasks") && query.embeds("counts") && !query.embeds("failures"));
    }
}
