//! The results of expressions.

use super::*;

#[test]
fn expressions_have_the_results_that_cel_specifies() {
    for expression in [
        // Variables.
        "kind == 'status_update_event'",
        "subject == '/shop/web' && subject.startsWith('/shop/')",
        "event.eventType == kind",
        "event.appId == '/shop/web'",
        r#"event["appId"] == "/shop/web""#,
        // Precedence and association.
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "10 - 3 - 2 == 5",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "true || false && false",
        "!(true && false)",
        "!!true",
        "- - 3 == 3",
        "false ? false : true ? true : false",
        "1 < 2 == true",
        "2 in [1, 2] == true",
        // Literals.
        "0x1F == 31 && 7u == 7 && 1e3 == 1000.0 && .5 == 0.5 && 1.5E-1 == 0.15",
        "-9223372036854775808 < -9223372036854775807",
        "18446744073709551615u == event.big",
        r#""\x41\u00e9\U0001F600\101\"" == 'Aé😀A"'"#,
        r"r'\d' == '\\d'",
        "'''it's\n\"two\" lines''' == \"it's\\n\\\"two\\\" lines\"",
        "[1, 2,] == [1, 2] && [] == event.empty && {} == event.none",
        "{'a': 1, 2: 'b', true: null}[2] == 'b'",
        "{'a': 1}.a == 1 && has({'a': 1}.a) && !has({'a': 1}.b)",
        "true // to the end of the line\n && true",
        // Equality of different types, and of numbers of different types.
        "event.up != 1 && event.healthy == null && event.appId != null",
        "1 == 1.0 && 1u == 1 && event.whole == 2 && event.ports == [31000u, 31001.0]",
        "9007199254740993 != 9007199254740992.0",
        "9223372036854775807 < 9223372036854775808.0",
        "0.0 / 0.0 != 0.0 / 0.0 && !(0.0 / 0.0 < 1.0)",
        "event.labels == {'tier': 'front', 'while': 'x', 'com.example/owner': 'ops'}",
        "event.labels != {'tier': 'front'}",
        "event.instances[0] == {'cpus': 1, 'id': 'a'}",
        // Ordering.
        "1 < 1.5 && 2u > 1 && event.low < 0u && event.ratio <= 0.5 && event.ratio >= 0.5",
        "'a' < 'b' && 'B' < 'a' && 'a' < 'aa' && false < true",
        "event.timestamp > '2026-01-01' && event.timestamp < '2027'",
        // Containers.
        "event.ports[1] == 31001 && event.ports[0u] == 31000",
        "31001 in event.ports && !(1 in event.ports)",
        "'tier' in event.labels && !('other' in event.labels) && !(1 in event.labels)",
        "event.labels['com.example/owner'] == 'ops' && event.labels.while == 'x'",
        "kind in ['a', 'status_update_event']",
        "'b' in {'b': 1}",
        "([1] + event.ports + [2]).size() == 4",
        "size(event.instances) == 2 && event.labels.size() == 3 && size('äö') == 2 && size({}) == 0",
        // Presence.
        "has(event.appId) && has(event.healthy) && !has(event.nothing)",
        "has(event.labels.tier) && !has(event.labels.other)",
        // Texts.
        "event.message.contains('\"1\"') && event.message.endsWith('ü') && !event.host.startsWith('11')",
        "event.host + ':' + string(event.ports[0]) == '10.0.0.7:31000'",
        "event.host.matches('^10[.]') && matches(event.host, r'\\.7$') && !event.host.matches('^0')",
        // Conversions.
        "string(1.5) == '1.5' && string(true) == 'true' && string(7u) == '7' && string('a') == 'a'",
        "int('-5') == -5 && int(1.9) == 1 && int(-1.9) == -1 && int(3u) == 3",
        "uint(3) == 3u && uint('4') == 4u && double('1.5') == 1.5 && double(2) == 2.0 && bool('true')",
        "dyn(event.up) == true",
        // Macros.
        "event.ports.all(p, p >= 31000) && event.empty.all(x, false)",
        "event.instances.exists(i, i.id == 'b') && !event.empty.exists(x, true)",
        "event.instances.exists_one(i, has(i.mem)) && !event.ports.exists_one(p, p > 0)",
        "event.instances.filter(i, i.cpus < 1).map(i, i.id) == ['b']",
        "event.instances.map(i, has(i.mem), i.mem) == [64]",
        "event.labels.exists(key, key.startsWith('com.') && event.labels[key] == 'ops')",
        "{'a': 1, 'b': 2}.all(key, key in ['a', 'b'])",
        "event.ports.exists(p, event.ports.exists(q, q == p + 1))",
        // The innermost variable hides the others.
        "[1].exists(event, event == 1) && [[2]].exists(x, x.exists(x, x == 2))",
    ] {
        assert!(matches(expression), "{expression}");
    }
}

