//! `--attributes`: attributes of an agent in the form of the cluster manager's own option.

use std::str::FromStr;

/// The maximum number of attributes of one agent.
const MAX: usize = 64;

/// The attributes of one agent: `rack:a;zone:b`. An empty text is an agent without attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attributes(pub(super) Vec<(String, String)>);

impl FromStr for Attributes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut attributes: Vec<(String, String)> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            let attribute = part
                .split_once(':')
                .map(|(name, value)| (name.trim(), value.trim()));
            let Some((name, value)) = attribute.filter(|(name, value)| !name.is_empty() && !value.is_empty())
            else {
                return Err(format!(
                    "`{part}` is not an attribute such as rack:a, as in 'rack:a;zone:b'"
                ));
            };
            if attributes.iter().any(|(existing, _)| existing == name) {
                return Err(format!("it has the attribute `{name}` twice"));
            }
            attributes.push((name.to_owned(), value.to_owned()));
        }
        if attributes.len() > MAX {
            return Err(format!(
                "{} attributes; an agent has at most {MAX}",
                attributes.len()
            ));
        }
        Ok(Attributes(attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_in_the_form_of_an_agents_option() {
        for (text, expected) in [
            ("rack:a;zone:b", &[("rack", "a"), ("zone", "b")][..]),
            (" rack : a ; ", &[("rack", "a")]),
            ("url:http://a:1;cores:4", &[("url", "http://a:1"), ("cores", "4")]),
            (
                "disks:{a,b};ports:[1-3, 7-9]",
                &[("disks", "{a,b}"), ("ports", "[1-3, 7-9]")],
            ),
            ("", &[]),
        ] {
            let attributes = text.parse::<Attributes>().unwrap().0;
            let attributes: Vec<_> = attributes
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect();
            assert_eq!(attributes, expected, "{text}");
        }
        let with_count = |count: usize| {
            let attributes: Vec<String> = (0..count).map(|it| format!("a{it}:x")).collect();
            attributes.join(";")
        };
        assert!(with_count(MAX).parse::<Attributes>().is_ok());
        for (text, message) in [
            ("rack", "`rack` is not an attribute such as rack:a"),
            ("rack:a;zone:", "`zone:` is not an attribute"),
            (":a", "`:a` is not an attribute"),
            ("rack:a;rack:b", "the attribute `rack` twice"),
            (&*with_count(MAX + 1), "65 attributes; an agent has at most 64"),
        ] {
            let error = text.parse::<Attributes>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
