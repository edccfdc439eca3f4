//! Every bound holds, and no text or event makes the parser or the evaluation panic.

use std::time::{Duration, Instant};

use super::super::{BASE_STEPS, MAX_DEPTH, MAX_LENGTH, MAX_MACROS, MAX_NODES, MAX_PATTERNS, MAX_VALUES};
use super::*;

/// A name, an expression of a size, the largest size that is accepted, and a part of the rejection.
type Case<'a> = (&'a str, &'a dyn Fn(usize) -> String, usize, String);

#[test]
fn expression_beyond_a_bound_is_rejected() {
    let padded = |length: usize| format!("true{}", " ".repeat(length - 4));
    let list = |count: usize| format!("kind in [{}]", vec!["kind"; count].join(","));
    let parentheses = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    let negations = |count: usize| format!("{}true", "!".repeat(count));
    let fields = |count: usize| format!("has(event{})", ".a".repeat(count));
    let sums = |count: usize| format!("1{} == 1", "+1".repeat(count));
    let macros = |count: usize| {
        (0..count).fold("true".to_owned(), |body, number| {
            format!("[1].all(x{number}, {body})")
        })
    };
    let patterns = |count: usize| vec!["kind.matches('((a|b|ab)*c)')"; count].join("||");
    let cases: [Case<'_>; 8] = [
        ("bytes", &padded, MAX_LENGTH, format!("the limit is {MAX_LENGTH}")),
        // The list, `kind` and `in` are nodes too.
        ("list", &list, MAX_NODES - 3, format!("the limit is {MAX_NODES}")),
        (
            "parentheses",
            &parentheses,
            MAX_DEPTH - 1,
            format!("the limit is {MAX_DEPTH} levels"),
        ),
        (
            "negations",
            &negations,
            MAX_DEPTH - 1,
            format!("the limit is {MAX_DEPTH} levels"),
        ),
        (
            "fields",
            &fields,
            MAX_DEPTH - 1,
            format!("the limit is {MAX_DEPTH} levels"),
        ),
        (
            "sums",
            &sums,
            MAX_DEPTH - 2,
            format!("the limit is {MAX_DEPTH} levels"),
        ),
        (
            "macros",
            &macros,
            MAX_MACROS,
            format!("within {MAX_MACROS} other macros"),
        ),
        // This pattern needs one KiB.
        (
            "patterns",
            &patterns,
            MAX_PATTERNS >> 10,
            format!("more than {MAX_PATTERNS} bytes"),
        ),
    ];
    for (what, expression, limit, reason) in cases {
        compile(&expression(limit));
        let rejected = rejection(&expression(limit + 1));
        assert!(rejected.reason.contains(&reason), "{what}: {rejected}");
    }
}

#[test]
fn regular_expression_beyond_its_size_is_rejected() {
    for pattern in [
        "a{10000}",
        "(a{100}){100}",
        "((a{1000}){1000}){1000}",
        &"(".repeat(2000),
        &format!("{}a{}", "(".repeat(200), ")".repeat(200)),
    ] {
        let found = rejection(&format!("kind.matches('{pattern}')"));
        assert!(found.reason.contains("does not compile within"), "{found}");
    }
}

/// An input with a body.
fn with(body: &str) -> Input<'_> {
    Input { body, ..INPUT }
}

#[test]
fn event_does_not_match_when_the_evaluation_exceeds_its_steps() {
    // Each pair of numbers costs about three steps: more than the budget for 100 numbers, and less
    // for 30.
    let list = |count: usize| {
        let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        format!(
            r#"{{"l": [{}], "text": "{}"}}"#,
            numbers.join(","),
            "a".repeat(count)
        )
    };
    let pairs = compile("event.l.all(x, event.l.all(y, x + y >= 0))");
    assert!(pairs.matches(with(&list(30))));
    assert!(!pairs.matches(with(&list(100))));
    // An exhausted budget is not absorbed by `||`.
    let pairs = compile("event.l.all(x, event.l.all(y, x + y >= 0)) || true");
    assert!(pairs.matches(with(&list(30))));
    assert!(!pairs.matches(with(&list(100))));
    // A single loop over a list fits into the budget of any event, however long the list.
    assert!(compile("event.l.exists(x, x < 0) || true").matches(with(&list(100_000))));
    // Searches with a regular expression cost more for each byte.
    let search = compile("event.text.matches('(a|aa|aaa)*(a|b)*c') || true");
    assert!(search.matches(with(&list(100))));
    assert!(!search.matches(with(&list(100_000))));
}

