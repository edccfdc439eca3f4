//! JSON documents whose long lists are written while they are sent, wherever in the document they
//! are.

use std::any::type_name;
use std::fmt;

use axum::response::Response;
use schemars::Schema;
use serde::Serialize;
use serde_json::Value;
use transom_web::json_pieces;

use super::append;

/// The elements of a list. A call appends the next one, or its beginning, and adds the rest of it to
/// the pieces. It returns whether there was one.
pub(super) type Elements = Box<dyn FnMut(&mut Vec<u8>, &mut Pieces) -> bool + Send>;

/// The rest of a document, its next piece last.
#[derive(Default)]
pub(super) struct Pieces(Vec<Piece>);

enum Piece {
    Text(&'static str),
    /// The elements that follow, with commas. `true`: others precede them.
    Elements(Elements, bool),
}

/// The document that consists of these elements between two texts, written while it is sent.
pub(super) fn response(opening: &'static str, closing: &'static str, elements: Elements) -> Response {
    let mut pieces = Pieces::default();
    pieces.list(opening, elements, closing);
    json_pieces(move |document| pieces.write_next(document))
}

/// Elements of which each is written as a whole.
pub(super) fn each<T: Serialize>(mut elements: impl Iterator<Item = T> + Send + 'static) -> Elements {
    Box::new(move |document, _| elements.any(|element| append(document, type_name::<T>(), &element)))
}

/// Makes the lists of a document required members, because a list that is written apart is always
/// there.
pub(super) fn require_lists(schema: &mut Schema) {
    let members = schema.get("properties").and_then(Value::as_object);
    let lists = members
        .into_iter()
        .flatten()
        .filter(|(_, member)| member["type"] == "array");
    let lists: Vec<Value> = lists.map(|(name, _)| name.as_str().into()).collect();
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !lists.contains(name));
        required.extend(lists);
    }
}

impl Pieces {
    /// Adds elements between two texts.
    pub(super) fn list(&mut self, opening: &'static str, elements: Elements, closing: &'static str) {
        let elements = Piece::Elements(elements, false);
        self.0
            .extend([Piece::Text(closing), elements, Piece::Text(opening)]);
    }

    /// Appends an object, and adds lists as its last members, each with the text before its elements.
    /// `what` is the object's id in the log.
    pub(super) fn object(
        &mut self,
        document: &mut Vec<u8>,
        what: impl fmt::Display,
        object: &impl Serialize,
        lists: impl IntoIterator<Item = (&'static str, Elements), IntoIter: DoubleEndedIterator>,
    ) {
        if !append(document, what, object) {
            return document.extend_from_slice(b"null");
        }
        document.pop();
        self.0.push(Piece::Text("}"));
        for (opening, elements) in lists.into_iter().rev() {
            self.list(opening, elements, "]");
        }
    }

    /// Appends the next piece; returns false after the last one.
    pub(super) fn write_next(&mut self, document: &mut Vec<u8>) -> bool {
        match self.0.pop() {
            None => return false,
            Some(Piece::Text(text)) => document.extend_from_slice(text.as_bytes()),
            Some(Piece::Elements(mut elements, has_begun)) => {
                let before = document.len();
                if has_begun {
                    document.push(b',');
                }
                let mut rest = Self::default();
                if elements(document, &mut rest) {
                    self.0.push(Piece::Elements(elements, true));
                    self.0.append(&mut rest.0);
                } else {
                    document.truncate(before);
                }
            }
        }
        true
    }
}
