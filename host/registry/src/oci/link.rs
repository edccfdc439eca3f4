//! The `Link` header of a list that is sent in pages (RFC 8288). Pure rules.

/// The target of the first link with the relation `next`.
pub(super) fn next(header: &str) -> Option<&str> {
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']).strip_prefix('<')?;
        let (target, after) = rest.split_once('>')?;
        let (parameters, others) = split(after, ',');
        if is_next(parameters) {
            return Some(target);
        }
        rest = others;
    }
}

/// Whether one of the parameters is `rel` with `next` among its relations.
fn is_next(mut parameters: &str) -> bool {
    while !parameters.is_empty() {
        let (parameter, rest) = split(parameters, ';');
        if let Some((name, value)) = parameter.split_once('=')
            && name.trim().eq_ignore_ascii_case("rel")
        {
            // Further `rel` parameters are ignored.
            let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
            return relations.any(|relation| relation.eq_ignore_ascii_case("next"));
        }
        parameters = rest;
    }
    false
}

/// The text before the first `separator` outside of quotes, and the text after it.
fn split(text: &str, separator: char) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            other if other == separator && !quoted => {
                return (&text[..at], &text[at + separator.len_utf8()..]);
            }
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_link_is_found_among_others() {
        for (header, expected) in [
            (
                "</v2/a/referrers/b?n=2>; rel=\"next\"",
                Some("/v2/a/referrers/b?n=2"),
            ),
            ("<https://r.test/x>;rel=next", Some("https://r.test/x")),
            ("<a>; REL = Next", Some("a")),
            ("<a>; rel=\"prev next\"", Some("a")),
            (
                "<a>; rel=prev, <b,c>; title=\"x, <y>; rel=next\"; rel=\"next\"",
                Some("b,c"),
            ),
            ("<a>; title=\"\\\", <b>; rel=next\"; rel=prev", None),
            ("<a>; rel=prev; rel=next", None),
            ("<a>; rel=nextish", None),
            ("<a>", None),
            ("<a; rel=next", None),
            ("a; rel=next", None),
            ("<>; rel=next", Some("")),
            ("", None),
        ] {
            assert_eq!(next(header), expected, "{header}");
        }
    }
}