#[test]
fn event_with_too_many_values_does_not_match() {
    let body = |count: usize| format!(r#"{{"l": [{}0]}}"#, "0,".repeat(count - 1));
    // In addition to the numbers the event has a map, a key and a list.
    let expression = compile("event.l[0] == 0");
    assert!(expression.matches(with(&body(MAX_VALUES - 3))));
    assert!(!expression.matches(with(&body(MAX_VALUES - 2))));
    let deep = format!(r#"{{"l": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(!compile("has(event.l)").matches(with(&deep)));
}

/// The steps bound the time of an evaluation. The limit of the test is far above the usual time, because this
/// build is not optimised and the machine may be busy.
#[test]
fn worst_expressions_end_within_their_steps() {
    let body = format!(
        r#"{{"n": [{}1], "t": "{}", "m": {{{}"z": 1}}}}"#,
        "1,".repeat(20_000),
        "ab".repeat(50_000),
        (0..10_000)
            .map(|number| format!("\"k{number}\": 1,"))
            .collect::<Vec<_>>()
            .concat(),
    );
    let input = with(&body);
    let budget = input.budget();
    assert_eq!(budget, BASE_STEPS + body.len());
    let sums = format!("size({}) > 0", vec!["event.t"; 28].join(" + "));
    let searches = vec!["event.t.contains('abababababababababababa')"; 40].join(" && ");
    for expression in [
        "event.n.all(x, event.n.all(y, x == y))",
        "event.n.map(x, event.n.map(y, x + y)).size() > 0",
        "event.n.map(x, [x, x, x, x, x, x]).size() > 0",
        "event.n.map(x, event.t + event.t).size() > 0",
        "event.m.all(k, event.m[k] == 1)",
        "event.n.all(x, event.m.z == 1)",
        "event.n.all(x, event.n[20000] == 1)",
        "event.n.all(x, event == event)",
        "event.n.all(x, x in event.n + event.n)",
        "event.n.all(x, event.t.matches('(a|b|ab)*c') || true)",
        "event.t.matches('((a|b|ab)*c){20}') || true",
        &sums,
        &searches,
    ] {
        let begun = Instant::now();
        compile(expression).matches(input);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{expression}: {took:?}");
    }
}

/// A pseudorandom number generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn random_texts_are_compiled_or_rejected() {
    const PARTS: &[&str] = &[
        "event",
        "kind",
        "subject",
        ".",
        "appId",
        "ports",
        "labels",
        "instances",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "?",
        ":",
        ",",
        " in ",
        "1",
        "0",
        "2u",
        "1.5",
        "-9223372036854775808",
        "'a'",
        "\"\\u00e9\"",
        "r'\\'",
        "true",
        "false",
        "null",
        "has(",
        "size(",
        ".exists(x,",
        ".map(x,",
        ".filter(x,",
        ".all(y,",
        "x",
        "y",
        ".matches('a*b')",
        ".contains(",
        "string(",
        "int(",
        "\n",
        "// c\n",
        "é",
        "\\",
        "\u{0}",
        "'",
        "&",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut taken = 0;
    for _ in 0..60_000 {
        let count = 1 + random.below(14);
        let text: String = (0..count).map(|_| PARTS[random.below(PARTS.len())]).collect();
        match Program::compile(&text) {
            Ok(program) => {
                taken += 1;
                program.matches(INPUT);
            }
            Err(rejection) => {
                let lines: Vec<_> = text.split('\n').collect();
                let line = lines.get(rejection.line - 1);
                let line = line.unwrap_or_else(|| panic!("{text:?}: {rejection}"));
                assert!(
                    rejection.column <= line.chars().count() + 1,
                    "{text:?}: {rejection}"
                );
            }
        }
    }
    assert!(taken > 100, "only {taken} texts compile");
}

/// Truncates valid expressions, and changes them in one place.
#[test]
fn damaged_expressions_are_compiled_or_rejected() {
    let expressions = [
        "event.instances.filter(i, i.cpus < 1).map(i, i.id) == ['b'] && has(event.labels.tier)",
        r#"event["message"].matches("^exit \"[0-9]+\" ü") || {'a': [1, 2u, .5e3]}.a[0] == int('7') ? true : false"#,
        "-event.low * 3 % 2 != 0x1F / (1 - 2) // comment\n && 'x' in event.labels",
    ];
    let mut random = Random(42);
    for expression in expressions {
        compile(expression);
        let characters: Vec<char> = expression.chars().collect();
        for at in 0..characters.len() {
            let cut: String = characters[..at].iter().collect();
            let mut without = characters.clone();
            without.remove(at);
            let mut swapped = characters.clone();
            swapped.swap(at, random.below(characters.len()));
            let mut other = characters.clone();
            other[at] = ['\0', '\'', '(', '9', 'ü', '.', '\\'][random.below(7)];
            for text in [
                cut,
                without.iter().collect(),
                swapped.iter().collect(),
                other.iter().collect(),
            ] {
                if let Ok(program) = Program::compile(&text) {
                    program.matches(INPUT);
                }
            }
        }
    }
}
