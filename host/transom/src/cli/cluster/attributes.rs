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
        let mut found: Vec<(String, String)> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            let attribute = part
                .split_once(':')
                .map(|(name, value)| (name.trim(), value.trim()));
            let Some((name, value)) = attribute.filter(|(name, value)| !name.is_empty() && !value.is_empty())
            else {
                return Err(format!(
                    "`{part}` is no attribute such as rack:a, as in 'rack:a;zone:b'"
                ));
            };
            if found.iter().any(|(known, _)| known == name) {
                return Err(format!("it has the attribute `{name}` twice"));
            }
            found.push((name.to_owned(), value.to_owned()));
        }
        if found.len() > MAX {
            return Err(format!("{} attributes; an agent has at most {MAX}", found.len()));
        }
        Ok(Attributes(found))
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
            let found = text.parse::<Attributes>().unwrap().0;
            let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(found, expected, "{text}");
        }
        let many = |count: usize| {
            let attributes: Vec<String> = (0..count).map(|it| format!("a{it}:x")).collect();
            attributes.join(";")
        };
        assert!(many(MAX).parse::<Attributes>().is_ok());
        for (text, message) in [
            ("rack", "`rack` is no attribute such as rack:a"),
            ("rack:a;zone:", "`zone:` is no attribute"),
            (":a", "`:a` is no attribute"),
            ("rack:a;rack:b", "the attribute `rack` twice"),
            (&*many(MAX + 1), "65 attributes; an agent has at most 64"),
        ] {
            let error = text.parse::<Attributes>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
