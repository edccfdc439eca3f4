//! Values of an evaluation.

use std::cmp::Ordering;
use std::rc::Rc;

/// A value. Copies are cheap: texts and containers are shared or borrowed.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    List(Rc<[Value<'a>]>),
    /// Keys and values in turn.
    Map(Rc<[Value<'a>]>),
    /// A list of the event, by its index in the document.
    EventList(usize),
    /// A map of the event.
    EventMap(usize),
}

/// A string of the expression or the event, or one that the evaluation created.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Text::Shared(text.into()))
    }
}

impl Value<'_> {
    /// The order of two numbers of any type. `None` if a value is not a number, or is NaN.
    pub(super) fn order_of_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Double(a), b) => order(b.integer()?, *a).map(Ordering::reverse),
            (a, Self::Double(b)) => order(a.integer()?, *b),
            (a, b) => Some(a.integer()?.cmp(&b.integer()?)),
        }
    }

    /// An `int` or `uint`.
    pub(super) fn integer(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some((*value).into()),
            Self::Uint(value) => Some((*value).into()),
            _ => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Uint(_) | Self::Double(_))
    }
}

/// Compares without rounding, because a 64-bit integer may have no exact double.
fn order(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // The cast saturates, which does not change the order because `integer` has 64 bits.
    let whole = double.trunc();
    let order = integer.cmp(&(whole as i128));
    Some(order.then_with(|| whole.partial_cmp(&double).unwrap_or(Ordering::Equal)))
}
