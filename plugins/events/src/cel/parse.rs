//! Parser: from the text to a [`Node`], with names resolved.
//!
//! Recursive descent over CEL's grammar. The parser checks everything that does not depend on an
//! event: names, types of operands where they are fixed and, in [`calls`], numbers of arguments and
//! patterns.

mod calls;

use super::lex::{self, Spanned, Token, clip};
use super::tree::{Expression, Node, Operator};
use super::{MAX_DEPTH, MAX_LENGTH, MAX_NODES, Rejection};

/// Compiles a text to an expression that results in a bool.
pub(super) fn program(text: &str) -> Result<Node, Rejection> {
    if text.len() > MAX_LENGTH {
        let reason = format!(
            "the expression has {} bytes, the limit is {MAX_LENGTH}",
            text.len()
        );
        return Err(Rejection::at(text, MAX_LENGTH, reason));
    }
    let mut parser = Parser {
        text,
        tokens: lex::tokens(text)?,
        next: 0,
        variables: Vec::new(),
        depth: 0,
        nodes: 0,
        patterns: 0,
    };
    let node = parser.expression()?;
    if parser.peek() != &Token::End {
        return parser.expected("an operator or the end");
    }
    parser.bool(&node, "the filter results in a bool")?;
    Ok(node)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Spanned<'t>>,
    /// Index of the next token.
    next: usize,
    /// Variables of the macros around the current token, outermost first.
    variables: Vec<&'t str>,
    depth: usize,
    nodes: usize,
    /// Bytes of compiled patterns.
    patterns: usize,
}

type Parsed = Result<Node, Rejection>;

