//! Calls: functions, methods, macros and patterns.

use regex_lite::RegexBuilder;

use super::{KEYWORDS, Parsed, Parser, RESERVED};
use crate::cel::lex::{Token, clip};
use crate::cel::tree::{Expression, Function, Macro, Node, Pattern};
use crate::cel::{MAX_MACROS, MAX_PATTERNS, Rejection};

/// Functions that are called on a value.
const METHODS: &[&str] = &[
    "size",
    "matches",
    "contains",
    "startsWith",
    "endsWith",
    "all",
    "exists",
    "exists_one",
    "filter",
    "map",
];

impl<'t> Parser<'t> {
    /// Parses a call of a global function, after its opening parenthesis.
    pub(super) fn function(&mut self, at: usize, name: &str) -> Parsed {
        let function = match name {
            "has" => return self.has(at),
            "matches" => {
                let [text, pattern] = self.arguments(at, name)?;
                return self.matches(at, text, &pattern);
            }
            "size" => Function::Size,
            "bool" => Function::Bool,
            "int" => Function::Int,
            "uint" => Function::Uint,
            "double" => Function::Double,
            "string" => Function::Text,
            "dyn" => Function::Dyn,
            _ => {
                let reason = if METHODS.contains(&name) {
                    format!("`{name}` is called on a value: `value.{name}(…)`")
                } else {
                    format!(
                        "unknown function {}, expected one of: has, size, matches, bool, int, uint, double, \
                         string, dyn",
                        clip(name)
                    )
                };
                return self.reject(at, reason);
            }
        };
        let arguments: [Node; 1] = self.arguments(at, name)?;
        self.node(at, Expression::Call(function, Box::new(arguments)))
    }

    /// Parses the arguments of a call, up to its closing parenthesis.
    fn arguments<const COUNT: usize>(&mut self, at: usize, name: &str) -> Result<[Node; COUNT], Rejection> {
        let arguments = self.elements(")", Self::expression)?;
        let found = arguments.len();
        arguments.try_into().or_else(|_| {
            let reason = format!("`{name}` has {found} arguments, expected {COUNT}");
            self.reject(at, reason)
        })
    }

    fn has(&mut self, at: usize) -> Parsed {
        let [argument] = self.arguments(at, "has")?;
        let place = argument.at;
        match argument.expression {
            Expression::Select(value, field) => self.node(at, Expression::Has(value, field)),
            _ => self.reject(
                place,
                "`has` expects a field, as in `has(event.appId)`; for other keys write `\"key\" in map`",
            ),
        }
    }

    /// Parses a call of a method, after its opening parenthesis.
    pub(super) fn method(&mut self, at: usize, name: &'t str, target: Node) -> Parsed {
        let function = match name {
            "size" => {
                let []: [Node; 0] = self.arguments(at, name)?;
                return self.node(at, Expression::Call(Function::Size, Box::new([target])));
            }
            "matches" => {
                let [pattern] = self.arguments(at, name)?;
                return self.matches(at, target, &pattern);
            }
            "contains" => Function::Contains,
            "startsWith" => Function::StartsWith,
            "endsWith" => Function::EndsWith,
            "all" => return self.macro_(at, name, Macro::All, target),
            "exists" => return self.macro_(at, name, Macro::Exists, target),
            "exists_one" | "existsOne" => return self.macro_(at, name, Macro::ExistsOne, target),
            "filter" => return self.macro_(at, name, Macro::Filter, target),
            "map" => return self.macro_(at, name, Macro::Map, target),
            _ => {
                let reason = format!(
                    "unknown function {}, expected one of: {}",
                    clip(name),
                    METHODS.join(", ")
                );
                return self.reject(at, reason);
            }
        };
        let [argument] = self.arguments(at, name)?;
        for operand in [&target, &argument] {
            self.kind(operand, "string", &format!("`{name}` compares strings"))?;
        }
        self.node(at, Expression::Call(function, Box::new([target, argument])))
    }

    /// Parses the arguments of a macro: its variable, and the expressions that are evaluated with
    /// it.
    fn macro_(&mut self, at: usize, name: &str, which: Macro, range: Node) -> Parsed {
        if !matches!(range.kind(), None | Some("list" | "map")) {
            return self.reject(range.at, format!("`{name}` expects a list or map before it"));
        }
        if self.variables.len() >= MAX_MACROS {
            let reason = format!("`{name}` is within {MAX_MACROS} other macros, which is the limit");
            return self.reject(at, reason);
        }
        let variable = match *self.peek() {
            Token::Name(name) if !KEYWORDS.contains(&name) && !RESERVED.contains(&name) => name,
            _ => return self.expected("the name of a variable"),
        };
        self.advance();
        self.need(",")?;
        self.variables.push(variable);
        let body = self.elements(")", Self::expression);
        self.variables.pop();
        let body = body?;
        let which = match (which, body.len()) {
            (Macro::Map, 2) => Macro::FilterMap,
            (which, 1) => which,
            (_, found) => {
                let found = found + 1;
                return self.reject(at, format!("`{name}` has {found} arguments, expected 2"));
            }
        };
        if let (false, Some(condition)) = (which == Macro::Map, body.first()) {
            self.bool(condition, &format!("`{name}` expects a condition"))?;
        }
        self.node(at, Expression::Macro(which, Box::new(range), body.into()))
    }

    fn matches(&mut self, at: usize, text: Node, pattern: &Node) -> Parsed {
        self.kind(&text, "string", "`matches` searches a string")?;
        let Expression::Text(written) = &pattern.expression else {
            return self.reject(pattern.at, "`matches` expects a regular expression in quotes");
        };
        // The smallest limit with which the pattern compiles is close to the size of its automaton, which
        // determines the time of a search.
        let mut limit = 1 << 8;
        let regex = loop {
            match RegexBuilder::new(written).size_limit(limit).build() {
                Ok(regex) => break regex,
                Err(_) if limit < MAX_PATTERNS => limit *= 2,
                Err(error) => {
                    let reason = format!(
                        "the regular expression does not compile within {MAX_PATTERNS} bytes: {error}"
                    );
                    return self.reject(pattern.at, reason);
                }
            }
        };
        self.patterns += limit;
        if self.patterns > MAX_PATTERNS {
            let reason = format!(
                "the regular expressions together need more than {MAX_PATTERNS} bytes, which is the limit"
            );
            return self.reject(pattern.at, reason);
        }
        let steps = limit / 64;
        let pattern = Box::new(Pattern { regex, steps });
        self.node(at, Expression::Matches(Box::new(text), pattern))
    }
}
