//! Values of agents' fields, and the text form that constraints compare.

use transom_sdk::matcher::Value;

/// A value of an agent's field: its text form, and its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldValue {
    /// The text form, which constraints compare.
    pub text: String,
    /// The type, by which `IS` compares.
    pub kind: ValueKind,
}

/// The type of a value, as far as constraints distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// A text.
    Text,
    /// A number.
    Scalar,
    /// Ranges or a set.
    Other,
}

impl FieldValue {
    /// A host name, region or zone.
    pub fn from_text(text: String) -> Self {
        Self {
            text,
            kind: ValueKind::Text,
        }
    }

    /// An attribute.
    pub fn from_attribute(value: Value) -> Self {
        let kind = match &value {
            Value::Text(_) => ValueKind::Text,
            Value::Scalar(_) => ValueKind::Scalar,
            Value::Ranges(_) | Value::Set(_) => ValueKind::Other,
        };
        Self {
            text: text_form(value),
            kind,
        }
    }

    /// Whether the agent's value is a text.
    pub fn is_text(&self) -> bool {
        self.kind == ValueKind::Text
    }
}

/// The text form of a value: text as it is; a scalar with up to three decimals; `[b-e,b-e]` sorted
/// by begin; `{a,b}` sorted.
pub fn text_form(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        Value::Scalar(number) => scalar_text(number),
        Value::Ranges(mut ranges) => {
            ranges.sort_unstable();
            let ranges: Vec<_> = ranges
                .iter()
                .map(|(begin, end)| format!("{begin}-{end}"))
                .collect();
            format!("[{}]", ranges.join(","))
        }
        Value::Set(mut items) => {
            items.sort_unstable();
            format!("{{{}}}", items.join(","))
        }
    }
}

/// A number with up to three decimals, ties to even: 1.0 is `1`, 1.0005 is `1`, 0.1875 is `0.188`.
pub fn scalar_text(number: f64) -> String {
    let text = format!("{number:.3}");
    let text = match text.split_once('.') {
        Some((whole, decimals)) => match decimals.trim_end_matches('0') {
            "" => whole.to_owned(),
            decimals => format!("{whole}.{decimals}"),
        },
        None => text,
    };
    if text == "-0" { "0".to_owned() } else { text }
}

/// Parses an operand as a number and returns the number's text form; none for an operand that is not
/// a finite number.
pub fn parse_scalar_text(operand: &str) -> Option<String> {
    let number: f64 = operand.trim().parse().ok()?;
    number.is_finite().then(|| scalar_text(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_have_up_to_three_decimals_and_ties_go_to_even() {
        let cases = [
            (1.0, "1"),
            (1.5, "1.5"),
            (1.0005, "1"),
            (1.00051, "1.001"),
            (0.0625, "0.062"),
            (0.1875, "0.188"),
            (2.6789, "2.679"),
            (100.0, "100"),
            (-2.5, "-2.5"),
            (-0.0001, "0"),
            (0.0, "0"),
            (1e9, "1000000000"),
        ];
        for (number, expected) in cases {
            assert_eq!(scalar_text(number), expected, "{number}");
        }
    }

    #[test]
    fn numbers_are_compared_after_rounding() {
        let cases = [
            (1.0, "1", true),
            (1.0, "1.0", true),
            (1.0, "1.0005", true),
            (1.0, "1.00051", false),
            (1.0, "one", false),
            (1.0, "", false),
            (1.0, "NaN", false),
            (1.0, "1-2", false),
        ];
        for (number, operand, expected) in cases {
            assert_eq!(
                parse_scalar_text(operand) == Some(scalar_text(number)),
                expected,
                "{number} and {operand:?}"
            );
        }
    }

    #[test]
    fn ranges_and_sets_are_sorted() {
        assert_eq!(
            text_form(Value::Ranges(vec![(8000, 9000), (5, 7)])),
            "[5-7,8000-9000]"
        );
        assert_eq!(text_form(Value::Ranges(vec![])), "[]");
        assert_eq!(
            text_form(Value::Set(vec!["b".to_owned(), "a".to_owned()])),
            "{a,b}"
        );
        assert_eq!(text_form(Value::Text("rack-1".to_owned())), "rack-1");
    }
}
