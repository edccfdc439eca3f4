//! Expressions that are rejected.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn invalid_expression_is_rejected_with_its_position() {
    for (expression, line, column, reason) in [
        // Syntax.
        ("event.appId = '/a'", 1, 13, "found `=`, expected `==`"),
        ("true & false", 1, 6, "found `&`, expected `&&`"),
        ("true | false", 1, 6, "found `|`, expected `||`"),
        (
            "true and false",
            1,
            6,
            "found `and`, expected an operator or the end",
        ),
        ("event.appId ==", 1, 15, "found the end, expected a value"),
        ("kind ==\n  == 'a'", 2, 3, "found `==`, expected a value"),
        ("(true", 1, 6, "found the end, expected `)`"),
        ("true)", 1, 5, "found `)`, expected an operator or the end"),
        ("[1, 2 3] == []", 1, 7, "found `3`, expected `,` or `]`"),
        ("[1", 1, 3, "found the end, expected `,` or `]`"),
        ("[,] == []", 1, 2, "found `,`, expected a value"),
        ("{'a' 1} == {}", 1, 6, "found `1`, expected `:`"),
        ("{'a': 1", 1, 8, "found the end, expected `,` or `}`"),
        ("{[]: 1} == {}", 1, 2, "expected a string, number or bool as key"),
        ("true ? true", 1, 12, "found the end, expected `:`"),
        (
            "event.",
            1,
            7,
            "found the end, expected the name of a field or function",
        ),
        (
            "event.true",
            1,
            7,
            "found `true`, expected the name of a field or function",
        ),
        ("event.1", 1, 6, "found `.1`, expected an operator or the end"),
        ("event[", 1, 7, "found the end, expected a value"),
        ("Event{a: 1}", 1, 1, "unknown variable `Event`"),
        ("event{a: 1}", 1, 6, "found `{`, expected an operator or the end"),
        ("in", 1, 1, "found `in`, expected a value"),
        ("true true", 1, 6, "found `true`, expected an operator or the end"),
        (
            "event.?a",
            1,
            7,
            "found `?`, expected the name of a field or function",
        ),
        // Tokens.
        ("kind == 'a", 1, 9, "the string does not end"),
        ("kind == 'a\n'", 1, 9, "the string does not end in its line"),
        ("kind == '''a'", 1, 9, "the string does not end"),
        (r"kind == 'a\d'", 1, 11, "found an invalid escape sequence"),
        (r"kind == '\ud800'", 1, 10, "found an invalid escape sequence"),
        (r"kind == '\x4'", 1, 10, "found an invalid escape sequence"),
        ("kind == b'a'", 1, 9, "found bytes, which are not supported"),
        ("kind == 'ü' && #", 1, 16, "unexpected character '#'"),
        ("1 == 9223372036854775808", 1, 6, "expected an integer of 64 bits"),
        (
            "1 == -9223372036854775809",
            1,
            7,
            "expected an integer of 64 bits",
        ),
        ("1 == 99999999999999999999", 1, 6, "expected a number of 64 bits"),
        ("1 == 1e999", 1, 6, "expected a number of 64 bits"),
        ("1 == 12abc", 1, 6, "found `12abc`, expected a number of 64 bits"),
        ("1 == 0x", 1, 6, "found `0x`, expected a number of 64 bits"),
        // Names.
        (
            "appId == '/a'",
            1,
            1,
            "unknown variable `appId`, expected one of: event, kind, subject",
        ),
        (
            "event.a.exists(x, y == 1)",
            1,
            19,
            "unknown variable `y`, expected one of: event, kind, subject, x",
        ),
        ("event.a.exists(x, true) && x", 1, 28, "unknown variable `x`"),
        (
            "timestamp(event.timestamp) == 1",
            1,
            1,
            "unknown function `timestamp`",
        ),
        ("kind.lower() == 'a'", 1, 6, "unknown function `lower`"),
        ("contains(kind, 'a')", 1, 1, "`contains` is called on a value"),
        ("exists(kind, 'a')", 1, 1, "`exists` is called on a value"),
        // Arguments.
        ("size() == 1", 1, 1, "`size` has 0 arguments, expected 1"),
        (
            "size(kind, kind) == 1",
            1,
            1,
            "`size` has 2 arguments, expected 1",
        ),
        ("kind.size(1) == 1", 1, 6, "`size` has 1 arguments, expected 0"),
        ("kind.contains()", 1, 6, "`contains` has 0 arguments, expected 1"),
        ("has(event)", 1, 5, "`has` expects a field"),
        ("has(event['a'])", 1, 10, "`has` expects a field"),
        (
            "event.a.exists(1, true)",
            1,
            16,
            "found `1`, expected the name of a variable",
        ),
        (
            "event.a.exists(if, true)",
            1,
            16,
            "found `if`, expected the name of a variable",
        ),
        ("event.a.exists(x)", 1, 17, "found `)`, expected `,`"),
        (
            "event.a.exists(x, true, true)",
            1,
            9,
            "`exists` has 3 arguments, expected 2",
        ),
        (
            "event.a.map(x, true, 1, 2) == []",
            1,
            9,
            "`map` has 4 arguments, expected 2",
        ),
        // Types that are known at compile time.
        ("kind", 1, 1, "found a string, but the filter results in a bool"),
        ("event", 1, 1, "found a map, but the filter results in a bool"),
        ("1 + 2", 1, 3, "found a number, but the filter results in a bool"),
        (
            "true ? 'a' : 'b'",
            1,
            6,
            "found a string, but the filter results in a bool",
        ),
        ("kind && true", 1, 1, "found a string, but `&&` joins bools"),
        ("true || 1", 1, 9, "found a number, but `||` joins bools"),
        ("!kind", 1, 2, "found a string, but `!` negates a bool"),
        ("-kind == 1", 1, 2, "found a string, but `-` negates a number"),
        ("1 ? true : false", 1, 1, "found a number, but `?` follows a bool"),
        (
            "kind == 1",
            1,
            9,
            "found a number, expected a string to compare with",
        ),
        (
            "kind < true",
            1,
            8,
            "found a bool, expected a string to compare with",
        ),
        (
            "event.a in 'abc'",
            1,
            12,
            "found a string, expected a list or map after `in`",
        ),
        (
            "event.a.startsWith(1)",
            1,
            20,
            "found a number, but `startsWith` compares strings",
        ),
        (
            "kind.exists(x, true)",
            1,
            1,
            "`exists` expects a list or map before it",
        ),
        (
            "event.a.all(x, 1)",
            1,
            16,
            "found a number, but `all` expects a condition",
        ),
        // Regular expressions.
        (
            "kind.matches('(a')",
            1,
            14,
            "the regular expression does not compile",
        ),
        (
            "kind.matches(event.a)",
            1,
            20,
            "`matches` expects a regular expression in quotes",
        ),
        (
            "kind.matches('a' + 'b')",
            1,
            18,
            "`matches` expects a regular expression in quotes",
        ),
        (
            "matches(1, 'a')",
            1,
            9,
            "found a number, but `matches` searches a string",
        ),
    ] {
        let found = rejection(expression);
        assert_eq!(
            (found.line, found.column),
            (line, column),
            "{expression}: {found}"
        );
        assert!(found.reason.contains(reason), "{expression}: {found}");
    }
}

#[test]
fn rejection_is_short_for_any_expression() {
    let long = "x".repeat(4000);
    for expression in [
        long.clone(),
        format!("true {long}"),
        format!("{long}()"),
        format!("kind.{long}()"),
        format!("1 == 1{long}"),
        format!("kind.matches('({long}')"),
        format!("true \"{long}\""),
    ] {
        let text = format!("filter, {}", rejection(&expression));
        // The host shows at most 500 bytes.
        assert!(text.len() < 300, "{text}");
    }
}