#[test]
fn event_does_not_match_when_the_evaluation_fails() {
    for expression in [
        // Missing fields and elements, and values without fields or elements.
        "event.nothing == 1",
        "event.nothing != 1",
        "has(event.nothing.more)",
        "event.appId.more == 1",
        "event.ports[2] == 1",
        "event.ports[-1] == 1",
        "event.ports['0'] == 31000",
        "event.labels[1] == 1",
        "{'a': 1}['b'] == 1",
        "event.healthy.x == 1",
        // Types.
        "event.appId < 1",
        "event.up < 1",
        "event.appId + 1 == 2",
        "event.ratio + 1 == 1.5",
        "event.ratio % 2.0 == 0.5",
        "-event.big < 0",
        "event.host && true",
        "!event.host",
        "event.host ? true : true",
        "event.ports.startsWith('3')",
        "event.ports.matches('3')",
        "1 in event.host",
        "size(event.up) > 0",
        "event.host.exists(c, true)",
        "event.ports.exists(p, p)",
        "event.instances.exists_one(i, i.mem == 64)",
        "event.instances.filter(i, i.mem == 64).size() >= 0",
        "{event.ratio: 1} == {}",
        "{event.up: 1, event.up: 2} == {}",
        // Numbers out of range.
        "event.ports[0] / 0 == 1",
        "event.ports[0] % 0 == 1",
        "9223372036854775807 + event.ports[0] > 0",
        "uint(event.low) > 0u",
        "int('a') == 1",
        "int(1e300) > 0",
        "int(event.big) > 0",
        "bool('no')",
        // Results that are not bool.
        "event.appId",
        "event.healthy",
        "subject",
    ] {
        assert!(!matches(expression), "{expression}");
    }
}

#[test]
fn logical_operator_absorbs_an_error_of_one_operand() {
    for (expression, expected) in [
        ("event.nothing == 1 || true", true),
        ("true || event.nothing == 1", true),
        ("event.nothing == 1 || false", false),
        ("!(event.nothing == 1 && false)", true),
        ("!(event.nothing == 1 && true)", false),
        ("event.instances.exists(i, i.mem == 64)", true),
        ("event.instances.exists(i, i.mem == 65)", false),
        ("!event.instances.all(i, i.mem == 65)", true),
        ("event.instances.all(i, i.mem == 64)", false),
        ("has(event.nothing) && event.nothing == 1", false),
        ("!has(event.nothing) || event.nothing == 1", true),
        ("event.up ? true : event.nothing", true),
    ] {
        assert_eq!(matches(expression), expected, "{expression}");
    }
}

#[test]
fn json_is_read_only_when_the_evaluation_needs_it() {
    let input = Input {
        kind: "a",
        subject: None,
        body: "not JSON",
    };
    for (expression, expected) in [
        ("kind == 'a'", true),
        ("subject == null", true),
        ("kind == 'a' || event.x == 1", true),
        ("kind == 'b' && event.x == 1", false),
        ("kind == 'a' && event.x == 1", false),
        ("event == event", false),
    ] {
        assert_eq!(compile(expression).matches(input), expected, "{expression}");
    }
}