const RELATIONS: &[(&str, Operator)] = &[
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterOrEqual),
];
const SUMS: &[(&str, Operator)] = &[("+", Operator::Add), ("-", Operator::Subtract)];
const PRODUCTS: &[(&str, Operator)] = &[
    ("*", Operator::Multiply),
    ("/", Operator::Divide),
    ("%", Operator::Remainder),
];
/// Identifiers that CEL reserves. Fields may have these names.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
const KEYWORDS: &[&str] = &["true", "false", "null", "in"];

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token<'t> {
        self.tokens
            .get(self.next)
            .map_or(&Token::End, |spanned| &spanned.token)
    }

    /// The byte at which the next token begins.
    fn here(&self) -> usize {
        self.tokens
            .get(self.next)
            .map_or(self.text.len(), |spanned| spanned.start)
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    /// Consumes the next token if it is this symbol.
    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(it) if *it == symbol);
        if found {
            self.advance();
        }
        found
    }

    fn need(&mut self, symbol: &str) -> Result<(), Rejection> {
        if self.take(symbol) {
            Ok(())
        } else {
            self.expected(&format!("`{symbol}`"))
        }
    }

    fn reject<T>(&self, at: usize, reason: impl Into<String>) -> Result<T, Rejection> {
        Err(Rejection::at(self.text, at, reason.into()))
    }

    /// Rejects the next token.
    fn expected<T>(&self, expected: &str) -> Result<T, Rejection> {
        let found = match self.tokens.get(self.next) {
            Some(Spanned { token, start, end }) if *token != Token::End => {
                clip(self.text.get(*start..*end).unwrap_or_default())
            }
            _ => "the end".to_owned(),
        };
        self.reject(self.here(), format!("found {found}, expected {expected}"))
    }

    fn node(&mut self, at: usize, expression: Expression) -> Parsed {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let reason = format!("the expression has too many parts, the limit is {MAX_NODES}");
            return self.reject(at, reason);
        }
        let depth = Node::deepest(&expression) + 1;
        if depth > MAX_DEPTH {
            return self.too_deep(at);
        }
        Ok(Node {
            at,
            depth,
            expression,
        })
    }

    fn too_deep<T>(&self, at: usize) -> Result<T, Rejection> {
        let reason = format!("the expression is nested too deeply, the limit is {MAX_DEPTH} levels");
        self.reject(at, reason)
    }

    /// Applies a grammar rule one nesting level deeper.
    fn deeper(&mut self, rule: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= MAX_DEPTH {
            return self.too_deep(self.here());
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Rejects an operand that can never have the expected type.
    fn kind(&self, node: &Node, expected: &str, what: &str) -> Result<(), Rejection> {
        match node.kind() {
            Some(found) if found != expected => self.reject(node.at, format!("found a {found}, but {what}")),
            _ => Ok(()),
        }
    }

    fn bool(&self, node: &Node, what: &str) -> Result<(), Rejection> {
        self.kind(node, "bool", what)
    }

    /// Parses `a ? b : c`, or an expression without the conditional operator.
    fn expression(&mut self) -> Parsed {
        self.deeper(|it| {
            let condition = it.any()?;
            let at = it.here();
            if !it.take("?") {
                return Ok(condition);
            }
            it.bool(&condition, "`?` follows a bool")?;
            let then = it.any()?;
            it.need(":")?;
            let otherwise = it.expression()?;
            it.node(at, Expression::If(Box::new([condition, then, otherwise])))
        })
    }

    fn any(&mut self) -> Parsed {
        self.series("||", Self::every, Expression::Or)
    }

    fn every(&mut self) -> Parsed {
        self.series("&&", Self::relation, Expression::And)
    }

    fn series(
        &mut self,
        symbol: &str,
        operand: fn(&mut Self) -> Parsed,
        make: fn(Box<[Node]>) -> Expression,
    ) -> Parsed {
        let first = operand(self)?;
        let at = self.here();
        if !self.take(symbol) {
            return Ok(first);
        }
        let mut operands = vec![first];
        loop {
            operands.push(operand(self)?);
            if !self.take(symbol) {
                break;
            }
        }
        for operand in &operands {
            self.bool(operand, &format!("`{symbol}` joins bools"))?;
        }
        self.node(at, make(operands.into()))
    }

    /// Consumes the next token if it is an operator of the table.
    fn operator(&mut self, table: &[(&str, Operator)]) -> Option<Operator> {
        let Token::Symbol(symbol) = self.peek() else {
            return None;
        };
        let (_, operator) = table.iter().find(|(name, _)| name == symbol)?;
        self.advance();
        Some(*operator)
    }

    fn relation(&mut self) -> Parsed {
        let mut left = self.sum()?;
        loop {
            let at = self.here();
            let operator = if matches!(self.peek(), Token::Name("in")) {
                self.advance();
                Operator::In
            } else if let Some(operator) = self.operator(RELATIONS) {
                operator
            } else {
                return Ok(left);
            };
            let right = self.sum()?;
            self.comparable(operator, &left, &right)?;
            left = self.node(at, Expression::Binary(operator, Box::new([left, right])))?;
        }
    }

    /// Rejects operands that are never comparable, which indicate a mistake, such as a missing
    /// quote.
    fn comparable(&self, operator: Operator, left: &Node, right: &Node) -> Result<(), Rejection> {
        let Some(second) = right.kind() else {
            return Ok(());
        };
        if operator == Operator::In {
            if matches!(second, "list" | "map") {
                return Ok(());
            }
            let reason = format!("found a {second}, expected a list or map after `in`");
            return self.reject(right.at, reason);
        }
        let Some(first) = left.kind() else {
            return Ok(());
        };
        match operator {
            _ if first == second => Ok(()),
            // Values of every type may be compared with null.
            Operator::Equal | Operator::NotEqual if first == "null" || second == "null" => Ok(()),
            _ => self.reject(
                right.at,
                format!("found a {second}, expected a {first} to compare with"),
            ),
        }
    }

    fn sum(&mut self) -> Parsed {
        self.chain(SUMS, Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.chain(PRODUCTS, Self::unary)
    }

    fn chain(&mut self, table: &[(&str, Operator)], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = operand(self)?;
        loop {
            let at = self.here();
            let Some(operator) = self.operator(table) else {
                return Ok(left);
            };
            let right = operand(self)?;
            left = self.node(at, Expression::Binary(operator, Box::new([left, right])))?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let at = self.here();
        if self.take("!") {
            let operand = self.deeper(Self::unary)?;
            self.bool(&operand, "`!` negates a bool")?;
            return self.node(at, Expression::Not(Box::new(operand)));
        }
        if !self.take("-") {
            return self.member();
        }
        // The sign is parsed as part of a number, because the least integer has no positive
        // counterpart.
        let literal = match *self.peek() {
            Token::Int(value) => match 0_i64.checked_sub_unsigned(value) {
                Some(value) => Expression::Int(value),
                None => return self.expected("an integer of 64 bits"),
            },
            Token::Double(value) => Expression::Double(-value),
            _ => {
                let operand = self.deeper(Self::unary)?;
                self.kind(&operand, "number", "`-` negates a number")?;
                return self.node(at, Expression::Negate(Box::new(operand)));
            }
        };
        self.advance();
        let literal = self.node(at, literal)?;
        self.members(literal)
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    /// Parses the fields, elements and methods after a value.
    fn members(&mut self, mut value: Node) -> Parsed {
        loop {
            let at = self.here();
            if self.take("[") {
                let index = self.expression()?;
                self.need("]")?;
                value = self.node(at, Expression::Index(Box::new([value, index])))?;
            } else if self.take(".") {
                let at = self.here();
                let name = match *self.peek() {
                    Token::Name(name) if !KEYWORDS.contains(&name) => name,
                    _ => return self.expected("the name of a field or function"),
                };
                self.advance();
                value = if self.take("(") {
                    self.method(at, name, value)?
                } else {
                    self.node(at, Expression::Select(Box::new(value), name.into()))?
                };
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        const EXPECTED: &str = "a value";
        let at = self.here();
        let literal = match self.peek().clone() {
            Token::Name("true") => Expression::Bool(true),
            Token::Name("false") => Expression::Bool(false),
            Token::Name("null") => Expression::Null,
            Token::Name("in") | Token::End => return self.expected(EXPECTED),
            Token::Name(name) => {
                self.advance();
                return if self.take("(") {
                    self.function(at, name)
                } else {
                    self.variable(at, name)
                };
            }
            Token::Int(value) => match i64::try_from(value) {
                Ok(value) => Expression::Int(value),
                Err(_) => return self.expected("an integer of 64 bits"),
            },
            Token::Uint(value) => Expression::Uint(value),
            Token::Double(value) => Expression::Double(value),
            Token::Text(value) => Expression::Text(value.into()),
            Token::Symbol("(") => {
                self.advance();
                let inner = self.expression()?;
                self.need(")")?;
                return Ok(inner);
            }
            Token::Symbol("[") => {
                self.advance();
                let elements = self.elements("]", Self::expression)?;
                return self.node(at, Expression::List(elements.into()));
            }
            Token::Symbol("{") => {
                self.advance();
                return self.map(at);
            }
            Token::Symbol(_) => return self.expected(EXPECTED),
        };
        self.advance();
        self.node(at, literal)
    }

    /// Parses elements separated by commas, up to the closing symbol; a trailing comma is allowed.
    fn elements<T>(
        &mut self,
        end: &str,
        element: fn(&mut Self) -> Result<T, Rejection>,
    ) -> Result<Vec<T>, Rejection> {
        let mut elements = Vec::new();
        while !self.take(end) {
            elements.push(element(self)?);
            if !self.take(",") {
                if self.take(end) {
                    break;
                }
                return self.expected(&format!("`,` or `{end}`"));
            }
        }
        Ok(elements)
    }

    fn map(&mut self, at: usize) -> Parsed {
        let entries = self.elements("}", |it| {
            let key = it.expression()?;
            if !matches!(key.kind(), None | Some("string" | "number" | "bool")) {
                return it.reject(key.at, "expected a string, number or bool as key");
            }
            it.need(":")?;
            Ok([key, it.expression()?])
        })?;
        let entries: Vec<Node> = entries.into_iter().flatten().collect();
        self.node(at, Expression::Map(entries.into()))
    }

    fn variable(&mut self, at: usize, name: &str) -> Parsed {
        // The innermost variable shadows outer ones with its name.
        if let Some(index) = self.variables.iter().rposition(|it| *it == name) {
            return self.node(at, Expression::Local(index));
        }
        match name {
            "event" => self.node(at, Expression::Event),
            "kind" => self.node(at, Expression::Kind),
            "subject" => self.node(at, Expression::Subject),
            _ => {
                let mut known = vec!["event", "kind", "subject"];
                known.extend(&self.variables);
                let known = known.join(", ");
                let reason = format!("unknown variable {}, expected one of: {known}", clip(name));
                self.reject(at, reason)
            }
        }
    }
}
